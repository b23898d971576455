"""What an append does not have to pay for."""

from __future__ import annotations

import sqlite3
import struct
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

from turnlog.application import Sessions, SessionService
from turnlog.domain import Message
from turnlog.infrastructure.sqlite import SecureConnectionPool

HELLO = Message.user("Where is my parcel?")
HEADER, FRAME = 32, 24
"""Bytes in front of the write-ahead log, and in front of each page in it."""


def env_of(file: Path) -> dict[str, str]:
    return {"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": str(file)}


def pages_written(file: Path, behind: int = 0) -> list[int]:
    (size,) = struct.unpack(">I", Path(f"{file}-wal").read_bytes()[8:12])
    log = Path(f"{file}-wal").read_bytes()[HEADER:]
    numbers = [struct.unpack(">I", log[at : at + 4])[0] for at in range(0, len(log), FRAME + size)]
    return numbers[behind:]


def pages_of_an_append(file: Path, idle: timedelta | None) -> tuple[list[int], int]:
    """The pages that an append writes, and the first page of the index of expiries."""
    with SessionService(env=env_of(file)) as sessions:
        sessions.create("parcel", idle=idle)
        sessions.append_message("parcel", HELLO)
        before = len(pages_written(file))
        sessions.append_message("parcel", HELLO)
        written = pages_written(file, before)
        with sqlite3.connect(file) as connection:
            (page,) = connection.execute(
                "SELECT rootpage FROM sqlite_master WHERE name = 'turnlog_sessions_by_expiry'"
            ).fetchone()
        connection.close()
    return written, page


def test_an_append_leaves_the_index_of_expiries_alone(tmp_path: Path) -> None:
    written, page = pages_of_an_append(tmp_path / "log.db", None)
    assert written
    assert page not in written


def test_an_append_moves_the_expiry_of_an_idle_session(tmp_path: Path) -> None:
    written, page = pages_of_an_append(tmp_path / "log.db", timedelta(hours=1))
    assert page in written


def test_a_connection_prepares_a_statement_once(tmp_path: Path) -> None:
    pool = SecureConnectionPool(db_name=str(tmp_path / "log.db"))
    connection = pool.get_connection()
    prepared: list[object] = []

    def allow(*what: object) -> int:
        prepared.append(what)
        return sqlite3.SQLITE_OK

    def ask() -> None:
        for number in range(5):
            connection.cursor().execute(f"SELECT {number} FROM sqlite_master")

    cast("Any", connection)._sqlite_conn.set_authorizer(allow)
    ask()
    first = len(prepared)
    ask()
    pool.put_connection(connection)
    pool.close()
    assert first > 0
    assert len(prepared) == first


class Told(Sessions):
    """Remembers what its subclass hook was told of."""

    told: list[Any]

    def notify(self, new_events: list[Any]) -> None:
        self.told.extend(new_events)


def test_a_session_that_is_saved_alone_is_told_of_like_any_other() -> None:
    app = Told()
    app.told = []
    sessions = SessionService(app)
    sessions.create("parcel")
    sessions.append_message("parcel", HELLO)
    assert [event.originator_version for event in app.told] == [0, 1]
