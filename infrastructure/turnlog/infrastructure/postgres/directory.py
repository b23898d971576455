"""The directory of sessions as queries over tables of PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, LiteralString

from eventsourcing.postgres import PostgresDatastore
from psycopg import Connection
from psycopg.rows import DictRow

from turnlog.application.ports import SessionRow
from turnlog.application.storage import storage_errors
from turnlog.domain.ids import is_utf8
from turnlog.infrastructure.postgres.pool import once_more
from turnlog.infrastructure.postgres.rows import entry_hash, metadata_of, micros, salt_of, time_of
from turnlog.infrastructure.postgres.tables import Tables

DIRECTORY_MODEL: Final = "directory"

DIRECTORY_RULE: Final = 1
"""How the rows are made. With another one they are rebuilt, never read or written."""

TABLES: Final = ("sessions", "ended", "metadata", "by_metadata")

_SELECT: Final[LiteralString] = """
    SELECT position, aggregate_id, session_id, created_at, modified_at, expires_at, version, messages, content
    FROM {sessions} LEFT JOIN {metadata} USING (position)
"""

_HOLDS: Final[LiteralString] = """
    AND (SELECT true FROM {by_metadata} AS held
        WHERE held.hash = %s AND held.position = {sessions}.position LIMIT 1)
"""

_OTHER: Final[LiteralString] = """
    AND (SELECT true FROM {by_metadata} AS other
        WHERE other.hash = %s AND other.position = first.position LIMIT 1)
"""
"""A look-up for each row: as a join PostgreSQL might read all that have the entry before the first result."""

_COUNTED: Final = 1000
"""Sessions with one entry of the metadata that are counted to find out which entry is the rarest."""

_MOST: Final = 2**62
"""More rows than there are, and still an integer of PostgreSQL."""


class PostgresDirectory:
    """The directory of one application's sessions."""

    def __init__(self, datastore: PostgresDatastore, tables: Tables) -> None:
        self._datastore = datastore
        self._tables = tables

    def newest(
        self,
        namespace: str,
        *,
        limit: int,
        before: int | None = None,
        where: Mapping[str, Any] | None = None,
    ) -> Sequence[SessionRow]:
        """Sessions by creation, newest first."""
        behind = _MOST if before is None else max(-1, min(before, _MOST))
        hashes = _hashes(namespace, where)
        if not hashes:
            criteria: LiteralString = "namespace = %s AND position < %s ORDER BY position DESC LIMIT %s"
            return self._select(criteria, (namespace, behind, min(limit, _MOST)))

        def read() -> list[SessionRow]:
            with self._datastore.get_connection() as connection:
                if len(hashes) > 1:
                    hashes.sort(key=lambda one: self._count(connection, one))
                listed: LiteralString = (
                    "SELECT position FROM {by_metadata} AS first WHERE hash = %s AND position < %s "
                    + _OTHER * (len(hashes) - 1)
                    + " ORDER BY position DESC LIMIT %s"
                )
                statement = self._tables.sql(
                    _SELECT + " JOIN (" + listed + ") AS listed USING (position) ORDER BY position DESC"
                )
                values = (hashes[0], behind, *hashes[1:], min(limit, _MOST))
                return [_row(row) for row in connection.execute(statement, values).fetchall()]

        with storage_errors():
            return once_more(self._datastore, read, writes=False)

    def with_prefix(
        self, namespace: str, prefix: str, *, limit: int, where: Mapping[str, Any] | None = None
    ) -> Sequence[SessionRow]:
        """Sessions whose id begins with the prefix."""
        if "\0" in prefix or not is_utf8(prefix):
            return ()
        hashes = _hashes(namespace, where)
        return self._select(
            "namespace = %s AND session_id >= %s AND starts_with(session_id, %s) "
            + _HOLDS * len(hashes)
            + " ORDER BY session_id LIMIT %s",
            (namespace, prefix, prefix, *hashes, min(limit, _MOST)),
        )

    def expired(
        self, namespace: str, at: datetime, *, where: Mapping[str, Any] | None = None
    ) -> Sequence[SessionRow]:
        """Sessions that expired at this time or before it."""
        hashes = _hashes(namespace, where)
        return self._select(
            "expires_at IS NOT NULL AND expires_at <= %s AND namespace = %s "
            + _HOLDS * len(hashes)
            + " ORDER BY expires_at, position",
            (micros(at), namespace, *hashes),
        )

    def _select(self, criteria: LiteralString, values: Sequence[object]) -> Sequence[SessionRow]:
        statement = self._tables.sql(_SELECT + " WHERE " + criteria)

        def read() -> list[SessionRow]:
            with self._datastore.get_connection() as connection:
                return [_row(row) for row in connection.execute(statement, values).fetchall()]

        with storage_errors():
            return once_more(self._datastore, read, writes=False)

    def _count(self, connection: Connection[DictRow], hash_: int) -> int:
        """How many sessions have this entry; not more than tells the rare ones."""
        row = connection.execute(
            self._tables.sql(
                "SELECT count(*) AS found FROM (SELECT 1 FROM {by_metadata} WHERE hash = %s LIMIT %s) AS held"
            ),
            (hash_, _COUNTED),
        ).fetchone()
        return row["found"] if row else 0


def _hashes(namespace: str, where: Mapping[str, Any] | None) -> list[int]:
    salt = salt_of(namespace)
    return [entry_hash(name, value) ^ salt for name, value in (where or {}).items()]


def _row(row: DictRow) -> SessionRow:
    return SessionRow(
        session_id=row["session_id"],
        aggregate_id=row["aggregate_id"],
        position=row["position"],
        created_at=time_of(row["created_at"]),
        modified_at=time_of(row["modified_at"]),
        expires_at=None if row["expires_at"] is None else time_of(row["expires_at"]),
        version=row["version"],
        messages=row["messages"],
        metadata=metadata_of(row["content"]),
    )
