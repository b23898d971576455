"""Read models made anew from the log, in temporary tables of one connection.

The code that writes the rows of the transaction writes these too, under the names of the temporary ones.
They are gone with the connection, whatever happens. What differs is then exchanged row by row: nobody who
reads has to wait, and grants, indexes and views of others over the tables stay what they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, LiteralString
from uuid import UUID

from eventsourcing.persistence import Mapper
from eventsourcing.postgres import PostgresApplicationRecorder
from psycopg import Cursor, sql
from psycopg.rows import DictRow

from turnlog.application.ledger import LEDGER_MODEL
from turnlog.application.projections import replaying
from turnlog.application.projections.batches import Positioned, by_stream
from turnlog.application.projections.links import MOST as MOST_BROKEN
from turnlog.application.projections.maintaining import MissingEvents
from turnlog.application.projections.replaying import StoredLog
from turnlog.application.projections.stored_view import VIEW_RULE
from turnlog.application.projections.view_store import VIEW_MODEL
from turnlog.domain.events import (
    ContentRedacted,
    EventErased,
    MessageAppended,
    SessionDeleted,
    StreamEvent,
    as_uuid,
)
from turnlog.infrastructure.postgres import catching_up, ledger, recall, rules, tables, view
from turnlog.infrastructure.postgres.directory import DIRECTORY_MODEL, DIRECTORY_RULE
from turnlog.infrastructure.postgres.tables import Names, Tables

BESIDE: Final = "pg_temp"
"""The schema of a connection's temporary tables."""

_PAGE: Final[LiteralString] = """
    SELECT * FROM {events} WHERE notification_id > %s AND notification_id <= %s
    ORDER BY notification_id LIMIT %s
"""

_STREAM: Final[LiteralString] = """
    SELECT * FROM {events} WHERE originator_id = %s::{id_type} AND originator_version BETWEEN %s AND %s
    ORDER BY originator_version
"""

_SAID: Final[LiteralString] = """
    SELECT originator_version FROM {events} WHERE originator_id = %s::{id_type}
        AND originator_version BETWEEN %s AND %s AND topic = %s ORDER BY originator_version
"""

_IS_DELETED: Final[LiteralString] = """
    SELECT 1 FROM {events} WHERE originator_id = %s::{id_type} AND topic = %s AND notification_id > %s
"""

_NUMBER: Final[LiteralString] = """
    CREATE FUNCTION {number}() RETURNS trigger LANGUAGE plpgsql AS $BODY$
    DECLARE
        newest bigint := (SELECT coalesce(max(position), 0) FROM {sessions});
    BEGIN
        SELECT position INTO NEW.position FROM (
            SELECT position FROM {real_sessions} WHERE aggregate_id = NEW.aggregate_id
            UNION ALL SELECT position FROM {real_ended} WHERE aggregate_id = NEW.aggregate_id
        ) AS former WHERE position > newest
            AND NOT EXISTS (SELECT 1 FROM {ended} WHERE {ended}.position = former.position)
        LIMIT 1;
        IF NEW.position IS NULL THEN
            NEW.position := greatest(newest, (SELECT max(position) FROM {ended})) + 1;
        END IF;
        RETURN NEW;
    END
    $BODY$
"""
"""A session keeps its position where that is in the order of the log: the index and pages know it by it."""

_NUMBERED: Final[LiteralString] = """
    CREATE TRIGGER turnlog_number BEFORE INSERT ON {sessions} FOR EACH ROW EXECUTE FUNCTION {number}()
"""

_TAKE_OVER: Final[LiteralString] = """
    INSERT INTO {ended} SELECT * FROM {real_ended} WHERE aggregate_id = ANY (%s) ON CONFLICT DO NOTHING
"""
"""What the log does not have any more."""

_END: Final[LiteralString] = """
    INSERT INTO {ended}
    SELECT greatest((SELECT max(position) FROM {sessions}), (SELECT max(position) FROM {ended}), 0) + 1,
        %(id)s, %(version)s, %(head)s
    WHERE NOT EXISTS (SELECT 1 FROM {ended} WHERE aggregate_id = %(id)s)
"""
"""For a deletion of which nothing was known."""

