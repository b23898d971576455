"""Rows about sessions in SQLite, in the transaction of the events: the ledger of ids and the directory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from eventsourcing.persistence import Mapper, ProgrammingError, StoredEvent
from eventsourcing.sqlite import SQLiteApplicationRecorder, SQLiteCursor, SQLiteDatastore

from turnlog.application.ledger import needs_entry
from turnlog.application.ports import Directory, SessionRow, SessionRowsRecorder
from turnlog.application.storage import storage_errors
from turnlog.domain.events import (
    ExpiryMoved,
    MessageAppended,
    SessionDeleted,
    SessionOpened,
    StreamEvent,
    as_uuid,
)
from turnlog.domain.ids import is_utf8

_OUR_TOPICS = "turnlog.domain.events:"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

_CREATE = (
    """
    CREATE TABLE IF NOT EXISTS turnlog_event_ids (
        aggregate_id BLOB NOT NULL,
        event_id TEXT NOT NULL,
        version INTEGER NOT NULL,
        PRIMARY KEY (aggregate_id, event_id)
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE IF NOT EXISTS turnlog_sessions (
        position INTEGER PRIMARY KEY,
        aggregate_id BLOB NOT NULL UNIQUE,
        namespace TEXT NOT NULL,
        session_id TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        modified_at INTEGER NOT NULL,
        expires_at INTEGER,
        idle INTEGER,
        version INTEGER NOT NULL,
        head TEXT NOT NULL,
        messages INTEGER NOT NULL,
        deleted INTEGER NOT NULL DEFAULT 0
    )
    """,
    """
    CREATE INDEX IF NOT EXISTS turnlog_sessions_by_id
        ON turnlog_sessions (namespace, session_id)
    """,
    """
    CREATE INDEX IF NOT EXISTS turnlog_sessions_by_expiry
        ON turnlog_sessions (expires_at) WHERE expires_at IS NOT NULL AND deleted = 0
    """,
)

_OPEN = """
    INSERT INTO turnlog_sessions (aggregate_id, namespace, session_id, created_at, modified_at,
        expires_at, idle, version, head, messages)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0)
"""

_MOVE = """
    UPDATE turnlog_sessions SET version = ?, head = ?, modified_at = ?, messages = messages + ?,
        expires_at = COALESCE(? + idle, expires_at)
    WHERE aggregate_id = ?
"""

_COLUMNS = "position, aggregate_id, session_id, created_at, modified_at, expires_at, version, messages"


if TYPE_CHECKING:
    _RecorderBehind = SQLiteApplicationRecorder
else:
    _RecorderBehind = object


class SessionRows(SessionRowsRecorder, _RecorderBehind):
    """A mixin in front of an SQLite application recorder: `class Recorder(SessionRows, HostRecorder)`.

    It derives its rows from the stored events themselves, so they are right whoever calls `save`. Named by
    APPLICATION_RECORDER_TOPIC; the service binds the application's mapper.
    """

    _mapper: Mapper[Any] | None = None

    def bind(self, mapper: Mapper[Any]) -> None:
        """Read stored events through this mapper from now on."""
        self._mapper = mapper

    def version_of(self, aggregate_id: UUID, event_id: str) -> int | None:
        """The version of the event with this id, None when the stream holds none."""
        with storage_errors(), self.datastore.transaction(commit=False) as cursor:
            cursor.execute(
                "SELECT version FROM turnlog_event_ids WHERE aggregate_id = ? AND event_id = ?",
                (aggregate_id.bytes, event_id),
            )
            row = cursor.fetchone()
            return None if row is None else row[0]

    @property
    def directory(self) -> Directory:
        """The directory of the sessions in this file."""
        return SqliteDirectory(self.datastore)

    def construct_create_table_statements(self) -> list[str]:
        """The recorder's own tables, and the ones of the rows."""
        statements = super().construct_create_table_statements()
        return [*statements, *_CREATE]

    def _insert_events(
        self, c: SQLiteCursor, stored_events: Sequence[StoredEvent], **kwargs: Any
    ) -> Sequence[int] | None:
        rows = list(self._stream_events(stored_events))
        ids = super()._insert_events(c, stored_events, **kwargs)
        for aggregate_id, events in _by_stream(rows):
            self._insert_rows(c, aggregate_id, events)
        return ids

    def _stream_events(self, stored_events: Sequence[StoredEvent]) -> Iterator[StreamEvent]:
        for stored in stored_events:
            if stored.topic.startswith(_OUR_TOPICS):
                if self._mapper is None:
                    raise ProgrammingError(
                        "This recorder keeps rows about sessions, but no mapper is bound to it: "
                        "construct SessionService(app) before anything is saved."
                    )
                event = self._mapper.to_domain_event(stored)
                if isinstance(event, StreamEvent):
                    yield event

    @staticmethod
    def _insert_rows(c: SQLiteCursor, aggregate_id: UUID, events: Sequence[StreamEvent]) -> None:
        key = aggregate_id.bytes
        messages, active_at = 0, None
        for event in events:
            event_id = needs_entry(event)
            if event_id is not None:
                c.execute(
                    "INSERT INTO turnlog_event_ids VALUES (?, ?, ?)",
                    (key, event_id, event.originator_version),
                )
            if isinstance(event, SessionOpened):
                c.execute(
                    _OPEN,
                    (
                        key,
                        event.namespace or "",
                        event.session_id,
                        _micros(event.timestamp),
                        _micros(event.timestamp),
                        _micros_of_text(event.expires_at),
                        event.idle,
                        event.originator_version,
                        event.chain,
                    ),
                )
            elif isinstance(event, MessageAppended):
                messages += 1
                if event.moves_idle_expiry:
                    active_at = _micros(event.timestamp)
            elif isinstance(event, ExpiryMoved):
                active_at = None
                c.execute(
                    "UPDATE turnlog_sessions SET expires_at = ? WHERE aggregate_id = ?",
                    (_micros_of_text(event.expires_at), key),
                )
            elif isinstance(event, SessionDeleted):
                c.execute("UPDATE turnlog_sessions SET deleted = 1 WHERE aggregate_id = ?", (key,))
        newest = events[-1]
        if newest.originator_version > 0:
            c.execute(
                _MOVE,
                (
                    newest.originator_version,
                    newest.chain,
                    _micros(newest.timestamp),
                    messages,
                    active_at,
                    key,
                ),
            )


