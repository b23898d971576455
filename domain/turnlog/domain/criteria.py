"""Checks that filters and queries share; each raises the error that it is given."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Literal, TypeAlias

from turnlog.domain.errors import NaiveTimeError, TurnlogError, shown
from turnlog.domain.messages import Role

Match: TypeAlias = Literal["any", "all"]


def checked_roles(roles: Iterable[Role | str] | None, error: type[TurnlogError]) -> frozenset[Role] | None:
    """The roles, None for none of them; one name alone is one role."""
    given = (roles,) if isinstance(roles, str) else roles or ()
    if not isinstance(given, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance] # callers may be untyped
        raise error(f"`roles` are names of roles, not {shown(given)}: {', '.join(Role)}.")
    try:
        return frozenset(map(Role, given)) or None
    except ValueError as unknown:
        raise error(f"{unknown}. Roles are {', '.join(Role)}.") from None


def checked_match(match: str, error: type[TurnlogError]) -> str:
    """How terms go together."""
    if match not in ("any", "all"):
        raise error(f"`match` is 'any' or 'all', not {shown(match)}.")
    return match


def checked_words(words: str | Iterable[str], error: type[TurnlogError]) -> tuple[str, ...]:
    """The keywords that hold more than blanks; one text alone is one keyword, not its letters."""
    if isinstance(words, bytes) or not isinstance(words, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance] # callers may be untyped
        raise error(f"Keywords are texts, not {shown(words)}.")
    given = (words,) if isinstance(words, str) else tuple(words)
    for word in given:
        if not isinstance(word, str):  # pyright: ignore[reportUnnecessaryIsInstance] # callers may be untyped
            raise error(f"A keyword is text, not {shown(word)}.")
    return tuple(word for word in given if word.strip())


def at_least(name: str, value: int, least: int, error: type[TurnlogError]) -> int:
    """A whole number that is not too small."""
    if isinstance(value, bool) or not isinstance(value, int):  # pyright: ignore[reportUnnecessaryIsInstance] # callers may be untyped
        raise error(f"`{name}` is a whole number, not {shown(value)}.")
    if value < least:
        raise error(f"`{name}` must be at least {least}, it is {shown(value)}.")
    return value


def aware(name: str, value: datetime | None, error: type[TurnlogError]) -> datetime | None:
    """A time that says which instant is meant; `NaiveTimeError` for one that does not."""
    if value is not None and not isinstance(value, datetime):  # pyright: ignore[reportUnnecessaryIsInstance] # callers may be untyped
        raise error(f"`{name}` is a datetime with an offset, not {shown(value)}.")
    if value is not None and value.tzinfo is None:
        raise NaiveTimeError(name, value)
    return value
