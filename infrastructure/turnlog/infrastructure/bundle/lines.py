"""A stored event as a line of `events.jsonl`, and back."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from turnlog.domain.events import STREAM_EVENTS, StreamEvent
from turnlog.domain.ids import aggregate_id

_CLASSES = {event_class.TOPIC: event_class for event_class in STREAM_EVENTS}
_BESIDE = ("content", "salt", "commitment", "chain")
_NO_FIELDS = frozenset((*_BESIDE, "originator_id", "originator_version", "timestamp"))
_LATE = ("state", "anchor", "chain")
"""Fields that the aggregate sets when the event is made, behind all others."""


def event_line(event: StreamEvent) -> dict[str, Any]:
    """The event as plain data: `fields` are those that the chain takes by name."""
    values = vars(event)
    line: dict[str, Any] = {
        "version": event.originator_version,
        "topic": type(event).TOPIC,
        "timestamp": event.timestamp.astimezone(UTC).isoformat(),
        "fields": {name: value for name, value in values.items() if name not in _NO_FIELDS},
    }
    return {**line, **{name: values[name] for name in _BESIDE if name in values}}


def event_of(line: Mapping[str, Any], session_id: str, namespace: str) -> StreamEvent:
    """The event that `event_line` was given, of a line that the verifier found right."""
    values = {**line["fields"], **{name: line[name] for name in _BESIDE if name in line}}
    late = {name: values.pop(name) for name in _LATE if name in values}
    event = _CLASSES[line["topic"]](
        originator_id=aggregate_id(session_id, namespace),
        originator_version=line["version"],
        timestamp=datetime.fromisoformat(line["timestamp"]),
        **values,
    )
    vars(event).update(late)
    return event
