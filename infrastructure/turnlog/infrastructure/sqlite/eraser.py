"""Erasing from SQLite: stubs over deleted sessions, markers over redacted contents, and no old copy left.

Rows are overwritten in place with something shorter, which moves no other row. Removing rows or enlarging one
does: SQLite merges or splits pages then and leaves copies of the neighbours in their unused parts, which no
later overwriting reaches. So what is purged is purged by writing the whole table anew, and a marker that is
longer than what it stands for, as that of a short or compressed content is, is followed by the same.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from eventsourcing.persistence import IntegrityError, Mapper, StoredEvent
from eventsourcing.sqlite import SQLITE3_DEFAULT_LOCK_TIMEOUT, SQLiteCursor, SQLiteDatastore

from turnlog.application.erasing import Erased, SessionEraser
from turnlog.application.storage import storage_errors
from turnlog.application.stored_events import event_if_readable, target_of
from turnlog.domain.events import ContentEvent, ContentRedacted, EventErased, SessionDeleted
from turnlog.infrastructure.sqlite import recall
from turnlog.infrastructure.sqlite.recall import MARKED, SqliteRecallIndex
from turnlog.infrastructure.sqlite.secure import writing

CREATE = (
    """
    CREATE TABLE IF NOT EXISTS turnlog_erasures (
        position INTEGER PRIMARY KEY,
        originator_id TEXT NOT NULL UNIQUE,
        deleted_at INTEGER NOT NULL,
        version INTEGER NOT NULL,
        pending INTEGER NOT NULL DEFAULT 1,
        purged INTEGER NOT NULL DEFAULT 0
    )
    """,
    """
    CREATE TABLE IF NOT EXISTS turnlog_redactions (
        position INTEGER PRIMARY KEY,
        originator_id TEXT NOT NULL,
        version INTEGER NOT NULL,
        pending INTEGER NOT NULL,
        UNIQUE (originator_id, version)
    )
    """,
)
"""Of deletions and of redactions, each by the version of its event: what is still to be done for them."""

DONE: Final = 0
COPIES: Final = 1
"""Overwritten; old copies may be left in the index and the write-ahead log."""
DUE: Final = recall.DUE
"""Recorded, and not overwritten yet."""
ANEW: Final = 3
"""Overwritten; the table of events has to be written anew too."""

_READER: Final = (
    "Another connection still reads an older state of the database, so copies may be left in its "
    "write-ahead log: close long readers and run a sweep."
)

_PURGED: Final = """
    topic = ? AND originator_version > 0
        AND originator_id IN (SELECT originator_id FROM turnlog_erasures WHERE purged = 1)
