"""Connections that leave no old copy of what they overwrite in the file."""

from __future__ import annotations

import sqlite3

from eventsourcing.persistence import DatabaseError, OperationalError, ProgrammingError
from eventsourcing.sqlite import SQLiteConnection, SQLiteConnectionPool, SQLiteDatastore


class SecureConnectionPool(SQLiteConnectionPool):
    """The framework's pool, with `secure_delete` on for each connection before its first write.

    A host's own pool for a store with sessions derives from it.
    """

    def _create_connection(self) -> SQLiteConnection:
        try:
            connection = super()._create_connection()
            cursor = connection.cursor()
            with cursor:
                cursor.execute("PRAGMA secure_delete = ON")
        except sqlite3.OperationalError as error:  # the framework leaves what its own pragma raises as it is
            raise OperationalError(error) from error
        except sqlite3.DatabaseError as error:
            raise DatabaseError(error) from error
        return connection


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
