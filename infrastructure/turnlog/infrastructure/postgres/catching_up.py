"""Rows about sessions in a store whose recorder writes none: caught up with the log by whoever asks.

They are in tables of their own; a recorder with `SessionRows` makes others from the log. How far they got is
a row of tracking, moved in the transaction that writes them and locked first, so two processes that catch up
at once never apply an event twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, LiteralString
from uuid import UUID

from eventsourcing.persistence import Mapper, ProgrammingError, StoredEvent
from eventsourcing.postgres import PostgresApplicationRecorder
from psycopg import Cursor
from psycopg.rows import DictRow

from turnlog.application.ports import SessionRow
from turnlog.application.storage import unlocked
from turnlog.domain.errors import StorageError
from turnlog.domain.events import (
    EventErased,
    EventIdTaken,
    SessionDeleted,
    SessionOpened,
    StreamEvent,
    as_uuid,
)
from turnlog.domain.query import EventQuery
from turnlog.infrastructure.postgres import directory, eraser, recall, tables
from turnlog.infrastructure.postgres.pool import once_more
from turnlog.infrastructure.postgres.rows import changes_of

KIND: Final = "plain_"
"""What the names of these tables have in them."""

CREATE: Final[tuple[LiteralString, ...]] = (
    "CREATE TABLE IF NOT EXISTS {tracking} (notification_id bigint NOT NULL)",
    "INSERT INTO {tracking} SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM {tracking})",
    "CREATE TABLE IF NOT EXISTS {due} (aggregate_id uuid PRIMARY KEY, version bigint NOT NULL)",
)
"""How far the rows got, and which deleted sessions are not overwritten yet."""

_PAGE: Final = 1000

_IS_BEHIND: Final[LiteralString] = """
    SELECT coalesce((SELECT max(notification_id) FROM {events}), 0) > notification_id AS behind
    FROM {tracking}
"""

_NEXT: Final[LiteralString] = """
    SELECT * FROM {events} WHERE notification_id > %s ORDER BY notification_id LIMIT %s
"""

_TOMBSTONE: Final[LiteralString] = """
    SELECT stored.* FROM {due} JOIN {events} AS stored
        ON stored.originator_id = {due}.aggregate_id::{id_type} AND originator_version = {due}.version
    WHERE aggregate_id = %s
