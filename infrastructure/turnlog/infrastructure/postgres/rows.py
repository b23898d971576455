"""What new events change in the rows about sessions, in the form that the functions of the tables take."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, cast
from uuid import UUID

from eventsourcing.persistence import StoredEvent

from turnlog.application.ledger import needs_entry
from turnlog.domain.events import (
    ContentRedacted,
    ExpiryMoved,
    MessageAppended,
    MetadataUpdated,
    SessionDeleted,
    SessionOpened,
    StreamEvent,
    as_uuid,
)
from turnlog.domain.json_text import from_json_text, sorted_json_text
from turnlog.infrastructure.postgres.calls import Argument

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def joined(stored_events: Sequence[StoredEvent]) -> tuple[str, bytes]:
    """These events in two values: what they are, as JSON, with the places of their states in all states."""
    first = 1
    events: list[dict[str, Any]] = []
    for event in stored_events:
        size = len(event.state)
        about = {"id": str(event.originator_id), "version": event.originator_version, "topic": event.topic}
        events.append({**about, "first": first, "size": size})
        first += size
    return json.dumps(events), b"".join(event.state for event in stored_events)


@dataclass(frozen=True)
class Changes:
    """What events change in the rows of their sessions, and their entries in the ledger."""

    sessions: Sequence[dict[str, Any]] = ()
    entries: Sequence[dict[str, Any]] = ()

    def __bool__(self) -> bool:
        return len(self.sessions) > 0

    def as_json(self) -> tuple[str | None, str | None]:
        """The parameters of `write_rows`."""
        if not self.sessions:
            return None, None
        return json.dumps(self.sessions), json.dumps(self.entries) if self.entries else None


_CHANGES_MORE = (SessionOpened, ExpiryMoved, MetadataUpdated, SessionDeleted, ContentRedacted)
"""Events that do more to their session than to move it on."""


def moving_on(
    stored_events: Sequence[StoredEvent], events: Sequence[StreamEvent]
) -> tuple[Argument, ...] | None:
    """The arguments of `append_one`, if this is one event that only moves its session on."""
    if len(stored_events) != 1 or len(events) != 1 or isinstance(events[0], _CHANGES_MORE):
        return None
    stored, event = stored_events[0], events[0]
    at = micros(event.timestamp)
    is_message = isinstance(event, MessageAppended)
    return (
        str(stored.originator_id),
        stored.originator_version,
        stored.topic,
        stored.state,
        event.chain,
        at,
        int(is_message),
        at if is_message and event.moves_idle_expiry else None,
        needs_entry(event),
    )


def changes_of(events: Iterable[StreamEvent], *, are_new: bool = True) -> Changes:
    """What follows from these events for the rows.

    With events that are new a row that tells of their versions already is refused: the log had lost those. A
    tombstone is not, which ends such a session too.
    """
    streams: dict[UUID, list[StreamEvent]] = {}
    for event in events:
        streams.setdefault(as_uuid(event.originator_id), []).append(event)
    changes = [_change(aggregate_id, stream, are_new) for aggregate_id, stream in streams.items()]
    entries = [
        {"aggregate_id": str(aggregate_id), "event_id": event_id, "version": event.originator_version}
        for aggregate_id, stream in streams.items()
        for event in stream
        if (event_id := needs_entry(event)) is not None
    ]
    return Changes(changes, entries)


def _change(aggregate_id: UUID, events: Sequence[StreamEvent], are_new: bool) -> dict[str, Any]:
    newest = events[-1]
    change: dict[str, Any] = {
        "aggregate_id": str(aggregate_id),
        "first": events[0].originator_version if are_new else None,
        "version": newest.originator_version,
        "head": newest.chain,
        "at": micros(newest.timestamp),
        "messages": 0,
    }
    for event in events:
        if isinstance(event, MessageAppended):
            change["messages"] += 1
            if event.moves_idle_expiry:
                change["active_at"] = micros(event.timestamp)
        elif isinstance(event, SessionOpened):
            change["opened_at"], change["session_id"] = micros(event.timestamp), event.session_id
            change["namespace"], change["salt"] = event.namespace or "", salt_of(event.namespace or "")
            change["idle"], change["expires_at"] = event.idle, _micros_of_text(event.expires_at)
            _describe(change, event.content)
        elif isinstance(event, ExpiryMoved):
            change["active_at"] = None
            change["moves_expiry"], change["expires_at"] = True, _micros_of_text(event.expires_at)
        elif isinstance(event, MetadataUpdated):
            _describe(change, event.content)
        elif isinstance(event, SessionDeleted):
            change["deleted"], change["first"] = True, None
    return change


def _describe(change: dict[str, Any], content: str | None) -> None:
    change["describes"], change["metadata"] = True, content
    change["hashes"] = [entry_hash(name, value) for name, value in metadata_of(content).items()]


def metadata_of(content: str | None) -> dict[str, Any]:
    """The metadata in their stored form."""
    return cast("dict[str, Any]", from_json_text(content)) if content else {}


def entry_hash(name: str, value: object) -> int:
    """A signed 64-bit hash of one entry of the metadata."""
    return _hash(sorted_json_text([name, value]))


def salt_of(namespace: str) -> int:
    """What the hashes of this namespace's entries are joined with (exclusive or), so that it is theirs."""
    return _hash(namespace)


def _hash(text: str) -> int:
    return int.from_bytes(sha256(text.encode()).digest()[:8], signed=True)


def micros(time: datetime) -> int:
    """The time in microseconds since 1970."""
    return (time - _EPOCH) // _MICROSECOND


def time_of(micros: int) -> datetime:
    """The time of so many microseconds since 1970."""
    return _EPOCH + timedelta(microseconds=micros)


def _micros_of_text(time: str | None) -> int | None:
    return None if time is None else micros(datetime.fromisoformat(time))
