"""Specifications of the aggregate: `given(said("hi")).when(deleted).then(recorded(SessionDeleted))`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Self, TypeAlias

import pytest

from turnlog.domain.compaction import CompactionReason, CompactionResult
from turnlog.domain.errors import TurnlogError
from turnlog.domain.events import StreamEvent
from turnlog.domain.log import EventType, NewEvent, SessionEvent
from turnlog.domain.messages import Message, ToolCallPart, ToolCallResponsePart
from turnlog.domain.session import Session

BEGIN = datetime(2031, 5, 1, 8, tzinfo=UTC)

Command: TypeAlias = Callable[[Session, datetime], object]
"""Something that is done to a session at a time."""


@dataclass(frozen=True)
class Recorded:
    """An event that must be recorded: its class, and the fields that are named."""

    event_class: type[StreamEvent]
    fields: dict[str, Any]


def recorded(event_class: type[StreamEvent], **fields: Any) -> Recorded:
    """An event of this class with these fields, whatever the others hold; None stands for not stored."""
    return Recorded(event_class, fields)


class Given:
    """A session with a history, and what a command makes of it."""

    def __init__(self, session: Session, now: datetime) -> None:
        self.session = session
        self._now = now
        self._error: TurnlogError | None = None

    def when(self, command: Command) -> Self:
        """Do this a second after the history ended."""
        self.session.pending_events.clear()
        try:
            command(self.session, self._now)
        except TurnlogError as error:
            self._error = error
        return self

    def then(self, *expected: Recorded) -> Self:
        """Exactly these events were recorded, in this order; none of them: the command stayed quiet."""
        assert self._error is None
        events: Sequence[StreamEvent] = self.session.recorded
        assert [type(event) for event in events] == [one.event_class for one in expected]
        for event, one in zip(events, expected, strict=True):
            assert {name: vars(event).get(name) for name in one.fields} == one.fields
        return self

    def then_refused(self, error_class: type[TurnlogError], mentions: str | None = None) -> Self:
        """The command was refused with this error, and nothing was recorded."""
        with pytest.raises(error_class, match=mentions):
            raise self._error or AssertionError("The command was not refused.")
        assert self.session.recorded == ()
        return self


def given(*history: Command, **opening: Any) -> Given:
    """A session that was opened and then went through these commands, one each second."""
    session = Session.open("parcel", now=BEGIN, **opening)
    now = BEGIN
    for command in history:
        now += timedelta(seconds=1)
        command(session, now)
    return Given(session, now + timedelta(seconds=1))


def said(message: Message | str, event_id: str | None = None, **fields: Any) -> Command:
    """A message was appended; a text is a user message."""
    message = Message.user(message) if isinstance(message, str) else message
    new = NewEvent(message=message, id=event_id, **fields)
    return lambda session, now: session.append(new, event_id=event_id or f"e{session.version + 1}", now=now)


def noted(type_: str, payload: dict[str, Any]) -> Command:
    """An event of the application's own was appended."""
    new = NewEvent(type=EventType.of(type_), payload=payload)
    return lambda session, now: session.append(new, event_id=f"e{session.version + 1}", now=now)


def asked(*call_ids: str, awaiting: bool = True) -> Message:
    """An assistant message with calls of these ids."""
    return Message.assistant(
        [ToolCallPart(id=call_id, name="approve", arguments="{}", awaiting=awaiting) for call_id in call_ids]
    )


def answered(*call_ids: str, provisional: bool = False) -> Message:
    """A tool message with results for these ids."""
    return Message.tool(
        [ToolCallResponsePart(id=call_id, response="ok", provisional=provisional) for call_id in call_ids]
    )


def abandoned(version: int, call_id: str) -> Command:
    """The call of this id in the message at this version was given up."""
    return lambda session, now: session.abandon(
        event_id=f"e{session.version + 1}",
        call_event_id=f"e{version}",
        call_version=version,
        call_id=call_id,
        now=now,
    )


def deleted(session: Session, now: datetime) -> object:
    """The session was deleted."""
    return session.delete(now=now)


def compacted(
    *,
    pinned: Sequence[int] = (),
    covered: Sequence[int] = (),
    preserved: Sequence[int] = (),
    summary: Sequence[str] = (),
    **fields: Any,
) -> Command:
    """A pass over the messages at these versions was recorded."""

    def command(session: Session, now: datetime) -> object:
        result = CompactionResult(
            CompactionReason.COMPACTED,
            covered_events=tuple(map(at_version, covered)),
            pinned_events=tuple(map(at_version, pinned)),
            preserved_events=tuple(map(at_version, preserved)),
            tokens_estimated_saved=7,
        )
        new = [
            (f"e{version}", NewEvent(message=Message.assistant(text), synthetic=True))
            for version, text in enumerate(summary, session.version + 2)
        ]
        boundary_id = f"e{session.version + 1}"
        return session.compact(result, boundary_id=boundary_id, summary=new, now=now, **fields)

    return command


def at_version(version: int) -> SessionEvent:
    """The message that `said` appended at this version, as far as a boundary looks at it."""
    return SessionEvent(f"e{version}", EventType.MESSAGE, version, BEGIN)


def metadata_updated(metadata: dict[str, Any], **fields: Any) -> Command:
    """The metadata were replaced."""
    return lambda session, now: session.update_metadata(metadata, now=now, **fields)


def extended(until: datetime | None) -> Command:
    """The session was given another expiry."""
    return lambda session, now: session.extend(until, now=now)
