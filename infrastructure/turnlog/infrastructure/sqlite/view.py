"""The materialised view as rows of SQLite."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from eventsourcing.persistence import IntegrityError, Tracking
from eventsourcing.sqlite import SQLiteCursor, SQLiteDatastore, SQLiteTrackingRecorder

from turnlog.application.projections.batches import Positioned, by_stream
from turnlog.application.projections.stored_view import HANDLED, VIEW_RULE, StoredView, ToldRow, evolved
from turnlog.application.projections.view_store import TRACKED_AS, VIEW_MODEL, ViewStore
from turnlog.application.storage import storage_errors, unlocked
from turnlog.domain.events import EventErased, MessageAppended, SessionDeleted, SessionOpened, StreamEvent
from turnlog.infrastructure.sqlite import rules
from turnlog.infrastructure.sqlite.secure import secure, writing

CREATE: Final = (
    """
    CREATE TABLE IF NOT EXISTS turnlog_views (
        aggregate_id BLOB PRIMARY KEY,
        version INTEGER NOT NULL,
        messages INTEGER NOT NULL,
        named TEXT
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE IF NOT EXISTS turnlog_view_messages (
        aggregate_id BLOB NOT NULL,
        place INTEGER NOT NULL,
        version INTEGER NOT NULL,
        event_id TEXT NOT NULL,
        role TEXT NOT NULL,
        branch TEXT,
        synthetic INTEGER NOT NULL,
        PRIMARY KEY (aggregate_id, place)
    ) WITHOUT ROWID
    """,
)
"""Ids and places only, no content."""

_INSERT: Final = "INSERT INTO turnlog_view_messages VALUES (?, ?, ?, ?, ?, ?, ?)"


class SqliteViewStore(ViewStore, SQLiteTrackingRecorder):
    """The materialised view in an SQLite file, that of the log or another one."""

    def __init__(self, datastore: SQLiteDatastore, **kwargs: Any) -> None:
        secure(datastore)
        super().__init__(datastore, **kwargs)

    def construct_create_table_statements(self) -> list[str]:
        """The framework's table of tracking, and those of the view."""
        return [*super().construct_create_table_statements(), *CREATE, rules.CREATE]

    def create_table(self) -> None:
        """Create what is missing; another process may do so at the same time."""
        with storage_errors(), self.datastore.transaction(commit=False) as cursor:
            if rules.has_tables(cursor, "tracking", "turnlog_views", "turnlog_read_models"):
                return
        unlocked(self._create)

    def create_within(self, cursor: SQLiteCursor) -> None:
        """Create what is missing, in the transaction of the caller."""
        if not rules.has_tables(cursor, "tracking"):
            self._create_table(cursor)

    def apply(self, batch: Sequence[Positioned]) -> None:
        """Apply what is new of the batch, and move the tracking row, in one transaction."""
        if batch:
            unlocked(lambda: self._apply(batch))

    def view_of(self, aggregate_id: UUID) -> StoredView | None:
        """The view of a session as its rows are."""
        with storage_errors(), self.datastore.transaction(commit=False) as cursor:
            rules.require(cursor, VIEW_MODEL, VIEW_RULE)
            return read(cursor, aggregate_id.bytes)

    def position(self) -> int | None:
        """The tracked position."""
        with storage_errors():
            return super().max_tracking_id(TRACKED_AS)

    def max_tracking_id(self, application_name: str) -> int | None:
        """The tracked position, whatever the application is called."""
        ours = application_name != self.table_migration_identifier
        return super().max_tracking_id(TRACKED_AS if ours else application_name)

    def insert_tracking(self, tracking: Tracking) -> None:
        """Move the tracking row alone."""
        super().insert_tracking(Tracking(TRACKED_AS, tracking.notification_id))

    def _create(self) -> None:
        create = super().create_table
        try:
            create()
        except IntegrityError:  # another process was first with the table of tracking
            create()
        with writing(self.datastore) as cursor:
            rules.write_if_missing(cursor, VIEW_MODEL, VIEW_RULE)

    def _apply(self, batch: Sequence[Positioned]) -> None:
        with writing(self.datastore) as cursor:
            rules.require(cursor, VIEW_MODEL, VIEW_RULE)
            tracked = self._max_tracking_id(TRACKED_AS, cursor) or 0
            new = [item for item in batch if item.position > tracked]
            if new:
                insert(cursor, new)
                self._insert_tracking(cursor, Tracking(TRACKED_AS, new[-1].position))


def insert(cursor: SQLiteCursor, batch: Sequence[Positioned]) -> None:
    """Write what these events change."""
    for aggregate_id, events in by_stream(batch).items():
        _follow(cursor, aggregate_id.bytes, events)


def read(cursor: SQLiteCursor, key: bytes) -> StoredView | None:
    """The view of a session."""
    head = _head(cursor, key)
    if head is None:
        return None
    version, _, named = head
    cursor.execute(
        "SELECT version, event_id, role, branch, synthetic FROM turnlog_view_messages "
        "WHERE aggregate_id = ? ORDER BY place",
        (key,),
    )
    return StoredView(version, tuple(map(_row, cursor.fetchall())), named)


def _row(row: Any) -> ToldRow:
    return ToldRow(row["version"], row["event_id"], row["role"], row["branch"], bool(row["synthetic"]))


def _follow(cursor: SQLiteCursor, key: bytes, events: Sequence[StreamEvent]) -> None:
    if any(isinstance(event, SessionDeleted) for event in events):
        cursor.execute("DELETE FROM turnlog_view_messages WHERE aggregate_id = ?", (key,))
        cursor.execute("DELETE FROM turnlog_views WHERE aggregate_id = ?", (key,))
        return
    known = [event for event in events if not isinstance(event, EventErased)]
    head = _head(cursor, key)
    if not known or (head is None and not isinstance(known[0], SessionOpened)):
        return
    version = known[-1].originator_version
    _, messages, named = head or (-1, 0, ())
    changes = [event for event in known if isinstance(event, HANDLED)]
    said = [event for event in changes if isinstance(event, MessageAppended)]
    if not named and len(said) == len(changes):  # they only join at the end
        _append(cursor, key, messages, map(ToldRow.of, said))
        _write_head(cursor, key, version, messages + len(said), ())
    else:
        before = read(cursor, key) or StoredView(-1)
        after = evolved(before, known)
        same = _common(before.rows, after.rows)
        cursor.execute("DELETE FROM turnlog_view_messages WHERE aggregate_id = ? AND place >= ?", (key, same))
        _append(cursor, key, same, after.rows[same:])
        _write_head(cursor, key, version, len(after.rows), after.named)


def _head(cursor: SQLiteCursor, key: bytes) -> tuple[int, int, tuple[str, ...]] | None:
    cursor.execute("SELECT version, messages, named FROM turnlog_views WHERE aggregate_id = ?", (key,))
    row = cursor.fetchone()
    if row is None:
        return None
    return row["version"], row["messages"], tuple(json.loads(row["named"])) if row["named"] else ()


def _write_head(
    cursor: SQLiteCursor, key: bytes, version: int, messages: int, named: tuple[str, ...]
) -> None:
    cursor.execute(
        "INSERT INTO turnlog_views VALUES (?, ?, ?, ?) ON CONFLICT (aggregate_id) DO UPDATE "
        "SET version = excluded.version, messages = excluded.messages, named = excluded.named",
        (key, version, messages, json.dumps(named) if named else None),
    )


def _append(cursor: SQLiteCursor, key: bytes, place: int, rows: Any) -> None:
    cursor.executemany(
        _INSERT,
        (
            (key, place + number, row.version, row.event_id, row.role, row.branch, int(row.synthetic))
            for number, row in enumerate(rows)
        ),
    )


def _common(before: Sequence[ToldRow], after: Sequence[ToldRow]) -> int:
    """How many rows at the beginning are the same."""
    pairs = zip(before, after, strict=False)
    return next(
        (place for place, (one, other) in enumerate(pairs) if one != other), min(len(before), len(after))
    )
