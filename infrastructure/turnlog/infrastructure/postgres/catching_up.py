"""Rows about sessions in a store whose recorder writes none: caught up with the log by whoever asks.

They are in tables of their own; a recorder with `SessionRows` makes others from the log. How far they got is
a row of tracking, moved in the transaction that writes them and locked first, so two processes that catch up
at once never apply an event twice.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, LiteralString
from uuid import UUID

from eventsourcing.persistence import Mapper, ProgrammingError, StoredEvent
from eventsourcing.postgres import PostgresApplicationRecorder
from psycopg import Cursor
from psycopg.rows import DictRow

from turnlog.application.erasing import gathered
from turnlog.application.projections.errors import LOST, ReadModelOutdatedError
from turnlog.application.storage import unlocked
from turnlog.application.stored_events import event_of, is_of_newer_version, require_rows
from turnlog.domain.errors import ErasureTargetError, StorageError, UnreadableEventError
from turnlog.domain.events import (
    ContentRedacted,
    EventErased,
    EventIdTaken,
    MessageAppended,
    SessionDeleted,
    SessionOpened,
    StreamEvent,
    as_uuid,
)
from turnlog.domain.query import EventQuery
from turnlog.infrastructure.postgres import directory, eraser, ledger, recall, rules, tables
from turnlog.infrastructure.postgres.pool import once_more
from turnlog.infrastructure.postgres.redacting import redact
from turnlog.infrastructure.postgres.rows import changes_of
from turnlog.infrastructure.postgres.tracking import limit_waiting

KIND: Final = "plain_"
"""What the names of these tables have in them."""

CREATE: Final[tuple[LiteralString, ...]] = (
    "CREATE TABLE IF NOT EXISTS {tracking} (notification_id bigint NOT NULL)",
    "INSERT INTO {tracking} SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM {tracking})",
    """
    CREATE TABLE IF NOT EXISTS {due} (
        aggregate_id uuid, version bigint, PRIMARY KEY (aggregate_id, version)
    )
    """,
)
"""How far the rows got, and which tombstones and redactions are not carried out yet."""

KEPT: Final = ("ids", "erasures", "redactions")
"""What is not a read model, and follows from the log: such tables are made anew by whoever writes."""

_PAGE: Final = 1000

_IS_BEHIND: Final[LiteralString] = """
    SELECT coalesce((SELECT max(notification_id) FROM {events}), 0) > notification_id AS behind
    FROM {tracking}
"""

_NEXT: Final[LiteralString] = """
    SELECT * FROM {events} WHERE notification_id > %s ORDER BY notification_id LIMIT %s
"""

_IN_FRONT: Final[LiteralString] = """
    SELECT * FROM {events} WHERE notification_id < %s ORDER BY notification_id DESC LIMIT %s
"""

COUNT_MESSAGE: Final[LiteralString] = "UPDATE {sessions} SET messages = messages + 1 WHERE aggregate_id = %s"

_DUE: Final[LiteralString] = """
    SELECT stored.*, version FROM {due} LEFT JOIN {events} AS stored
        ON stored.originator_id = {due}.aggregate_id::{id_type} AND originator_version = {due}.version
    WHERE aggregate_id = %s ORDER BY version DESC
"""

_CARRIED_OUT: Final[LiteralString] = "DELETE FROM {due} WHERE aggregate_id = %s AND version <> ALL (%s)"

_logger = logging.getLogger("turnlog")

_REMEMBER: Final[LiteralString] = "INSERT INTO {due} VALUES (%s, %s) ON CONFLICT DO NOTHING"


_KNOWN: Final[LiteralString] = """
    SELECT aggregate_id, false AS ended FROM {sessions} WHERE aggregate_id = ANY (%(ids)s::uuid[])
    UNION ALL SELECT aggregate_id, true FROM {ended} WHERE aggregate_id = ANY (%(ids)s::uuid[])
