"""Connections that leave no old copy of what they overwrite in the file, from a pool that stays usable."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from types import TracebackType
from typing import Final

from eventsourcing.persistence import DatabaseError, InterfaceError, OperationalError, ProgrammingError
from eventsourcing.sqlite import (
    SQLITE3_DEFAULT_LOCK_TIMEOUT,
    SQLiteConnection,
    SQLiteConnectionPool,
    SQLiteCursor,
    SQLiteDatastore,
    SQLiteTransaction,
)

from turnlog.application.storage import storage_errors
from turnlog.infrastructure.sqlite import fence

_STATEMENTS: Final = 128
"""Compiled statements that a connection keeps, as `sqlite3` does by default; the framework keeps one."""


class _NoConnection(Exception):  # noqa: N818 - never seen outside
    """No connection was to be had, when its reader or writer was counted already."""

    def __init__(self, reason: BaseException) -> None:
        super().__init__()
        self.reason = reason


class SecureConnectionPool(SQLiteConnectionPool):
    """The framework's pool, with `secure_delete` on for each connection before its first write.

    Its connections may write events of sessions (`fence`). Whoever gets no connection in time leaves nothing
    locked; the framework's pool keeps the lock of writers then, and nobody can write any more. A host's own
    pool for a store with sessions derives from it.
    """

    def get_connection(
        self, timeout: float | None = None, *, is_writer: bool | None = None
    ) -> SQLiteConnection:
        """A connection, or `ConnectionUnavailableError` when none is to be had in time."""
        try:
            return super().get_connection(timeout, is_writer=is_writer)
        except _NoConnection as none:
            self._take_back(is_writer)
            raise none.reason from none.reason.__cause__

    def _get_connection(self, timeout: float = 0.0) -> SQLiteConnection:
        try:
            return super()._get_connection(timeout)
        except _NoConnection:  # it calls itself
            raise
        except BaseException as error:
            raise _NoConnection(error) from error

    def put_connection(self, conn: SQLiteConnection) -> None:
        """Take it back; behind the end of the pool close it."""
        with self._put_condition:
            if not self._closed:
                super().put_connection(conn)
                return
            is_writer, conn.is_writer = conn.is_writer, None
            conn.close()
            conn.in_use.release()
        self._take_back(is_writer)

    def close(self) -> None:
        """Close it. Who has a connection may finish: to close it under another thread would crash SQLite."""
        with self._put_condition:
            self._in_use.clear()
            super().close()

    def _take_back(self, is_writer: bool | None) -> None:
        """Do what the return of a connection does for those who wait."""
        if is_writer is True:
            self._num_writers -= 1
            self._writer_lock.release()
        elif is_writer is False:
            with self._no_readers:
                self._num_readers -= 1
                if self._num_readers == 0:
                    self._no_readers.notify()

    def _create_connection(self) -> SQLiteConnection:
        """A connection with the framework's settings, which keeps more than one compiled statement."""
        try:
            connection = sqlite3.connect(
                self.db_name,
                uri=True,
                check_same_thread=False,
                isolation_level=None,
                cached_statements=_STATEMENTS,
                timeout=self.lock_timeout or SQLITE3_DEFAULT_LOCK_TIMEOUT,
            )
        except (sqlite3.Error, TypeError) as error:
            raise InterfaceError(error) from error
        try:
            self._set_up(connection)
        except BaseException as error:
            connection.close()
            if isinstance(error, sqlite3.OperationalError):
                raise OperationalError(error) from error
            if isinstance(error, sqlite3.DatabaseError):
                raise DatabaseError(error) from error
            raise
        return SQLiteConnection(connection, self.max_age)

    def _set_up(self, connection: sqlite3.Connection) -> None:
        if not self.is_journal_mode_wal and not self.is_sqlite_memory_mode:
            if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
                connection.execute("PRAGMA journal_mode = WAL")
                self.journal_mode_was_changed_to_wal = True
            self.is_journal_mode_wal = True
        connection.execute("PRAGMA secure_delete = ON")
        connection.row_factory = sqlite3.Row
        fence.may_pass(connection)


class Insertion:
    """The transaction of `datastore.transaction(commit=True)`, without the three generators around it.

    They are a thirtieth of an append.
    """

    def __init__(self, datastore: SQLiteDatastore) -> None:
        self._pool = datastore.pool

    def __enter__(self) -> SQLiteCursor:
        self._connection = self._pool.get_connection(is_writer=True)
        try:
            self._transaction = SQLiteTransaction(self._connection, commit=True)
            self._cursor = self._transaction.__enter__()
        except BaseException:
            self._pool.put_connection(self._connection)
            raise
        return self._cursor

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self._cursor.sqlite_cursor.close()
            self._transaction.__exit__(kind, error, traceback)
        finally:
            self._pool.put_connection(self._connection)


def secure(datastore: SQLiteDatastore) -> None:
    """Let the datastore take its connections from such a pool from now on."""
    pool = datastore.pool
    if isinstance(pool, SecureConnectionPool):
        return
    if pool.is_sqlite_memory_mode and (type(pool) is not SQLiteConnectionPool or _is_open(pool)):
        return  # what it holds would be gone with its connections
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


def _is_open(pool: SQLiteConnectionPool) -> bool:
    return pool.num_in_pool > 0 or pool.num_in_use > 0


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
