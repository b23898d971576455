"""Rows about sessions in PostgreSQL, in the transaction of the events: ledger of ids and directory."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, LiteralString
from uuid import UUID

import psycopg
from eventsourcing.persistence import Mapper, ProgrammingError, StoredEvent
from eventsourcing.postgres import (
    PostgresApplicationRecorder,
    PostgresDatastore,
)
from psycopg import Connection, Cursor
from psycopg.errors import DuplicateObject
from psycopg.rows import DictRow

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
from turnlog.domain.errors import (
    InvalidSettingError,
    StorageError,
    StorageUnavailableError,
    WriteUncertainError,
)
from turnlog.domain.events import ContentRedacted, SessionDeleted, StreamEvent
from turnlog.infrastructure.postgres import catching_up, directory, eraser, recall, rules, tables
from turnlog.infrastructure.postgres.calls import Argument, Call
from turnlog.infrastructure.postgres.eraser import Rewrite
from turnlog.infrastructure.postgres.pool import bound, on_connection, once_more
from turnlog.infrastructure.postgres.recall import OUR_TOPICS
from turnlog.infrastructure.postgres.redacting import redact
from turnlog.infrastructure.postgres.rows import Changes, changes_of, joined, moving_on

_HOOKS = (
    "insert_events",
    "_insert_events",
    "_insert_stored_events",
    "_lock_table",
    "_notify_channel",
    "_fetch_ids_after_insert_events",
)
"""Where a recorder can do something of its own in the transaction."""

_VERSION_OF: Final[LiteralString] = "SELECT version FROM {ids} WHERE aggregate_id = %s AND event_id = %s"

_RANGES: Final[LiteralString] = """
    SELECT stored.* FROM unnest(%s::bigint[], %s::bigint[]) AS wanted (first, last), LATERAL (
        SELECT originator_version, topic, state FROM {events}
        WHERE originator_id = %s::{id_type} AND originator_version BETWEEN wanted.first AND wanted.last
        ORDER BY originator_version
    ) AS stored ORDER BY originator_version
"""
"""A look-up for each range: as a join PostgreSQL might read the whole session."""

_HEAD: Final[LiteralString] = """
    SELECT version, head, false AS is_purged FROM {sessions} WHERE aggregate_id = %s
    UNION ALL
    SELECT version, head, EXISTS (SELECT 1 FROM {erasures} WHERE aggregate_id = %s AND purged)
    FROM {ended} WHERE aggregate_id = %s
"""

_ALL_IDS: Final[LiteralString] = """
    SELECT position, aggregate_id FROM {sessions} UNION ALL SELECT position, aggregate_id FROM {ended}
    ORDER BY position
