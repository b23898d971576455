"""What a log holds: messages, boundaries, and the application's own events."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, Self

from turnlog.domain.errors import InvalidBoundaryError, InvalidEventError, shown
from turnlog.domain.ids import check_branch, check_id
from turnlog.domain.messages import Message, Role, ToolCallPart

_TYPE = re.compile(r"[A-Z][A-Z0-9_.]{0,63}")


class EventType(str):
    """The type of an event: `MESSAGE`, `COMPACTION`, or one of the application's own.

    >>> EventType.of("ACME.AUDIT")
    'ACME.AUDIT'
    """

    __slots__ = ()

    MESSAGE: ClassVar[EventType]
    COMPACTION: ClassVar[EventType]
    CALL_ABANDONED: ClassVar[EventType]
    PROMPT_CONTENT: ClassVar[EventType]
    PROMPT_RENDERED: ClassVar[EventType]
    MODEL_REPLIED: ClassVar[EventType]
    COMPACTION_SKIPPED: ClassVar[EventType]
    REDACTION: ClassVar[EventType]

    @classmethod
    def of(cls, name: str) -> Self:
        """A type of this name: upper case, digits, `_` and `.`, a letter first, at most 64 characters."""
        if not isinstance(name, str) or not _TYPE.fullmatch(name):  # pyright: ignore[reportUnnecessaryIsInstance] # callers may be untyped
            raise InvalidEventError(
                f"Event type {shown(name)} is not allowed: upper-case letters, digits, `_` and `.`, "
                "a letter first, at most 64 characters."
            )
        return cls(name)


EventType.MESSAGE = EventType("MESSAGE")
EventType.COMPACTION = EventType("COMPACTION")
EventType.CALL_ABANDONED = EventType("CALL_ABANDONED")
EventType.PROMPT_CONTENT = EventType("PROMPT_CONTENT")
EventType.PROMPT_RENDERED = EventType("PROMPT_RENDERED")
EventType.MODEL_REPLIED = EventType("MODEL_REPLIED")
EventType.COMPACTION_SKIPPED = EventType("COMPACTION_SKIPPED")
EventType.REDACTION = EventType("REDACTION")

RESERVED_TYPES = frozenset(
    (
        "MESSAGE",
        "COMPACTION",
        "CALL_ABANDONED",
        "PROMPT_CONTENT",
        "PROMPT_RENDERED",
        "MODEL_REPLIED",
        "COMPACTION_SKIPPED",
        "REDACTION",
    )
)
"""Types that only turnlog itself writes."""


@dataclass(frozen=True, slots=True)
class CompactionBoundary:
    """What a COMPACTION event names: the messages that make up the view from then on, in view order.

    `covered_count` and `tokens_saved` (estimated), `strategy` and `trigger` are for reports.
    """

    pinned: tuple[str, ...] = ()
    summary: tuple[str, ...] = ()
    preserved: tuple[str, ...] = ()
    branch: str | None = None
    covered_count: int = 0
    tokens_saved: int = 0
    strategy: str | None = None
    trigger: str | None = None

    def __post_init__(self) -> None:
        if self.branch is not None:
            check_branch(self.branch)
        for figure in (self.covered_count, self.tokens_saved):
            if isinstance(figure, bool) or not 0 <= figure < 2**63:
                raise InvalidBoundaryError(
                    f"A boundary counts with whole numbers from 0 on, not with {shown(figure)}."
                )
        named = self.named
        if len(set(named)) < len(named):
            twice = next(name for index, name in enumerate(named) if name in named[:index])
            raise InvalidBoundaryError(f"A boundary names each message once, this one names {twice!r} twice.")

    @property
    def named(self) -> tuple[str, ...]:
        """All named ids in view order: pinned, summary, preserved."""
        return self.pinned + self.summary + self.preserved


@dataclass(frozen=True, slots=True)
class RedactionMark:
    """What is known of a content that was removed: why, by whom and when (UTC), by the event at `version`."""

    reason: str
    by: str
    at: datetime
    version: int


@dataclass(frozen=True)
class SessionEvent:
    """An entry of the log.

    `version` is its place, `timestamp` the time of recording (UTC), `occurred_at` a time that the event
    claims for itself, as imports do. `archived` marks it in a log that is held as a list. `is_repeat` and
    `differs` answer an append: the session held the event already, and with another content. The message of
    an event with a `redacted` mark is a placeholder.
    """

    id: str
    type: EventType
    version: int
    timestamp: datetime
    session_id: str = ""
    branch: str | None = None
    synthetic: bool = False
    message: Message | None = None
    payload: Mapping[str, Any] | None = None
    boundary: CompactionBoundary | None = None
    context: Mapping[str, str] = field(default_factory=dict[str, str])
    occurred_at: datetime | None = None
    archived: bool = field(default=False, compare=False)
    is_repeat: bool = field(default=False, compare=False)
    differs: bool = field(default=False, compare=False)
    redacted: RedactionMark | None = None

    @classmethod
    def read(cls, **fields: Any) -> SessionEvent:
        """An entry as it was stored, with those of its fields that are not as usual; `context` among them.

        It is what the class itself would make, in a third of the time.
        """
        entry = object.__new__(cls)
        object.__setattr__(entry, "__dict__", fields)
        return entry

    def __hash__(self) -> int:
        return hash((self.session_id, self.version, self.id))

    @property
    def role(self) -> Role | None:
        """The role of the message, None when the event is none."""
        return self.message.role if self.message else None

    @property
    def text(self) -> str | None:
        """The text of the message, None when there is none."""
        return self.message.text if self.message else None

    @property
    def tool_calls(self) -> tuple[ToolCallPart, ...]:
        """The calls that the message asks for, in order."""
        return self.message.tool_calls if self.message else ()

    @property
    def is_stored_system(self) -> bool:
        """A system message that no compaction wrote. Of each branch only the latest is sent."""
        return self.role is Role.SYSTEM and not self.synthetic

    @property
    def starts_turn(self) -> bool:
        """Whether a turn starts here: a user message of the root that no compaction wrote."""
        return self.role is Role.USER and self.branch is None and not self.synthetic


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event that is to be appended: a message, or a type of the application's own with a payload.

    Without an `id` the service makes one; with an id a second append of it is a repeat. Its `context` is
    added to the one of the call.
    """

    message: Message | None = None
    type: EventType = EventType.MESSAGE
    payload: Mapping[str, Any] | None = None
    id: str | None = None
    branch: str | None = None
    synthetic: bool = False
    occurred_at: datetime | None = None
    context: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        if self.id is not None:
            check_id("Event id", self.id)
        if self.branch is not None:
            check_branch(self.branch)
        if self.type is not EventType.MESSAGE:
            EventType.of(self.type)
        if self.message is not None and not isinstance(self.message, Message):  # pyright: ignore[reportUnnecessaryIsInstance] # callers may be untyped
            raise InvalidEventError(f"A message is a `Message`, not {shown(self.message)}: Message.user(…).")
        if self.type == EventType.MESSAGE:
            if self.message is None or self.payload is not None:
                raise InvalidEventError("A MESSAGE event needs a message and has no payload.")
            if self.synthetic and (self.message.tool_calls or self.message.tool_responses):
                raise InvalidEventError(
                    "A synthetic message is a summary: it holds no tool calls or results."
                )
        elif self.message is not None or self.synthetic:
            raise InvalidEventError(f"An event of type {self.type} has a payload and no message.")
        elif self.type == EventType.COMPACTION:
            raise InvalidEventError("A boundary is written by `compact`, not appended.")
        elif self.payload is not None and not isinstance(self.payload, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] # callers may be untyped
            raise InvalidEventError(f"A payload is a mapping, as in {{'a': 1}}, not {shown(self.payload)}.")

    @classmethod
    def of(cls, given: NewEvent | Message | SessionEvent) -> NewEvent:
        """What was given, as an event to be appended; a `SessionEvent` keeps its id."""
        if isinstance(given, NewEvent):
            return given
        if isinstance(given, Message):
            return cls(message=given)
        if not isinstance(given, SessionEvent):  # pyright: ignore[reportUnnecessaryIsInstance] # callers may be untyped
            raise InvalidEventError(
                f"A message, a new event or an event of a log can be appended, not {shown(given)}: "
                "make a message of it, as in Message.user(…)."
            )
        return cls(
            message=given.message,
            type=given.type,
            payload=given.payload,
            id=given.id,
            branch=given.branch,
            synthetic=given.synthetic,
            occurred_at=given.occurred_at,
            context=given.context or None,
        )

    @classmethod
    def each_of(cls, given: Iterable[NewEvent | Message | SessionEvent]) -> tuple[NewEvent, ...]:
        """Each of them as an event to be appended."""
        if not isinstance(given, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance] # callers may be untyped
            raise InvalidEventError(f"Events come in a list, as in [Message.user(…)], not as {shown(given)}.")
        return tuple(map(cls.of, given))


@dataclass(frozen=True, slots=True)
class OwnEvent(NewEvent):
    """An event of a reserved type. Only turnlog's own parts make one; else the service refuses the type."""


def superseded_system(events: Sequence[SessionEvent]) -> frozenset[str]:
    """The ids of stored system messages that a later one of the same branch replaces."""
    latest: dict[str | None, str] = {}
    superseded: set[str] = set()
    for event in events:
        if event.is_stored_system:
            if event.branch in latest:
                superseded.add(latest[event.branch])
            latest[event.branch] = event.id
    return frozenset(superseded)