_OTHER_HEADS: Final[LiteralString] = """
    SELECT aggregate_id, new.version FROM {sessions} AS new JOIN {real_sessions} AS former
        USING (aggregate_id)
    WHERE new.version = former.version AND new.head <> former.head LIMIT %s
"""

_KEEP_HEADS: Final[LiteralString] = """
    UPDATE {sessions} AS new
    SET version = former.version, head = former.head, modified_at = former.modified_at,
        expires_at = former.expires_at
    FROM {real_sessions} AS former
    JOIN unnest(%s::uuid[], %s::bigint[]) AS unreadable (aggregate_id, version)
        USING (aggregate_id, version)
    WHERE new.aggregate_id = former.aggregate_id AND new.version < former.version
"""

_KEEP_IDS: Final[LiteralString] = """
    INSERT INTO {ids} SELECT former.* FROM {real_ids} AS former
    JOIN unnest(%s::uuid[], %s::bigint[]) AS unreadable (aggregate_id, version)
        USING (aggregate_id, version)
    ON CONFLICT DO NOTHING
"""

_ENDS_GONE: Final[LiteralString] = """
    SELECT told.aggregate_id, told.version, told.session_id, newest FROM ({told}) AS told
    LEFT JOIN LATERAL (
        SELECT max(originator_version) AS newest FROM {events}
        WHERE originator_id = told.aggregate_id::{id_type}
    ) AS stored ON true
    WHERE NOT EXISTS (
        SELECT 1 FROM {events} WHERE originator_id = told.aggregate_id::{id_type}
            AND originator_version = told.version
    ) AND coalesce(newest, -1) < told.version LIMIT %s
"""

_TOLD: Final[LiteralString] = "SELECT aggregate_id, version, session_id FROM {sessions}"

_TOLD_OF_ENDED: Final[LiteralString] = "SELECT aggregate_id, version, NULL AS session_id FROM {ended}"

_TOLD_BY_VIEW: Final[LiteralString] = "SELECT aggregate_id, version, NULL AS session_id FROM {views}"

_FORGET: Final[LiteralString] = """
    DELETE FROM {recall} WHERE NOT EXISTS (
        SELECT 1 FROM {real_sessions} AS former JOIN {sessions} AS new USING (aggregate_id, position)
        WHERE former.position = {recall}.position
    )
"""
"""What is indexed under a position that was not, or will not be, that of the session."""

_GO_ON_BEHIND: Final[LiteralString] = """
    SELECT setval(sequence, newest) FROM (
        SELECT pg_get_serial_sequence(%s, 'position')::regclass AS sequence, max(position) AS newest FROM (
            SELECT position FROM {sessions} UNION ALL SELECT position FROM {ended}
        ) AS held
    ) AS held WHERE newest > coalesce(pg_sequence_last_value(sequence), 0)
"""

_REMOVE: Final[LiteralString] = """
    DELETE FROM {real} AS former WHERE NOT EXISTS (
        SELECT 1 FROM {made} AS new WHERE {same_key} AND ROW(new.*) IS NOT DISTINCT FROM ROW(former.*)
    )
"""

_ADD: Final[LiteralString] = """
    INSERT INTO {real} OVERRIDING SYSTEM VALUE
    SELECT new.* FROM {made} AS new WHERE NOT EXISTS (SELECT 1 FROM {real} AS former WHERE {same_key})
"""

_UNKNOWN: Final[LiteralString] = """
    DELETE FROM {recall} WHERE NOT EXISTS (
        SELECT 1 FROM {sessions} WHERE {sessions}.position = {recall}.position
    )
"""

_INDEXED: Final[LiteralString] = """
    SELECT indexed FROM {recall_mark} JOIN {sessions} USING (position) WHERE aggregate_id = %s AND rule = %s
"""

