"""The materialised view as rows of PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any, ClassVar, Final, LiteralString
from uuid import UUID

from eventsourcing.postgres import PostgresDatastore
from psycopg import Cursor
from psycopg.rows import DictRow

from turnlog.application.projections.batches import Positioned
from turnlog.application.projections.stored_view import VIEW_RULE, StoredView, ToldRow
from turnlog.application.projections.view_rows import ViewHead, follow
from turnlog.application.projections.view_store import TRACKED_AS, VIEW_MODEL, ViewStore
from turnlog.application.storage import storage_errors
from turnlog.domain.errors import InvalidSettingError
from turnlog.infrastructure.postgres import rules
from turnlog.infrastructure.postgres.pool import once_more
from turnlog.infrastructure.postgres.tables import Names, is_missing
from turnlog.infrastructure.postgres.tracking import LockedTracking

CREATE: Final[tuple[LiteralString, ...]] = (
    """
    CREATE TABLE IF NOT EXISTS {views} (
        aggregate_id uuid PRIMARY KEY,
        version bigint NOT NULL,
        messages bigint NOT NULL,
        named text
    )
    """,
    """
    CREATE TABLE IF NOT EXISTS {view_messages} (
        aggregate_id uuid NOT NULL,
        place bigint NOT NULL,
        version bigint NOT NULL,
        event_id text COLLATE "C" NOT NULL,
        role text NOT NULL,
        branch text COLLATE "C",
        synthetic boolean NOT NULL,
        PRIMARY KEY (aggregate_id, place)
    )
    """,
)
"""Ids and places only, no content."""

_READ: Final[LiteralString] = """
    SELECT rule, head.version AS at_version, named, message.*
    FROM (VALUES (true)) AS one
    LEFT JOIN {read_models} AS made ON made.name = %s
    LEFT JOIN {views} AS head ON head.aggregate_id = %s
    LEFT JOIN {view_messages} AS message ON message.aggregate_id = head.aggregate_id
    ORDER BY place
"""
"""In one statement, so that nothing is written in between."""

_HEADS: Final[LiteralString] = "SELECT * FROM {views} WHERE aggregate_id = ANY (%s)"

_WRITE_HEADS: Final[LiteralString] = """
    INSERT INTO {views} SELECT * FROM unnest(%s::uuid[], %s::bigint[], %s::bigint[], %s::text[])
    ON CONFLICT (aggregate_id) DO UPDATE
    SET version = excluded.version, messages = excluded.messages, named = excluded.named
"""

_PUT: Final[LiteralString] = """
    INSERT INTO {view_messages} SELECT * FROM unnest(
        %s::uuid[], %s::bigint[], %s::bigint[], %s::text[], %s::text[], %s::text[], %s::boolean[]
    )