"""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def overwrite(
    cursor: SQLiteCursor, events_table: str, mapper: Mapper[Any], tombstone: SessionDeleted
) -> None:
    """Put a stub over every event in front of the tombstone, in the transaction that writes it.

    Those that the log has lost need none: they must not keep the others from being erased.
    """
    stubs = (
        mapper.to_stored_event(
            EventErased(
                originator_id=tombstone.originator_id,
                originator_version=version,
                timestamp=tombstone.timestamp,
            )
        )
        for version in range(tombstone.originator_version)
    )
    stored_id = stored_form(tombstone.originator_id)
    cursor.executemany(
        f"UPDATE {events_table} SET topic = ?, state = ? "  # noqa: S608 - the recorder's table
        "WHERE originator_id = ? AND originator_version = ?",
        ((stub.topic, stub.state, stored_id, stub.originator_version) for stub in stubs),
    )


def remember(cursor: SQLiteCursor, tombstone: SessionDeleted, pending: int = COPIES) -> None:
    """Remember the deletion, and what is still to be done for it."""
    at = (tombstone.timestamp - _EPOCH) // _MICROSECOND
    cursor.execute(
        "INSERT INTO turnlog_erasures (originator_id, deleted_at, version, pending) VALUES (?, ?, ?, ?) "
        "ON CONFLICT (originator_id) DO UPDATE SET "
        "deleted_at = excluded.deleted_at, version = excluded.version, pending = excluded.pending",
        (stored_form(tombstone.originator_id), at, tombstone.originator_version, pending),
    )


def remember_redaction(cursor: SQLiteCursor, redaction: ContentRedacted, pending: int) -> None:
    """Remember the redaction, and what is still to be done for it."""
    cursor.execute(
        "INSERT INTO turnlog_redactions (originator_id, version, pending) VALUES (?, ?, ?) "
        "ON CONFLICT (originator_id, version) DO UPDATE SET pending = excluded.pending",
        (stored_form(redaction.originator_id), redaction.originator_version, pending),
    )


def remember_all(
    cursor: SQLiteCursor, events_table: str, mapper: Mapper[Any], id_of: Callable[[str], Any]
) -> None:
    """Remember the deletions and redactions of a log whose tables of them were dropped.

    Which of them were scrubbed is not in the log, so the next sweep scrubs for all of them.
    """
    cursor.execute(
        "SELECT originator_id, originator_version, topic, state, originator_version > 1 AND NOT EXISTS ("  # noqa: S608
        f"SELECT 1 FROM {events_table} AS other "
        "WHERE other.originator_id = stored.originator_id AND other.originator_version = 1"
        f") AS purged FROM {events_table} AS stored WHERE topic IN (?, ?) ORDER BY rowid",
        (SessionDeleted.TOPIC, ContentRedacted.TOPIC),
    )
    for stored_id, version, topic, state, purged in map(tuple, cursor.fetchall()):
        event = event_if_readable(mapper, StoredEvent(id_of(stored_id), version, topic, state))
        if isinstance(event, ContentRedacted):
            remember_redaction(cursor, event, ANEW)
        elif isinstance(event, SessionDeleted) and not event.keeps_content:
            remember(cursor, event)
            change = "UPDATE turnlog_erasures SET purged = ? WHERE originator_id = ?"
            cursor.execute(change, (purged, stored_id))


def overwrite_content(
    cursor: SQLiteCursor, events_table: str, mapper: Mapper[Any], redaction: ContentRedacted
) -> int:
    """Put its marker over the content of the event that the redaction names; what is to be done behind it.

    Raises `ErasureTargetError`, `UnreadableEventError`.
    """
    stored, target = named_by(redaction, cursor, events_table, mapper)
    if target.is_redacted:
        return COPIES
    marked = mapper.to_stored_event(target.redacted_by(redaction))
    cursor.execute(
        f"UPDATE {events_table} SET state = ? "  # noqa: S608 - the recorder's table
        "WHERE originator_id = ? AND originator_version = ?",
        (marked.state, stored_form(redaction.originator_id), redaction.redacted_version),
    )
    return COPIES if len(marked.state) <= len(stored.state) else ANEW


def named_by(
    redaction: ContentRedacted, cursor: SQLiteCursor, events_table: str, mapper: Mapper[Any]
) -> tuple[StoredEvent, ContentEvent]:
    """The event whose content the redaction removes. Raises `ErasureTargetError`, `UnreadableEventError`."""
    version = redaction.redacted_version
    cursor.execute(
        f"SELECT topic, state FROM {events_table} "  # noqa: S608 - the recorder's table
        "WHERE originator_id = ? AND originator_version = ?",
        (stored_form(redaction.originator_id), version),
    )
    row = cursor.fetchone()
    stored = None if row is None else StoredEvent(redaction.originator_id, version, row[0], row[1])
    return target_of(redaction, stored, mapper)


def with_state(cursor: SQLiteCursor, pending: int) -> list[str]:
    """The streams of which this is still to be done."""
    cursor.execute("SELECT originator_id FROM turnlog_erasures WHERE pending = ?", (pending,))
    return [row[0] for row in cursor.fetchall()]


def change_state(cursor: SQLiteCursor, stored_ids: Iterable[str], pending: int) -> None:
    """Say of these streams what is still to be done."""
    cursor.executemany(
        "UPDATE turnlog_erasures SET pending = ? WHERE originator_id = ?",
        ((pending, stored_id) for stored_id in stored_ids),
    )


def refuse_purged(cursor: SQLiteCursor, originator_id: object) -> None:
    """Refuse an event of a session whose versions in front of the tombstone are free again."""
    cursor.execute(
        "SELECT 1 FROM turnlog_erasures WHERE originator_id = ? AND purged = 1", (stored_form(originator_id),)
    )
    if cursor.fetchone() is not None:
        raise IntegrityError("The session was deleted.")


def write_anew(cursor: SQLiteCursor, events_table: str, purged: str = _PURGED) -> None:
    """Write all rows but the purged ones in their order into the emptied table, each under its row id."""
    cursor.execute(f"PRAGMA table_info({events_table})")
    columns = ", ".join(f'"{row["name"]}"' for row in cursor.fetchall())
    kept = "turnlog_kept_events"
    cursor.execute(f"CREATE TABLE {kept} (notification INTEGER PRIMARY KEY, {columns})")
    cursor.execute(
        f"INSERT INTO {kept} SELECT rowid, {columns} FROM {events_table} "  # noqa: S608 - the recorder's table
        f"WHERE NOT ({purged}) ORDER BY rowid",
        (EventErased.TOPIC,) if "?" in purged else (),
    )
    cursor.execute(f"DELETE FROM {events_table}")  # noqa: S608 - the recorder's table
    cursor.execute(
        f"INSERT INTO {events_table} (rowid, {columns}) "  # noqa: S608 - the recorder's table
        f"SELECT notification, {columns} FROM {kept} ORDER BY notification"
    )
    cursor.execute(f"DROP TABLE {kept}")


def stored_form(originator_id: object) -> str:
    """The id as the framework's tables hold it."""
    return originator_id.hex if isinstance(originator_id, UUID) else str(originator_id)


def redacted_with_state(cursor: SQLiteCursor, pending: int) -> list[tuple[str, int]]:
    """Streams and versions of the redactions of which this is still to be done."""
    cursor.execute(
        "SELECT originator_id, version FROM turnlog_redactions WHERE pending = ? ORDER BY position",
        (pending,),
    )
    return [(row[0], row[1]) for row in cursor.fetchall()]


