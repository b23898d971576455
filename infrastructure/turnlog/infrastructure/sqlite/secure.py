"""Connections that leave no old copy of what they overwrite in the file."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Iterable
from contextlib import closing, contextmanager

from eventsourcing.persistence import DatabaseError, OperationalError, ProgrammingError
from eventsourcing.sqlite import (
    SQLITE3_DEFAULT_LOCK_TIMEOUT,
    SQLiteConnection,
    SQLiteConnectionPool,
    SQLiteCursor,
    SQLiteDatastore,
)

from turnlog.application.storage import storage_errors


class SecureConnectionPool(SQLiteConnectionPool):
    """The framework's pool, with `secure_delete` on for each connection before its first write.

    A host's own pool for a store with sessions derives from it.
    """

    def _create_connection(self) -> SQLiteConnection:
        try:
            if not self.is_journal_mode_wal:
                self._read_the_header()
            connection = super()._create_connection()
            cursor = connection.cursor()
            with cursor:
                cursor.execute("PRAGMA secure_delete = ON")
        except sqlite3.OperationalError as error:  # the framework leaves what its own pragma raises as it is
            raise OperationalError(error) from error
        except sqlite3.DatabaseError as error:
            raise DatabaseError(error) from error
        return connection

    def _read_the_header(self) -> None:
        """Fail on what is no database with nothing left open, as the framework would leave its connection."""
        timeout = self.lock_timeout or SQLITE3_DEFAULT_LOCK_TIMEOUT
        with closing(sqlite3.connect(self.db_name, uri=True, timeout=timeout)) as connection:
            connection.execute("PRAGMA journal_mode").fetchone()


def secure(datastore: SQLiteDatastore) -> None:
    """Let the datastore take its connections from such a pool from now on."""
    pool = datastore.pool
    if isinstance(pool, SecureConnectionPool) or pool.is_sqlite_memory_mode:
        return
    if type(pool) is not SQLiteConnectionPool:
        raise ProgrammingError(
            f"{type(pool).__name__} is a pool of the host's own: derive it from "
            "turnlog.infrastructure.sqlite.SecureConnectionPool, so that deleted sessions leave no copies."
        )
    datastore.pool = SecureConnectionPool(
        db_name=pool.db_name,
        lock_timeout=pool.lock_timeout,
        pool_size=pool.pool_size,
        max_overflow=pool.max_overflow,
        pool_timeout=pool.pool_timeout,
        max_age=pool.max_age,
        pre_ping=pool.pre_ping,
    )
    pool.close()


@contextmanager
def writing(datastore: SQLiteDatastore) -> Generator[SQLiteCursor]:
    """A transaction that alone may write from its beginning, and leaves no copies of what it overwrites.

    What it reads is the newest state.
    """
    with storage_errors(), datastore.transaction(commit=True) as cursor:
        cursor.execute("PRAGMA secure_delete = ON")
        take_the_lock(cursor)
        yield cursor


def take_the_lock(cursor: SQLiteCursor) -> None:
    """Begin the transaction anew, as one in which nobody else writes; others are waited for.

    A transaction that has read something cannot wait: SQLite refuses it when somebody else wrote.
    """
    cursor.execute("ROLLBACK")
    cursor.execute("BEGIN IMMEDIATE")


def may_be_in_first_page(rows: Iterable[tuple[object, int]], page_size: int, wanted: object) -> bool:
    """Whether one of these streams' first rows, given with their sizes, may have been in the first page.

    A row that is too long for a page leaves at least so much in it as `least` says.
    """
    most, least = page_size - 35, (page_size - 12) * 32 // 255 - 23
    taken = 0
    for stream, size in rows:
        if stream == wanted:
            return True
        taken += size if size <= most else least
        if taken >= page_size:
            return False
    return False