_KEYS: Final = {
    "ids": ("aggregate_id", "event_id"),
    "sessions": ("position",),
    "ended": ("position",),
    "metadata": ("position",),
    "by_metadata": ("hash", "position"),
    "recall": ("position", "first"),
    "recall_mark": ("position",),
    "views": ("aggregate_id",),
    "view_messages": ("aggregate_id", "place"),
}


class PostgresStoredLog(StoredLog[Cursor[DictRow]]):
    """The log of a recorder by notification id, read through any connection to its database."""

    def __init__(
        self, recorder: PostgresApplicationRecorder, mapper: Mapper[Any], *, lenient: bool = False
    ) -> None:
        super().__init__(mapper, lenient=lenient)
        self._tables = tables.of_recorder(recorder)

    def size(self, cursor: Cursor[DictRow]) -> int:
        """How many events there are."""
        row = cursor.execute(self._tables.sql("SELECT count(*) AS events FROM {events}")).fetchone()
        return row["events"] if row else 0

    def newest(self, cursor: Cursor[DictRow]) -> int:
        """The notification id of the newest event."""
        row = cursor.execute(self._tables.sql("SELECT max(notification_id) AS id FROM {events}")).fetchone()
        return (row["id"] if row else None) or 0

    def next(self, cursor: Cursor[DictRow], after: int, upto: int) -> list[Positioned]:
        """The next events up to a notification id."""
        cursor.execute(self._tables.sql(_PAGE), (after, upto, replaying.PAGE))
        return [Positioned(row["notification_id"], self._event(row)) for row in cursor.fetchall()]

    def stream(self, cursor: Cursor[DictRow], aggregate_id: UUID, first: int, last: int) -> list[StreamEvent]:
        """The events of a session at these versions."""
        cursor.execute(self._tables.sql(_STREAM), (str(aggregate_id), first, last))
        return [event for row in cursor.fetchall() if (event := self._event(row)) is not None]

    def said(self, cursor: Cursor[DictRow], aggregate_id: UUID, first: int, last: int) -> list[int]:
        """The versions of messages among these."""
        cursor.execute(self._tables.sql(_SAID), (str(aggregate_id), first, last, MessageAppended.TOPIC))
        return [row["originator_version"] for row in cursor.fetchall()]

    def is_deleted_behind(self, cursor: Cursor[DictRow], aggregate_id: UUID, position: int) -> bool:
        """Whether the session was deleted behind this position."""
        cursor.execute(self._tables.sql(_IS_DELETED), (str(aggregate_id), SessionDeleted.TOPIC, position))
        return cursor.fetchone() is not None

    def ends_gone(self, cursor: Cursor[DictRow], rows: Tables, view: Names) -> list[MissingEvents]:
        """Of sessions whose newest event is not there that a row tells of, the versions that are gone."""
        told: tuple[tuple[str, Names, LiteralString], ...] = (
            ("sessions", rows, _TOLD),
            ("ended", rows, _TOLD_OF_ENDED),
            ("views", view, _TOLD_BY_VIEW),
        )
        gone: dict[UUID, MissingEvents] = {}
        for table, names, select in told:
            if names.missing(cursor, (table,)):
                continue
            statement = sql.SQL(_ENDS_GONE).format(
                **self._tables.names, told=sql.SQL(select).format(**names.names)
            )
            for row in cursor.execute(statement, (MOST_BROKEN,)).fetchall():
                aggregate_id, newest = row["aggregate_id"], row["newest"]
                first = 0 if newest is None else newest + 1
                one = MissingEvents(aggregate_id.hex, first, row["version"], row["session_id"])
                gone.setdefault(aggregate_id, one)
        return list(gone.values())

    def take_the_lock(self, cursor: Cursor[DictRow]) -> None:
        """Let nobody append until the transaction ends."""
        cursor.execute(self._tables.sql("LOCK TABLE {events} IN EXCLUSIVE MODE"))

    def _event(self, row: DictRow) -> StreamEvent | None:
        return self.read(row["notification_id"], catching_up.stored_event(row))


