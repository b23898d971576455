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
        message = freeze(Message.model_validate({"role": event.role, **content}))
        return _entry(
            event,
            session_id,
            EventType.MESSAGE,
            branch=event.branch,
            synthetic=bool(event.synthetic),
            message=message,
        )
    if isinstance(event, EventAppended):
        payload = frozen(from_json_text(event.content or "{}"))
        return _entry(event, session_id, EventType(event.type), branch=event.branch, payload=payload)
    if isinstance(event, Compacted):
        boundary = CompactionBoundary(
            pinned=tuple(event.pinned or ()),
            summary=tuple(event.summary or ()),
            preserved=tuple(event.preserved or ()),
            branch=event.branch,
            covered_count=event.covered_count,
            tokens_saved=event.tokens_saved,
            strategy=event.strategy,
            trigger=event.trigger,
        )
        return _entry(event, session_id, EventType.COMPACTION, branch=event.branch, boundary=boundary)
    if isinstance(event, CallAbandoned):
        payload = {"event_id": event.call_event_id, "call_id": event.call_id}
        return _entry(event, session_id, EventType.CALL_ABANDONED, payload=payload)
    return None


def _entry(
    event: MessageAppended | EventAppended | Compacted | CallAbandoned,
    session_id: str,
    type_: EventType,
    **fields: Any,
) -> SessionEvent:
    return SessionEvent(
        id=event.event_id,
        type=type_,
        version=event.originator_version,
        timestamp=event.timestamp,
        session_id=session_id,
        context=context_of(event),
        occurred_at=_time(event.occurred_at),
        **fields,
    )


def context_of(event: StreamEvent) -> dict[str, str]:
    """What is known of the circumstances of an event: who caused it, and by what."""
    return cast("dict[str, str]", from_json_text(event.context)) if event.context else {}


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
