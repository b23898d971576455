"""Erasing from PostgreSQL: stubs over deleted sessions, markers over contents, VACUUM for what stood there.

VACUUM removes the old rows of a table; it cannot while a transaction that began before the deletion may
still look at them, nor where the role may not vacuum. What is in write-ahead logs, in archives of these and
in backups is out of its reach, and freed space keeps its bytes until it is used again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, LiteralString
from uuid import UUID

from eventsourcing.persistence import Mapper, PersistenceError, StoredEvent
from eventsourcing.postgres import PostgresDatastore
from psycopg import Connection, Cursor
from psycopg.errors import Diagnostic
from psycopg.rows import DictRow

from turnlog.application.erasing import Erased, SessionEraser
from turnlog.application.storage import storage_errors
from turnlog.application.stored_events import event_if_readable, target_of
from turnlog.domain.events import ContentRedacted, EventErased, SessionDeleted, as_uuid
from turnlog.infrastructure.postgres.rows import micros, time_of
from turnlog.infrastructure.postgres.tables import Tables

_VACUUMED: Final[tuple[LiteralString, ...]] = (
    "VACUUM {events}",
    "VACUUM {metadata}",
    "VACUUM {by_metadata}",
    "VACUUM {recall}",
    "VACUUM (INDEX_CLEANUP ON) {sessions}",
    "VACUUM (INDEX_CLEANUP ON) {ids}",
)
"""The indexes of the last ones hold ids that applications chose, and those of the others only numbers."""

_PATIENCE: Final = 2.0
"""Seconds for which a scrub waits for transactions that began before the deletion."""

_LIMIT_WAITING: Final = "SET lock_timeout = '10s'"

_HELD: Final[LiteralString] = """
    SELECT kind FROM (
        SELECT 'transaction of another connection', backend_xmin FROM pg_stat_activity
            WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid()
        UNION ALL SELECT 'transaction of another connection', backend_xid FROM pg_stat_activity
            WHERE backend_xid IS NOT NULL AND pid <> pg_backend_pid() AND datname = current_database()
        UNION ALL SELECT 'prepared transaction', transaction FROM pg_prepared_xacts
        UNION ALL SELECT 'replication slot', xmin FROM pg_replication_slots WHERE xmin IS NOT NULL
    ) AS held (kind, since)
    WHERE age(since) >= (
        SELECT min(age(transaction)) FROM (
            SELECT transaction FROM {erasures} WHERE aggregate_id = ANY (%s)
            UNION ALL SELECT transaction FROM {redactions} WHERE pending
        ) AS due
    )
    LIMIT 1
"""
"""A transaction that wrote something keeps old rows alive by its id, also when it reads nothing just now."""

_LEFT_OVER: Final[LiteralString] = """
    SELECT n_dead_tup AS dead, pg_has_role('pg_read_all_stats', 'USAGE') AS sees_all
    FROM pg_stat_all_tables WHERE relid = to_regclass(%s)
"""

_PURGE: Final[LiteralString] = """
    WITH due AS (
        UPDATE {erasures} SET purged = true WHERE NOT purged AND deleted_at <= %s
        RETURNING aggregate_id, version
    )
    DELETE FROM {events} USING due
    WHERE originator_id = due.aggregate_id::{id_type} AND topic = %s
        AND originator_version > 0 AND originator_version < due.version
"""

_REQUESTS: Final[LiteralString] = """
    SELECT stored.*, originator_version > 1 AND NOT EXISTS (
        SELECT FROM {events} AS other
        WHERE other.originator_id = stored.originator_id AND other.originator_version = 1
    ) AS purged
    FROM {events} AS stored WHERE topic = ANY (%s)
"""

_REMEMBER: Final[LiteralString] = """
    INSERT INTO {erasures} (aggregate_id, deleted_at, version, transaction, purged)
    VALUES (%s, %s, %s, pg_current_xact_id()::xid, %s) ON CONFLICT DO NOTHING
"""

_REMEMBER_REDACTION: Final[LiteralString] = """
    INSERT INTO {redactions} (aggregate_id, version, transaction)
    VALUES (%s, %s, pg_current_xact_id()::xid) ON CONFLICT DO NOTHING
