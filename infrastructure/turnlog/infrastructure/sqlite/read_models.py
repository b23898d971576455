"""Rebuilding and checking the read models of an SQLite file."""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast
from uuid import UUID

from eventsourcing.application import Application
from eventsourcing.sqlite import (
    SQLiteApplicationRecorder,
    SQLiteConnection,
    SQLiteCursor,
    SQLiteDatastore,
)

from turnlog.application.ledger import LEDGER_MODEL
from turnlog.application.projections.comparing import Compared
from turnlog.application.projections.maintaining import (
    MODELS,
    Comparison,
    Progress,
    Rebuilt,
    wanted_models,
)
from turnlog.application.projections.replaying import Builder, Replay, ReplayedModels
from turnlog.application.projections.view_store import TRACKED_AS as VIEW_TRACKED_AS
from turnlog.application.storage import storage_errors
from turnlog.domain.errors import InvalidSettingError, StorageError
from turnlog.infrastructure.sqlite import directory, fence, recall, rules
from turnlog.infrastructure.sqlite.building import (
    DirectoryBuilder,
    LedgerBuilder,
    RecallBuilder,
    SqliteStoredLog,
    ViewBuilder,
)
from turnlog.infrastructure.sqlite.catching_up import TRACKED_AS as ROWS_TRACKED_AS
from turnlog.infrastructure.sqlite.catching_up import CaughtUpRows
from turnlog.infrastructure.sqlite.comparing import SqliteComparedRows, stops
from turnlog.infrastructure.sqlite.comparing import lost as lost_tables
from turnlog.infrastructure.sqlite.recorder import SessionRows
from turnlog.infrastructure.sqlite.secure import secure, take_the_lock
from turnlog.infrastructure.sqlite.view import SqliteViewStore