"""

if TYPE_CHECKING:
    _RecorderBehind = PostgresApplicationRecorder
else:
    _RecorderBehind = object


class _HookFailedError(BaseException):
    """A hook of the recorder behind failed: no `Exception`, which the framework keeps until it committed."""

    def __init__(self, reason: Exception) -> None:
        super().__init__()
        self.reason = reason


@dataclass(frozen=True)
class _Batch:
    """Events to be stored, and what follows from them for the rows."""

    stored: Sequence[StoredEvent]
    changes: Changes
    erasures: Sequence[eraser.Overwrite]
    redactions: Sequence[Rewrite]
    tries: list[bool] = field(default_factory=list[bool])
    """One for each transaction in which it was tried."""


class SessionRows(SessionRowsRecorder, _RecorderBehind):
    """A mixin in front of a PostgreSQL application recorder: `class Recorder(SessionRows, HostRecorder)`.

    It derives its rows from the stored events themselves, so they are right whoever calls `save`. Named by
    APPLICATION_RECORDER_TOPIC; the service binds the application's mapper. Events and rows are written in one
    round trip, unless the recorder behind it has something of its own to do in the transaction.
    """

    _mapper: Mapper[Any] | None = None
    _lacks_rows = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        require_in_front(cls, SessionRows, PostgresApplicationRecorder)
        super().__init_subclass__(**kwargs)

    def __init__(self, datastore: PostgresDatastore, *args: Any, **kwargs: Any) -> None:
        if datastore.enable_db_functions:
            raise InvalidSettingError(
                "POSTGRES_ENABLE_DB_FUNCTIONS would store events without the rows about them, and let "
                "subscribers miss some: leave it off. This recorder writes in one round trip without it."
            )
        bound(datastore)
        super().__init__(datastore, *args, **kwargs)
        self._tables = tables.of_recorder(self)
        self._append_many = Call(self._tables.regproc("append"), tables.APPEND_FORMS)
        self._append_one = Call(self._tables.regproc("append_one"), tables.APPEND_ONE_FORMS)
        self._is_plain = all(map(self._is_the_frameworks, _HOOKS))
        self._rows_statement = self._tables.sql("SELECT {write_rows}(%s::json, %s::json)")

    def bind(self, mapper: Mapper[Any]) -> None:
        """Read stored events through this mapper from now on; make the rows that a store lacks.

        Raises `ReadModelOutdatedError` where the directory is gone, or was made by another rule.
        """
        self.complete(mapper)
        with storage_errors(), self.datastore.get_connection() as connection:
            catching_up.require_directory(connection.cursor(), self._tables)
        self._mapper = mapper
        if not self.keeps_recall:
            recall.PostgresRecallIndex(self.datastore, mapper, self._tables).empty()

    def complete(self, mapper: Mapper[Any]) -> None:
        """Make the rows that the store lacks, those of all sessions or of the ledger alone."""
        if self._lacks_rows:
            unlocked(lambda: self._make_rows(mapper))

    def version_of(self, aggregate_id: UUID, event_id: str) -> int | None:
        """The version of the event with this id, None when the stream holds none."""
        rows = self._read(_VERSION_OF, (aggregate_id, event_id))
        return next((row["version"] for row in rows), None)

    def select_ranges(self, originator_id: Any, ranges: Iterable[tuple[int, int]]) -> Sequence[StoredRow]:
        """The events of these ranges of versions, in one read."""
        wanted = list(ranges)
        bounds = ([first for first, _ in wanted], [last for _, last in wanted])
        rows = self._read(_RANGES, (*bounds, str(originator_id)))
        return [(row["originator_version"], row["topic"], bytes(row["state"])) for row in rows]

    @property
    def records_heads(self) -> bool:
        """Every session has a row with its head."""
        return True

    def recorded_head(self, aggregate_id: UUID) -> RecordedHead | None:
        """The head in the row of the session."""
        rows = self._read(_HEAD, (aggregate_id, aggregate_id, aggregate_id))
        return next((RecordedHead(row["version"], row["head"], row["is_purged"]) for row in rows), None)

    def recorded_sessions(self) -> Iterator[UUID]:
        """The sessions that have a row, in the order of their creation."""
        return iter([row["aggregate_id"] for row in self._read(_ALL_IDS, ())])

    @property
    def directory(self) -> Directory:
        """The directory of the sessions in this database."""
        return directory.PostgresDirectory(self.datastore, self._tables)

    @property
    def recall(self) -> recall.PostgresRecallIndex | None:
        """The index of what was said in this database, None without a mapper."""
        if self._mapper is None or not self.keeps_recall:
            return None
        return recall.PostgresRecallIndex(self.datastore, self._mapper, self._tables)

    @property
    def eraser(self) -> eraser.PostgresEraser:
        """What erases deleted sessions from this database."""
        return eraser.PostgresEraser(self.datastore, self._tables)

    def backup(self, file: str) -> None:  # noqa: ARG002 - the port's argument
        """Refused: PostgreSQL has tools of its own for that."""
        raise BackupError(
            "A PostgreSQL database is copied with its own tools: use pg_dump. Nothing was written."
        )

    def create_table(self) -> None:
        """Create what is missing. Rows about sessions that were stored without them are made by `bind`."""
        with storage_errors():
            with self.datastore.transaction(commit=True) as cursor:
                self._tables.one_at_a_time(cursor)
                self._refuse_other_databases(cursor)
                self._create_types(cursor)
                self._lacks_rows = catching_up.lacks_rows(cursor, self)
            if not self._lacks_rows:
                super().create_table()

    def _make_rows(self, mapper: Mapper[Any]) -> None:
        """Make the rows about what is stored, all or none; another process may be first."""
        made: Sequence[UUID] = ()
        with self.datastore.transaction(commit=True) as cursor:
            self._tables.one_at_a_time(cursor)
            if catching_up.lacks_rows(cursor, self):
                keeps_rows = catching_up.keeps_rows(cursor, self)
                missing = self._tables.missing(cursor, catching_up.KEPT)
                self._create_table(cursor)
                if keeps_rows:
                    catching_up.make_missing(cursor, self, mapper, missing)
                else:
                    made = catching_up.make_all(cursor, self, mapper)
                self._tables.raise_fence(cursor)  # last: it takes a lock on the events
        super().create_table()
        self._lacks_rows = False
        if made and self.keeps_recall:
            recall.PostgresRecallIndex(self.datastore, mapper, self._tables).complete(made)

    def _create_table(self, curs: Cursor[DictRow]) -> None:
        self._tables.one_at_a_time(curs)
        super()._create_table(curs)
        is_lost = catching_up.lacks_part_of_directory(curs, self._tables)
        self._tables.create(curs)
        write = rules.write if is_lost else rules.write_if_missing
        write(curs, self._tables, directory.DIRECTORY_MODEL, LOST if is_lost else directory.DIRECTORY_RULE)
        if not self._lacks_rows:
            self._tables.raise_fence(curs)

    def _refuse_other_databases(self, cursor: Cursor[DictRow]) -> None:
        cursor.execute("SHOW server_encoding")
        encoding = (cursor.fetchone() or {})["server_encoding"]
        if encoding != "UTF8":
            raise StorageError(f"The database is encoded in {encoding}. Name one that is encoded in UTF8.")

    def _create_types(self, cursor: Cursor[DictRow]) -> None:
        for statement in self.sql_create_statements:
            if "CREATE TYPE" in statement.as_string():
                with contextlib.suppress(DuplicateObject), cursor.connection.transaction():
                    cursor.execute(statement, prepare=False)

    def insert_events(self, stored_events: Sequence[StoredEvent], **kwargs: Any) -> Sequence[int] | None:
        """Store events and their rows in one transaction; notification ids are in the order of commits."""
        events = self._stream_events(stored_events, **kwargs)
        arguments = moving_on(stored_events, events)
        if self._is_plain and arguments is not None:
            ids: Sequence[int] | None = self._append(self._append_one, arguments)
        else:
            ids = self._insert_batch(self._batch(stored_events, events), **kwargs)
        if ids and events and (index := self.recall):
            index.follow(stored_events)
        return ids

    def _insert_batch(self, batch: _Batch, **kwargs: Any) -> Sequence[int] | None:
        if self._is_plain and batch.stored and not batch.erasures and not batch.redactions:
            return self._append(self._append_many, (*joined(batch.stored), *batch.changes.as_json()))
        return self._insert_with_hooks(batch, **kwargs)

    def _insert_with_hooks(self, batch: _Batch, **kwargs: Any) -> Sequence[int] | None:
        """Let the recorder behind do it; what one of its hooks raises leaves nothing stored."""
        try:
            ids: Sequence[int] | None = super().insert_events(batch.stored, session_rows=batch, **kwargs)
        except _HookFailedError as failed:
            raise failed.reason from failed.reason.__cause__
        except StorageUnavailableError as error:
            if batch.tries:  # its connection was lost, and there was none to see what became of it
                raise WriteUncertainError from error
            raise
        return ids

    def _insert_stored_events(
        self, curs: Cursor[DictRow], stored_events: Sequence[StoredEvent], **kwargs: Any
    ) -> None:
        with _undone():
            super()._insert_stored_events(curs, stored_events, **kwargs)

    def _fetch_ids_after_insert_events(
        self, curs: Cursor[DictRow], stored_events: Sequence[StoredEvent], **kwargs: Any
    ) -> Sequence[int] | None:
        with _undone():
            return super()._fetch_ids_after_insert_events(curs, stored_events, **kwargs)

    def _read(self, query: LiteralString, values: Sequence[object]) -> Sequence[DictRow]:
        statement = self._tables.sql(query)

        def read() -> list[DictRow]:
            with self.datastore.get_connection() as connection:
                return connection.execute(statement, values, prepare=True).fetchall()

        with storage_errors():
            return once_more(self.datastore, read, writes=False)

    def _is_the_frameworks(self, hook: str) -> bool:
        """Whether the recorder behind this one does what the framework's does."""
        behind = (cls for cls in type(self).__mro__ if cls is not SessionRows and hook in vars(cls))
        return vars(next(behind))[hook] is getattr(PostgresApplicationRecorder, hook)

    def _append(self, function: Call, arguments: Sequence[Argument]) -> Sequence[int]:
        patience = f"{self.datastore.lock_timeout}s"

        def append(connection: Connection[Any]) -> list[int]:
            return function(connection, *arguments, patience)

        return once_more(self.datastore, lambda: on_connection(self.datastore, append), writes=True)

    def _insert_events(
        self, curs: Cursor[DictRow], stored_events: Sequence[StoredEvent], **kwargs: Any
    ) -> None:
        batch = kwargs.pop("session_rows", None)
        if batch is None:
            batch = self._batch(stored_events, self._stream_events(stored_events, **kwargs))
        batch.tries.append(True)
        self._lock_table(curs)  # before any row is locked, so that writers wait in one order
        curs.execute(tables.LEAVE, prepare=True)
        for erasure in batch.erasures:
            erasure.execute(curs, self._tables)
        if batch.changes:
            curs.execute(self._rows_statement, batch.changes.as_json(), prepare=True)
        super()._insert_events(curs, stored_events, **kwargs)
        self._redact(curs, batch.redactions)

    def _redact(self, cursor: Cursor[DictRow], rewrites: Sequence[Rewrite]) -> None:
        """Put the markers over the contents, and index anew what stands beside them."""
        mapper = self._mapper
        if not rewrites or mapper is None:
            return
        index = recall.PostgresRecallIndex(self.datastore, mapper, self._tables)
        redact(cursor, self._tables, index, mapper, rewrites)

    def _batch(self, stored_events: Sequence[StoredEvent], events: Sequence[StreamEvent]) -> _Batch:
        erasures: list[eraser.Overwrite] = []
        if self._mapper is not None:
            for tombstone in events:
                if isinstance(tombstone, SessionDeleted) and not tombstone.keeps_content:
                    stored_events, erasure = eraser.prepare(self._mapper, tombstone, stored_events)
                    erasures.append(erasure)
        redactions = [Rewrite(event) for event in events if isinstance(event, ContentRedacted)]
        return _Batch(stored_events, changes_of(events), erasures, redactions)

    def _stream_events(
        self, stored_events: Sequence[StoredEvent], recorded: Sequence[StreamEvent] = (), **_: Any
    ) -> Sequence[StreamEvent]:
        """What these stored events are; `recorded` are the events themselves, where the caller has them."""
        if self._mapper is not None and len(recorded) == len(stored_events):
            return recorded
        return list(self._read_events(stored_events))

    def _read_events(self, stored_events: Sequence[StoredEvent]) -> Iterator[StreamEvent]:
        for stored in stored_events:
            if stored.topic.startswith(OUR_TOPICS):
                if self._mapper is None:
                    raise ProgrammingError(
                        "This recorder keeps rows about sessions, but no mapper is bound to it: "
                        "construct SessionService(app) before anything is saved."
                    )
                event = self._mapper.to_domain_event(stored)
                if isinstance(event, StreamEvent):
                    vars(event)["originator_id"] = stored.originator_id  # in the form that the table has
                    yield event


@contextlib.contextmanager
def _undone() -> Generator[None]:
    """Let an error of Python undo the transaction; one of the database has done so already."""
    try:
        yield
    except psycopg.Error:
        raise
    except Exception as error:
        raise _HookFailedError(error) from error


class PostgresSessionRecorder(SessionRows, PostgresApplicationRecorder):
    """The framework's PostgreSQL recorder with rows about sessions."""


def has_session_rows(recorder: object) -> bool:
    """Whether the store of this recorder has rows about sessions."""
    if not isinstance(recorder, PostgresApplicationRecorder):
        return False
    names = tables.of_recorder(recorder)
    with storage_errors(), recorder.datastore.get_connection() as connection:
        return names.are_kept(connection.cursor())
