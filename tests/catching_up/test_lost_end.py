"""Rows that are caught up beside a log that lost its newest events, whose row ids SQLite gives again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.projections.databases import DATABASES, RECORDERS, Database, SqliteFile

from turnlog.application import SessionService
from turnlog.domain import EventQuery, Message

CASES = [(engine, one) for engine in RECORDERS for one in RECORDERS[engine] if one is not None]
WHY: Any = {"reason": "asked", "by": "ada"}
LOST = 12
"""Events at the end of the log."""


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0]}-{case[1].partition(':')[2]}")
def plain(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Database, SessionService]:
    """A store without rows whose rows are past the end of its log."""
    engine, recorder = request.param
    database: Database = DATABASES[engine](tmp_path)
    with database.service(recorder) as sessions:
        sessions.create("alpha")
        sessions.append_events("alpha", [Message.user(f"heron {number}") for number in range(20)])
        sessions.list_sessions()
        newest = database.one("SELECT max(rowid) FROM stored_events")
        database.change(f"DELETE FROM stored_events WHERE rowid > {newest - LOST}")
    return database, database.service(recorder)


def is_stored(database: Database, content: bytes) -> bool:
    return any(content in bytes(state) for (state,) in database.rows("SELECT state FROM stored_events"))


def write(sessions: SessionService, messages: int) -> None:
    sessions.create("beta")
    sessions.append_message("beta", Message.user("crane"), event_id="m")
    sessions.append_events("beta", [Message.user("crow")] * messages)


def test_what_is_written_then_is_listed_and_found(plain: tuple[Database, SessionService]) -> None:
    _, service = plain
    with service as sessions:
        write(sessions, 1)
        assert {row.session_id for row in sessions.list_sessions()} == {"alpha", "beta"}
        assert len(sessions.search_all(EventQuery(keywords="crow"))) == 1


def test_what_is_appended_then_to_the_session_is_listed(plain: tuple[Database, SessionService]) -> None:
    database, service = plain
    with service as sessions:
        version = sessions.append_message("alpha", Message.user("crow")).version
        (row,) = sessions.list_sessions()
        if isinstance(database, SqliteFile):
            assert row.version == version
        assert len(sessions.search_all(EventQuery(keywords="crow"))) == 1


LENGTHS = pytest.mark.parametrize("messages", [0, LOST - 4, LOST + 1])
"""So that the log is shorter than it was, exactly as long, and longer."""


@LENGTHS
def test_it_is_redacted(plain: tuple[Database, SessionService], messages: int) -> None:
    database, service = plain
    with service as sessions:
        write(sessions, messages)
        assert sessions.redact("beta", "m", **WHY).erasure == "done"
        assert not is_stored(database, b"crane")


@LENGTHS
def test_it_is_deleted(plain: tuple[Database, SessionService], messages: int) -> None:
    database, service = plain
    with service as sessions:
        write(sessions, messages)
        assert sessions.delete("beta").erasure == "done"
        assert not is_stored(database, b"cr")
        assert sessions.sweep().pending == 0
        assert [row.session_id for row in sessions.list_sessions()] == ["alpha"]


def test_rows_beside_which_nothing_was_written_tell_what_is_gone(
    plain: tuple[Database, SessionService],
) -> None:
    _, service = plain
    with service as sessions:
        (row,) = sessions.list_sessions()
        assert row.version == 20