class SqliteSessionRecorder(SessionRows, SQLiteApplicationRecorder):
    """The framework's SQLite recorder with rows about sessions."""


class SqliteDirectory:
    """The directory as a query over its table."""

    def __init__(self, datastore: SQLiteDatastore) -> None:
        self._datastore = datastore

    def newest(self, namespace: str, *, limit: int, before: int | None = None) -> Sequence[SessionRow]:
        """Sessions by creation, newest first."""
        return self._select(
            "namespace = ? AND position < ? ORDER BY position DESC LIMIT ?",
            (namespace, 2**62 if before is None else before, limit),
        )

    def with_prefix(self, namespace: str, prefix: str, *, limit: int) -> Sequence[SessionRow]:
        """Sessions whose id begins with the prefix."""
        if not is_utf8(prefix):
            return ()
        return self._select(
            "namespace = ? AND session_id >= ? AND substr(session_id, 1, ?) = ? ORDER BY session_id LIMIT ?",
            (namespace, prefix, len(prefix), prefix, limit),
        )

    def expired(self, namespace: str, at: datetime) -> Sequence[SessionRow]:
        """Sessions that expired at this time or before it."""
        return self._select(
            "expires_at IS NOT NULL AND expires_at <= ? AND namespace = ? ORDER BY expires_at, position",
            (_micros(at), namespace),
        )

    def _select(self, criteria: str, values: Sequence[object]) -> Sequence[SessionRow]:
        query = f"SELECT {_COLUMNS} FROM turnlog_sessions WHERE deleted = 0 AND {criteria}"  # noqa: S608 - constants
        with storage_errors(), self._datastore.transaction(commit=False) as cursor:
            cursor.execute(query, values)
            return [_row(row) for row in cursor.fetchall()]


def _row(row: Any) -> SessionRow:
    return SessionRow(
        session_id=row["session_id"],
        aggregate_id=UUID(bytes=row["aggregate_id"]),
        position=row["position"],
        created_at=_time(row["created_at"]),
        modified_at=_time(row["modified_at"]),
        expires_at=None if row["expires_at"] is None else _time(row["expires_at"]),
        version=row["version"],
        messages=row["messages"],
    )


def _by_stream(events: Sequence[StreamEvent]) -> Iterator[tuple[UUID, list[StreamEvent]]]:
    streams: dict[UUID, list[StreamEvent]] = {}
    for event in events:
        streams.setdefault(as_uuid(event.originator_id), []).append(event)
    yield from streams.items()


def _micros(time: datetime) -> int:
    return (time - _EPOCH) // _MICROSECOND


def _micros_of_text(time: str | None) -> int | None:
    return None if time is None else _micros(datetime.fromisoformat(time))


def _time(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)