class SqliteReadModels(ReplayedModels[SqliteStoredLog]):
    """The read models of the file that an application stores its events in."""

    def __init__(self, app: Application[UUID]) -> None:
        recorder = app.recorder
        if not isinstance(recorder, SQLiteApplicationRecorder):
            raise InvalidSettingError(
                f"{type(recorder).__name__} is no SQLite recorder: its read models are not rebuilt here."
            )
        self._recorder = recorder
        self._log = SqliteStoredLog(recorder, app.mapper)

    def log_size(self) -> int:
        """The row id of the newest event."""
        with storage_errors(), self._recorder.datastore.transaction(commit=False) as cursor:
            return self._log.newest(cursor)

    def present(self) -> tuple[str, ...]:
        """The read models that the file has."""
        tables = {
            "view": "turnlog_views",
            "recall": "turnlog_recall_mark",
            "directory": "turnlog_sessions",
            LEDGER_MODEL: "turnlog_event_ids",
        }
        with storage_errors(), self._recorder.datastore.transaction(commit=False) as cursor:
            gone = lost_tables(cursor)
            found = tuple(name for name in MODELS if name in gone or rules.has_tables(cursor, tables[name]))
        return found if recall.is_supported() else tuple(name for name in found if name != "recall")

    def lost(self) -> Mapping[str, Sequence[str]]:
        """By model the tables that were dropped."""
        with storage_errors(), self._recorder.datastore.transaction(commit=False) as cursor:
            return lost_tables(cursor)

    def _gone(self) -> frozenset[str]:
        """The models of which tables were dropped, also where empty ones are in their place by now."""
        with storage_errors(), self._recorder.datastore.transaction(commit=False) as cursor:
            gone = frozenset(lost_tables(cursor))
            return gone | {DirectoryBuilder.name} if directory.is_lost(cursor) else gone

    def rebuild(
        self, models: Collection[str] | None = None, progress: Progress | None = None
    ) -> tuple[Rebuilt, ...]:
        """Make the models anew in temporary tables, then exchange them in one transaction."""
        gone = self._gone()
        if isinstance(self._recorder, SessionRows):
            self._recorder.complete(self._log.mapper)
        with storage_errors(), self._connection() as connection:
            builders = self._builders(connection, models)
            with connection.transaction(commit=False) as cursor:
                self._note_gone(self._log.ends_gone(cursor), self._log.newest(cursor))
            replay = Replay(
                self._log,
                builders,
                lambda: connection.transaction(commit=True),
                _take_the_lock,
                lambda cursor, newest: self._track(cursor, builders, newest),
            )
            position, events = replay.run(progress)
        return self._told([one.name for one in builders], gone, position, events)

    def compare(self, progress: Progress | None = None) -> Comparison:
        """Replay the log in one read, and compare row by row."""
        with (
            storage_errors(),
            self._connection() as connection,
            connection.transaction(commit=False) as cursor,
        ):
            log = SqliteStoredLog(self._recorder, self._log.mapper, lenient=True)
            index = self._index()
            made = stops(cursor, index, log.newest(cursor))
            builders: list[Builder[SQLiteCursor]] = [DirectoryBuilder(log), ViewBuilder()]
            if LEDGER_MODEL in made:
                builders.append(LedgerBuilder(log))
            if index is not None and "recall" in made:
                builders.append(RecallBuilder(log, index))
            for builder in builders:
                builder.begin(cursor)
            return Compared(log, SqliteComparedRows(), builders, made).run(cursor, progress)

    def _track(self, cursor: SQLiteCursor, builders: Sequence[Builder[SQLiteCursor]], newest: int) -> None:
        """Move the tracking rows behind what is in the rows now."""
        if not rules.has_tables(cursor, "tracking"):
            return
        tracked = {ViewBuilder.name: VIEW_TRACKED_AS}
        if not fence.keeps_rows(cursor):
            tracked[DirectoryBuilder.name] = ROWS_TRACKED_AS
        for name in [tracked[builder.name] for builder in builders if builder.name in tracked]:
            cursor.execute("DELETE FROM tracking WHERE application_name = ?", (name,))
            if newest:
                cursor.execute("INSERT INTO tracking VALUES (?, ?)", (name, newest))

    def _builders(
        self, connection: SQLiteConnection, models: Collection[str] | None
    ) -> list[Builder[SQLiteCursor]]:
        """In the order in which they need each other."""
        with connection.transaction(commit=False) as cursor:
            has_rows = fence.keeps_rows(cursor)
        wanted = wanted_models(models, keeps_ledger=has_rows)
        if not has_rows:
            rows = CaughtUpRows(self._recorder, self._log.mapper)
            if not rows.has_tables():
                rows.create_table()
            rows.catch_up()
        builders: list[Builder[SQLiteCursor]] = []
        if "directory" in wanted or ("recall" in wanted and not has_rows):
            builders.append(DirectoryBuilder(self._log, is_caught_up=not has_rows))
        if "view" in wanted:
            builders.append(ViewBuilder(SqliteViewStore(self._datastore)))
        if "recall" in wanted:
            index = self._index()
            if index is None:
                raise StorageError("This SQLite has no FTS5 with trigrams, so there is no index to rebuild.")
            builders.append(RecallBuilder(self._log, index))
        if LEDGER_MODEL in wanted:
            builders.append(LedgerBuilder(self._log))
        return builders

    def _index(self) -> recall.SqliteRecallIndex | None:
        if not recall.is_supported():
            return None
        datastore, log = self._recorder.datastore, self._log
        return recall.SqliteRecallIndex(datastore, log.mapper, log.table)

    @contextmanager
    def _connection(self) -> Generator[SQLiteConnection]:
        """A connection for this alone, so that nobody waits for it; temporary tables go with it."""
        pool = self._recorder.datastore.pool
        if pool.is_sqlite_memory_mode:
            raise StorageError("A database in memory is neither rebuilt nor checked: its rows go with it.")
        kind = cast("Any", self._recorder.datastore.originator_id_type)
        self._datastore = SQLiteDatastore(
            pool.db_name, lock_timeout=pool.lock_timeout, originator_id_type=kind
        )
        secure(self._datastore)
        try:
            with self._datastore.get_connection(commit=False) as connection:
                yield connection
        finally:
            self._datastore.close()


def _take_the_lock(cursor: SQLiteCursor) -> None:
    cursor.execute("PRAGMA secure_delete = ON")
    take_the_lock(cursor)