"""

_FORGET: Final[LiteralString] = """
    WITH former AS (
        DELETE FROM {sessions} WHERE aggregate_id = ANY (%(ids)s::uuid[]) RETURNING position
    ), ended AS (
        DELETE FROM {ended} WHERE aggregate_id = ANY (%(ids)s::uuid[])
    ), described AS (
        DELETE FROM {metadata} AS held USING former WHERE held.position = former.position
        RETURNING held.position, hashes
    ), found AS (
        DELETE FROM {by_metadata} AS held USING described
        WHERE held.position = described.position AND hash = ANY (hashes)
    ), indexed AS (
        DELETE FROM {recall} AS held USING former WHERE held.position = former.position
    )
    DELETE FROM {recall_mark} AS held USING former WHERE held.position = former.position
"""
"""Where the log lost a session as a whole, it may have been begun anew."""

_COPIED: Final[tuple[tuple[LiteralString, LiteralString], ...]] = (
    ("INSERT INTO {erasures} ", "SELECT * FROM {erasures}"),
    ("INSERT INTO {redactions} ", "SELECT * FROM {redactions}"),
)
"""What is known of deletions and redactions."""

_IS_DONE: Final[LiteralString] = """
    SELECT 1 FROM {erasures} WHERE aggregate_id = %(id)s AND version = %(version)s
    UNION ALL SELECT 1 FROM {redactions} WHERE aggregate_id = %(id)s AND version = %(version)s
"""

_END: Final[LiteralString] = """
    INSERT INTO {ended} SELECT nextval(pg_get_serial_sequence(%s, 'position')), %s, %s, %s
    ON CONFLICT (aggregate_id) DO NOTHING
