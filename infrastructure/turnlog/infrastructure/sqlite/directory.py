"""The directory of sessions as rows of SQLite.

Metadata stand in a table of their own that only grows at its end: rows of it are emptied, never enlarged or
removed. So SQLite never moves one to another page, which would leave a copy behind that no erasing reaches.
What is indexed of them are hashes, so that no index holds a copy of their text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, Final, cast
from uuid import UUID

from eventsourcing.persistence import ProgrammingError
from eventsourcing.sqlite import SQLiteCursor, SQLiteDatastore

from turnlog.application.ports import RecordedHead, SessionRow
from turnlog.application.projections.errors import LOST, ReadModelOutdatedError
from turnlog.application.storage import END_IS_GONE, storage_errors
from turnlog.domain.events import (
    EventErased,
    ExpiryMoved,
    MessageAppended,
    MetadataUpdated,
    SessionDeleted,
    SessionOpened,
    StreamEvent,
    as_uuid,
)
from turnlog.domain.ids import is_utf8
from turnlog.domain.json_text import from_json_text, sorted_json_text
from turnlog.infrastructure.sqlite import fence, rules

DIRECTORY_MODEL: Final = "directory"

DIRECTORY_RULE: Final = 1
"""How the rows are made. With another one they are rebuilt, never read or written."""

CREATE = (
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
        metadata INTEGER,
        deleted INTEGER NOT NULL DEFAULT 0
    )
    """,
    """
    CREATE INDEX IF NOT EXISTS turnlog_sessions_by_id
        ON turnlog_sessions (namespace, session_id)
    """,
    """
    CREATE INDEX IF NOT EXISTS turnlog_sessions_newest
        ON turnlog_sessions (namespace) WHERE deleted = 0
    """,
    """
    CREATE INDEX IF NOT EXISTS turnlog_sessions_by_expiry
        ON turnlog_sessions (expires_at) WHERE expires_at IS NOT NULL AND deleted = 0
    """,
    """
    CREATE TABLE IF NOT EXISTS turnlog_metadata (
        number INTEGER PRIMARY KEY,
        content TEXT
    )
    """,
    """
    CREATE TABLE IF NOT EXISTS turnlog_session_metadata (
        hash INTEGER NOT NULL,
        position INTEGER NOT NULL,
        PRIMARY KEY (hash, position)
    ) WITHOUT ROWID
    """,
)

TABLES: Final = ("turnlog_sessions", "turnlog_metadata", "turnlog_session_metadata")

_OPEN = """
    INSERT INTO turnlog_sessions (position, aggregate_id, namespace, session_id, created_at, modified_at,
        expires_at, idle, version, head, messages)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0)
"""

_OPEN_AGAIN = f"""
    {_OPEN} ON CONFLICT (aggregate_id) DO UPDATE SET session_id = excluded.session_id,
        created_at = excluded.created_at, modified_at = excluded.modified_at,
        expires_at = excluded.expires_at, idle = excluded.idle, version = excluded.version,
        head = excluded.head, messages = 0, deleted = 0
"""
"""Of what is stored already. Where the log lost a session as a whole, it may have been begun anew."""

_MOVE = """
    UPDATE turnlog_sessions SET version = ?, head = ?, modified_at = ?, messages = messages + ?
    WHERE aggregate_id = ?
"""

_MOVE_MOST = f"{_MOVE} AND version < ? AND deleted = 0 AND idle IS NULL"
"""Of nearly all sessions: nothing is to be postponed then, and no deletion is to be asked about."""

_IS_BEHIND = "SELECT 1 FROM turnlog_sessions WHERE aggregate_id = ? AND version >= ? AND deleted = 0"

_POSTPONE = """
    UPDATE turnlog_sessions SET expires_at = ? + idle WHERE aggregate_id = ? AND idle IS NOT NULL
"""
"""A statement of its own: one that names an indexed column writes a page of the index, changed or not."""

_COLUMNS = """
    SELECT session.position, aggregate_id, session_id, created_at, modified_at, expires_at, version,
        messages, content
"""

