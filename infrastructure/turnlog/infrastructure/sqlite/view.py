"""The materialised view as rows of SQLite."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any, Final
from uuid import UUID

from eventsourcing.persistence import IntegrityError, Tracking
from eventsourcing.sqlite import SQLiteCursor, SQLiteDatastore, SQLiteTrackingRecorder

from turnlog.application.projections.batches import Positioned
from turnlog.application.projections.stored_view import VIEW_RULE, StoredView, ToldRow
from turnlog.application.projections.view_rows import ViewHead, follow
from turnlog.application.projections.view_store import TRACKED_AS, VIEW_MODEL, ViewStore
from turnlog.application.storage import storage_errors, unlocked
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

_WRITE_HEAD: Final = """
    INSERT INTO turnlog_views VALUES (?, ?, ?, ?) ON CONFLICT (aggregate_id) DO UPDATE
    SET version = excluded.version, messages = excluded.messages, named = excluded.named
"""


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
            return SqliteViewRows(cursor).read(aggregate_id)

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
            if not tracked:  # rows that are there all the same are those of a tracking that was dropped
                for table in ("turnlog_view_messages", "turnlog_views"):
                    cursor.execute(f"DELETE FROM {table}")  # noqa: S608 - one of these
            new = [item for item in batch if item.position > tracked]
            if new:
                follow(SqliteViewRows(cursor), new)
                self._insert_tracking(cursor, Tracking(TRACKED_AS, new[-1].position))


class SqliteViewRows:
    """The rows in a transaction, those of the store or of temporary tables."""

    def __init__(self, cursor: SQLiteCursor) -> None:
        self._cursor = cursor

    def heads(self, aggregate_ids: Collection[UUID]) -> dict[UUID, ViewHead]:
        """By session its head."""
        found = ((aggregate_id, self._head(aggregate_id)) for aggregate_id in aggregate_ids)
        return {aggregate_id: head for aggregate_id, head in found if head is not None}

    def read(self, aggregate_id: UUID) -> StoredView | None:
        """The view of a session."""
        head = self._head(aggregate_id)
        if head is None:
            return None
        self._cursor.execute(
            "SELECT version, event_id, role, branch, synthetic FROM turnlog_view_messages "
            "WHERE aggregate_id = ? ORDER BY place",
            (aggregate_id.bytes,),
        )
        return StoredView(head.version, tuple(map(_row, self._cursor.fetchall())), head.named)

    def write_head(self, aggregate_id: UUID, head: ViewHead) -> None:
        """Replace the head."""
        named = json.dumps(head.named) if head.named else None
        self._cursor.execute(_WRITE_HEAD, (aggregate_id.bytes, head.version, head.messages, named))

    def put(self, aggregate_id: UUID, place: int, rows: Sequence[ToldRow]) -> None:
        """Put messages at the end."""
        key = aggregate_id.bytes
        self._cursor.executemany(
            "INSERT INTO turnlog_view_messages VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                (key, number, row.version, row.event_id, row.role, row.branch, int(row.synthetic))
                for number, row in enumerate(rows, place)
            ),
        )

    def cut(self, aggregate_id: UUID, place: int) -> None:
        """Remove messages from the end."""
        self._cursor.execute(
            "DELETE FROM turnlog_view_messages WHERE aggregate_id = ? AND place >= ?",
            (aggregate_id.bytes, place),
        )

    def remove(self, aggregate_id: UUID) -> None:
        """Remove all rows of a session."""
        for table in ("turnlog_view_messages", "turnlog_views"):
            self._cursor.execute(f"DELETE FROM {table} WHERE aggregate_id = ?", (aggregate_id.bytes,))  # noqa: S608

    def _head(self, aggregate_id: UUID) -> ViewHead | None:
        self._cursor.execute(
            "SELECT version, messages, named FROM turnlog_views WHERE aggregate_id = ?", (aggregate_id.bytes,)
        )
        row = self._cursor.fetchone()
        if row is None:
            return None
        return ViewHead(row["version"], row["messages"], tuple(json.loads(row["named"] or "[]")))


def _row(row: Any) -> ToldRow:
    return ToldRow(row["version"], row["event_id"], row["role"], row["branch"], bool(row["synthetic"]))