"""


class CaughtUpRows:
    """The rows about the sessions of one recorder without `SessionRows`."""

    def __init__(self, recorder: PostgresApplicationRecorder, mapper: Mapper[Any]) -> None:
        self.datastore = recorder.datastore
        self.mapper = mapper
        self.tables = tables.of_recorder(recorder, KIND)
        self._with_rows = tables.of_recorder(recorder)
        self._index = recall.PostgresRecallIndex(self.datastore, mapper, self.tables)

    def create_tables(self) -> None:
        """Create what is missing; another process may do so at the same time."""
        with self.datastore.transaction(commit=True) as cursor:
            self._with_rows.one_at_a_time(cursor)
            self._refuse_other_rows(cursor)
            self.tables.create(cursor)
            for statement in CREATE:
                cursor.execute(self.tables.sql(statement), prepare=False)
            rules.write_if_missing(cursor, self.tables, directory.DIRECTORY_MODEL, directory.DIRECTORY_RULE)

    def catch_up(self) -> None:
        """Apply what is missing."""
        while unlocked(lambda: once_more(self.datastore, self._step, writes=False)):
            pass

    def catch_up_within(self, cursor: Cursor[DictRow]) -> None:
        """Apply all that is missing, in the transaction of the caller, who is alone at it until that ends."""
        while self._apply_page(cursor):
            pass

    def due(self) -> list[UUID]:
        """By tombstone and redaction that is not carried out yet the session, as far as the rows got."""
        statement = self.tables.sql("SELECT aggregate_id FROM {due} ORDER BY aggregate_id")
        with self.datastore.get_connection() as connection:
            return [row["aggregate_id"] for row in connection.execute(statement).fetchall()]

    def overwrite(self, cursor: Cursor[DictRow], aggregate_id: UUID) -> Sequence[StorageError]:
        """Put stubs over the events of this session, or markers over contents, if that is due.

        Returns why that cannot be done for some of them, which stay due.
        """
        failures: list[StorageError] = []
        left: list[int] = []
        for row in cursor.execute(self.tables.sql(_DUE), (aggregate_id,)).fetchall():
            left.append(row["version"])
            with gathered(failures):
                if row["originator_id"] is None:
                    raise ErasureTargetError(aggregate_id.hex, row["version"])
                overwrite(cursor, self.tables, self._index, self.mapper, stored_event(row))
                left.pop()
                if row["topic"] == SessionDeleted.TOPIC:  # all else that was asked for is done with it
                    left.clear()
                    failures.clear()
                    break
        cursor.execute(self.tables.sql(_CARRIED_OUT), (aggregate_id, left))
        return failures

    def _step(self) -> bool:
        """Apply the next events if there are any; whether there may be more."""
        try:
            with self.datastore.get_connection() as connection:
                row = connection.execute(self.tables.sql(_IS_BEHIND), prepare=True).fetchone()
        except ProgrammingError:  # no such table
            with self.datastore.get_connection() as connection:
                self._refuse_other_rows(connection.cursor())
            raise
        if row is not None and not row["behind"]:
            return False
        with self.datastore.transaction(commit=True) as cursor:
            return self._apply_page(cursor)

    def _apply_page(self, cursor: Cursor[DictRow]) -> bool:
        """Apply the next events; whether there may be more."""
        after = self.take_position(cursor)
        page = cursor.execute(self.tables.sql(_NEXT), (after, _PAGE)).fetchall()
        if not page:
            return False
        events = readable_events(cursor, self.tables, self.mapper, page, knows_kinds=True)
        apply(cursor, self.tables, events)
        count_unread(cursor, self.tables, page, events)
        for event in events:
            if _asks_for_erasure(event):
                values = (as_uuid(event.originator_id), event.originator_version)
                cursor.execute(self.tables.sql(_REMEMBER), values)
        newest = page[-1]["notification_id"]
        cursor.execute(self.tables.sql("UPDATE {tracking} SET notification_id = %s"), (newest,))
        return len(page) == _PAGE

    def take_position(self, cursor: Cursor[DictRow]) -> int:
        """How far the rows got. Nobody else goes on until the transaction ends."""
        limit_waiting(cursor, self.datastore)
        tracked = cursor.execute(self.tables.sql("SELECT * FROM {tracking} FOR UPDATE")).fetchone()
        return tracked["notification_id"] if tracked else 0

    def _refuse_other_rows(self, cursor: Cursor[DictRow]) -> None:
        if self._with_rows.are_kept(cursor):
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
            event = event_of(mapper, stored_event(row))
            if isinstance(event, StreamEvent):
                vars(event)["originator_id"] = row["originator_id"]  # in the form that the table has
                yield event


def apply(cursor: Cursor[DictRow], names: tables.Tables, events: Sequence[StreamEvent]) -> None:
    """Write the rows that follow from these events, but for the ledger.

    Of a session that was erased before, nothing is known that could be listed.
    """
    told = [event for event in events if not isinstance(event, EventErased)]
    opened = {as_uuid(event.originator_id) for event in told if isinstance(event, SessionOpened)}
    streams = {"ids": list({as_uuid(event.originator_id) for event in told})}
    rows = cursor.execute(names.sql(_KNOWN), streams).fetchall()
    held = {row["aggregate_id"] for row in rows if not row["ended"]}
    if again := opened.intersection(row["aggregate_id"] for row in rows):
        cursor.execute(names.sql(_FORGET), {"ids": list(again)})
    stored = [event for event in told if as_uuid(event.originator_id) in opened | held]
    changes = changes_of(stored, are_new=False)
    if changes:
        cursor.execute(names.sql("SELECT {write_rows}(%s::json, NULL)"), (changes.as_json()[0],))


def readable_events(
    cursor: Cursor[DictRow],
    names: tables.Tables,
    mapper: Mapper[Any],
    rows: Sequence[DictRow],
    *,
    knows_kinds: bool = False,
) -> list[StreamEvent]:
    """The same; one that cannot be read is said in the log of the process.

    It must not keep the healthy sessions from being used. Where none can be read, nor any in front of them,
    as under another key, that is an error; with `knows_kinds` an event of a newer version is one.
    """
    found: list[StreamEvent] = []
    failed: list[UnreadableEventError] = []
    for row in rows:
        try:
            for event in session_events(mapper, [row]):
                require_rows(event)
                found.append(event)
        except UnreadableEventError as error:
            if knows_kinds and is_of_newer_version(error):
                raise
            failed.append(error)
    if failed and not found and not _reads_some(cursor, names, mapper, rows[0]["notification_id"]):
        raise failed[0]
    for one in failed:
        _logger.warning("Rows about sessions are made without an event: %s", one)
    return found


def _reads_some(cursor: Cursor[DictRow], names: tables.Tables, mapper: Mapper[Any], before: int) -> bool:
    """Whether any of the events in front of a row can be read."""
    for row in cursor.execute(names.sql(_IN_FRONT), (before, _PAGE)).fetchall():
        with suppress(UnreadableEventError):
            if list(session_events(mapper, [row])):
                return True
    return False


def count_unread(
    cursor: Cursor[DictRow], names: tables.Tables, rows: Iterable[DictRow], read: Iterable[StreamEvent]
) -> None:
    """Of a message that cannot be read only that it is one is known."""
    known = {(event.originator_id, event.originator_version) for event in read}
    for row in rows:
        is_message = row["topic"] == MessageAppended.TOPIC
        if is_message and (row["originator_id"], row["originator_version"]) not in known:
            cursor.execute(names.sql(COUNT_MESSAGE), (as_uuid(row["originator_id"]),))


def _asks_for_erasure(event: object) -> bool:
    if isinstance(event, SessionDeleted):
        return not event.keeps_content
    return isinstance(event, ContentRedacted)


def overwrite(
    cursor: Cursor[DictRow],
    names: tables.Tables,
    index: recall.PostgresRecallIndex,
    mapper: Mapper[Any],
    stored: StoredEvent,
) -> None:
    """Put what this tombstone or redaction asks for over events in front of it.

    Raises `ErasureTargetError` where another event stands in its place, `UnreadableEventError`.
    """
    event, aggregate_id = event_of(mapper, stored), as_uuid(stored.originator_id)
    if not isinstance(event, (SessionDeleted, ContentRedacted)) or not _asks_for_erasure(event):
        raise ErasureTargetError(aggregate_id.hex, stored.originator_version)
    vars(event)["originator_id"] = stored.originator_id
    if isinstance(event, SessionDeleted):
        # The log may have lost the session as a whole since it was deleted before.
        cursor.execute(names.sql("DELETE FROM {erasures} WHERE aggregate_id = %s"), (aggregate_id,))
        eraser.prepare(mapper, event, [stored])[1].execute(cursor, names)
    else:
        redact(cursor, names, index, mapper, [eraser.Rewrite(event)])


def lacks_rows(cursor: Cursor[DictRow], recorder: PostgresApplicationRecorder) -> bool:
    """Whether sessions are stored without the rows that `SessionRows` writes, or may be by now."""
    names, plain = tables.of_recorder(recorder), tables.of_recorder(recorder, KIND)
    if not tables.is_missing(cursor, "to_regclass", plain.regclass("tracking")):
        return True
    return bool(names.missing(cursor, KEPT)) and _holds_sessions(cursor, names)


def keeps_rows(cursor: Cursor[DictRow], recorder: PostgresApplicationRecorder) -> bool:
    """Whether rows were kept from the first event on, and what is missing was dropped."""
    names, plain = tables.of_recorder(recorder), tables.of_recorder(recorder, KIND)
    return bool(plain.missing(cursor, ("tracking",))) and names.are_kept(cursor)


def lacks_part_of_directory(cursor: Cursor[DictRow], names: tables.Tables) -> bool:
    """Whether tables of the directory were dropped, in a store where rows about sessions are kept."""
    is_part_gone = bool(names.missing(cursor, directory.TABLES))
    return is_part_gone and names.are_kept(cursor) and _holds_sessions(cursor, names)


def is_directory_lost(cursor: Cursor[DictRow], names: tables.Tables) -> bool:
    """Whether tables of the directory were dropped, and it was not rebuilt since."""
    return lacks_part_of_directory(cursor, names) or (
        rules.rule_of(cursor, names, directory.DIRECTORY_MODEL) == LOST
    )


def require_directory(cursor: Cursor[DictRow], names: tables.Tables) -> None:
    """`ReadModelOutdatedError` where it is lost, or was made by another rule."""
    if is_directory_lost(cursor, names):
        raise ReadModelOutdatedError(directory.DIRECTORY_MODEL, LOST, directory.DIRECTORY_RULE)
    rules.require(cursor, names, directory.DIRECTORY_MODEL, directory.DIRECTORY_RULE)


def _holds_sessions(cursor: Cursor[DictRow], names: tables.Tables) -> bool:
    if names.missing(cursor, ("events",)):
        return False
    stored = names.sql("SELECT 1 FROM {events} WHERE starts_with(topic, %s) LIMIT 1")
    return cursor.execute(stored, (recall.OUR_TOPICS,)).fetchone() is not None


def make_missing(
    cursor: Cursor[DictRow],
    recorder: PostgresApplicationRecorder,
    mapper: Mapper[Any],
    missing: Sequence[str],
) -> None:
    """Fill these tables, which were missing, from the log, in the caller's transaction."""
    names, last = tables.of_recorder(recorder), 0
    cursor.execute(names.sql("LOCK TABLE {events} IN EXCLUSIVE MODE"))
    if {"erasures", "redactions"}.intersection(missing):
        eraser.remember_all(cursor, names, mapper)
    while "ids" in missing and (page := cursor.execute(names.sql(_NEXT), (last, _PAGE)).fetchall()):
        last = page[-1]["notification_id"]
        ledger.follow(cursor, names, readable_events(cursor, names, mapper, page))


