"""The floor: the driver alone, one row for a message, one transaction for a row, nothing else."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any, ClassVar

import psycopg

from benchmarks.peers.peer import RARE, WINDOW, Peer, next_text, pragmas, text_of

NO_COMPACTION = {"compact": "no view"}


class BareSqlite(Peer):
    """The module `sqlite3` with the write-ahead log and `synchronous=FULL`."""

    name = "bare sqlite3"
    without = NO_COMPACTION
    connection: sqlite3.Connection

    async def open(self) -> None:
        """Connect."""
        self.connection = sqlite3.connect(self.file, isolation_level=None)
        self.connection.execute("PRAGMA journal_mode=WAL")
        self.connection.execute("PRAGMA synchronous=FULL")

    async def create(self) -> None:
        """Create the table."""
        self.connection.execute("CREATE TABLE messages (id INTEGER PRIMARY KEY, body TEXT)")

    async def fill(self, count: int) -> None:
        """All in one transaction."""
        self.connection.execute("BEGIN")
        self.connection.executemany(
            "INSERT INTO messages (body) VALUES (?)", ((_body(text_of(n, count)),) for n in range(count))
        )
        self.connection.execute("COMMIT")

    async def append(self) -> object:
        """One row in one transaction."""
        body = _body(next_text(self))
        self.connection.execute("BEGIN")
        self.connection.execute("INSERT INTO messages (body) VALUES (?)", (body,))
        return self.connection.execute("COMMIT")

    async def window(self) -> Sequence[object]:
        """The newest rows."""
        rows = self.connection.execute("SELECT body FROM messages ORDER BY id DESC LIMIT ?", (WINDOW,))
        return [json.loads(body) for (body,) in reversed(rows.fetchall())]

    async def search(self) -> Sequence[object]:
        """Every row is looked at."""
        rows = self.connection.execute("SELECT body FROM messages WHERE body LIKE ?", (f"%{RARE}%",))
        return [json.loads(body) for (body,) in rows.fetchall()]

    async def durability(self) -> tuple[str, ...]:
        """As the connection has them."""
        return pragmas(self.connection.execute)

    async def close(self) -> None:
        """Disconnect."""
        self.connection.close()


class BarePostgres(Peer):
    """psycopg, one connection."""

    name = "bare psycopg"
    distributions: ClassVar[tuple[str, ...]] = ("psycopg",)
    without = NO_COMPACTION
    connection: psycopg.Connection[Any]

    async def open(self) -> None:
        """Connect."""
        self.connection = psycopg.connect(self.place, autocommit=True)

    async def create(self) -> None:
        """Create the table."""
        self.connection.execute("CREATE TABLE messages (id BIGSERIAL PRIMARY KEY, body TEXT)")

    async def fill(self, count: int) -> None:
        """All in one copy."""
        with (
            self.connection.cursor() as cursor,
            cursor.copy("COPY messages (body) FROM STDIN") as copy,
        ):
            for number in range(count):
                copy.write_row((_body(text_of(number, count)),))
        self.connection.execute("ANALYZE messages")

    async def append(self) -> object:
        """One row in one transaction."""
        return self.connection.execute("INSERT INTO messages (body) VALUES (%s)", (_body(next_text(self)),))

    async def window(self) -> Sequence[object]:
        """The newest rows."""
        rows = self.connection.execute("SELECT body FROM messages ORDER BY id DESC LIMIT %s", (WINDOW,))
        return [json.loads(body) for (body,) in reversed(rows.fetchall())]

    async def search(self) -> Sequence[object]:
        """Every row is looked at."""
        rows = self.connection.execute("SELECT body FROM messages WHERE body LIKE %s", (f"%{RARE}%",))
        return [json.loads(body) for (body,) in rows.fetchall()]

    async def durability(self) -> tuple[str, ...]:
        """The server's, which is the same for all."""
        return ()

    async def close(self) -> None:
        """Disconnect."""
        self.connection.close()


def _body(text: str) -> str:
    return json.dumps({"role": "user", "content": text})
