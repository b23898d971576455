"""Rows about sessions in a store whose recorder writes none: caught up with the log by whoever asks.

The rows are those that `SessionRows` writes, but for the ledger. How far they got is a tracking row of the
framework's, moved in the transaction that writes them; each step begins by taking the lock of writers, so
two processes that catch up at once never apply an event twice.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final
from uuid import UUID

from eventsourcing.persistence import IntegrityError, Mapper, StoredEvent, Tracking
from eventsourcing.sqlite import SQLiteApplicationRecorder, SQLiteCursor, SQLiteTrackingRecorder

from turnlog.application.erasing import gathered
from turnlog.application.storage import storage_errors, unlocked
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
from turnlog.infrastructure.sqlite import directory, eraser, fence, ledger, recall
from turnlog.infrastructure.sqlite.secure import take_the_lock, writing

TRACKED_AS: Final = "turnlog.rows"
"""The name under which the tracking row says how far the rows got."""

OUR_TOPICS: Final = "turnlog.domain.events:"

ERASING: Final = frozenset({"turnlog_erasures", "turnlog_redactions"})

_NEEDED: Final = ERASING.union(directory.TABLES)

KEPT: Final = ERASING | {"turnlog_event_ids"}
"""What is not a read model, and follows from the log: such tables are made anew by whoever writes."""

_PAGE: Final = 1000

_logger = logging.getLogger("turnlog")


class CaughtUpRows(SQLiteTrackingRecorder):
    """The rows about the sessions of one recorder without `SessionRows`."""

    def __init__(self, recorder: SQLiteApplicationRecorder, mapper: Mapper[Any]) -> None:
        super().__init__(recorder.datastore)
        self._events = recorder.events_table_name
        self._mapper = mapper
        self.index = (
            recall.SqliteRecallIndex(recorder.datastore, mapper, self._events)
            if recall.is_supported()
            else None
        )

    def construct_create_table_statements(self) -> list[str]:
        """The framework's table of tracking, and those of the rows."""
        statements = super().construct_create_table_statements()
        statements += (*directory.CREATE, *eraser.CREATE)
        return [*statements, *recall.CREATE] if recall.is_supported() else statements

    def has_tables(self) -> bool:
        """Whether the tables are there."""
        with storage_errors(), self.datastore.transaction(commit=False) as cursor:
            return {"tracking", *_NEEDED} <= tables(cursor)

    def create_table(self) -> None:
        """Create what is missing; another process may do so at the same time."""
        try:
            super().create_table()
        except IntegrityError:
            if not self.has_tables():
                raise

    def _create_table(self, c: SQLiteCursor) -> None:
        """Where tables are missing, all is caught up with from the beginning."""
        take_the_lock(c)
        reached = self.reached(c)
        super()._create_table(c)
        if not reached:
            c.execute("DELETE FROM tracking WHERE application_name = ?", (TRACKED_AS,))

    def reached(self, cursor: SQLiteCursor) -> int:
        """How far the rows got; 0 where a table was dropped that tells of it, so that they are made anew."""
        return tracked(cursor, TRACKED_AS) if tables(cursor) >= _NEEDED else 0

    def _begin(self, cursor: SQLiteCursor) -> None:
        """Remove what is left of rows of which nobody knows how far they got."""
        for table in (*directory.TABLES, *(["turnlog_recall_mark"] if self.index is not None else [])):
            cursor.execute(f"DELETE FROM {table}")  # noqa: S608 - one of these

    def begin_anew(self, cursor: SQLiteCursor) -> None:
        """Let all be caught up with from the beginning. What is to be erased stays known."""
        _logger.warning(
            "The log had lost its newest events when others were written, so rows about sessions are made "
            "anew: `turnlog check` says what is gone."
        )
        cursor.execute("DELETE FROM tracking WHERE application_name = ?", (TRACKED_AS,))
        self._begin(cursor)

    def _has_lost_its_place(self, cursor: SQLiteCursor, reached: int, newest: int) -> bool:
        """Whether events were written at row ids that the rows are past: SQLite gives those of the newest
        events again once these are lost.

        Where nothing was written since, the rows stay: they tell what is gone.
        """
        if reached <= newest:
            return False
        cursor.execute(
            "SELECT originator_id, originator_version, topic, state "  # noqa: S608 - the recorder's table
            f"FROM {self._events} WHERE substr(topic, 1, ?) = ? AND topic <> ? ORDER BY rowid DESC LIMIT 1",
            (len(OUR_TOPICS), OUR_TOPICS, EventIdTaken.TOPIC),
        )
        row = cursor.fetchone()
        event = None
        with suppress(UnreadableEventError):
            event = None if row is None else self._event(row)
        return event is not None and not directory.is_past(cursor, event)

    def misses(
        self, cursor: SQLiteCursor, deleted: Iterable[str], redacted: Iterable[tuple[str, int]]
    ) -> bool:
        """Whether the rows do not know of one of these, whose content still stands in the log.

        Raises `ErasureTargetError` and `UnreadableEventError`.
        """
        for stored_id in set(deleted).difference(eraser.with_state(cursor, eraser.DUE)):
            cursor.execute(
                f"SELECT 1 FROM {self._events} "  # noqa: S608 - the recorder's table
                "WHERE originator_id = ? AND topic NOT IN (?, ?) LIMIT 1",
                (stored_id, EventErased.TOPIC, SessionDeleted.TOPIC),
            )
            if cursor.fetchone() is not None:
                return True
        for stored_id, version in set(redacted).difference(eraser.redacted_with_state(cursor, eraser.DUE)):
            redaction = self._event_at(cursor, stored_id, version)
            if isinstance(redaction, ContentRedacted):
                _, target = eraser.named_by(redaction, cursor, self._events, self._mapper)
                if not target.is_redacted:
                    return True
        return False

    def catch_up(self, *, index: bool = False) -> None:
        """Apply what is missing, in the index too if that is asked for."""
        while self._is_behind(index):
            unlocked(lambda: self._step(index))

    def catch_up_within(self, cursor: SQLiteCursor) -> None:
        """Apply all that is missing, in the transaction of the caller, who has the lock of writers."""
        self._refuse_rows_of_others(cursor)
        while self._apply_page(cursor):
            pass

    def overwrite(self, cursor: SQLiteCursor, stored_id: str, pending: int) -> None:
        """Overwrite a deleted session and take it out of the index; say what is still to be done then.

        Raises `ErasureTargetError` and `UnreadableEventError` before anything is changed.
        """
        cursor.execute("SELECT version FROM turnlog_erasures WHERE originator_id = ?", (stored_id,))
        version = cursor.fetchone()[0]
        tombstone = self._event_at(cursor, stored_id, version)
        if not isinstance(tombstone, SessionDeleted) or tombstone.keeps_content:
            raise ErasureTargetError(UUID(stored_id).hex, version)
        if self.index is not None:
            self.index.remove(cursor, as_uuid(tombstone.originator_id), rewrite=False)
        eraser.overwrite(cursor, self._events, self._mapper, tombstone)
        eraser.change_state(cursor, [stored_id], pending)
        due = [place for place in eraser.redacted_with_state(cursor, eraser.DUE) if place[0] == stored_id]
        eraser.change_redactions(cursor, due, eraser.COPIES)  # with the session their contents are stubs

    def overwrite_content(self, cursor: SQLiteCursor, stored_id: str, version: int, *, anew: bool) -> None:
        """Put its marker over the content that the redaction at this version names.

        Raises `ErasureTargetError` and `UnreadableEventError` before anything is changed.
        """
        redaction = self._event_at(cursor, stored_id, version)
        if not isinstance(redaction, ContentRedacted):
            raise ErasureTargetError(UUID(stored_id).hex, version)
        eraser.named_by(redaction, cursor, self._events, self._mapper)  # before the index is told
        if self.index is not None:
            aggregate_id = as_uuid(redaction.originator_id)
            self.index.remove(cursor, aggregate_id, {redaction.redacted_version}, rewrite=False)
        pending = eraser.overwrite_content(cursor, self._events, self._mapper, redaction)
        eraser.remember_redaction(cursor, redaction, eraser.ANEW if anew else pending)

    def _readable(
        self, cursor: SQLiteCursor, rows: Sequence[Any], *, knows_kinds: bool = False
    ) -> Iterator[StreamEvent | None]:
        """The events of these rows; one that cannot be read is said in the log of the process.

        It must not keep the healthy sessions from being used. Where none can be read, nor any in front of
        them, as under another key, that is an error; with `knows_kinds` an event of a newer version is one.
        """
        failed: list[UnreadableEventError] = []
        has_read = False
        for row in rows:
            try:
                event = self._event(row)
                if event is not None:
                    require_rows(event)
                    has_read = True
                yield event
            except UnreadableEventError as error:
                if knows_kinds and is_of_newer_version(error):
                    raise
                failed.append(error)
        if failed and not has_read and not self._reads_some(cursor, rows[0]["rowid"]):
            raise failed[0]
        for one in failed:
            _logger.warning("Rows about sessions are made without an event: %s", one)

    def _reads_some(self, cursor: SQLiteCursor, before: int) -> bool:
        """Whether any of the events in front of a row can be read."""
        cursor.execute(
            "SELECT rowid, originator_id, originator_version, topic, state "  # noqa: S608 - the recorder's table
            f"FROM {self._events} WHERE rowid < ? ORDER BY rowid DESC LIMIT ?",
            (before, _PAGE),
        )
        for row in cursor.fetchall():
            with suppress(UnreadableEventError):
                if self._event(row) is not None:
                    return True
        return False

    def make_missing(self, cursor: SQLiteCursor, missing: Collection[str]) -> None:
        """Fill these tables, which were missing, from the log, in the caller's transaction."""
        if not ERASING.isdisjoint(missing):
            eraser.remember_all(cursor, self._events, self._mapper, self.convert_originator_id)
        last = 0
        while "turnlog_event_ids" in missing and (page := self._page(cursor, last)):
            last = page[-1]["rowid"]
            self._note_ids(cursor, page)

    def _note_ids(self, cursor: SQLiteCursor, page: Sequence[Any]) -> None:
        for aggregate_id, events in by_stream(self._readable(cursor, page)).items():
            ledger.follow(cursor, aggregate_id, events)

    def make_all(self, cursor: SQLiteCursor, reached: int) -> None:
        """Make the rows that `SessionRows` writes, of all that is stored, in the caller's transaction.

        What was caught up before is gone on with, from where it `reached`. Deletions that were not completed
        are, and the table of events is written anew, so that nothing is left in the places where other
        connections leave copies.
        """
        if not reached:
            self._begin(cursor)
        last = 0
        while page := self._page(cursor, last):
            last = page[-1]["rowid"]
            self._note_ids(cursor, page)
            if missing := [row for row in page if row["rowid"] > reached]:
                self._apply(cursor, missing)
        failures: list[StorageError] = []
        for stored_id in eraser.with_state(cursor, eraser.DUE):
            with gathered(failures):
                self.overwrite(cursor, stored_id, eraser.COPIES)
        for stored_id, version in eraser.redacted_with_state(cursor, eraser.DUE):
            with gathered(failures):
                self.overwrite_content(cursor, stored_id, version, anew=False)
        for failure in failures:
            _logger.warning("An erasure that was due could not be carried out: %s", failure)
        if "tracking" in tables(cursor):
            cursor.execute("DELETE FROM tracking WHERE application_name = ?", (TRACKED_AS,))
        eraser.write_anew(cursor, self._events)
        for table in ("turnlog_erasures", "turnlog_redactions"):
            cursor.execute(
                f"UPDATE {table} SET pending = ? WHERE pending > 0",  # noqa: S608 - one of these two
                (eraser.COPIES,),
            )

    def _is_behind(self, index: bool) -> bool:
        with storage_errors(), self.datastore.transaction(commit=False) as cursor:
            newest = self._newest(cursor)
            reached = self._max_tracking_id(TRACKED_AS, cursor) or 0
            if reached < newest or self._has_lost_its_place(cursor, reached, newest):
                return True
            return index and self.index is not None and self.index.is_due(cursor, newest)

    def _step(self, index: bool) -> None:
        with writing(self.datastore) as cursor:
            self._refuse_rows_of_others(cursor)
            self._apply_page(cursor)
            tracked = self._max_tracking_id(TRACKED_AS, cursor)
            if index and self.index is not None and tracked is not None:
                self.index.follow(cursor, tracked, _PAGE)

    @staticmethod
    def _refuse_rows_of_others(cursor: SQLiteCursor) -> None:
        if fence.keeps_rows(cursor):
            raise StorageError(
                "Rows about sessions are written by the recorder of another process by now: "
                "put SessionRows in front of the recorder here too, and start anew."
            )

    def _apply_page(self, cursor: SQLiteCursor) -> bool:
        """Apply the next events; whether there may be more."""
        reached = self._max_tracking_id(TRACKED_AS, cursor) or 0
        if self._has_lost_its_place(cursor, reached, self._newest(cursor)):
            self.begin_anew(cursor)
            reached = 0
        page = self._page(cursor, reached)
        if not page:
            return False
        if not reached:
            self._begin(cursor)
        self._apply(cursor, page, knows_kinds=True)
        self._insert_tracking(cursor, Tracking(TRACKED_AS, page[-1]["rowid"]))
        return len(page) == _PAGE

    def _apply(self, cursor: SQLiteCursor, page: Sequence[Any], *, knows_kinds: bool = False) -> None:
        """Write the rows that follow from these events. A session that is deleted and kept is not indexed.

        Of a message that cannot be read only that it is one is known.
        """
        found = list(self._readable(cursor, page, knows_kinds=knows_kinds))
        read = {(as_uuid(one.originator_id), one.originator_version) for one in found if one is not None}
        for aggregate_id, events in by_stream(found).items():
            apply(cursor, aggregate_id, events)
            newest = events[-1]
            if self.index is not None and isinstance(newest, SessionDeleted) and newest.keeps_content:
                self.index.remove(cursor, aggregate_id, rewrite=False)
        for row in page:
            place = as_uuid(self.convert_originator_id(row["originator_id"])), row["originator_version"]
            if row["topic"] == MessageAppended.TOPIC and place not in read:
                directory.count_message(cursor, place[0])

    def _page(self, cursor: SQLiteCursor, after: int) -> list[Any]:
        """The next rows of the log."""
        cursor.execute(
            "SELECT rowid, originator_id, originator_version, topic, state "  # noqa: S608 - the recorder's table
            f"FROM {self._events} WHERE rowid > ? ORDER BY rowid LIMIT ?",
            (after, _PAGE),
        )
        return list(cursor.fetchall())

    def _newest(self, cursor: SQLiteCursor) -> int:
        cursor.execute(f"SELECT max(rowid) FROM {self._events}")  # noqa: S608 - the recorder's table
        return int(cursor.fetchone()[0] or 0)

    def _event_at(self, cursor: SQLiteCursor, stored_id: str, version: int) -> StreamEvent | None:
        cursor.execute(
            "SELECT originator_id, originator_version, topic, state "  # noqa: S608 - the recorder's table
            f"FROM {self._events} WHERE originator_id = ? AND originator_version = ?",
            (stored_id, version),
        )
        row = cursor.fetchone()
        return None if row is None else self._event(row)

    def _event(self, row: Any) -> StreamEvent | None:
        if not row["topic"].startswith(OUR_TOPICS) or row["topic"] == EventIdTaken.TOPIC:
            return None
        stored = StoredEvent(
            originator_id=self.convert_originator_id(row["originator_id"]),
            originator_version=row["originator_version"],
            topic=row["topic"],
            state=row["state"],
        )
        event = event_of(self._mapper, stored)
        if not isinstance(event, StreamEvent):
            return None
        vars(event)["originator_id"] = stored.originator_id
        return event


