"""Read models made anew from the log, in temporary tables of one connection.

There they have the names of the real ones, which SQLite looks up there first: the code that writes the rows
of the transaction writes these too. They are gone with the connection, whatever happens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import dropwhile
from typing import Any, Final
from uuid import UUID

from eventsourcing.persistence import Mapper, StoredEvent
from eventsourcing.sqlite import SQLiteApplicationRecorder, SQLiteCursor

from turnlog.application.ledger import LEDGER_MODEL
from turnlog.application.projections import replaying
from turnlog.application.projections.batches import Positioned, by_stream
from turnlog.application.projections.links import MOST as MOST_BROKEN
from turnlog.application.projections.maintaining import MissingEvents
from turnlog.application.projections.replaying import StoredLog
from turnlog.application.projections.stored_view import VIEW_RULE
from turnlog.application.projections.view_rows import follow
from turnlog.application.projections.view_store import VIEW_MODEL
from turnlog.domain.events import (
    ContentRedacted,
    EventErased,
    MessageAppended,
    SessionDeleted,
    SessionOpened,
    StreamEvent,
    as_uuid,
)
from turnlog.infrastructure.sqlite import directory, eraser, ledger, recall, rules, view
from turnlog.infrastructure.sqlite.catching_up import TRACKED_AS, tracked

_STREAM_OF: Final = {
    True: "lower(hex(aggregate_id))",
    False: "lower(substr(hex(aggregate_id), 1, 8) || '-' || substr(hex(aggregate_id), 9, 4) || '-' || "
    "substr(hex(aggregate_id), 13, 4) || '-' || substr(hex(aggregate_id), 17, 4) || '-' || "
    "substr(hex(aggregate_id), 21))",
}
"""What the table of events has for an id, where its ids are UUIDs and where they are texts."""


_KEEP_HEAD: Final = """
    UPDATE temp.turnlog_sessions SET (version, head, modified_at, expires_at) = (
        SELECT version, head, modified_at, expires_at FROM main.turnlog_sessions AS former
        WHERE former.aggregate_id = temp.turnlog_sessions.aggregate_id
    )
    WHERE aggregate_id = ?1 AND version < ?2 AND EXISTS (
        SELECT 1 FROM main.turnlog_sessions AS former
        WHERE former.aggregate_id = ?1 AND former.version = ?2
    )
