"""Rebuilding and checking the read models of a PostgreSQL database."""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, LiteralString
from uuid import UUID

from eventsourcing.application import Application
from eventsourcing.postgres import PostgresApplicationRecorder
from psycopg import Connection, Cursor
from psycopg.rows import DictRow

from turnlog.application.ledger import LEDGER_MODEL
from turnlog.application.ports import keeps_recall
from turnlog.application.projections.comparing import Compared
from turnlog.application.projections.maintaining import (
    MODELS,
    Comparison,
    Progress,
    Rebuilt,
    wanted_models,
)
from turnlog.application.projections.replaying import Builder, Replay, ReplayedModels
from turnlog.application.projections.view_store import TRACKED_AS
from turnlog.application.storage import storage_errors, unlocked
from turnlog.domain.errors import InvalidSettingError, StorageError
from turnlog.infrastructure.postgres import tables, view
from turnlog.infrastructure.postgres.building import (
    BESIDE,
    DirectoryBuilder,
    LedgerBuilder,
    PostgresStoredLog,
    RecallBuilder,
    ViewBuilder,
    create_rows,
)
from turnlog.infrastructure.postgres.catching_up import KIND, CaughtUpRows, is_directory_lost
from turnlog.infrastructure.postgres.comparing import PostgresComparedRows
from turnlog.infrastructure.postgres.comparing import lost as lost_tables
from turnlog.infrastructure.postgres.recorder import SessionRows, has_session_rows
from turnlog.infrastructure.postgres.tracking import limit_waiting
from turnlog.infrastructure.postgres.view import PostgresViewStore

_ONE_READ: Final = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"

_NO_HURRY: Final = "SET LOCAL idle_in_transaction_session_timeout = 0"

_TRACKED: Final[LiteralString] = """
    SELECT coalesce(max(notification_id), 0) AS position FROM {tracking} WHERE application_name = %s
"""