"""

_REMEMBER: Final[LiteralString] = "INSERT INTO {due} VALUES (%s, %s) ON CONFLICT DO NOTHING"


class CaughtUpRows:
    """The rows about the sessions of one recorder without `SessionRows`."""

    def __init__(self, recorder: PostgresApplicationRecorder, mapper: Mapper[Any]) -> None:
        self.datastore = recorder.datastore
        self.mapper = mapper
        self.tables = tables.of_recorder(recorder, KIND)
        self._with_rows = tables.of_recorder(recorder)

    def create_tables(self) -> None:
        """Create what is missing; another process may do so at the same time."""
        with self.datastore.transaction(commit=True) as cursor:
            self._with_rows.one_at_a_time(cursor)
            self._refuse_other_rows(cursor)
            self.tables.create(cursor)
            for statement in CREATE:
                cursor.execute(self.tables.sql(statement), prepare=False)

    def catch_up(self) -> None:
        """Apply what is missing."""
        while unlocked(lambda: once_more(self.datastore, self._step, writes=False)):
            pass

    def catch_up_within(self, cursor: Cursor[DictRow]) -> None:
        """Apply all that is missing, in the transaction of the caller, who is alone at it until that ends."""
        while self._apply_page(cursor):
            pass

    def due(self) -> list[UUID]:
        """The deleted sessions that are not overwritten yet, as far as the rows got."""
        statement = self.tables.sql("SELECT aggregate_id FROM {due} ORDER BY aggregate_id")
        with self.datastore.get_connection() as connection:
            return [row["aggregate_id"] for row in connection.execute(statement).fetchall()]

    def overwrite(self, cursor: Cursor[DictRow], aggregate_id: UUID) -> None:
        """Put stubs over the events of this session if that is due."""
        row = cursor.execute(self.tables.sql(_TOMBSTONE), (aggregate_id,)).fetchone()
        if row is None:
            return
        overwrite(cursor, self.tables, self.mapper, stored_event(row))
        cursor.execute(self.tables.sql("DELETE FROM {due} WHERE aggregate_id = %s"), (aggregate_id,))

    def _step(self) -> bool:
        """Apply the next events if there are any; whether there may be more."""
        with self.datastore.get_connection() as connection:
            try:
                row = connection.execute(self.tables.sql(_IS_BEHIND), prepare=True).fetchone()
            except ProgrammingError:  # no such table
                self._refuse_other_rows(connection.cursor())
                raise
        if row is not None and not row["behind"]:
            return False
        with self.datastore.transaction(commit=True) as cursor:
            return self._apply_page(cursor)

    def _apply_page(self, cursor: Cursor[DictRow]) -> bool:
        """Apply the next events; whether there may be more."""
        cursor.execute("SELECT set_config('lock_timeout', %s, true)", (f"{self.datastore.lock_timeout}s",))
        tracked = cursor.execute(self.tables.sql("SELECT * FROM {tracking} FOR UPDATE")).fetchone()
        after = tracked["notification_id"] if tracked else 0
        page = cursor.execute(self.tables.sql(_NEXT), (after, _PAGE)).fetchall()
        if not page:
            return False
        events = list(session_events(self.mapper, page))
        apply(cursor, self.tables, events)
        for event in events:
            if isinstance(event, SessionDeleted) and not event.keeps_content:
                values = (as_uuid(event.originator_id), event.originator_version)
                cursor.execute(self.tables.sql(_REMEMBER), values)
        newest = page[-1]["notification_id"]
        cursor.execute(self.tables.sql("UPDATE {tracking} SET notification_id = %s"), (newest,))
        return len(page) == _PAGE

    def _refuse_other_rows(self, cursor: Cursor[DictRow]) -> None:
        if not tables.is_missing(cursor, "to_regclass", self._with_rows.regclass("sessions")):
            raise StorageError(
                "Rows about sessions are written by the recorder of another process by now: "
                "put SessionRows in front of the recorder here too, and start anew."
            )


def stored_event(row: DictRow) -> StoredEvent:
    """The event of this row."""
    return StoredEvent(
        originator_id=row["originator_id"],
        originator_version=row["originator_version"],
        topic=row["topic"],
        state=bytes(row["state"]),
    )


def session_events(mapper: Mapper[Any], rows: Iterable[DictRow]) -> Iterable[StreamEvent]:
    """The events of sessions among these rows."""
    for row in rows:
        if row["topic"].startswith(recall.OUR_TOPICS) and row["topic"] != EventIdTaken.TOPIC:
            event = mapper.to_domain_event(stored_event(row))
            if isinstance(event, StreamEvent):
                vars(event)["originator_id"] = row["originator_id"]  # in the form that the table has
                yield event


def apply(
    cursor: Cursor[DictRow], names: tables.Tables, events: Sequence[StreamEvent], *, ledger: bool = False
) -> None:
    """Write the rows that follow from these events, with the entries of the ledger if that is asked for.

    Of a session that was erased before, nothing is known that could be listed.
    """
    told = [event for event in events if not isinstance(event, EventErased)]
    known = {as_uuid(event.originator_id) for event in told if isinstance(event, SessionOpened)}
    held = cursor.execute(
        names.sql("SELECT aggregate_id FROM {sessions} WHERE aggregate_id = ANY (%s::uuid[])"),
        (list({as_uuid(event.originator_id) for event in told}),),
    )
    known.update(row["aggregate_id"] for row in held.fetchall())
    changes, entries = changes_of(event for event in told if as_uuid(event.originator_id) in known)
    if changes is not None:
        cursor.execute(
            names.sql("SELECT {write_rows}(%s::json, %s::json)"), (changes, entries if ledger else None)
        )


def overwrite(
    cursor: Cursor[DictRow], names: tables.Tables, mapper: Mapper[Any], stored: StoredEvent
) -> None:
    """Put stubs over the events in front of this tombstone."""
    tombstone = mapper.to_domain_event(stored)
    if isinstance(tombstone, SessionDeleted):
        vars(tombstone)["originator_id"] = stored.originator_id
        eraser.prepare(mapper, tombstone, [stored])[1].execute(cursor, names)


class CaughtUpDirectory(directory.PostgresDirectory):
    """The directory, which applies what is missing before it answers."""

    def __init__(self, rows: CaughtUpRows) -> None:
        super().__init__(rows.datastore, rows.tables)
        self._caught_up = rows

    def newest(
        self,
        namespace: str,
        *,
        limit: int,
        before: int | None = None,
        where: Mapping[str, Any] | None = None,
    ) -> Sequence[SessionRow]:
        """Sessions by creation, newest first."""
        self._caught_up.catch_up()
        return super().newest(namespace, limit=limit, before=before, where=where)

    def with_prefix(
        self, namespace: str, prefix: str, *, limit: int, where: Mapping[str, Any] | None = None
    ) -> Sequence[SessionRow]:
        """Sessions whose id begins with the prefix."""
        self._caught_up.catch_up()
        return super().with_prefix(namespace, prefix, limit=limit, where=where)

    def expired(
        self, namespace: str, at: datetime, *, where: Mapping[str, Any] | None = None
    ) -> Sequence[SessionRow]:
        """Sessions that expired at this time or before it."""
        self._caught_up.catch_up()
        return super().expired(namespace, at, where=where)


class CaughtUpRecallIndex(recall.PostgresRecallIndex):
    """The index, which is caught up before it is asked."""

    def __init__(self, rows: CaughtUpRows) -> None:
        super().__init__(rows.datastore, rows.mapper, rows.tables)
        self._caught_up = rows

    def candidates(
        self, aggregate_ids: Sequence[UUID], query: EventQuery
    ) -> Mapping[UUID, Sequence[int]] | None:
        """By session the versions of messages among which are all that match, in order."""
        if recall.narrows(query):
            self._caught_up.catch_up()
            self.complete(aggregate_ids)
        return super().candidates(aggregate_ids, query)