def change_redactions(cursor: SQLiteCursor, redactions: Iterable[tuple[str, int]], pending: int) -> None:
    """Say of these redactions what is still to be done."""
    cursor.executemany(
        "UPDATE turnlog_redactions SET pending = ? WHERE originator_id = ? AND version = ?",
        ((pending, stored_id, version) for stored_id, version in redactions),
    )


class SqliteEraser(SessionEraser):
    """The eraser of one SQLite file. Its recorder writes stubs and markers in the transaction of what asks
    for them."""

    def __init__(
        self, datastore: SQLiteDatastore, events_table: str, index: SqliteRecallIndex | None
    ) -> None:
        self._datastore = datastore
        self._events = events_table
        self._index = index
        # The row that marks how far the index got stays, or the index would be built anew.
        self._purged = f"{_PURGED} AND rowid NOT IN ({MARKED})" if index else _PURGED

    def erase(self, aggregate_id: UUID) -> None:
        """Nothing is left to do: the recorder did it."""

    @property
    def redacts(self) -> bool:
        """It can."""
        return True

    def redact(self, redactions: Sequence[ContentRedacted]) -> None:
        """Nothing is left to do: the recorder did it."""

    def scrub(self) -> str | None:
        """Rewrite table and index where that is needed, and empty the write-ahead log into the file.

        The latter is tried again while others read, within the busy timeout.
        """
        self._write_anew()
        with storage_errors():
            with self._datastore.transaction(commit=False) as cursor:
                overwritten = with_state(cursor, COPIES)
                redacted = redacted_with_state(cursor, COPIES)
            if not overwritten and not redacted:
                return None
            if self._index is not None:
                with writing(self._datastore) as cursor:
                    streams = dict.fromkeys((*overwritten, *(stored_id for stored_id, _ in redacted)))
                    self._index.rewrite(cursor, map(UUID, streams))
            patience = self._datastore.pool.lock_timeout or SQLITE3_DEFAULT_LOCK_TIMEOUT
            deadline = time.monotonic() + patience
            while not self._empty_log():
                if time.monotonic() >= deadline:
                    return _READER
                time.sleep(0.02)
            with writing(self._datastore) as cursor:
                change_state(cursor, overwritten, DONE)
                change_redactions(cursor, redacted, DONE)
        return None

    def _write_anew(self) -> None:
        """Write the table of events anew if something left copies that nothing else reaches."""
        with storage_errors(), self._datastore.transaction(commit=False) as cursor:
            anew, redacted = with_state(cursor, ANEW), redacted_with_state(cursor, ANEW)
        if anew or redacted:
            with writing(self._datastore) as cursor:
                write_anew(cursor, self._events, "0")
                change_state(cursor, anew, COPIES)
                change_redactions(cursor, redacted, COPIES)

    def pending(self) -> int:
        """How many sessions and contents were overwritten and not scrubbed."""
        with storage_errors(), self._datastore.transaction(commit=False) as cursor:
            cursor.execute(
                "SELECT (SELECT count(*) FROM turnlog_erasures WHERE pending > 0) "
                "+ (SELECT count(*) FROM turnlog_redactions WHERE pending > 0)"
            )
            return int(cursor.fetchone()[0])

    def purge(self, before: datetime) -> int:
        """Remove the stubs, by writing the table of events anew; its cost is that of the whole table."""
        at = (before - _EPOCH) // _MICROSECOND
        with writing(self._datastore) as cursor:
            cursor.execute(
                "UPDATE turnlog_erasures SET purged = 1 WHERE purged = 0 AND deleted_at <= ?", (at,)
            )
            cursor.execute(
                f"SELECT count(*) FROM {self._events} WHERE {self._purged}",  # noqa: S608 - the recorder's table
                (EventErased.TOPIC,),
            )
            purged = int(cursor.fetchone()[0])
            if purged:
                write_anew(cursor, self._events, self._purged)
        return purged

    def erased(self) -> Iterable[Erased]:
        """Every session that was erased from this file."""
        with storage_errors(), self._datastore.transaction(commit=False) as cursor:
            cursor.execute("SELECT originator_id, deleted_at FROM turnlog_erasures ORDER BY position")
            return [
                Erased(UUID(row[0]), _EPOCH + timedelta(microseconds=row[1])) for row in cursor.fetchall()
            ]

    def _empty_log(self) -> bool:
        """Write the log back and truncate it; False while a reader or a writer elsewhere is in the way.

        Each try waits for a moment only: while one waits no other process can write.
        """
        with self._datastore.get_connection(commit=True) as connection:
            cursor = connection.cursor()
            with cursor:
                cursor.execute("PRAGMA busy_timeout")
                patience = cursor.fetchone()[0]
                cursor.execute("PRAGMA busy_timeout = 50")
                try:
                    cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                    return bool(cursor.fetchone()[0] == 0)
                except sqlite3.OperationalError:  # locked by another checkpoint
                    return False
                finally:
                    cursor.execute(f"PRAGMA busy_timeout = {int(patience)}")