"""

_logger = logging.getLogger("turnlog")


@dataclass(frozen=True)
class Overwrite:
    """Stubs for the stored events of one session, to be put over them in the transaction of the tombstone."""

    originator_id: Any
    events: int
    tombstone: int
    deleted_at: datetime
    stubs: Sequence[bytes]

    def execute(self, cursor: Cursor[DictRow], tables: Tables) -> None:
        """Put them over the events."""
        cursor.execute(
            tables.sql("SELECT {erase}(%s::{id_type}, %s, %s, %s, %s::bytea[], %s)"),
            (
                self.originator_id,
                self.events,
                self.tombstone,
                EventErased.TOPIC,
                list(self.stubs),
                micros(self.deleted_at),
            ),
        )


@dataclass(frozen=True)
class Rewrite:
    """A marker to be put over one content, in the transaction of the redaction that names it."""

    redaction: ContentRedacted

    def execute(self, cursor: Cursor[DictRow], tables: Tables, mapper: Mapper[Any]) -> None:
        """Put it over the content, and remember that old copies are left."""
        redaction = self.redaction
        place = (str(redaction.originator_id), redaction.redacted_version)
        cursor.execute(
            tables.sql(
                "SELECT topic, state FROM {events} "
                "WHERE originator_id = %s::{id_type} AND originator_version = %s FOR UPDATE"
            ),
            place,
        )
        row = cursor.fetchone()
        version, form = redaction.redacted_version, redaction.originator_id
        stored = None if row is None else StoredEvent(form, version, row["topic"], bytes(row["state"]))
        _, target = target_of(redaction, stored, mapper)
        if not target.is_redacted:
            cursor.execute(
                tables.sql(
                    "UPDATE {events} SET state = %s "
                    "WHERE originator_id = %s::{id_type} AND originator_version = %s"
                ),
                (mapper.to_stored_event(target.redacted_by(redaction)).state, *place),
            )
        cursor.execute(
            tables.sql(
                "INSERT INTO {redactions} (aggregate_id, version, transaction) "
                "VALUES (%s, %s, pg_current_xact_id()::xid) ON CONFLICT (aggregate_id, version) "
                "DO UPDATE SET pending = true, transaction = excluded.transaction"
            ),
            (as_uuid(redaction.originator_id), redaction.originator_version),
        )


def prepare(
    mapper: Mapper[Any], tombstone: SessionDeleted, stored_events: Sequence[StoredEvent]
) -> tuple[Sequence[StoredEvent], Overwrite]:
    """The stubs for what is stored of the session; those of these events in front of the tombstone are put in
    their place at once."""
    aggregate_id = as_uuid(tombstone.originator_id)
    stubs = [
        mapper.to_stored_event(
            EventErased(
                originator_id=tombstone.originator_id,
                originator_version=version,
                timestamp=tombstone.timestamp,
            )
        )
        for version in range(tombstone.originator_version)
    ]
    own = [event for event in stored_events if as_uuid(event.originator_id) == aggregate_id]
    first = min(event.originator_version for event in own)
    replaced = [
        stubs[event.originator_version]
        if event in own and event.originator_version < tombstone.originator_version
        else event
        for event in stored_events
    ]
    states = [stub.state for stub in stubs[:first]]
    return replaced, Overwrite(
        originator_id=tombstone.originator_id,
        events=first,
        tombstone=tombstone.originator_version,
        deleted_at=tombstone.timestamp,
        stubs=states[:1] if len(set(states)) == 1 else states,
    )


def remember_all(cursor: Cursor[DictRow], tables: Tables, mapper: Mapper[Any]) -> None:
    """Remember the deletions and redactions of a log whose tables of them were dropped.

    Which of them were scrubbed is not in the log, so the next sweep scrubs for all of them.
    """
    topics = [SessionDeleted.TOPIC, ContentRedacted.TOPIC]
    for row in cursor.execute(tables.sql(_REQUESTS), (topics,)).fetchall():
        form, version = row["originator_id"], row["originator_version"]
        event = event_if_readable(mapper, StoredEvent(form, version, row["topic"], bytes(row["state"])))
        if isinstance(event, ContentRedacted):
            cursor.execute(tables.sql(_REMEMBER_REDACTION), (as_uuid(form), version))
        elif isinstance(event, SessionDeleted) and not event.keeps_content:
            values = (as_uuid(form), micros(event.timestamp), version, row["purged"])
            cursor.execute(tables.sql(_REMEMBER), values)


class PostgresEraser(SessionEraser):
    """The eraser of one database. Its recorder writes the stubs in the transaction of the tombstone."""

    def __init__(self, datastore: PostgresDatastore, tables: Tables) -> None:
        self._datastore = datastore
        self._tables = tables

    def erase(self, aggregate_id: UUID) -> None:
        """Nothing is left to do: the recorder did it."""

    @property
    def redacts(self) -> bool:
        """It can."""
        return True

    def redact(self, redactions: Sequence[ContentRedacted]) -> None:
        """Nothing is left to do: the recorder did it."""

    def scrub(self) -> str | None:
        """Vacuum the tables, once no transaction is open that may still look at what was overwritten."""
        with storage_errors():
            due, redacted = self._pending(), self._redacted()
            if not due and not redacted:
                return None
            reason = self._held(due) or self._vacuum(_VACUUMED)
            if reason is None:
                with self._datastore.transaction(commit=True) as cursor:
                    cursor.execute(
                        self._tables.sql(
                            "UPDATE {erasures} SET pending = false WHERE aggregate_id = ANY (%s)"
                        ),
                        (due,),
                    )
                    cursor.executemany(
                        self._tables.sql(
                            "UPDATE {redactions} SET pending = false WHERE aggregate_id = %s AND version = %s"
                        ),
                        redacted,
                    )
        return reason

    def pending(self) -> int:
        """How many sessions and contents were overwritten and not scrubbed."""
        with storage_errors():
            return len(self._pending()) + len(self._redacted())

    def purge(self, before: datetime) -> int:
        """Remove the stubs, and give their space free."""
        with storage_errors():
            with self._datastore.transaction(commit=True) as cursor:
                cursor.execute(
                    "SELECT set_config('lock_timeout', %s, true)", (f"{self._datastore.lock_timeout}s",)
                )
                cursor.execute(self._tables.sql(_PURGE), (micros(before), EventErased.TOPIC))
                purged = cursor.rowcount
            if purged and (reason := self._vacuum(_VACUUMED[:1])):
                _logger.warning("The space of purged events is not free yet: %s", reason)
        return purged

    def erased(self) -> Iterable[Erased]:
        """Every session that was erased from this database."""
        statement = self._tables.sql(
            "SELECT aggregate_id, deleted_at FROM {erasures} ORDER BY deleted_at, aggregate_id"
        )
        with storage_errors(), self._datastore.get_connection() as connection:
            rows = connection.execute(statement).fetchall()
        return [Erased(row["aggregate_id"], time_of(row["deleted_at"])) for row in rows]

    def _pending(self) -> list[UUID]:
        statement = self._tables.sql("SELECT aggregate_id FROM {erasures} WHERE pending")
        with self._datastore.get_connection() as connection:
            return [row["aggregate_id"] for row in connection.execute(statement).fetchall()]

    def _redacted(self) -> list[tuple[UUID, int]]:
        statement = self._tables.sql("SELECT aggregate_id, version FROM {redactions} WHERE pending")
        with self._datastore.get_connection() as connection:
            rows = connection.execute(statement).fetchall()
        return [(row["aggregate_id"], row["version"]) for row in rows]

    def _held(self, due: Sequence[UUID]) -> str | None:
        """What still keeps the old rows of these deletions alive; waits a moment for it to end."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            with self._datastore.get_connection() as connection:
                held = connection.execute(self._tables.sql(_HELD), (due,)).fetchone()
            if held is None:
                return None
            if time.monotonic() >= deadline:
                return (
                    f"A {held['kind']} that began before the deletion may still read what was deleted: end "
                    "it and run a sweep."
                )
            time.sleep(0.02)

    def _vacuum(self, statements: Iterable[LiteralString]) -> str | None:
        """Vacuum, outside of any transaction; why it was not done, None when it was."""
        warnings: list[str] = []

        def note(diagnostic: Diagnostic) -> None:
            if diagnostic.severity_nonlocalized == "WARNING":
                warnings.append(diagnostic.message_primary or "")

        try:
            with self._datastore.get_connection() as connection:
                connection.add_notice_handler(note)
                connection.execute(_LIMIT_WAITING)
                try:
                    for statement in statements:
                        connection.execute(self._tables.sql(statement))
                    left = self._left_over(connection)
                finally:
                    connection.remove_notice_handler(note)
                    if not connection.closed:
                        connection.execute("RESET lock_timeout")
        except PersistenceError as error:
            return f"VACUUM could not be run ({error}): run a sweep later."
        if warnings:
            return f"VACUUM was not done ({warnings[0]}): let the owner of the tables run a sweep."
        return left

    def _left_over(self, connection: Connection[DictRow]) -> str | None:
        """Whether old rows of events are left, for roles that are not shown the transactions of others."""
        row = connection.execute(self._tables.sql(_LEFT_OVER), (self._tables.regclass("events"),)).fetchone()
        if row is None or row["sees_all"] or not row["dead"]:
            return None
        return "A transaction of another role may still read what was deleted: end it and run a sweep."
