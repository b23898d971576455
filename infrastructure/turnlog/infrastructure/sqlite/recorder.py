"""Rows about sessions in SQLite, in the transaction of the events: ledger of ids, directory, recall."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any
from uuid import UUID

from eventsourcing.persistence import IntegrityError, Mapper, ProgrammingError, StoredEvent
from eventsourcing.sqlite import (
    SQLITE3_DEFAULT_LOCK_TIMEOUT,
    SQLiteAggregateRecorder,
    SQLiteApplicationRecorder,
    SQLiteCursor,
    SQLiteDatastore,
)

from turnlog.application.erasing import BackupError
from turnlog.application.ports import (
    Directory,
    RecordedHead,
    SessionRowsRecorder,
    StoredRow,
    require_in_front,
)
from turnlog.application.projections.errors import LOST
from turnlog.application.storage import storage_errors, unlocked
from turnlog.domain.events import ContentRedacted, SessionDeleted, SessionOpened, StreamEvent
from turnlog.infrastructure.sqlite import directory, eraser, fence, ledger, recall, rules
from turnlog.infrastructure.sqlite.backup import back_up
from turnlog.infrastructure.sqlite.catching_up import (
    KEPT,
    OUR_TOPICS,
    CaughtUpRows,
    by_stream,
    tables,
)
from turnlog.infrastructure.sqlite.recall import SqliteRecallIndex
from turnlog.infrastructure.sqlite.secure import Insertion, SecureConnectionPool, secure, writing
from turnlog.infrastructure.sqlite.subscribing import SqliteSubscriptions


class SessionRows(SqliteSubscriptions, SessionRowsRecorder):
    """A mixin in front of an SQLite application recorder: `class Recorder(SessionRows, HostRecorder)`.

    It derives its rows from the stored events themselves, so they are right whoever calls `save`. Named by
    APPLICATION_RECORDER_TOPIC; the service binds the application's mapper.
    """

    _mapper: Mapper[Any] | None = None
    _lacks_rows = False
    _indexed = -recall.MAX_LAG
    """A row up to which everything is indexed for sure, as far as this process has seen."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        require_in_front(cls, SessionRows, SQLiteApplicationRecorder)
        super().__init_subclass__(**kwargs)

    def __init__(self, datastore: SQLiteDatastore, *args: Any, **kwargs: Any) -> None:
        secure(datastore)
        super().__init__(datastore, *args, **kwargs)
        inserts = next(
            vars(cls)["insert_events"]
            for cls in type(self).__mro__
            if "insert_events" in vars(cls) and cls not in (SessionRows, SqliteSubscriptions)
        )
        self._is_plain = (
            type(datastore) is SQLiteDatastore and inserts is SQLiteAggregateRecorder.insert_events
        )

    def bind(self, mapper: Mapper[Any]) -> None:
        """Read stored events through this mapper from now on; make the rows that a store lacks.

        Raises `ReadModelOutdatedError` where the directory is gone, or was made by another rule.
        """
        self.complete(mapper)
        with storage_errors(), self.datastore.transaction(commit=False) as cursor:
            directory.require(cursor)
        self._mapper = mapper
        if not self.keeps_recall and (index := self._index) and index.holds_something():
            unlocked(index.empty)

    def complete(self, mapper: Mapper[Any]) -> None:
        """Make the rows that the store lacks, those of all sessions or of the ledger alone."""
        if self._lacks_rows:
            unlocked(lambda: self._make_rows(mapper))

    def version_of(self, aggregate_id: UUID, event_id: str) -> int | None:
        """The version of the event with this id, None when the stream holds none."""
        with storage_errors(), self.datastore.transaction(commit=False) as cursor:
            return ledger.version_of(cursor, aggregate_id, event_id)

    def select_ranges(self, originator_id: Any, ranges: Iterable[tuple[int, int]]) -> Sequence[StoredRow]:
        """The events of these ranges of versions, in one read."""
        stored_id = eraser.stored_form(originator_id)
        statement = (
            f"SELECT originator_version, topic, state FROM {self.events_table_name} "  # noqa: S608 - its own table
            "WHERE originator_id = ? AND originator_version BETWEEN ? AND ? ORDER BY originator_version"
        )
        found: list[StoredRow] = []
        with storage_errors(), self.datastore.transaction(commit=False) as cursor:
            for first, last in ranges:
                cursor.execute(statement, (stored_id, first, last))
                found += cursor.fetchall()
        return found

    @property
    def records_heads(self) -> bool:
        """Every session has a row with its head."""
        return True

    def recorded_head(self, aggregate_id: UUID) -> RecordedHead | None:
        """The head in the row of the session."""
        with storage_errors(), self.datastore.transaction(commit=False) as cursor:
            return directory.head_of(cursor, aggregate_id)

    def recorded_sessions(self) -> Iterator[UUID]:
        """The sessions that have a row, in the order of their creation."""
        with storage_errors(), self.datastore.transaction(commit=False) as cursor:
            return iter(directory.all_ids(cursor))

    @property
    def directory(self) -> Directory:
        """The directory of the sessions in this file."""
        return directory.SqliteDirectory(self.datastore)

    @property
    def recall(self) -> SqliteRecallIndex | None:
        """The index of what was said in this file, None where there is to be none."""
        return self._index if self.keeps_recall else None

    @property
    def _index(self) -> SqliteRecallIndex | None:
        """The index, also where it is kept no longer; None without a mapper or without FTS5 here."""
        if self._mapper is None or not recall.is_supported():
            return None
        return SqliteRecallIndex(self.datastore, self._mapper, self.events_table_name)

    @property
    def eraser(self) -> eraser.SqliteEraser:
        """What erases deleted sessions from this file."""
        return eraser.SqliteEraser(self.datastore, self.events_table_name, self._index)

    def backup(self, file: str) -> None:
        """Copy the database, as it is at one moment, into a file that does not exist yet."""
        pool = self.datastore.pool
        try:
            back_up(pool.db_name, file, timeout=pool.lock_timeout or SQLITE3_DEFAULT_LOCK_TIMEOUT)
        except sqlite3.Error as error:
            raise BackupError(f"The database could not be copied ({error}). Nothing was written.") from error

    def create_table(self) -> None:
        """Create what is missing. Rows about sessions that were stored without them are made by `bind`."""
        with storage_errors(), self.datastore.transaction(commit=False) as cursor:
            names = tables(cursor)
            self._lacks_rows = not names.issuperset(KEPT) and self._has_sessions(cursor, names)
            is_lost = directory.is_lost(cursor) and self._has_sessions(cursor, names)
        if is_lost:
            unlocked(self._note_loss)
        if not self._lacks_rows:
            super().create_table()
            if "turnlog_read_models" not in names:
                unlocked(self._write_rule)

    def _make_rows(self, mapper: Mapper[Any]) -> None:
        """Make the rows about what is stored, all or none; another process may be first."""
        with writing(self.datastore) as cursor:
            if missing := KEPT - tables(cursor):
                rows = CaughtUpRows(self, mapper)
                keeps_rows, reached = fence.keeps_rows(cursor), rows.reached(cursor)
                self._create_table(cursor)
                if keeps_rows:
                    rows.make_missing(cursor, missing)
                else:
                    rows.make_all(cursor, reached)
                rules.write_if_missing(cursor, directory.DIRECTORY_MODEL, directory.DIRECTORY_RULE)
        self._lacks_rows = False

    def _has_sessions(self, cursor: SQLiteCursor, names: Collection[str]) -> bool:
        if self.events_table_name not in names:
            return False
        cursor.execute(
            f"SELECT 1 FROM {self.events_table_name} WHERE topic LIKE ? LIMIT 1",  # noqa: S608 - its own table
            (f"{OUR_TOPICS}%",),
        )
        return cursor.fetchone() is not None

    def _note_loss(self) -> None:
        """Say that the directory has to be rebuilt, in the transaction that makes empty tables of it."""
        with writing(self.datastore) as cursor:
            if directory.is_lost(cursor):
                for statement in directory.CREATE:  # no other table, which has to be filled
                    cursor.execute(statement)
                rules.write(cursor, directory.DIRECTORY_MODEL, LOST)

    def _write_rule(self) -> None:
        with writing(self.datastore) as cursor:
            rules.write_if_missing(cursor, directory.DIRECTORY_MODEL, directory.DIRECTORY_RULE)

    def construct_create_table_statements(self) -> list[str]:
        """The recorder's own tables, and the ones of the rows."""
        statements = super().construct_create_table_statements()
        statements += (*ledger.CREATE, *directory.CREATE, *eraser.CREATE, rules.CREATE)
        if isinstance(self.datastore.pool, SecureConnectionPool):
            statements.append(fence.trigger(self.events_table_name))
        return [*statements, *recall.CREATE] if recall.is_supported() else statements

    def insert_events(self, stored_events: Sequence[StoredEvent], **kwargs: Any) -> Sequence[int] | None:
        """Store the events and their rows in one transaction, then wake the subscriptions of this process."""
        if not self._is_plain:
            return super().insert_events(stored_events, **kwargs)
        with Insertion(self.datastore) as cursor:
            ids = self._insert_events(cursor, stored_events, **kwargs)
        self.wake()
        return ids

    def _insert_events(
        self, c: SQLiteCursor, stored_events: Sequence[StoredEvent], **kwargs: Any
    ) -> Sequence[int] | None:
        streams = by_stream(self._stream_events(stored_events, **kwargs))
        ids = super()._insert_events(c, stored_events, **kwargs)
        for aggregate_id, events in streams.items():
            if isinstance(events[0], SessionOpened):
                self._refuse_rest(c, events[-1])
            ledger.insert(c, aggregate_id, events)
            is_live = directory.insert(c, aggregate_id, events)
            if not is_live and events[0].originator_version > 0:
                eraser.refuse_purged(c, events[0].originator_id)
            if redactions := [one for one in events if isinstance(one, ContentRedacted)]:
                self._redact(c, aggregate_id, redactions)
            if isinstance(events[-1], SessionDeleted):
                self._remove(c, aggregate_id, events[-1])
        if ids and not 0 <= ids[-1] - self._indexed <= recall.MAX_LAG and (index := self.recall):
            self._indexed = index.follow(c, ids[-1], len(ids))
        return ids

    def _refuse_rest(self, c: SQLiteCursor, newest: StreamEvent) -> None:
        """Refuse to begin a session in front of events that were stored of it: its opening event is gone."""
        c.execute(
            f"SELECT 1 FROM {self.events_table_name} "  # noqa: S608 - its own table
            "WHERE originator_id = ? AND originator_version > ?",
            (eraser.stored_form(newest.originator_id), newest.originator_version),
        )
        if c.fetchone() is not None:
            raise IntegrityError("Events of the session are stored already.")

    def _redact(self, c: SQLiteCursor, aggregate_id: UUID, redactions: Sequence[ContentRedacted]) -> None:
        """Remove the contents that are redacted, and what was derived from them."""
        if self._mapper is None:
            return
        if index := self._index:
            index.remove(c, aggregate_id, {one.redacted_version for one in redactions}, rewrite=False)
        for redaction in redactions:
            pending = eraser.overwrite_content(c, self.events_table_name, self._mapper, redaction)
            eraser.remember_redaction(c, redaction, pending)

    def _remove(self, c: SQLiteCursor, aggregate_id: UUID, tombstone: SessionDeleted) -> None:
        """Remove what was derived from the deleted session, and its content if it is not to be kept."""
        if index := self._index:
            index.remove(c, aggregate_id, rewrite=False)  # the eraser does that, once for many deletions
        ledger.remove(c, aggregate_id)
        if self._mapper is not None and not tombstone.keeps_content:
            eraser.overwrite(c, self.events_table_name, self._mapper, tombstone)
            eraser.remember(c, tombstone)

    def _stream_events(
        self, stored_events: Sequence[StoredEvent], recorded: Sequence[StreamEvent] = (), **_: Any
    ) -> Iterable[StreamEvent]:
        """What these stored events are; `recorded` are the events themselves, where the caller has them."""
        if self._mapper is not None and len(recorded) == len(stored_events):
            return recorded
        return self._read(stored_events)

    def _read(self, stored_events: Sequence[StoredEvent]) -> Iterator[StreamEvent]:
        for stored in stored_events:
            if stored.topic.startswith(OUR_TOPICS):
                if self._mapper is None:
                    raise ProgrammingError(
                        "This recorder keeps rows about sessions, but no mapper is bound to it: "
                        "construct SessionService(app) before anything is saved."
                    )
                event = self._mapper.to_domain_event(stored)
                if isinstance(event, StreamEvent):
                    vars(event)["originator_id"] = stored.originator_id  # in the form that the rows have
                    yield event


class SqliteSessionRecorder(SessionRows, SQLiteApplicationRecorder):
    """The framework's SQLite recorder with rows about sessions."""


def has_session_rows(recorder: object) -> bool:
    """Whether the store of this recorder has rows about sessions."""
    if not isinstance(recorder, SQLiteApplicationRecorder):
        return False
    with storage_errors(), recorder.datastore.transaction(commit=False) as cursor:
        return fence.keeps_rows(cursor)