class DirectoryBuilder:
    """The directory. What is known of erased sessions is taken over from the former one: the log has it not.

    So each session keeps its position, by which the index of what was said knows it.
    """

    name = DIRECTORY_MODEL

    def __init__(self, log: PostgresStoredLog, real: Tables, made: Tables) -> None:
        self._log = log
        self._real = real
        self._made = made
        self._taken_over: set[int] = set()

    def begin(self, cursor: Cursor[DictRow]) -> None:
        """Make its tables, without what only readers need, and the function that fills them."""
        create_rows(cursor, self._made)
        cursor.execute(self._made.sql(tables.WRITE_ROWS), prepare=False)
        for statement in (_NUMBER, _NUMBERED):
            cursor.execute(_between(statement, self._real, self._made), prepare=False)

    def apply(self, cursor: Cursor[DictRow], page: Sequence[Positioned]) -> None:
        """Go on by a page."""
        events = [item.event for item in page if item.event is not None]
        erased = [
            as_uuid(event.originator_id)
            for event in events
            if isinstance(event, EventErased) and event.originator_version == 0
        ]
        if erased:
            cursor.execute(_between(_TAKE_OVER, self._real, self._made), (erased,))
        catching_up.apply(cursor, self._made, events)
        for event in events:
            if isinstance(event, SessionDeleted):
                place = {"id": as_uuid(event.originator_id), "version": event.originator_version}
                cursor.execute(self._made.sql(_END), {**place, "head": event.chain})

    def settle(self, cursor: Cursor[DictRow], upto: int) -> None:  # noqa: ARG002 - it is up to what was read
        """Take over what only the former rows say, and let the exchange know how much there is."""
        self._take_over(cursor)
        _analyze(cursor, self._made, ("sessions", "ended", "metadata", "by_metadata"))

    def finish(self, cursor: Cursor[DictRow], tail: Sequence[Positioned]) -> bool:
        """Apply the last events."""
        self.apply(cursor, tail)
        return True

    def swap(self, cursor: Cursor[DictRow]) -> None:
        """Exchange what differs. What is indexed under a position that changes is indexed anew."""
        self._take_over(cursor)
        for row in cursor.execute(_between(_OTHER_HEADS, self._real, self._made), (MOST_BROKEN,)).fetchall():
            self._log.links.note_broken(row["aggregate_id"], row["version"])
        for name in ("recall", "recall_mark"):
            cursor.execute(_between(_FORGET, self._real, self._made, recall=self._real.names[name]))
        _exchange(cursor, self._real, self._made, ("ended", "sessions", "metadata", "by_metadata"))
        cursor.execute(self._real.sql(_GO_ON_BEHIND), (self._real.regclass("sessions"),))
        rules.write(cursor, self._real, self.name, DIRECTORY_RULE)

    def _take_over(self, cursor: Cursor[DictRow]) -> None:
        """Count messages that cannot be read, and keep the head of a session whose newest event cannot."""
        new = [place for position, place in self._log.unreadable.items() if position not in self._taken_over]
        self._taken_over.update(self._log.unreadable)
        if not new:
            return
        for aggregate_id, version in new:
            if self._log.said(cursor, aggregate_id, version, version):
                cursor.execute(self._made.sql(catching_up.COUNT_MESSAGE), (aggregate_id,))
        if not self._real.missing(cursor, ("sessions",)):
            cursor.execute(_between(_KEEP_HEADS, self._real, self._made), _columns(new))