_CONTENT = " LEFT JOIN turnlog_metadata ON number = metadata WHERE deleted = 0 AND "

_NEWEST = f"""
    {_COLUMNS} FROM turnlog_sessions AS session INDEXED BY turnlog_sessions_newest {_CONTENT}
        namespace = ? AND position < ? ORDER BY position DESC LIMIT ?
"""

_OTHER_HASH = """
    CROSS JOIN turnlog_session_metadata AS other{0}
        ON other{0}.hash = ? AND other{0}.position = first.position
"""

_HOLDS = """
    AND EXISTS (
        SELECT 1 FROM turnlog_session_metadata AS held
        WHERE held.hash = ? AND held.position = session.position
    )
"""

_COUNTED = 1000
"""Sessions with one entry of the metadata that are counted to find out which entry is the rarest."""

_MOST = 2**62
"""More rows than there are, and still an integer of SQLite."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def is_lost(cursor: SQLiteCursor) -> bool:
    """Whether tables of it were dropped where a recorder writes its rows, and it was not rebuilt since."""
    if rules.rule_of(cursor, DIRECTORY_MODEL) == LOST:
        return True
    return fence.keeps_rows(cursor) and not rules.has_tables(cursor, *TABLES)


def require(cursor: SQLiteCursor) -> None:
    """`ReadModelOutdatedError` where it is lost, or was made by another rule."""
    if is_lost(cursor):
        raise ReadModelOutdatedError(DIRECTORY_MODEL, LOST, DIRECTORY_RULE)
    rules.require(cursor, DIRECTORY_MODEL, DIRECTORY_RULE)


def holds(cursor: SQLiteCursor, aggregate_id: UUID) -> bool:
    """Whether the session has a row."""
    cursor.execute("SELECT 1 FROM turnlog_sessions WHERE aggregate_id = ?", (aggregate_id.bytes,))
    return cursor.fetchone() is not None


def insert(
    cursor: SQLiteCursor,
    aggregate_id: UUID,
    events: Sequence[StreamEvent],
    position: int | None = None,
    *,
    are_new: bool = True,
) -> bool:
    """Open or move on the row of one session by these events of its stream.

    It is opened at this position, which is free, or behind all others.

    True when the row says that it was not deleted before; without that the list of erasures has to be asked.
    Raises `ProgrammingError` where the row tells of one of these versions already, which the log had lost; of
    events that are not new nothing is refused.
    """
    key = aggregate_id.bytes
    messages = 0
    active_at: datetime | None = None
    for event in events:
        if isinstance(event, SessionOpened):
            opened_at = _micros(event.timestamp)
            expires_at = _micros_of_text(event.expires_at)
            values = (
                position,
                key,
                event.namespace or "",
                event.session_id,
                opened_at,
                opened_at,
                expires_at,
            )
            cursor.execute(
                _OPEN if are_new else _OPEN_AGAIN,
                (*values, event.idle, event.originator_version, event.chain),
            )
            _set_metadata(cursor, key, event.content)
        elif isinstance(event, MessageAppended):
            messages += 1
            if event.moves_idle_expiry:
                active_at = event.timestamp
        elif isinstance(event, ExpiryMoved):
            active_at = None
            cursor.execute(
                "UPDATE turnlog_sessions SET expires_at = ? WHERE aggregate_id = ?",
                (_micros_of_text(event.expires_at), key),
            )
        elif isinstance(event, MetadataUpdated):
            _set_metadata(cursor, key, event.content)
    newest, is_live = events[-1], True
    if newest.originator_version > 0:
        moved = (newest.originator_version, newest.chain, _micros(newest.timestamp), messages, key)
        first = events[0].originator_version + isinstance(events[0], SessionOpened)  # that one has its row
        if not are_new:
            first = _MOST
        cursor.execute(_MOVE_MOST, (*moved, first))
        is_live = cursor.sqlite_cursor.rowcount == 1
        if not is_live:
            cursor.execute(_IS_BEHIND, (key, first))
            if cursor.fetchone() is not None and not isinstance(newest, SessionDeleted):
                raise ProgrammingError(END_IS_GONE)
            cursor.execute(_MOVE, moved)
            if active_at is not None:
                cursor.execute(_POSTPONE, (_micros(active_at), key))
    if isinstance(newest, SessionDeleted):
        _set_metadata(cursor, key, None)
        cursor.execute(
            "UPDATE turnlog_sessions SET deleted = 1, session_id = '' WHERE aggregate_id = ?", (key,)
        )
    return is_live


def insert_erased(cursor: SQLiteCursor, aggregate_id: UUID, erased: EventErased) -> None:
    """Make the row of a session of which only stubs are left, unless it has one; its tombstone completes it.

    Until then it has no head.
    """
    opened_at = _micros(erased.timestamp)
    cursor.execute(
        "INSERT INTO turnlog_sessions (aggregate_id, namespace, session_id, created_at, modified_at, "
        "version, head, messages, deleted) VALUES (?, '', '', ?, ?, 0, '', 0, 1) ON CONFLICT DO NOTHING",
        (aggregate_id.bytes, opened_at, opened_at),
    )


def is_past(cursor: SQLiteCursor, event: StreamEvent) -> bool:
    """Whether the row of its session tells of this event, or of later ones."""
    cursor.execute(
        "SELECT 1 FROM turnlog_sessions WHERE aggregate_id = ? AND modified_at >= ?",
        (as_uuid(event.originator_id).bytes, _micros(event.timestamp)),
    )
    return cursor.fetchone() is not None


def count_message(cursor: SQLiteCursor, aggregate_id: UUID) -> None:
    """Count a message of which nothing else is known."""
    cursor.execute(
        "UPDATE turnlog_sessions SET messages = messages + 1 WHERE aggregate_id = ?", (aggregate_id.bytes,)
    )


def head_of(cursor: SQLiteCursor, aggregate_id: UUID) -> RecordedHead | None:
    """The newest version and chain value of the session, None where no row tells them."""
    cursor.execute(
        "SELECT version, head, EXISTS (SELECT 1 FROM turnlog_erasures WHERE originator_id IN (?, ?) "
        "AND purged = 1) AS is_purged FROM turnlog_sessions WHERE aggregate_id = ? AND head <> ''",
        (aggregate_id.hex, str(aggregate_id), aggregate_id.bytes),
    )
    row = cursor.fetchone()
    return None if row is None else RecordedHead(row["version"], row["head"], bool(row["is_purged"]))


def all_ids(cursor: SQLiteCursor) -> list[UUID]:
    """The aggregate ids of all rows, those of deleted sessions included."""
    cursor.execute("SELECT aggregate_id FROM turnlog_sessions ORDER BY position")
    return [UUID(bytes=row["aggregate_id"]) for row in cursor.fetchall()]


def _set_metadata(cursor: SQLiteCursor, key: bytes, content: str | None) -> None:
    """Replace the metadata of the session and what is indexed of them."""
    cursor.execute(
        "SELECT position, namespace, metadata, content "
        "FROM turnlog_sessions LEFT JOIN turnlog_metadata ON number = metadata WHERE aggregate_id = ?",
        (key,),
    )
    row = cursor.fetchone()
    if row is None:  # begun by a process that writes no rows: a rebuild makes its row
        return
    position, namespace, number, former = row
    if content == former:
        return
    cursor.execute("UPDATE turnlog_metadata SET content = NULL WHERE number = ?", (number,))
    number = None
    if content is not None:
        cursor.execute("INSERT INTO turnlog_metadata (content) VALUES (?)", (content,))
        number = cursor.lastrowid
    cursor.execute("UPDATE turnlog_sessions SET metadata = ? WHERE position = ?", (number, position))
    for name, value in _metadata(former).items():
        cursor.execute(
            "DELETE FROM turnlog_session_metadata WHERE hash = ? AND position = ?",
            (_hash(namespace, name, value), position),
        )
    for name, value in _metadata(content).items():
        cursor.execute(
            "INSERT OR IGNORE INTO turnlog_session_metadata VALUES (?, ?)",
            (_hash(namespace, name, value), position),
        )


class SqliteDirectory:
    """The directory as queries over its table."""

    def __init__(self, datastore: SQLiteDatastore) -> None:
        self._datastore = datastore

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
        with storage_errors(), self._datastore.transaction(commit=False) as cursor:
            if hashes:
                hashes.sort(key=lambda one: self._count(cursor, one))
                others = "".join(map(_OTHER_HASH.format, range(1, len(hashes))))
                cursor.execute(
                    f"{_COLUMNS} FROM turnlog_session_metadata AS first {others} "
                    f"CROSS JOIN turnlog_sessions AS session ON session.position = first.position {_CONTENT} "
                    "first.hash = ? AND first.position < ? ORDER BY first.position DESC LIMIT ?",
                    (*hashes[1:], hashes[0], behind, min(limit, _MOST)),
                )
            else:
                cursor.execute(_NEWEST, (namespace, behind, min(limit, _MOST)))
            return [_row(row) for row in cursor.fetchall()]

    def with_prefix(
        self, namespace: str, prefix: str, *, limit: int, where: Mapping[str, Any] | None = None
    ) -> Sequence[SessionRow]:
        """Sessions whose id begins with the prefix."""
        if not is_utf8(prefix):
            return ()
        return self._select(
            "namespace = ? AND session_id >= ? AND substr(session_id, 1, ?) = ?",
            (namespace, prefix, len(prefix), prefix),
            where=_hashes(namespace, where),
            order="session_id",
            limit=limit,
        )

    def expired(
        self, namespace: str, at: datetime, *, where: Mapping[str, Any] | None = None
    ) -> Sequence[SessionRow]:
        """Sessions that expired at this time or before it."""
        return self._select(
            "expires_at IS NOT NULL AND expires_at <= ? AND namespace = ?",
            (_micros(at), namespace),
            where=_hashes(namespace, where),
            order="expires_at, position",
            limit=-1,
        )

    def _select(
        self, criteria: str, values: Sequence[object], *, where: Sequence[int], order: str, limit: int
    ) -> Sequence[SessionRow]:
        source = f"{_COLUMNS} FROM turnlog_sessions AS session {_CONTENT}"
        query = f"{source} {criteria} {_HOLDS * len(where)} ORDER BY {order} LIMIT ?"
        with storage_errors(), self._datastore.transaction(commit=False) as cursor:
            cursor.execute(query, (*values, *where, min(limit, _MOST)))
            return [_row(row) for row in cursor.fetchall()]

    @staticmethod
    def _count(cursor: SQLiteCursor, hash_: int) -> int:
        """How many sessions have this entry; not more than tells the rare ones."""
        cursor.execute(
            "SELECT COUNT(*) FROM (SELECT 1 FROM turnlog_session_metadata WHERE hash = ? LIMIT ?)",
            (hash_, _COUNTED),
        )
        return int(cursor.fetchone()[0])


def _hashes(namespace: str, where: Mapping[str, Any] | None) -> list[int]:
    return [_hash(namespace, name, value) for name, value in (where or {}).items()]


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
        metadata=_metadata(row["content"]),
    )


def _metadata(content: str | None) -> dict[str, Any]:
    return cast("dict[str, Any]", from_json_text(content)) if content else {}


def _hash(namespace: str, name: str, value: object) -> int:
    """A signed 64-bit hash of one entry of the metadata."""
    text = sorted_json_text([namespace, name, value])
    return int.from_bytes(sha256(text.encode()).digest()[:8], signed=True)


def _micros(time: datetime) -> int:
    return (time - _EPOCH) // _MICROSECOND


def _micros_of_text(time: str | None) -> int | None:
    return None if time is None else _micros(datetime.fromisoformat(time))


def _time(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)