def make_all(
    cursor: Cursor[DictRow], recorder: PostgresApplicationRecorder, mapper: Mapper[Any]
) -> Sequence[UUID]:
    """Make the rows that `SessionRows` writes, of all that is stored, in the caller's transaction.

    Tables that were caught up go, but for what is known of deletions; deletions that were not completed are.
    Returns the sessions, which are not indexed yet.
    """
    names, plain = tables.of_recorder(recorder), tables.of_recorder(recorder, KIND)
    caught_up = not tables.is_missing(cursor, "to_regclass", plain.regclass("tracking"))
    if caught_up:  # first, as whoever catches up does
        cursor.execute(plain.sql("LOCK TABLE {tracking} IN ACCESS EXCLUSIVE MODE"))
    cursor.execute(names.sql("LOCK TABLE {events} IN EXCLUSIVE MODE"))
    if caught_up:
        for insert, select in _COPIED:
            cursor.execute(names.sql(insert) + plain.sql(select), prepare=False)
        plain.drop(cursor)
    index, last = recall.PostgresRecallIndex(recorder.datastore, mapper, names), 0
    while page := cursor.execute(names.sql(_NEXT), (last, _PAGE)).fetchall():
        last = page[-1]["notification_id"]
        events = readable_events(cursor, names, mapper, page)
        ledger.follow(cursor, names, events)
        apply(cursor, names, events)
        count_unread(cursor, names, page, events)
        for row in page:
            if row["topic"] in (SessionDeleted.TOPIC, ContentRedacted.TOPIC):
                failures: list[StorageError] = []
                with gathered(failures):
                    _complete(cursor, names, index, mapper, stored_event(row))
                for failure in failures:
                    _logger.warning("An erasure that was due could not be carried out: %s", failure)
    listed = cursor.execute(names.sql("SELECT aggregate_id FROM {sessions} ORDER BY position")).fetchall()
    return [row["aggregate_id"] for row in listed]


def _complete(
    cursor: Cursor[DictRow],
    names: tables.Tables,
    index: recall.PostgresRecallIndex,
    mapper: Mapper[Any],
    stored: StoredEvent,
) -> None:
    """Remember the end of a session that was erased before; carry out what was not."""
    event = event_of(mapper, stored)
    aggregate_id = as_uuid(stored.originator_id)
    if isinstance(event, SessionDeleted):
        place = (names.regclass("sessions"), aggregate_id)
        cursor.execute(names.sql(_END), (*place, stored.originator_version, event.chain))
    known = cursor.execute(names.sql(_IS_DONE), {"id": aggregate_id, "version": stored.originator_version})
    if _asks_for_erasure(event) and known.fetchone() is None:
        overwrite(cursor, names, index, mapper, stored)


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