class LedgerBuilder:
    """The ledger of event ids."""

    name = LEDGER_MODEL

    def __init__(self, log: PostgresStoredLog, real: Tables, made: Tables) -> None:
        self._log = log
        self._real = real
        self._made = made

    def begin(self, cursor: Cursor[DictRow]) -> None:
        """Make its table."""
        create_rows(cursor, self._made)

    def apply(self, cursor: Cursor[DictRow], page: Sequence[Positioned]) -> None:
        """Go on by a page."""
        events = [item.event for item in page if item.event is not None]
        for aggregate_id, event_id, first, second in ledger.follow(cursor, self._made, events):
            self._log.note_repeat(cursor, aggregate_id, event_id, first, second)
        for event in events:
            if isinstance(event, SessionDeleted):
                self._log.forget_repeats(as_uuid(event.originator_id))

    def settle(self, cursor: Cursor[DictRow], upto: int) -> None:  # noqa: ARG002 - it is up to what was read
        """Take over what only the former entries say, and let the exchange know how much there is."""
        self._take_over(cursor)
        _analyze(cursor, self._made, ("ids",))

    def finish(self, cursor: Cursor[DictRow], tail: Sequence[Positioned]) -> bool:
        """Apply the last events."""
        self.apply(cursor, tail)
        return True

    def swap(self, cursor: Cursor[DictRow]) -> None:
        """Exchange what differs."""
        self._take_over(cursor)
        _exchange(cursor, self._real, self._made, ("ids",))

    def _take_over(self, cursor: Cursor[DictRow]) -> None:
        """The former entry of an event that cannot be read still says its id."""
        if self._log.unreadable and not self._real.missing(cursor, ("ids",)):
            statement = _between(_KEEP_IDS, self._real, self._made, real_ids=self._real.names["ids"])
            cursor.execute(statement, _columns(self._log.unreadable.values()))


class ViewBuilder:
    """The materialised view."""

    name = VIEW_MODEL

    def __init__(self, real: Names) -> None:
        self.real = real
        self.made = Names(BESIDE, real.tables)

    def begin(self, cursor: Cursor[DictRow]) -> None:
        """Make its tables."""
        for statement in view.CREATE:
            cursor.execute(self.made.sql(statement), prepare=False)

    def apply(self, cursor: Cursor[DictRow], page: Sequence[Positioned]) -> None:
        """Go on by a page."""
        view.insert(cursor, self.made, page)

    def settle(self, cursor: Cursor[DictRow], upto: int) -> None:  # noqa: ARG002 - nothing is left to do
        """Let the exchange know how much there is."""
        _analyze(cursor, self.made, ("views", "view_messages"))

    def finish(self, cursor: Cursor[DictRow], tail: Sequence[Positioned]) -> bool:
        """Apply the last events."""
        self.apply(cursor, tail)
        return True

    def swap(self, cursor: Cursor[DictRow]) -> None:
        """Exchange what differs."""
        _exchange(cursor, self.real, self.made, ("views", "view_messages"))
        rules.write(cursor, self.real, self.name, VIEW_RULE)