"""


class SqliteStoredLog(StoredLog[SQLiteCursor]):
    """The log of a recorder by row id, read through any connection to it."""

    def __init__(
        self, recorder: SQLiteApplicationRecorder, mapper: Mapper[Any], *, lenient: bool = False
    ) -> None:
        super().__init__(mapper, lenient=lenient)
        self.recorder = recorder
        self.table = recorder.events_table_name
        self._columns = f"SELECT rowid, originator_id, originator_version, topic, state FROM {self.table}"  # noqa: S608

    def newest(self, cursor: SQLiteCursor) -> int:
        """The row id of the newest event."""
        cursor.execute(f"SELECT max(rowid) FROM {self.table}")  # noqa: S608 - the recorder's table
        return int(cursor.fetchone()[0] or 0)

    def next(self, cursor: SQLiteCursor, after: int, upto: int) -> list[Positioned]:
        """The next events up to a row id."""
        cursor.execute(
            f"{self._columns} WHERE rowid > ? AND rowid <= ? ORDER BY rowid LIMIT ?",
            (after, upto, replaying.PAGE),
        )
        return [Positioned(row["rowid"], self._event(row)) for row in cursor.fetchall()]

    def stream(self, cursor: SQLiteCursor, aggregate_id: UUID, first: int, last: int) -> list[StreamEvent]:
        """The events of a session at these versions."""
        cursor.execute(
            f"{self._columns} WHERE originator_id = ? AND originator_version BETWEEN ? AND ? "
            "ORDER BY originator_version",
            (self._stored(aggregate_id), first, last),
        )
        return [event for row in cursor.fetchall() if (event := self._event(row)) is not None]

    def said(self, cursor: SQLiteCursor, aggregate_id: UUID, first: int, last: int) -> list[int]:
        """The versions of messages among these."""
        cursor.execute(
            f"SELECT originator_version FROM {self.table} WHERE originator_id = ? "  # noqa: S608
            "AND originator_version BETWEEN ? AND ? AND topic = ? ORDER BY originator_version",
            (self._stored(aggregate_id), first, last, MessageAppended.TOPIC),
        )
        return [int(row[0]) for row in cursor.fetchall()]

    def place(self, cursor: SQLiteCursor, rowid: int) -> tuple[str, int]:
        """Stream and version of the event with this row id."""
        cursor.execute(
            f"SELECT originator_id, originator_version FROM {self.table} WHERE rowid = ?",  # noqa: S608
            (rowid,),
        )
        row = cursor.fetchone()
        return row["originator_id"], row["originator_version"]

    def ends_gone(self, cursor: SQLiteCursor) -> list[MissingEvents]:
        """Of sessions whose newest event is not there that a row tells of, the events from it back to the
        newest one that is."""
        gone: dict[UUID, MissingEvents] = {}
        stream = _STREAM_OF[self.recorder.datastore.originator_id_type == "uuid"]
        for table, name in (("turnlog_sessions", "session_id"), ("turnlog_views", "NULL")):
            if not rules.has_tables(cursor, table):
                continue
            cursor.execute(
                f"SELECT aggregate_id, version, {name} AS session_id, (SELECT max(originator_version) "  # noqa: S608
                f"FROM {self.table} WHERE originator_id = {stream}) AS newest FROM main.{table} AS told "
                f"WHERE NOT EXISTS (SELECT 1 FROM {self.table} WHERE originator_id = {stream} "
                "AND originator_version = told.version) LIMIT ?",
                (MOST_BROKEN,),
            )
            for key, version, session_id, newest in map(tuple, cursor.fetchall()):
                first = 0 if newest is None else newest + 1
                one = MissingEvents(UUID(bytes=key).hex, first, version, session_id or None)
                if first <= version:
                    gone.setdefault(UUID(bytes=key), one)
        return list(gone.values())

    def is_deleted_behind(self, cursor: SQLiteCursor, aggregate_id: UUID, position: int) -> bool:
        """Whether the session was deleted behind this position."""
        cursor.execute(
            f"SELECT 1 FROM {self.table} WHERE originator_id = ? AND topic = ? AND rowid > ?",  # noqa: S608
            (self._stored(aggregate_id), SessionDeleted.TOPIC, position),
        )
        return cursor.fetchone() is not None

    def _event(self, row: Any) -> StreamEvent | None:
        originator_id = self.recorder.convert_originator_id(row["originator_id"])
        stored = StoredEvent(originator_id, row["originator_version"], row["topic"], row["state"])
        return self.read(row["rowid"], stored)

    def _stored(self, aggregate_id: UUID) -> str:
        """The id in the form that the table has."""
        return aggregate_id.hex if self.recorder.datastore.originator_id_type == "uuid" else str(aggregate_id)


class DirectoryBuilder:
    """The directory. What is known of erased sessions is taken over from the former one: the log has it not.

    So each session keeps its position, by which the index of what was said knows it. Where the former one is
    lost, an erased session has a row that only says when it ended, and its head.
    """

    name = directory.DIRECTORY_MODEL

    def __init__(self, log: SqliteStoredLog, *, is_caught_up: bool = False) -> None:
        self._log = log
        self._is_caught_up = is_caught_up
        self._has_former = True
        self._taken_over: set[int] = set()
        self._tracked = 0
        self._ends: list[tuple[int, SessionDeleted | ContentRedacted]] = []

    def begin(self, cursor: SQLiteCursor) -> None:
        """Make its tables, without what only readers need."""
        for statement in _tables(directory.CREATE):
            cursor.execute(statement)
        self._has_former = rules.has_tables(cursor, *directory.TABLES)
        self._tracked = tracked(cursor, TRACKED_AS) if self._is_caught_up else 0

    def apply(self, cursor: SQLiteCursor, page: Sequence[Positioned]) -> None:
        """Go on by a page."""
        if self._is_caught_up:
            self._note_ends(page)
        for aggregate_id, events in by_stream(page).items():
            first = events[0]
            if isinstance(first, EventErased) and first.originator_version == 0:
                if self._has_former:
                    cursor.execute(
                        "INSERT OR IGNORE INTO temp.turnlog_sessions SELECT * FROM main.turnlog_sessions "
                        "WHERE aggregate_id = ? AND deleted = 1",
                        (aggregate_id.bytes,),
                    )
                directory.insert_erased(cursor, aggregate_id, first)
            told = [event for event in events if not isinstance(event, EventErased)]
            if told and directory.holds(cursor, aggregate_id):
                directory.insert(cursor, aggregate_id, told, are_new=False)
            elif told := list(dropwhile(lambda event: not isinstance(event, SessionOpened), told)):
                position = self._former_position(cursor, aggregate_id)
                directory.insert(cursor, aggregate_id, told, position, are_new=False)

    def settle(self, cursor: SQLiteCursor, upto: int) -> None:  # noqa: ARG002 - it is up to what was read
        """Take over what only the former rows say."""
        self._take_over(cursor)

    def finish(self, cursor: SQLiteCursor, tail: Sequence[Positioned]) -> bool:
        """Apply the last events."""
        self.apply(cursor, tail)
        return True

    def swap(self, cursor: SQLiteCursor) -> None:
        """Exchange the rows. Where positions change or were lost, the index that knows them is built anew."""
        self._take_over(cursor)
        cursor.execute(
            "SELECT 1 FROM temp.turnlog_sessions AS new LEFT JOIN main.turnlog_sessions AS former "
            "USING (aggregate_id) WHERE former.position IS NOT new.position LIMIT 1"
        )
        if cursor.fetchone() is not None and rules.has_tables(cursor, "turnlog_recall_mark"):
            cursor.execute("DELETE FROM main.turnlog_recall_mark")
        cursor.execute(
            "SELECT aggregate_id, new.version FROM temp.turnlog_sessions AS new "
            "JOIN main.turnlog_sessions AS former USING (aggregate_id) "
            "WHERE former.version = new.version AND former.head <> new.head LIMIT ?",
            (MOST_BROKEN,),
        )
        for key, version in map(tuple, cursor.fetchall()):
            self._log.links.note_broken(UUID(bytes=key), version)
        _exchange(cursor, directory.CREATE)
        rules.write(cursor, self.name, directory.DIRECTORY_RULE)
        if self._is_caught_up:
            reached = tracked(cursor, TRACKED_AS)
            for position, event in self._ends:
                if position <= reached:
                    continue
                if isinstance(event, SessionDeleted):
                    eraser.remember(cursor, event, eraser.DUE)
                else:
                    eraser.remember_redaction(cursor, event, eraser.DUE)

    def _former_position(self, cursor: SQLiteCursor, aggregate_id: UUID) -> int | None:
        """Where the session was, if that is in the order of the log."""
        if not self._has_former:
            return None
        cursor.execute(
            "SELECT position FROM main.turnlog_sessions WHERE aggregate_id = ? "
            "AND position > (SELECT coalesce(max(position), 0) FROM temp.turnlog_sessions)",
            (aggregate_id.bytes,),
        )
        row = cursor.fetchone()
        return None if row is None else int(row[0])

    def _take_over(self, cursor: SQLiteCursor) -> None:
        """Count messages that cannot be read, and keep the head of a session whose newest event cannot."""
        for place, (aggregate_id, version) in self._log.unreadable.items():
            if place in self._taken_over:
                continue
            self._taken_over.add(place)
            if self._log.said(cursor, aggregate_id, version, version):
                directory.count_message(cursor, aggregate_id)
            if self._has_former:
                cursor.execute(_KEEP_HEAD, (aggregate_id.bytes, version))

    def _note_ends(self, page: Sequence[Positioned]) -> None:
        """Deletions and redactions that nobody has remembered yet: whoever moves the tracking row has to."""
        for item in page:
            event = item.event
            if item.position <= self._tracked:
                continue
            if isinstance(event, ContentRedacted) or (
                isinstance(event, SessionDeleted) and not event.keeps_content
            ):
                self._ends.append((item.position, event))


class LedgerBuilder:
    """The ledger of event ids."""

    name = LEDGER_MODEL

    def __init__(self, log: SqliteStoredLog) -> None:
        self._log = log

    def begin(self, cursor: SQLiteCursor) -> None:
        """Make its table."""
        for statement in _tables(ledger.CREATE):
            cursor.execute(statement)

    def apply(self, cursor: SQLiteCursor, page: Sequence[Positioned]) -> None:
        """Go on by a page."""
        for aggregate_id, events in by_stream(page).items():
            for event_id, first, second in ledger.follow(cursor, aggregate_id, events):
                self._log.note_repeat(cursor, aggregate_id, event_id, first, second)
            if isinstance(events[-1], SessionDeleted):
                self._log.forget_repeats(aggregate_id)

    def settle(self, cursor: SQLiteCursor, upto: int) -> None:  # noqa: ARG002 - it is up to what was read
        """Take over what only the former entries say."""
        self._take_over(cursor)

    def finish(self, cursor: SQLiteCursor, tail: Sequence[Positioned]) -> bool:
        """Apply the last events."""
        self.apply(cursor, tail)
        return True

    def swap(self, cursor: SQLiteCursor) -> None:
        """Exchange the rows."""
        self._take_over(cursor)
        _exchange(cursor, ledger.CREATE)

    def _take_over(self, cursor: SQLiteCursor) -> None:
        """The former entry of an event that cannot be read still says its id."""
        if rules.has_tables(cursor, "turnlog_event_ids"):
            cursor.executemany(
                "INSERT OR IGNORE INTO temp.turnlog_event_ids SELECT * FROM main.turnlog_event_ids "
                "WHERE aggregate_id = ? AND version = ?",
                [(stream.bytes, version) for stream, version in self._log.unreadable.values()],
            )


class ViewBuilder:
    """The materialised view; its store is needed where its tables may have to be made."""

    name = VIEW_MODEL

    def __init__(self, store: view.SqliteViewStore | None = None) -> None:
        self._store = store

    def begin(self, cursor: SQLiteCursor) -> None:
        """Make its tables."""
        for statement in _tables(view.CREATE):
            cursor.execute(statement)

    def apply(self, cursor: SQLiteCursor, page: Sequence[Positioned]) -> None:
        """Go on by a page."""
        follow(view.SqliteViewRows(cursor), page)

    def settle(self, cursor: SQLiteCursor, upto: int) -> None:
        """Nothing is left to do."""

    def finish(self, cursor: SQLiteCursor, tail: Sequence[Positioned]) -> bool:
        """Apply the last events."""
        self.apply(cursor, tail)
        return True

    def swap(self, cursor: SQLiteCursor) -> None:
        """Exchange the rows."""
        if self._store is not None:
            self._store.create_within(cursor)
        _exchange(cursor, view.CREATE)
        rules.write(cursor, self.name, VIEW_RULE)


class RecallBuilder:
    """The index of what was said."""

    name = "recall"

    def __init__(self, log: SqliteStoredLog, index: recall.SqliteRecallIndex) -> None:
        self._log = log
        self._index = index
        self._due: set[int] = set()
        self._passed_over: set[int] = set()
        self._upto = 0

    def begin(self, cursor: SQLiteCursor) -> None:
        """Make its tables; those of its parts are made when they are needed."""
        for statement in _tables(recall.CREATE):
            cursor.execute(statement)
        cursor.execute("CREATE TEMP TABLE turnlog_indexed (position INTEGER PRIMARY KEY)")

    def apply(self, cursor: SQLiteCursor, page: Sequence[Positioned]) -> None:
        """Go on by a page."""
        documents: list[recall.Document] = []
        for aggregate_id, events in by_stream(page).items():
            position = _position(cursor, aggregate_id)
            if position is None:
                continue
            if isinstance(events[-1], SessionDeleted):
                cursor.execute("SELECT 1 FROM temp.turnlog_indexed WHERE position = ?", (position,))
                if cursor.fetchone() is not None:
                    self._due.add(recall.part_of(position))
            elif not _is_deleted(cursor, aggregate_id):
                if any(isinstance(event, ContentRedacted) for event in events):
                    self._due.add(recall.part_of(position))
                found = list(_documents(events, position))
                if found:
                    cursor.execute("INSERT OR IGNORE INTO temp.turnlog_indexed VALUES (?)", (position,))
                documents += found
        documents.sort()
        self._make_parts(cursor, {recall.part_of(position) for position, _, _ in documents})
        recall.insert(cursor, documents)

    def settle(self, cursor: SQLiteCursor, upto: int) -> None:
        """Make the parts anew whose sessions were deleted: what it held of them is not known any more."""
        due = set(self._due)
        while self._due:
            part = self._due.pop()
            self._make_parts(cursor, {part})
            self._index.build_part(cursor, part, upto)
        self._keep_unreadable(cursor, due)
        for part in recall.parts(cursor):
            self._optimize(cursor, part)
        self._upto = upto

    def finish(self, cursor: SQLiteCursor, tail: Sequence[Positioned]) -> bool:
        """Leave the last events to the next write, which indexes them; unless something was erased."""
        ends = (item.event for item in tail if isinstance(item.event, (SessionDeleted, ContentRedacted)))
        return all(_position(cursor, stored_id_of(event)) is None for event in ends)

    def swap(self, cursor: SQLiteCursor) -> None:
        """Exchange the parts, table by table, as FTS5 stores them."""
        for name, statement in zip(
            ("turnlog_recall_parts", "turnlog_recall_mark"), recall.CREATE, strict=True
        ):
            cursor.execute(f"DROP TABLE IF EXISTS main.{name}")
            cursor.execute(statement.replace(name, f"main.{name}", 1))
        for part in sorted(_real_parts(cursor)):
            cursor.execute(f"DROP TABLE main.turnlog_recall_{part}")
        for part in sorted(recall.parts(cursor)):
            name = f"turnlog_recall_{part}"
            cursor.execute(recall.TABLE.format(part=part).replace(name, f"main.{name}", 1))
            for kept in ("data", "idx"):
                cursor.execute(f"DELETE FROM main.{name}_{kept}")  # noqa: S608 - a number
                cursor.execute(
                    f"INSERT INTO main.{name}_{kept} SELECT * FROM temp.{name}_{kept}"  # noqa: S608
                )
            cursor.execute("INSERT INTO main.turnlog_recall_parts VALUES (?)", (part,))
        if self._upto:
            cursor.execute("DROP TABLE temp.turnlog_recall_mark")
            recall.write_mark(cursor, self._upto, *self._log.place(cursor, self._upto))

    def _keep_unreadable(self, cursor: SQLiteCursor, made: set[int]) -> None:
        """Let every search look at the messages that cannot be read; parts that were made here have them."""
        documents: list[recall.Document] = []
        for place, (aggregate_id, version) in self._log.unreadable.items():
            position = _position(cursor, aggregate_id)
            if place in self._passed_over or position is None or _is_deleted(cursor, aggregate_id):
                continue
            self._passed_over.add(place)
            if recall.part_of(position) not in made and self._log.said(
                cursor, aggregate_id, version, version
            ):
                documents.append(recall.unreadable(position, version))
        self._make_parts(cursor, {recall.part_of(position) for position, _, _ in documents})
        recall.insert(cursor, sorted(documents))

    def _optimize(self, cursor: SQLiteCursor, part: int) -> None:
        """Write all that FTS5 holds back into its tables, as one piece."""
        name = f"turnlog_recall_{part}"
        cursor.execute(f"INSERT INTO temp.{name} ({name}) VALUES ('optimize')")  # noqa: S608 - a number

    def _make_parts(self, cursor: SQLiteCursor, parts: set[int]) -> None:
        for part in sorted(parts - recall.parts(cursor)):
            name = f"turnlog_recall_{part}"
            cursor.execute(recall.TABLE.format(part=part).replace(name, f"temp.{name}", 1))
            cursor.execute("INSERT INTO temp.turnlog_recall_parts VALUES (?)", (part,))


def _documents(events: Sequence[StreamEvent], position: int) -> Iterator[recall.Document]:
    for event in events:
        if isinstance(event, MessageAppended):
            document = recall.document_of(event, position)
            if document is not None:
                yield document


def _position(cursor: SQLiteCursor, aggregate_id: UUID) -> int | None:
    cursor.execute("SELECT position FROM turnlog_sessions WHERE aggregate_id = ?", (aggregate_id.bytes,))
    row = cursor.fetchone()
    return None if row is None else int(row[0])


def _is_deleted(cursor: SQLiteCursor, aggregate_id: UUID) -> bool:
    cursor.execute(
        "SELECT 1 FROM main.turnlog_sessions WHERE aggregate_id = ? AND deleted = 1", (aggregate_id.bytes,)
    )
    return cursor.fetchone() is not None


def _real_parts(cursor: SQLiteCursor) -> set[int]:
    cursor.execute(
        "SELECT substr(name, 16) FROM main.sqlite_master WHERE type = 'table' "
        "AND name GLOB 'turnlog_recall_[0-9]*' AND sql LIKE '%fts5%'"
    )
    return {int(row[0]) for row in cursor.fetchall()}


def _tables(statements: Sequence[str]) -> Iterator[str]:
    """The statements that make tables, for temporary ones."""
    for statement in statements:
        if "CREATE TABLE IF NOT EXISTS" in statement:
            yield statement.replace("CREATE TABLE IF NOT EXISTS", "CREATE TEMP TABLE", 1)


def _exchange(cursor: SQLiteCursor, statements: Sequence[str]) -> None:
    """Make the real tables anew and fill them from the temporary ones of the same names."""
    names = [statement.split()[5] for statement in statements if "CREATE TABLE" in statement]
    for name in names:
        cursor.execute(f"DROP TABLE IF EXISTS main.{name}")
    for statement in statements:
        if "CREATE TABLE" in statement:
            name = statement.split()[5]
            cursor.execute(statement.replace(name, f"main.{name}", 1))
            cursor.execute(f"INSERT INTO main.{name} SELECT * FROM temp.{name}")  # noqa: S608 - a constant
    for statement in statements:
        if "CREATE INDEX" in statement:
            name = statement.split()[5]
            cursor.execute(statement.replace(name, f"main.{name}", 1))


def stored_id_of(event: StreamEvent) -> UUID:
    """The stream of an event."""
    return as_uuid(event.originator_id)
