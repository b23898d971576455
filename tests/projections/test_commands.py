"""`turnlog rebuild` and `turnlog check`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.projections.activity import live, turn
from tests.projections.databases import Database, SqliteFile
from tests.support.postgres import server

from turnlog.infrastructure.cli.app import run

Turnlog = Callable[..., int]


@pytest.fixture
def turnlog(database: Database, monkeypatch: pytest.MonkeyPatch) -> Turnlog:
    """Runs a command on the database."""
    if isinstance(database, SqliteFile):
        place = str(database.path)
    else:
        place = server()
        monkeypatch.setenv("POSTGRES_SCHEMA", database.env["POSTGRES_SCHEMA"])

    def command(*arguments: str) -> int:
        return run([*arguments, "--db", place])

    return command


@pytest.fixture
def lived(database: Database) -> Database:
    """A database with sessions."""
    with database.service() as sessions:
        sessions.create("parcel", metadata={"title": "heron"})
        turn(sessions, "parcel")
        live(sessions, 1, 60)
    return database


def output(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def test_check_says_that_nothing_differs(
    turnlog: Turnlog, lived: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    assert turnlog("check") == 0
    said = capsys.readouterr().out
    for name in ("log", "boundaries", "directory", "recall"):
        assert f"{name}:" in said
    assert "difference" not in said
    assert "view:" not in said


def test_check_names_what_differs(
    turnlog: Turnlog, lived: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    lived.change("UPDATE turnlog_sessions SET messages = 99 WHERE session_id = 'parcel'")
    assert turnlog("check") == 1
    said = capsys.readouterr().out
    assert "parcel" in said
    assert "messages is 99, not 2" in said
    assert "directory: 1 difference" in said


def test_check_verifies_the_log(
    turnlog: Turnlog, lived: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    ((state,),) = lived.rows("SELECT state FROM stored_events WHERE rowid = 2")
    lived.put_state(2, state.replace(b"heron", b"gnu"))
    assert turnlog("check", "--json") == 1
    assert [finding["version"] for finding in output(capsys)["log"]["findings"]] == [1]


def test_check_says_how_far_a_view_is_behind(
    turnlog: Turnlog, lived: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    assert turnlog("rebuild", "view") == 0
    with lived.service() as sessions:
        turn(sessions, "parcel")
    capsys.readouterr()
    assert turnlog("check", "--json") == 0
    assert output(capsys)["behind"]["view"] == 2


def test_check_changes_nothing(turnlog: Turnlog, lived: Database) -> None:
    before = stored(lived)
    assert turnlog("check") == 0
    assert stored(lived) == before


def stored(database: Database) -> object:
    """The bytes of a file, or all rows with the transaction that wrote them."""
    if isinstance(database, SqliteFile):
        return database.path.read_bytes()
    tables = database.rows("SELECT tablename FROM pg_tables WHERE schemaname = current_schema() ORDER BY 1")
    return [database.rows(f"SELECT xmin::text, t::text FROM {table} AS t ORDER BY 2") for (table,) in tables]


def test_rebuild_makes_right_what_check_named(
    turnlog: Turnlog, lived: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    lived.change("UPDATE turnlog_sessions SET messages = 99")
    assert turnlog("rebuild", "directory") == 0
    assert "directory: rebuilt from" in capsys.readouterr().out
    assert turnlog("check") == 0


def test_rebuild_makes_what_the_database_has(
    turnlog: Turnlog, lived: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    assert turnlog("rebuild", "--json") == 0
    assert [one["model"] for one in output(capsys)["rebuilt"]] == ["directory", "recall", "ledger"]


def test_rows_of_another_rule_are_named_by_check_and_made_anew(
    turnlog: Turnlog, lived: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    lived.change("UPDATE turnlog_read_models SET rule = 9")
    assert turnlog("sessions") == 5
    assert "turnlog rebuild directory" in capsys.readouterr().err
    assert turnlog("check") == 1
    assert "rule 9" in capsys.readouterr().out
    assert turnlog("rebuild", "directory") == 0
    assert turnlog("check") == 0


def test_a_store_without_rows_is_checked_and_rebuilt_too(
    turnlog: Turnlog, database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    with database.service(database.plain_recorder) as sessions:
        live(sessions, 1, 60)
        sessions.list_sessions()
    assert turnlog("check") == 0
    assert turnlog("rebuild", "recall") == 0
    assert "directory: rebuilt" in capsys.readouterr().out
    assert turnlog("check") == 0


def test_a_model_that_does_not_exist_is_refused(
    turnlog: Turnlog, lived: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    assert turnlog("rebuild", "summary") == 2
    assert "summary" in capsys.readouterr().err


def test_a_rebuild_says_that_the_log_was_changed(
    turnlog: Turnlog, lived: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    ((state,),) = lived.rows("SELECT state FROM stored_events WHERE rowid = 2")
    lived.put_state(2, state.replace(b"heron", b"gnu"))
    assert turnlog("rebuild", "--json") == 1
    assert [link["version"] for link in output(capsys)["broken_links"]] == [1]
    assert turnlog("rebuild") == 1
    assert "no rebuild repairs the log" in capsys.readouterr().err


def test_a_rebuild_of_a_log_as_it_was_recorded_finds_nothing(
    turnlog: Turnlog, lived: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    with lived.service() as sessions:
        sessions.redact("parcel", 1, reason="r", by="b")
        sessions.delete("parcel")
    assert turnlog("rebuild", "--json") == 0
    assert output(capsys)["broken_links"] == []
