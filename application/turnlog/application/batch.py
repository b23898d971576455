"""One batch of an append: what of it is new, and what the session holds already."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from os import urandom

from turnlog.application.writing import SessionKey
from turnlog.domain.errors import InvalidEventError, StorageError, VersionConflictError, shown
from turnlog.domain.events import StreamEvent
from turnlog.domain.ids import own_event_id, own_event_id_version
from turnlog.domain.json_text import copied, to_json_text
from turnlog.domain.log import RESERVED_TYPES, EventType, NewEvent, OwnEvent, SessionEvent
from turnlog.domain.session import Session, message_content

Locate = Callable[[SessionKey, str], int | None]
"""The version of an event id in a session, None when it is not there."""


@dataclass
class Batch:
    """The events of one append, and what became of each."""

    key: SessionKey
    events: Sequence[NewEvent]
    expected_version: int | None
    context: Mapping[str, str]
    repeats: dict[str, int] = field(default_factory=dict[str, int])
    recorded: dict[int, StreamEvent] = field(default_factory=dict[int, StreamEvent])

    def __post_init__(self) -> None:
        for event in self.events:
            is_reserved = event.type in RESERVED_TYPES and event.type != EventType.MESSAGE
            if is_reserved and not isinstance(event, OwnEvent):
                raise InvalidEventError(f"Events of type {event.type} are written by turnlog alone.")

    def record(self, session: Session, now: datetime, locate: Locate, *, look_up: bool) -> None:
        """Record what is new on the session; refuse when the expected version is not its version.

        Repeats are looked up with `look_up`; without it only ids in the form of the service's own are, which
        need no entry in the ledger where they say their version. Looking up behind the load is exact: what
        comes later fails the version check.
        """
        unexpected = self.expected_version not in (None, session.version)
        for event in self.events:
            if event.id is None or event.id in self.repeats:
                continue
            if look_up or unexpected or own_event_id_version(event.id) is not None:
                version = locate(self.key, event.id)
                if version is not None:
                    self.repeats[event.id] = version
        if unexpected and not all(event.id in self.repeats for event in self.events):
            raise VersionConflictError(self.key.session_id, self.expected_version or 0, session.version)
        self.recorded.clear()
        seen: set[str] = set(self.repeats)
        for place, event in enumerate(self.events):
            if event.id in seen:
                continue
            if event.id is not None:
                seen.add(event.id)
            event_id = event.id or own_event_id(session.version + 1, urandom(10).hex())
            self.recorded[place] = session.append(
                event, event_id=event_id, now=now, context=self._context_of(event)
            )

    def stored(self, entry_at: Callable[[int], SessionEvent | None]) -> tuple[SessionEvent, ...]:
        """The stored events in the order of the batch."""
        first: dict[str, int] = {}
        for place in self.recorded:
            event_id = self.events[place].id
            if event_id is not None:
                first[event_id] = place
        return tuple(self._stored(place, first, entry_at) for place in range(len(self.events)))

    def _stored(
        self, place: int, first: Mapping[str, int], entry_at: Callable[[int], SessionEvent | None]
    ) -> SessionEvent:
        new = self.events[place]
        if place in self.recorded:
            return self._entry(new, self.recorded[place])
        assert new.id is not None  # noqa: S101 - only an event with an id can be a repeat
        if new.id in first:
            origin = first[new.id]
            held: SessionEvent | None = self._entry(self.events[origin], self.recorded[origin])
        else:
            held = entry_at(self.repeats[new.id])
        if held is None or held.id != new.id:
            written = "What else is new was written" if self.recorded else "Nothing was written"
            raise StorageError(
                f"The id {shown(new.id)} is known, but the log does not have its event any more, or not at "
                f"its place. {written}: see what `turnlog check` says."
            )
        return replace(held, is_repeat=True, differs=_differs(new, held))

    def _context_of(self, event: NewEvent) -> Mapping[str, str]:
        return {**self.context, **event.context} if event.context else self.context

    def _entry(self, new: NewEvent, event: StreamEvent) -> SessionEvent:
        """The entry as a reader will get it, made without reading it again."""
        return SessionEvent.read(
            id=vars(event)["event_id"],
            type=new.type,
            version=event.originator_version,
            timestamp=event.timestamp,
            session_id=self.key.session_id,
            branch=new.branch,
            synthetic=new.synthetic,
            message=new.message,
            payload=None if new.message else copied(new.payload or {}),
            context=dict(self._context_of(new)),
            occurred_at=new.occurred_at,
        )


def _differs(new: NewEvent, held: SessionEvent) -> bool:
    if (new.type, new.branch, new.synthetic) != (held.type, held.branch, held.synthetic):
        return True
    if held.redacted:  # there is nothing left to compare with
        return False
    if new.message is None or held.message is None:
        return to_json_text(new.payload or {}) != to_json_text(held.payload or {})
    return new.message.role != held.message.role or message_content(new.message) != message_content(
        held.message
    )
