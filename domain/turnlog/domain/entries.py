"""Stored events as entries of the log."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, cast

from pydantic import TypeAdapter

from turnlog.domain.events import (
    CallAbandoned,
    Compacted,
    ContentEvent,
    ContentRedacted,
    EventAppended,
    MessageAppended,
    StreamEvent,
)
from turnlog.domain.frozen import FrozenDict, freeze, frozen
from turnlog.domain.json_text import from_json_text
from turnlog.domain.log import CompactionBoundary, EventType, RedactionMark, SessionEvent
from turnlog.domain.messages import Message
from turnlog.domain.redaction import placeholder

_message: Callable[[object], Message] = TypeAdapter(Message).validator.validate_python
"""`Message.model_validate`, without its look at arguments that are not given."""

_NO_CONTEXT: dict[str, str] = FrozenDict()


def entry_of(event: StreamEvent, session_id: str) -> SessionEvent | None:
    """The entry that a reader sees, None for events about the session itself."""
    if isinstance(event, MessageAppended):
        return message_entry(vars(event), event.originator_version, session_id)
    if isinstance(event, EventAppended):
        payload = cast("dict[str, Any]", from_json_text(event.content or "{}"))
        if event.is_redacted:
            payload = payload.get("form", {})
        return _entry(
            event,
            session_id,
            EventType(event.type),
            branch=event.branch,
            payload=frozen(payload),
            redacted=mark_of(event),
        )
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
        return _entry(event, session_id, EventType.CALL_ABANDONED, payload=frozen(payload))
    if isinstance(event, ContentRedacted):
        about = {
            "event_id": event.redacted_id,
            "version": event.redacted_version,
            "commitment": event.commitment_kept,
            "reason": event.reason,
            "by": event.by,
            "through": event.through,
        }
        known = {name: value for name, value in about.items() if value is not None}
        return _entry(event, session_id, EventType.REDACTION, payload=frozen(known))
    return None


def message_entry(stored: Mapping[str, Any], version: int, session_id: str) -> SessionEvent:
    """The entry of a `MessageAppended` that has these fields."""
    known = stored.get
    text, mark = known("content"), None
    content = cast("dict[str, Any]", from_json_text(text or "{}"))
    if known("commitment") is not None:
        mark = None if text is None else _mark(text)
        content = placeholder(stored["role"], content.get("form", ()), mark.reason if mark else None)
    return SessionEvent.read(
        id=stored["event_id"],
        type=EventType.MESSAGE,
        version=version,
        timestamp=stored["timestamp"],
        session_id=session_id,
        branch=known("branch"),
        synthetic=bool(known("synthetic")),
        message=freeze(_message({"role": stored["role"], **content})),
        context=_context(known("context")),
        occurred_at=_time(known("occurred_at")),
        redacted=mark,
    )


def mark_of(event: ContentEvent) -> RedactionMark | None:
    """What the marker says that stands in the place of a removed content, None for any other content."""
    return _mark(event.content) if event.is_redacted and event.content is not None else None


def _mark(content: str) -> RedactionMark:
    told = cast("dict[str, Any]", from_json_text(content))["redacted"]
    return RedactionMark(told["reason"], told["by"], datetime.fromisoformat(told["at"]), told["version"])


def _entry(
    event: EventAppended | Compacted | CallAbandoned | ContentRedacted,
    session_id: str,
    type_: EventType,
    **fields: Any,
) -> SessionEvent:
    return SessionEvent.read(
        id=event.event_id,
        type=type_,
        version=event.originator_version,
        timestamp=event.timestamp,
        session_id=session_id,
        context=context_of(event),
        occurred_at=_time(vars(event).get("occurred_at")),
        **fields,
    )


def context_of(event: StreamEvent) -> dict[str, str]:
    """What is known of the circumstances of an event: who caused it, and by what. It is read-only."""
    return _context(event.context)


def _context(text: str | None) -> dict[str, str]:
    return FrozenDict(cast("dict[str, str]", from_json_text(text))) if text else _NO_CONTEXT


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