class PostgresReadModels(ReplayedModels[PostgresStoredLog]):
    """The read models of the database that an application stores its events in.

    The view is that of the store in `turnlog_views`; where this follows another application, that of the
    store whose name has this application in front, as `shop_turnlog_view`.
    """

    def __init__(self, app: Application[UUID]) -> None:
        recorder = app.recorder
        if not isinstance(recorder, PostgresApplicationRecorder):
            raise InvalidSettingError(
                f"{type(recorder).__name__} is no PostgreSQL recorder: its read models are not rebuilt here."
            )
        self._recorder = recorder
        self._log = PostgresStoredLog(recorder, app.mapper)
        self._keeps_recall = keeps_recall(app.env, app.mapper)
        self._application = recorder.events_table_name.removesuffix("_events")

    def log_size(self) -> int:
        """How many events are stored."""
        with storage_errors(), self._recorder.datastore.get_connection() as connection:
            return self._log.size(connection.cursor())

    def present(self) -> tuple[str, ...]:
        """The read models that the database has."""
        with storage_errors(), self._recorder.datastore.get_connection() as connection:
            return self._present(connection.cursor())

    def lost(self) -> Mapping[str, Sequence[str]]:
        """By model the tables that were dropped."""
        with storage_errors():
            kind = "" if has_session_rows(self._recorder) else KIND
            with self._recorder.datastore.get_connection() as connection:
                cursor = connection.cursor()
                view_tables = self._view_store(cursor).tables
                return lost_tables(cursor, self._tables(kind)[0], view_tables, has_ledger=not kind)

    def rebuild(
        self, models: Collection[str] | None = None, progress: Progress | None = None
    ) -> tuple[Rebuilt, ...]:
        """Make the models anew in temporary tables, then exchange what differs in one transaction."""
        with storage_errors():
            wanted, gone = self._wanted(models), self._gone()
            if isinstance(self._recorder, SessionRows):
                self._recorder.complete(self._log.mapper)
            rows = self._caught_up_rows()
            with self._connection() as connection:
                with _transaction(connection) as cursor:
                    store = self._view_store(cursor)
                    told, _ = self._tables("" if rows is None else KIND)
                    gone_ends = self._log.ends_gone(cursor, told, store.tables)
                    self._note_gone(gone_ends, self._log.newest(cursor))
                builders = self._builders(wanted, store, is_caught_up=rows is not None)
                names = [builder.name for builder in builders]
                replay = Replay(
                    self._log,
                    builders,
                    lambda: _transaction(connection),
                    lambda cursor: self._take_the_locks(cursor, names, rows, store),
                    lambda cursor, newest: (
                        store.reset_position(cursor, newest) if ViewBuilder.name in names else None
                    ),
                )
                position, events = replay.run(progress)
        return self._told(names, gone, position, events)

    def compare(self, progress: Progress | None = None) -> Comparison:
        """Replay the log in one read, and compare row by row."""
        with storage_errors(), self._connection() as connection:
            log = PostgresStoredLog(self._recorder, self._log.mapper, lenient=True)
            kind = "" if has_session_rows(self._recorder) else KIND
            real, made = self._tables(kind)
            with _transaction(connection) as cursor:
                cursor.execute("SET TRANSACTION READ WRITE")  # for the temporary tables
                create_rows(cursor, made)
                views = ViewBuilder(self._view_store(cursor).tables)
                gone = lost_tables(cursor, real, views.real, has_ledger=not kind)
                there = tuple(name for name in self._present(cursor) if name not in gone)
                builders: list[Builder[Cursor[DictRow]]] = [views]
                if not is_directory_lost(cursor, real):
                    builders.insert(0, DirectoryBuilder(log, real, made))
                else:
                    there = tuple(name for name in there if name not in (DirectoryBuilder.name, "recall"))
                if "recall" in there:
                    builders.append(
                        RecallBuilder(log, self._recorder, kind, with_directory=True, like_the_real_one=True)
                    )
                if LEDGER_MODEL in there:
                    builders.append(LedgerBuilder(log, real, made))
                for builder in builders:
                    builder.begin(cursor)
            rows = PostgresComparedRows(real, made, views.real, views.made, has_ledger=not kind)
            with _transaction(connection, _ONE_READ) as cursor:
                stops = self._stops(cursor, there, real if kind else None, views)
                return Compared(log, rows, builders, stops).run(cursor, progress)

    def _gone(self) -> frozenset[str]:
        """The models of which tables were dropped, also where empty ones are in their place by now."""
        gone, kind = frozenset(self.lost()), "" if has_session_rows(self._recorder) else KIND
        with self._recorder.datastore.get_connection() as connection:
            is_lost = is_directory_lost(connection.cursor(), self._tables(kind)[0])
        return gone | {DirectoryBuilder.name} if is_lost else gone

    def _wanted(self, models: Collection[str] | None) -> frozenset[str]:
        has_rows = isinstance(self._recorder, SessionRows) or has_session_rows(self._recorder)
        wanted = wanted_models(models, keeps_ledger=has_rows)
        if "recall" in wanted and not self._keeps_recall:
            raise StorageError(
                "This application keeps no index of what was said, so there is none to rebuild."
            )
        return wanted

    def _builders(
        self, models: Collection[str], store: PostgresViewStore, *, is_caught_up: bool
    ) -> list[Builder[Cursor[DictRow]]]:
        """In the order in which they need each other."""
        kind = KIND if is_caught_up else ""
        with_directory = "directory" in models or ("recall" in models and is_caught_up)
        builders: list[Builder[Cursor[DictRow]]] = []
        if with_directory:
            builders.append(DirectoryBuilder(self._log, *self._tables(kind)))
        if "view" in models:
            builders.append(ViewBuilder(store.tables))
        if "recall" in models:
            builders.append(RecallBuilder(self._log, self._recorder, kind, with_directory=with_directory))
        if LEDGER_MODEL in models:
            builders.append(LedgerBuilder(self._log, *self._tables("")))
        return builders

    def _tables(self, kind: str) -> tuple[tables.Tables, tables.Tables]:
        """Those in use, and those that are made beside them."""
        return tables.of_recorder(self._recorder, kind), tables.of_recorder(
            self._recorder, kind, beside=BESIDE
        )

    def _caught_up_rows(self) -> CaughtUpRows | None:
        """The rows of a recorder that writes none, caught up; None where it writes them."""
        if has_session_rows(self._recorder):
            return None
        rows = CaughtUpRows(self._recorder, self._log.mapper)
        with self._recorder.datastore.get_connection() as connection:
            is_missing = tables.is_missing(
                connection.cursor(), "to_regclass", rows.tables.regclass("tracking")
            )
        if is_missing:
            unlocked(rows.create_tables)
        rows.catch_up()
        return rows

    def _view_store(self, cursor: Cursor[DictRow]) -> PostgresViewStore:
        """The store that follows this application, or else one whose tables are still to be made."""
        datastore = self._recorder.datastore
        usual, own = PostgresViewStore.name, f"{self._application}_{PostgresViewStore.name}"
        own_views = view.tables_of(datastore.schema, own).regclass("views")
        if tables.is_missing(cursor, "to_regclass", own_views):
            log = view.followed_log(cursor, view.tables_of(datastore.schema, usual))
            return PostgresViewStore(datastore, name=usual if log in (None, self._application) else own)
        return PostgresViewStore(datastore, name=own)

    def _present(self, cursor: Cursor[DictRow]) -> tuple[str, ...]:
        def has(names: tables.Names, name: str) -> bool:
            return not tables.is_missing(cursor, "to_regclass", names.regclass(name))

        real, _ = self._tables("")
        keeps_rows = real.are_kept(cursor)
        has_rows = keeps_rows or has(self._tables(KIND)[0], "sessions")
        held = {
            "view": has(self._view_store(cursor).tables, "views"),
            "recall": has_rows and self._keeps_recall,
            "directory": has_rows,
            LEDGER_MODEL: keeps_rows,
        }
        return tuple(name for name in MODELS if held[name])

    def _take_the_locks(
        self,
        cursor: Cursor[DictRow],
        models: Sequence[str],
        rows: CaughtUpRows | None,
        store: PostgresViewStore,
    ) -> None:
        """In the order of all others: whoever catches up, whoever appends, whoever indexes."""
        limit_waiting(cursor, self._recorder.datastore)
        if rows is not None:
            rows.take_position(cursor)
        self._log.take_the_lock(cursor)
        if rows is not None:
            rows.catch_up_within(cursor)
        if set(models) & {DirectoryBuilder.name, RecallBuilder.name}:
            real, _ = self._tables("" if rows is None else KIND)
            cursor.execute(real.sql("LOCK TABLE {sessions} IN EXCLUSIVE MODE"))
        if ViewBuilder.name in models:
            store.create_within(cursor)
            store.take_position(cursor)
            store.claim(cursor, self._application)

    def _stops(
        self,
        cursor: Cursor[DictRow],
        there: Sequence[str],
        caught_up: tables.Tables | None,
        views: ViewBuilder,
    ) -> dict[str, int]:
        """How far each model got that there is."""
        rows = self._log.newest(cursor)
        if caught_up is not None and set(there) & {"recall", "directory"}:
            row = cursor.execute(caught_up.sql("SELECT notification_id FROM {tracking}")).fetchone()
            rows = 0 if row is None else row["notification_id"]
        stops = {name: rows for name in there if name != ViewBuilder.name}
        if ViewBuilder.name in there:
            row = cursor.execute(views.real.sql(_TRACKED), (TRACKED_AS,)).fetchone()
            stops[ViewBuilder.name] = 0 if row is None else row["position"]
        return stops

    @contextmanager
    def _connection(self) -> Generator[Connection[DictRow]]:
        """A connection whose temporary tables go with it, or when it is given back."""
        with self._recorder.datastore.get_connection() as connection:
            try:
                yield connection
            finally:
                if not connection.closed:
                    connection.execute("DISCARD TEMP")


@contextmanager
def _transaction(
    connection: Connection[DictRow], begin: LiteralString | None = None
) -> Generator[Cursor[DictRow]]:
    with connection.transaction():
        cursor = connection.cursor()
        if begin is not None:
            cursor.execute(begin)
        cursor.execute(_NO_HURRY)
        yield cursor