"""


def tables_of(schema: str, name: str) -> Names:
    """The tables of a view store of this name."""
    return Names(
        schema,
        {
            "views": f"{name}s",
            "view_messages": f"{name}_messages",
            "read_models": f"{name}_rule",
            "tracking": f"{name}_tracking",
        },
    )


class PostgresViewStore(ViewStore, LockedTracking):
    """The materialised view in a PostgreSQL database, that of the log or another one.

    Its tables are `turnlog_views` and `turnlog_view_messages`. It follows the log of one application: for
    another one in the same schema derive a store with a `name` of its own.
    """

    name: ClassVar[str] = "turnlog_view"
    """What the names of its tables begin with."""

    def __init__(self, datastore: PostgresDatastore, *, name: str | None = None, **kwargs: Any) -> None:
        prefix = name or self.name
        kwargs["tracking_table_name"] = (
            f"{prefix}_tracking"  # not that of the projection, which may be derived
        )
        super().__init__(datastore, **kwargs)
        self.tables = tables_of(datastore.schema, prefix)
        self._log: str | None = None

    @property
    def tracked_as(self) -> str:
        """One name, as a store follows one log."""
        return TRACKED_AS

    def create_table(self) -> None:
        """Create what is missing; another process may do so at the same time."""
        with storage_errors(), self.datastore.get_connection() as connection:
            cursor = connection.cursor()
            if not any(
                is_missing(cursor, "to_regclass", self.tables.regclass(name)) for name in self.tables.tables
            ):
                return
        super().create_table()

    def create_within(self, cursor: Cursor[DictRow]) -> None:
        """Create what is missing, in the transaction of the caller."""
        self._create_table(cursor)

    def apply(self, batch: Sequence[Positioned]) -> None:
        """Apply what is new of the batch, and move the tracking row, in one transaction."""
        if batch:
            self.in_transaction(lambda cursor: self._apply(cursor, batch))

    def view_of(self, aggregate_id: UUID) -> StoredView | None:
        """The view of a session as its rows are."""

        def read() -> list[DictRow]:
            with self.datastore.get_connection() as connection:
                return connection.execute(self.tables.sql(_READ), (VIEW_MODEL, aggregate_id)).fetchall()

        with storage_errors():
            rows = once_more(self.datastore, read, writes=False)
        rules.check(VIEW_MODEL, rows[0]["rule"], VIEW_RULE)
        if rows[0]["at_version"] is None:
            return None
        return _view(rows, rows[0]["at_version"], rows[0]["named"])

    def position(self) -> int | None:
        """The tracked position."""
        return self.max_tracking_id("")

    def max_tracking_id(self, application_name: str) -> int | None:
        """The tracked position. Raises `InvalidSettingError` for an application that it does not follow."""
        if application_name == self.table_migration_identifier:
            return super().max_tracking_id(application_name)
        with storage_errors():
            if application_name:
                self._require_log(application_name.lower())
            return super().max_tracking_id(application_name)

    def _create_table(self, curs: Cursor[DictRow]) -> None:
        super()._create_table(curs)
        for statement in CREATE:
            curs.execute(self.tables.sql(statement), prepare=False)
        rules.write_if_missing(curs, self.tables, VIEW_MODEL, VIEW_RULE)

    def _apply(self, cursor: Cursor[DictRow], batch: Sequence[Positioned]) -> None:
        tracked = self.take_position(cursor)
        rules.require(cursor, self.tables, VIEW_MODEL, VIEW_RULE)
        if not tracked:  # rows that are there all the same are those of a tracking that was dropped
            cursor.execute(self.tables.sql("DELETE FROM {view_messages}"))
            cursor.execute(self.tables.sql("DELETE FROM {views}"))
        new = [item for item in batch if item.position > tracked]
        if new:
            self.claim(cursor, self._log)
            insert(cursor, self.tables, new)
            self.move_position(cursor, new[-1].position)

    def claim(self, cursor: Cursor[DictRow], log: str | None) -> None:
        """Say whose log it follows, if nobody has. Raises `InvalidSettingError` when it is another one."""
        if log is None:
            return
        found = followed_log(cursor, self.tables)
        if found is None:
            statement: LiteralString = "UPDATE {read_models} SET log = %s WHERE name = %s"
            cursor.execute(self.tables.sql(statement), (log, VIEW_MODEL))
        elif found != log:
            raise _of_another_log(self.tables.tables["views"], found, log)

    def _require_log(self, log: str) -> None:
        """Look once whose log it follows."""
        if log == self._log:
            return
        with self.datastore.get_connection() as connection:
            found = followed_log(connection.cursor(), self.tables)
        if found not in (None, log):
            raise _of_another_log(self.tables.tables["views"], found, log)
        self._log = log


def _of_another_log(table: str, found: str | None, log: str) -> InvalidSettingError:
    return InvalidSettingError(
        f"The table {table!r} holds views of the application {found!r}, not of {log!r}: let the store of "
        f"each have a name of its own, as in `class Views(PostgresViewStore): name = '{log}_turnlog_view'`."
    )


def followed_log(cursor: Cursor[DictRow], names: Names) -> str | None:
    """The application whose log a store follows, None where that is not said."""
    if is_missing(cursor, "to_regclass", names.regclass("read_models")):
        return None
    statement: LiteralString = "SELECT log FROM {read_models} WHERE name = %s"
    row = cursor.execute(names.sql(statement), (VIEW_MODEL,)).fetchone()
    return None if row is None else row["log"]


def insert(cursor: Cursor[DictRow], names: Names, batch: Sequence[Positioned]) -> None:
    """Write what these events change."""
    rows = PostgresViewRows(cursor, names)
    follow(rows, batch)
    rows.flush()


class PostgresViewRows:
    """The rows in a transaction, those of a store or of tables beside it. What is new is written together."""

    def __init__(self, cursor: Cursor[DictRow], names: Names) -> None:
        self._cursor = cursor
        self._names = names
        self._heads: list[tuple[object, ...]] = []
        self._messages: list[tuple[object, ...]] = []

    def heads(self, aggregate_ids: Collection[UUID]) -> dict[UUID, ViewHead]:
        """By session its head, in one read."""
        rows = self._cursor.execute(self._names.sql(_HEADS), (list(aggregate_ids),)).fetchall()
        return {
            row["aggregate_id"]: ViewHead(row["version"], row["messages"], _named(row["named"]))
            for row in rows
        }

    def read(self, aggregate_id: UUID) -> StoredView | None:
        """The view of a session, in front of what is to be written."""
        head = self.heads([aggregate_id]).get(aggregate_id)
        if head is None:
            return None
        statement: LiteralString = "SELECT * FROM {view_messages} WHERE aggregate_id = %s ORDER BY place"
        rows = self._cursor.execute(self._names.sql(statement), (aggregate_id,)).fetchall()
        return StoredView(head.version, tuple(map(_row, rows)), head.named)

    def write_head(self, aggregate_id: UUID, head: ViewHead) -> None:
        """Replace the head."""
        named = json.dumps(head.named) if head.named else None
        self._heads.append((aggregate_id, head.version, head.messages, named))

    def put(self, aggregate_id: UUID, place: int, rows: Sequence[ToldRow]) -> None:
        """Put messages at the end."""
        self._messages += (
            (aggregate_id, number, row.version, row.event_id, row.role, row.branch, row.synthetic)
            for number, row in enumerate(rows, place)
        )

    def cut(self, aggregate_id: UUID, place: int) -> None:
        """Remove messages from the end."""
        statement: LiteralString = "DELETE FROM {view_messages} WHERE aggregate_id = %s AND place >= %s"
        self._cursor.execute(self._names.sql(statement), (aggregate_id, place))

    def remove(self, aggregate_id: UUID) -> None:
        """Remove all rows of a session."""
        self.cut(aggregate_id, -1)
        self._cursor.execute(self._names.sql("DELETE FROM {views} WHERE aggregate_id = %s"), (aggregate_id,))

    def flush(self) -> None:
        """Write what is new."""
        self._write(_WRITE_HEADS, self._heads)
        self._write(_PUT, self._messages)
        self._heads, self._messages = [], []

    def _write(self, statement: LiteralString, rows: Sequence[tuple[object, ...]]) -> None:
        if rows:
            columns = [list(column) for column in zip(*rows, strict=True)]
            self._cursor.execute(self._names.sql(statement), columns)


def _view(rows: Sequence[DictRow], version: int, named: str | None) -> StoredView:
    held = [row for row in rows if row["event_id"] is not None]
    return StoredView(version, tuple(map(_row, held)), _named(named))


def _row(row: DictRow) -> ToldRow:
    return ToldRow(row["version"], row["event_id"], row["role"], row["branch"], row["synthetic"])


def _named(text: str | None) -> tuple[str, ...]:
    return tuple(json.loads(text)) if text else ()
