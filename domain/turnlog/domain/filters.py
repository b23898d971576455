"""Which events a reader gets, and which messages are stored at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from re import Pattern

from turnlog.domain.criteria import Match, at_least, aware, checked_match, checked_roles, checked_words
from turnlog.domain.errors import InvalidFilterError
from turnlog.domain.ids import check_branch, is_ancestor
from turnlog.domain.log import SessionEvent
from turnlog.domain.messages import BlobPart, FilePart, Message, Role, UriPart


@dataclass(frozen=True, kw_only=True)
class EventFilter:
    """Criteria that must all hold; results are in log order, whatever their times say.

    `since` and `until` are inclusive. Keywords are plain substrings, compared in lower case; `pattern` is a
    compiled regular expression that may match anywhere in the text. `branch` lets through what has no branch,
    the branch itself and its ancestors. `last_n` and pages (from 0, oldest first) are cut from what the other
    criteria leave. Blank keywords and empty collections count as not set.
    """

    since: datetime | None = None
    until: datetime | None = None
    roles: frozenset[Role] | None = None
    exclude_synthetic: bool = False
    exclude_archived: bool = False
    keyword: str | None = None
    keywords: tuple[str, ...] | None = None
    match: Match | None = None
    pattern: Pattern[str] | None = None
    branch: str | None = None
    last_n: int | None = None
    page: int | None = None
    page_size: int | None = None

    def __init__(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        roles: Iterable[Role | str] | None = None,
        exclude_synthetic: bool = False,
        exclude_archived: bool = False,
        keyword: str | None = None,
        keywords: str | Iterable[str] | None = None,
        match: Match | None = None,
        pattern: Pattern[str] | None = None,
        branch: str | None = None,
        last_n: int | None = None,
        page: int | None = None,
        page_size: int | None = None,
    ) -> None:
        word = checked_words((keyword,), InvalidFilterError) if keyword is not None else ()
        terms = tuple(
            term.lower() for term in checked_words(() if keywords is None else keywords, InvalidFilterError)
        )
        values: dict[str, object] = {
            "since": aware("since", since, InvalidFilterError),
            "until": aware("until", until, InvalidFilterError),
            "roles": checked_roles(roles, InvalidFilterError),
            "exclude_synthetic": exclude_synthetic,
            "exclude_archived": exclude_archived,
            "keyword": word[0].lower() if word else None,
            "keywords": terms or None,
            "match": checked_match(match or "any", InvalidFilterError) if terms else None,
            "pattern": pattern,
            "branch": check_branch(branch) if branch is not None else None,
            "last_n": _bounded("last_n", last_n, 1),
            "page": _bounded("page", page, 0) if page is not None else (0 if page_size else None),
            "page_size": _bounded("page_size", page_size, 1),
        }
        if pattern is not None and not isinstance(pattern, Pattern):  # pyright: ignore[reportUnnecessaryIsInstance] # callers may be untyped
            raise InvalidFilterError("`pattern` takes a compiled expression only: re.compile(…).")
        if page is not None and page_size is None:
            raise InvalidFilterError("`page` needs a `page_size`.")
        if last_n is not None and (page is not None or page_size is not None):
            raise InvalidFilterError("`last_n` excludes `page` and `page_size`: use one of the two.")
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def selects_messages(self) -> bool:
        """Whether a criterion is about messages, so that boundaries and custom events do not pass."""
        return bool(
            self.roles
            or self.exclude_synthetic
            or self.exclude_archived
            or self.keyword
            or self.keywords
            or self.pattern
            or self.branch is not None
        )

    def matches(self, event: SessionEvent) -> bool:
        """Whether the event meets the criteria, `last_n` and pages aside."""
        if self.since is not None and event.timestamp < self.since:
            return False
        if self.until is not None and event.timestamp > self.until:
            return False
        if self.selects_messages and event.message is None:
            return False
        if self.roles is not None and event.role not in self.roles:
            return False
        if (self.exclude_synthetic and event.synthetic) or (self.exclude_archived and event.archived):
            return False
        if self.branch is not None and not is_ancestor(event.branch, self.branch):
            return False
        return self._matches_text(event.text)

    def apply(self, events: Iterable[SessionEvent]) -> tuple[SessionEvent, ...]:
        """The events that pass, in the order given."""
        found = tuple(event for event in events if self.matches(event))
        if self.last_n is not None:
            return found[-self.last_n :]
        if self.page is not None and self.page_size is not None:
            return found[self.page * self.page_size : (self.page + 1) * self.page_size]
        return found

    def merge(self, other: EventFilter) -> EventFilter:
        """This filter with what `other` sets replaced; keywords go with their match, and `last_n` and pages
        are one unit. A flag is on when either filter sets it."""
        changed = {f.name: value for f in fields(other) if (value := getattr(other, f.name)) is not None}
        if other.last_n is not None:
            changed |= {"page": None, "page_size": None}
        elif other.page_size is not None:
            changed |= {"last_n": None}
        changed["exclude_synthetic"] = self.exclude_synthetic or other.exclude_synthetic
        changed["exclude_archived"] = self.exclude_archived or other.exclude_archived
        return replace(self, **changed)

    def _matches_text(self, text: str | None) -> bool:
        if not (self.keyword or self.keywords or self.pattern):
            return True
        if text is None:
            return False
        lower = text.lower()
        if self.keyword and self.keyword not in lower:
            return False
        if self.keywords:
            hits = (term in lower for term in self.keywords)
            if not (all(hits) if self.match == "all" else any(hits)):
                return False
        return not self.pattern or self.pattern.search(text) is not None


@dataclass(frozen=True)
class MessageFilter:
    """Which messages are stored. Filters combine with `&`, `|` and `~`."""

    _keeps: Callable[[Message], bool]

    def keeps(self, message: Message) -> bool:
        """Whether the message is stored."""
        return self._keeps(message)

    @classmethod
    def everything(cls) -> MessageFilter:
        """Stores every message."""
        return cls(lambda _: True)

    @classmethod
    def skip_empty(cls) -> MessageFilter:
        """Leaves out assistant messages with a blank text, no call and no media, and no other message."""
        return cls(_is_not_empty)

    @classmethod
    def roles(cls, *roles: Role | str) -> MessageFilter:
        """Stores messages of these roles."""
        wanted = checked_roles(roles, InvalidFilterError)
        if not wanted:
            raise InvalidFilterError("A filter by role needs at least one role.")
        return cls(lambda message: message.role in wanted)

    @classmethod
    def contains(cls, text: str) -> MessageFilter:
        """Stores messages whose text holds this one, compared in lower case."""
        if not isinstance(text, str) or not text.strip():  # pyright: ignore[reportUnnecessaryIsInstance] # callers may be untyped
            raise InvalidFilterError("A filter by text needs a text that is not blank.")
        wanted = text.lower()
        return cls(lambda message: wanted in (message.text or "").lower())

    @classmethod
    def all_of(cls, filters: Sequence[MessageFilter]) -> MessageFilter:
        """Stores what every one of the filters stores."""
        checked = _given(filters)
        return cls(lambda message: all(one.keeps(message) for one in checked))

    @classmethod
    def any_of(cls, filters: Sequence[MessageFilter]) -> MessageFilter:
        """Stores what one of the filters stores."""
        checked = _given(filters)
        return cls(lambda message: any(one.keeps(message) for one in checked))

    def __and__(self, other: MessageFilter) -> MessageFilter:
        return MessageFilter.all_of((self, other))

    def __or__(self, other: MessageFilter) -> MessageFilter:
        return MessageFilter.any_of((self, other))

    def __invert__(self) -> MessageFilter:
        return MessageFilter(lambda message: not self.keeps(message))


def _is_not_empty(message: Message) -> bool:
    if message.role is not Role.ASSISTANT or (message.text or "").strip() or message.tool_calls:
        return True
    return any(isinstance(part, (BlobPart, FilePart, UriPart)) for part in message.parts)


def _given(filters: Sequence[MessageFilter]) -> tuple[MessageFilter, ...]:
    is_given = isinstance(filters, Iterable)  # pyright: ignore[reportUnnecessaryIsInstance] # callers may be untyped
    checked = tuple(filters) if is_given else ()
    if not is_given or not all(isinstance(one, MessageFilter) for one in checked):  # pyright: ignore[reportUnnecessaryIsInstance] # the same
        raise InvalidFilterError("Only filters can be combined, none of them None.")
    return checked


def _bounded(name: str, value: int | None, least: int) -> int | None:
    return None if value is None else at_least(name, value, least, InvalidFilterError)
