"""What is asked of a whole log: messages by what they say, also those that are no longer in the view."""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from re import Pattern
from typing import Final

from turnlog.domain.criteria import Match, at_least, aware, checked_match, checked_roles, checked_words
from turnlog.domain.errors import TurnlogError
from turnlog.domain.ids import check_branch, is_ancestor
from turnlog.domain.log import SessionEvent
from turnlog.domain.messages import Role

MAX_KEYWORDS: Final = 20
"""Keywords of one query."""

MAX_KEYWORD_LENGTH: Final = 200
"""Characters of one keyword."""

_BEYOND = 2**40
"""More results than there can be, and less than what Python can count to in a slice."""

_ASCII = re.compile(r"[\x00-\x7f]+")
_RUN = 256
"""Characters in a row that are put into their normal form without looking at them first."""


class InvalidArgumentError(TurnlogError):
    """A search was asked with a value that is not allowed."""


@dataclass(frozen=True, kw_only=True)
class EventQuery:
    """Criteria that must all hold for a message whose text is not blank.

    Keywords are plain substrings, compared without regard to case and to how characters are encoded
    (`searchable`); one of them must be found, with `match="all"` each. Without keywords every message
    is found. `since` and `until` are inclusive and compared with `said_at`. `branch` lets through what has no
    branch, the branch itself and its ancestors. Pages count from 0, oldest first; without a `page_size` there
    is one page. Raises `InvalidArgumentError`, `NaiveTimeError`, `InvalidIdError`.
    """

    keywords: tuple[str, ...]
    terms: tuple[str, ...] = field(init=False, repr=False, compare=False)
    """The keywords in the form in which they are compared."""
    match: Match
    since: datetime | None
    until: datetime | None
    roles: frozenset[Role] | None
    branch: str | None
    include_synthetic: bool
    page: int
    page_size: int | None

    def __init__(
        self,
        *,
        keywords: str | Iterable[str] = (),
        match: Match = "any",
        since: datetime | None = None,
        until: datetime | None = None,
        roles: Iterable[Role | str] | None = None,
        branch: str | None = None,
        include_synthetic: bool = True,
        page: int = 0,
        page_size: int | None = None,
    ) -> None:
        words = _keywords(keywords)
        values: dict[str, object] = {
            "keywords": words,
            "terms": tuple(dict.fromkeys(searchable(word) for word in words)),
            "match": checked_match(match, InvalidArgumentError),
            "since": aware("since", since, InvalidArgumentError),
            "until": aware("until", until, InvalidArgumentError),
            "roles": checked_roles(roles, InvalidArgumentError),
            "branch": check_branch(branch) if branch is not None else None,
            "include_synthetic": include_synthetic,
            "page": at_least("page", page, 0, InvalidArgumentError),
            "page_size": page_size,
        }
        if page and page_size is None:
            raise InvalidArgumentError("`page` needs a `page_size`.")
        if page_size is not None:
            at_least("page_size", page_size, 1, InvalidArgumentError)
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def limits(self) -> tuple[int, int | None]:
        """The first result of the page and the one behind its last, None for no end."""
        if self.page_size is None:
            return 0, None
        first = min(self.page * self.page_size, _BEYOND)
        return first, first + min(self.page_size, _BEYOND)

    def matches(self, event: SessionEvent) -> bool:
        """Whether the event is a message that is asked for, pages aside."""
        if self.roles is not None and event.role not in self.roles:
            return False
        if event.synthetic and not self.include_synthetic:
            return False
        if self.branch is not None and not is_ancestor(event.branch, self.branch):
            return False
        if self.since is not None and said_at(event) < self.since:
            return False
        if self.until is not None and said_at(event) > self.until:
            return False
        return self.matches_text(event.text)

    def matches_text(self, text: str | None) -> bool:
        """Whether a message of this text is asked for, the other criteria aside."""
        if text is None or not text.strip():
            return False
        if not self.terms:
            return True
        compared = searchable(text)
        found = (term in compared for term in self.terms)
        return all(found) if self.match == "all" else any(found)


def searchable(text: str) -> str:
    """The text in the form in which keywords and messages are compared.

    Compatibility forms, composed and decomposed accents, upper and lower case are one, and so are the four
    letters i of Turkish.

    >>> searchable("STRASSE") == searchable("straße")
    True
    """
    if text.isascii():
        return text.lower()
    if len(text) > _RUN and max(map(len, _ASCII.split(text))) > _RUN:
        text = _without_endless_marks(text)
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return folded.replace("i\u0307", "i").replace("ı", "i")


def _without_endless_marks(text: str) -> str:
    """The text with a joiner behind every 30th mark of a run, as Unicode's stream-safe form has it.

    Marks are put into order in quadratic time, so a text of nothing else would take for ever.
    """
    if not any(map(unicodedata.combining, text)):
        return text
    return _endless_marks().sub("\\1\u034f", text)


@cache
def _endless_marks() -> Pattern[str]:
    marks = "".join(c for c in map(chr, range(sys.maxunicode + 1)) if unicodedata.combining(c))
    return re.compile(f"([{marks}]{{30}})(?=[{marks}])")


def said_at(event: SessionEvent) -> datetime:
    """When it was said: the time that the event claims for itself, as imports do, else when it was stored."""
    return event.occurred_at or event.timestamp


def _keywords(words: str | Iterable[str]) -> tuple[str, ...]:
    named = tuple(words) if isinstance(words, Iterator) else words
    given = checked_words(named, InvalidArgumentError)
    if named and not given:
        raise InvalidArgumentError("No keyword holds more than blanks: name a word, or give no keywords.")
    if len(given) > MAX_KEYWORDS:
        raise InvalidArgumentError(f"{len(given)} keywords are too many: at most {MAX_KEYWORDS} are taken.")
    longest = max(map(len, given), default=0)
    if longest > MAX_KEYWORD_LENGTH:
        raise InvalidArgumentError(
            f"A keyword of {longest} characters is too long: at most {MAX_KEYWORD_LENGTH} are taken."
        )
    return given
