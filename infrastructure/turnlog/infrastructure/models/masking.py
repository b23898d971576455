"""Keys, and texts of servers made fit to be shown: short, on one line, without any key."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NoReturn, TypeVar

from turnlog.domain.errors import InvalidSettingError, TurnlogError

HIDDEN = "***"
EXCERPT = 200
"""Characters of a server's text that an error shows."""
_CUT = " …"

_KEY_LIKE = re.compile(r"\b(?:sk|gsk|xai|pk|rk|key)-[\w*.\-]{6,}|(?i:\bbearer\s+)[\w*.\-~+/=]{6,}")
_SHORTEST = 6
"""Shorter texts are no secrets, and hiding them would make messages unreadable."""

E = TypeVar("E", bound=TurnlogError)


class Secrets:
    """A key and further headers. They are never shown, compared or pickled."""

    def __init__(self, key: str | None, headers: Mapping[str, str] | None = None) -> None:
        self._key = _header_text(key.strip(), "The key") if key else None
        self._headers = {
            name: _header_text(value, f"Header {name}") for name, value in (headers or {}).items()
        }

    @property
    def key(self) -> str | None:
        """The key, None when there is none."""
        return self._key or None

    @property
    def headers(self) -> Mapping[str, str]:
        """The further headers."""
        return self._headers

    def masked(self, text: str) -> str:
        """The text without these values, and without what looks like a key."""
        for secret in self._values():
            text = text.replace(secret, HIDDEN)
        return _KEY_LIKE.sub(HIDDEN, text)

    def cleaned(self, error: E) -> E:
        """The error with nothing of these values in its message and fields."""
        error.args = tuple(self._clean(one) for one in error.args)
        for name, value in vars(error).items():
            setattr(error, name, self._clean(value))
        return error

    def _clean(self, value: object) -> object:
        if isinstance(value, str):
            for secret in self._values():
                value = _without_begun(value.replace(secret, HIDDEN), secret)
        return value

    def _values(self) -> Iterable[str]:
        words = (word for value in self._headers.values() for word in value.split())
        found = {one for one in (self._key or "", *words) if len(one) >= _SHORTEST}
        return sorted(found, key=len, reverse=True)

    def __repr__(self) -> str:
        return f"Secrets({HIDDEN})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("A chat model holds a key and is not pickled: build it anew where it is needed.")


def excerpt(text: str) -> str:
    """The beginning of the text, on one line."""
    line = " ".join(text[: 4 * EXCERPT].split())
    is_whole = len(line) <= EXCERPT and len(text) <= 4 * EXCERPT
    return line if is_whole else line[:EXCERPT] + _CUT


def _without_begun(text: str, secret: str) -> str:
    """The text without the beginning of a secret that an excerpt cut."""
    for length in range(len(secret) - 1, _SHORTEST - 1, -1) if _CUT in text else ():
        text = text.replace(secret[:length] + _CUT, HIDDEN + _CUT)
    return text


def _header_text(value: str, what: str) -> str:
    if not value.isascii() or not value.isprintable():
        raise InvalidSettingError(
            f"{what} holds a character that no HTTP header can hold, such as a line break. Check how it "
            "was copied."
        )
    return value