class RecallBuilder:
    """The index of what was said, for sessions of the directory that is made too, or else of the real one.

    To be compared it is made as far as the real one got.
    """

    name = "recall"

    def __init__(
        self,
        log: PostgresStoredLog,
        recorder: PostgresApplicationRecorder,
        kind: str,
        *,
        with_directory: bool,
        like_the_real_one: bool = False,
    ) -> None:
        self._log = log
        self._real = tables.of_recorder(recorder, kind)
        self._made = tables.of_recorder(recorder, kind, beside=BESIDE)
        if not with_directory:
            self._made.names["sessions"] = self._real.names["sessions"]
        self._index = recall.PostgresRecallIndex(recorder.datastore, log.mapper, self._made)
        self._is_like = like_the_real_one
        self._begun = 0
        self._due: set[tuple[UUID, int]] = set()
        self._redacted: list[tuple[UUID, int]] = []

    def begin(self, cursor: Cursor[DictRow]) -> None:
        """Make its tables."""
        create_rows(cursor, self._made)
        self._begun = self._log.newest(cursor)
        if not tables.is_missing(cursor, "to_regclass", self._real.regclass("due")):
            rows = cursor.execute(self._real.sql("SELECT aggregate_id, version FROM {due}")).fetchall()
            self._due = {(row["aggregate_id"], row["version"]) for row in rows}

    def apply(self, cursor: Cursor[DictRow], page: Sequence[Positioned]) -> None:
        """Go on by a page: index the blocks of each session that are complete behind it."""
        positions = {id(item.event): item.position for item in page}
        for aggregate_id, events in by_stream(page).items():
            if isinstance(events[-1], (EventErased, SessionDeleted)):
                continue
            first, last = events[0].originator_version, events[-1].originator_version
            redactions = [event for event in events if isinstance(event, ContentRedacted)]
            for event in redactions:
                self._note(event, aggregate_id, positions[id(event)])
            if redactions:
                self._index.rewrite(cursor, aggregate_id, [one.redacted_version for one in redactions])
            if last // recall.BLOCK > max(first - 1, 0) // recall.BLOCK:
                upto = min(last, self._limit(cursor, aggregate_id)) if self._is_like else last
                while self._index.catch_up_within(cursor, aggregate_id, upto):
                    pass

    def settle(self, cursor: Cursor[DictRow], upto: int) -> None:  # noqa: ARG002 - nothing is left to do
        """Let the exchange know how much there is."""
        _analyze(cursor, self._made, ("recall", "recall_mark"))

    def finish(self, cursor: Cursor[DictRow], tail: Sequence[Positioned]) -> bool:
        """Apply the last events, and index anew what may have been read in front of its redaction."""
        self.apply(cursor, tail)
        for aggregate_id, version in self._redacted:
            self._index.rewrite(cursor, aggregate_id, [version])
        return True

    def swap(self, cursor: Cursor[DictRow]) -> None:
        """Exchange what differs, but for sessions that are gone."""
        for name in ("recall", "recall_mark"):
            gone = _between(
                _UNKNOWN,
                self._real,
                self._made,
                recall=self._made.names[name],
                sessions=self._real.names["sessions"],
            )
            cursor.execute(gone)
        _exchange(cursor, self._real, self._made, ("recall", "recall_mark"))

    def _note(self, event: ContentRedacted, aggregate_id: UUID, position: int) -> None:
        """Redactions beside a plain recorder are carried out behind their event, perhaps meanwhile."""
        if position > self._begun or (aggregate_id, event.originator_version) in self._due:
            self._redacted.append((aggregate_id, event.redacted_version))

    def _limit(self, cursor: Cursor[DictRow], aggregate_id: UUID) -> int:
        """How far the real index has this session."""
        row = cursor.execute(self._real.sql(_INDEXED), (aggregate_id, recall.RULE)).fetchone()
        return 0 if row is None else int(row["indexed"])


def create_rows(cursor: Cursor[DictRow], made: Tables) -> None:
    """Make the tables about sessions, without what only readers need."""
    for statement in tables.CREATE_TABLES:
        if "CREATE TABLE" in statement:
            cursor.execute(made.sql(statement), prepare=False)


def _between(statement: LiteralString, real: Tables, made: Tables, **others: sql.Composable) -> sql.Composed:
    """A statement about tables of both kinds."""
    names: dict[str, sql.Composable] = {
        **made.names,
        "real_sessions": real.names["sessions"],
        "real_ended": real.names["ended"],
        "number": sql.Identifier(BESIDE, "turnlog_number"),
        **others,
    }
    return sql.SQL(statement).format(**names)


def _columns(places: Iterable[tuple[UUID, int]]) -> tuple[list[UUID], list[int]]:
    """Sessions and versions, each in a list."""
    held = list(places)
    return [aggregate_id for aggregate_id, _ in held], [version for _, version in held]


def _analyze(cursor: Cursor[DictRow], made: Names, names: Sequence[str]) -> None:
    for name in names:
        cursor.execute(sql.SQL("ANALYZE {}").format(made.names[name]), prepare=False)


def _exchange(cursor: Cursor[DictRow], real: Names, made: Names, names: Sequence[str]) -> None:
    """Remove what is not in the tables that were made, and add what only they have."""
    for statement in (_REMOVE, _ADD):
        for name in names:
            same = (sql.SQL("new.{0} = former.{0}").format(sql.Identifier(key)) for key in _KEYS[name])
            cursor.execute(
                sql.SQL(statement).format(
                    real=real.names[name], made=made.names[name], same_key=sql.SQL(" AND ").join(same)
                ),
                prepare=False,
            )
