"""Stored events as entries of the log."""

from __future__ import annotations

from datetime import datetime
from typing import Any, cast

from turnlog.domain.events import CallAbandoned, Compacted, EventAppended, MessageAppended, StreamEvent
from turnlog.domain.frozen import freeze, frozen
from turnlog.domain.json_text import from_json_text
from turnlog.domain.log import CompactionBoundary, EventType, SessionEvent
from turnlog.domain.messages import Message


def entry_of(event: StreamEvent, session_id: str) -> SessionEvent | None:
    """The entry that a reader sees, None for events about the session itself."""
    if isinstance(event, MessageAppended):
        content = cast("dict[str, Any]", from_json_text(event.content or "{}"))
        return SessionEvent(
            id=event.event_id,
            type=EventType.MESSAGE,
            version=event.originator_version,
            timestamp=event.timestamp,
            session_id=session_id,
            branch=event.branch,
            synthetic=bool(event.synthetic),
            message=freeze(Message.model_validate({"role": event.role, **content})),
            context=_context(event),
            occurred_at=_time(event.occurred_at),
        )
    if isinstance(event, EventAppended):
        return SessionEvent(
            id=event.event_id,
            type=EventType(event.type),
            version=event.originator_version,
            timestamp=event.timestamp,
            session_id=session_id,
            branch=event.branch,
            payload=frozen(from_json_text(event.content or "{}")),
            context=_context(event),
            occurred_at=_time(event.occurred_at),
        )
    if isinstance(event, Compacted):
        return SessionEvent(
            id=event.event_id,
            type=EventType.COMPACTION,
            version=event.originator_version,
            timestamp=event.timestamp,
            session_id=session_id,
            branch=event.branch,
            boundary=CompactionBoundary(
                pinned=tuple(event.pinned or ()),
                summary=tuple(event.summary or ()),
                preserved=tuple(event.preserved or ()),
                branch=event.branch,
                covered_count=event.covered_count,
                tokens_saved=event.tokens_saved,
                strategy=event.strategy,
                trigger=event.trigger,
            ),
            context=_context(event),
            occurred_at=_time(event.occurred_at),
        )
    if isinstance(event, CallAbandoned):
        return SessionEvent(
            id=event.event_id,
            type=EventType.CALL_ABANDONED,
            version=event.originator_version,
            timestamp=event.timestamp,
            session_id=session_id,
            payload={"event_id": event.call_event_id, "call_id": event.call_id},
            context=_context(event),
            occurred_at=_time(event.occurred_at),
        )
    return None


def _context(event: StreamEvent) -> dict[str, str]:
    return cast("dict[str, str]", from_json_text(event.context)) if event.context else {}


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