def tracked(cursor: SQLiteCursor, name: str) -> int:
    """How far the rows got whose tracking row has this name, 0 where there is none."""
    if "tracking" not in tables(cursor):
        return 0
    cursor.execute("SELECT max(notification_id) FROM tracking WHERE application_name = ?", (name,))
    return int(cursor.fetchone()[0] or 0)


def apply(cursor: SQLiteCursor, aggregate_id: UUID, events: Sequence[StreamEvent]) -> None:
    """Write the directory's row, and remember a deletion that has to be completed.

    Of a session that was erased before, only that is known.
    """
    first, newest = events[0], events[-1]
    if isinstance(first, EventErased) and first.originator_version == 0:
        directory.insert_erased(cursor, aggregate_id, first)
    if isinstance(newest, SessionDeleted) and not newest.keeps_content:
        eraser.remember(cursor, newest, eraser.DUE)
    for event in events:
        if isinstance(event, ContentRedacted):
            eraser.remember_redaction(cursor, event, eraser.DUE)
    told = [event for event in events if not isinstance(event, EventErased)]
    if told and (isinstance(told[0], SessionOpened) or directory.holds(cursor, aggregate_id)):
        directory.insert(cursor, aggregate_id, told, are_new=False)


def by_stream(events: Iterable[StreamEvent | None]) -> Mapping[UUID, list[StreamEvent]]:
    """The events of each stream, in order."""
    streams: dict[UUID, list[StreamEvent]] = {}
    for event in events:
        if event is not None:
            streams.setdefault(as_uuid(event.originator_id), []).append(event)
    return streams


def tables(cursor: SQLiteCursor) -> frozenset[str]:
    """The names of all tables."""
    cursor.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    return frozenset(row[0] for row in cursor.fetchall())


class CaughtUpRecallIndex(recall.SqliteRecallIndex):
    """The index, which is caught up before it is asked."""

    def __init__(self, rows: CaughtUpRows, mapper: Mapper[Any], events_table: str) -> None:
        super().__init__(rows.datastore, mapper, events_table)
        self._caught_up = rows

    def candidates(
        self, aggregate_ids: Sequence[UUID], query: EventQuery
    ) -> Mapping[UUID, Sequence[int]] | None:
        """By session the versions of messages among which are all that match, in order."""
        if recall.narrows(query):
            self._caught_up.catch_up(index=True)
        return super().candidates(aggregate_ids, query)
