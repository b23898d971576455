"""The ledger of event ids as rows of SQLite."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from eventsourcing.sqlite import SQLiteCursor

from turnlog.application.ledger import needs_entry
from turnlog.domain.events import SessionDeleted, StreamEvent

CREATE = (
    """
    CREATE TABLE IF NOT EXISTS turnlog_event_ids (
        aggregate_id BLOB NOT NULL,
        event_id TEXT NOT NULL,
        version INTEGER NOT NULL,
        PRIMARY KEY (aggregate_id, event_id)
    ) WITHOUT ROWID
    """,
)
"""Ids only, no content: a table without row ids may hold them."""


def insert(cursor: SQLiteCursor, aggregate_id: UUID, events: Sequence[StreamEvent]) -> None:
    """Write the entries of these events of one stream; a taken id breaks the unique rule of the table."""
    _write(cursor, "INSERT INTO turnlog_event_ids VALUES (?, ?, ?)", aggregate_id, events)


def follow(
    cursor: SQLiteCursor, aggregate_id: UUID, events: Sequence[StreamEvent]
) -> list[tuple[str, int, int]]:
    """Bring entries that are made from the log on by these events of one stream.

    An id that the log has twice, as one can that was written without its ledger, is where it was first.
    Returns each such id with its first version and this one.
    """
    repeated = _write(
        cursor, "INSERT OR IGNORE INTO turnlog_event_ids VALUES (?, ?, ?)", aggregate_id, events
    )
    if isinstance(events[-1], SessionDeleted):
        remove(cursor, aggregate_id)
        return []
    firsts = (
        (event_id, version_of(cursor, aggregate_id, event_id), version) for event_id, version in repeated
    )
    return [(event_id, first, version) for event_id, first, version in firsts if first is not None]


def remove(cursor: SQLiteCursor, aggregate_id: UUID) -> None:
    """Remove all entries of the stream."""
    cursor.execute("DELETE FROM turnlog_event_ids WHERE aggregate_id = ?", (aggregate_id.bytes,))


def version_of(cursor: SQLiteCursor, aggregate_id: UUID, event_id: str) -> int | None:
    """The version of the event with this id, None when the stream holds none."""
    cursor.execute(
        "SELECT version FROM turnlog_event_ids WHERE aggregate_id = ? AND event_id = ?",
        (aggregate_id.bytes, event_id),
    )
    row = cursor.fetchone()
    return None if row is None else row[0]


def _write(
    cursor: SQLiteCursor, insert: str, aggregate_id: UUID, events: Sequence[StreamEvent]
) -> list[tuple[str, int]]:
    """Write the entries; ids and versions of those that the statement left out."""
    left_out: list[tuple[str, int]] = []
    for event in events:
        event_id = needs_entry(event)
        if event_id is not None:
            cursor.execute(insert, (aggregate_id.bytes, event_id, event.originator_version))
            if cursor.sqlite_cursor.rowcount == 0:
                left_out.append((event_id, event.originator_version))
    return left_out
