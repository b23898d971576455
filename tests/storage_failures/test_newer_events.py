"""Events of a newer version, and damaged ones: one typed error, and nothing is written behind them."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing

import pytest
from tests.infrastructure.cli.conftest import Turnlog
from tests.storage_failures.calls import SID, WRITES, prepare, service

from turnlog.application.service import SessionService
from turnlog.domain.errors import UnreadableEventError

NEWEST = 3
STATE = "state = CAST(replace(CAST(state AS TEXT), '{}', '{}') AS BLOB)"

CHANGES: Mapping[str, str] = {
    "a topic that is not known": "topic = 'turnlog.domain.events:Teleported'",
    "a topic of a module that is not here": "topic = 'turnlog.domain.teleporting:Teleported'",
    "a state in another form": STATE.format('"state":"', '"state":"z9;'),
    "a part of the state that is not known": STATE.format(';;"', ';;;z9"'),
    "bytes that are no text": "state = x'ff'",
}
"""What the newest event becomes. Nothing that decides on what comes behind it may be guessed."""

READS: Mapping[str, Callable[[SessionService], object]] = {
    "view": lambda sessions: sessions.view(SID),
    "events": lambda sessions: sessions.get_events(SID),
    "find": lambda sessions: sessions.find(SID),
}


def change(env: Mapping[str, str], what: str, version: int = NEWEST) -> None:
    """What another program did to an event of the session."""
    with closing(sqlite3.connect(env["SQLITE_DBNAME"])) as connection, connection:
        where = "originator_version = ? AND topic LIKE '%MessageAppended'"
        assert connection.execute(f"UPDATE stored_events SET {what} WHERE {where}", (version,)).rowcount == 1


def stored(env: Mapping[str, str]) -> list[tuple[object, ...]]:
    """All stored events."""
    with closing(sqlite3.connect(env["SQLITE_DBNAME"])) as connection:
        return connection.execute("SELECT * FROM stored_events ORDER BY rowid").fetchall()


KINDS = [what for what in CHANGES if what.startswith("a topic")]
"""Of these nobody can say what they mean. Of the others it is known what kind of event they are."""

CALLS = [(call, what) for call in (*READS, "append", "compact") for what in CHANGES]


@pytest.mark.parametrize(("call", "what"), [*CALLS, *(("delete", what) for what in KINDS)])
def test_what_cannot_be_read_is_one_error_and_nothing_is_written(
    sqlite: Mapping[str, str], what: str, call: str
) -> None:
    prepare(sqlite)
    change(sqlite, CHANGES[what])
    before = stored(sqlite)
    with service(sqlite) as sessions, pytest.raises(UnreadableEventError, match="Nothing was written"):
        {**WRITES, **READS}[call](sessions)
    assert stored(sqlite) == before


@pytest.mark.parametrize("what", [what for what in CHANGES if what not in KINDS])
def test_a_session_is_deleted_all_the_same_where_the_kind_of_each_event_is_known(
    sqlite: Mapping[str, str], what: str
) -> None:
    prepare(sqlite)
    change(sqlite, CHANGES[what])
    with service(sqlite) as sessions:
        WRITES["delete"](sessions)
        assert sessions.find(SID) is None
    assert not any("hello" in str(row) for row in stored(sqlite))


@pytest.mark.parametrize("field", ["role", "event_id"])
def test_an_event_without_a_field_that_it_must_have_is_not_guessed(
    sqlite: Mapping[str, str], field: str
) -> None:
    prepare(sqlite)
    change(sqlite, STATE.format(f'"{field}":', f'"no_{field}":'))
    with (
        service(sqlite) as sessions,
        pytest.raises(UnreadableEventError, match=f"without its field '{field}'"),
    ):
        sessions.view(SID)


@pytest.mark.parametrize("content", ['{\\"parts\\":7}', "7", "{"])
def test_a_content_that_is_no_message_is_not_guessed(sqlite: Mapping[str, str], content: str) -> None:
    prepare(sqlite)
    change(sqlite, STATE.format('"content":"', f'"content":"{content}", "old":"'))
    with service(sqlite) as sessions, pytest.raises(UnreadableEventError, match="the content of version 3"):
        sessions.view(SID)


def test_a_field_that_is_not_known_here_is_kept_and_read_over(sqlite: Mapping[str, str]) -> None:
    prepare(sqlite)
    change(sqlite, STATE.format('"role":', '"mood":"glad","role":'))
    with service(sqlite) as sessions:
        assert [message.text for message in sessions.get_messages(SID)] == ["hello 0", "hello 1", "hello 2"]
        WRITES["append"](sessions)
    assert any('"mood":"glad"' in str(row) for row in stored(sqlite))


@pytest.mark.parametrize("command", [("log", SID), ("view", SID), ("compact", SID), ("export", SID)])
def test_the_command_line_says_what_it_cannot_read(
    sqlite: Mapping[str, str], turnlog: Turnlog, command: tuple[str, ...]
) -> None:
    prepare(sqlite)
    change(sqlite, CHANGES["a topic that is not known"])
    result = turnlog(*command, "--db", sqlite["SQLITE_DBNAME"])
    assert (result.status, "newer version of turnlog" in result.err) == (5, True)
    assert "Traceback" not in result.err


@pytest.mark.parametrize("what", [*CHANGES.values(), STATE.format('"role":', '"no_role":')])
def test_a_check_names_what_cannot_be_read(sqlite: Mapping[str, str], turnlog: Turnlog, what: str) -> None:
    prepare(sqlite)
    change(sqlite, what)
    result = turnlog("check", "--db", sqlite["SQLITE_DBNAME"])
    assert result.status == 1, result.err
    assert result.err == ""
