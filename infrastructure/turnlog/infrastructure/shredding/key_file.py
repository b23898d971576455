"""Keys of sessions in a small SQLite file of their own."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from threading import Lock
from typing import Final
from uuid import UUID
from weakref import finalize

from turnlog.domain.errors import StorageError

_KEY_BYTES: Final = 32

_CREATE: Final = """
    CREATE TABLE IF NOT EXISTS session_keys (
        aggregate_id BLOB PRIMARY KEY,
        key BLOB
    )
"""


class SqliteKeyFile:
    """A file with a key for each session. A destroyed key leaves its row, so that none is made again.

    Back it up apart from the sessions, and let these backups go soon: whoever has an old one has its keys.
    """

    def __init__(self, path: str) -> None:
        self._lock = Lock()
        try:
            self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=5)
            self._connection.execute("PRAGMA secure_delete = ON")
            self._connection.execute(_CREATE)
            finalize(self, self._connection.close)
        except sqlite3.Error as error:
            raise StorageError(f"The keys of sessions in {path!r} cannot be used: {error}.") from error

    def key(self, aggregate_id: UUID) -> bytes | None:
        """The key, None when there is none or it was destroyed."""
        with self._using() as connection:
            return self._key(connection, aggregate_id)

    def key_or_new(self, aggregate_id: UUID) -> bytes | None:
        """The key, made when there never was one; None when it was destroyed."""
        with self._using() as connection:
            known = self._key(connection, aggregate_id)
            if known is None:
                connection.execute(
                    "INSERT OR IGNORE INTO session_keys VALUES (?, ?)",
                    (aggregate_id.bytes, secrets.token_bytes(_KEY_BYTES)),
                )
                known = self._key(connection, aggregate_id)
            return known

    def destroy(self, aggregate_ids: Iterable[UUID]) -> None:
        """Destroy the keys of these sessions for good."""
        with self._using() as connection:
            connection.executemany(
                "INSERT INTO session_keys VALUES (?, NULL) "
                "ON CONFLICT (aggregate_id) DO UPDATE SET key = NULL",
                [(aggregate_id.bytes,) for aggregate_id in aggregate_ids],
            )

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    @staticmethod
    def _key(connection: sqlite3.Connection, aggregate_id: UUID) -> bytes | None:
        found = connection.execute(
            "SELECT key FROM session_keys WHERE aggregate_id = ?", (aggregate_id.bytes,)
        ).fetchone()
        return found[0] if found else None

    @contextmanager
    def _using(self) -> Generator[sqlite3.Connection]:
        with self._lock:
            try:
                yield self._connection
            except sqlite3.Error as error:
                raise StorageError(f"The keys of sessions cannot be used: {error}.") from error
