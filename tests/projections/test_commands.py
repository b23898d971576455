"""`turnlog rebuild` and `turnlog check`."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.projections.activity import PLAIN, live, service_on, turn

from turnlog.infrastructure.cli.app import run


@pytest.fixture
def lived(path: Path) -> Path:
    """A database with sessions."""
    with service_on(path) as sessions:
        sessions.create("parcel", metadata={"title": "heron"})
        turn(sessions, "parcel")
        live(sessions, 1, 60)
    return path


def turnlog(path: Path, *arguments: str) -> int:
    return run([*arguments, "--db", str(path)])


def output(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def change(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement)


def test_check_says_that_nothing_differs(lived: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert turnlog(lived, "check") == 0
    said = capsys.readouterr().out
    for name in ("log", "boundaries", "directory", "recall"):
        assert f"{name}:" in said
    assert "differ," not in said
    assert "view:" not in said


def test_check_names_what_differs(lived: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change(lived, "UPDATE turnlog_sessions SET messages = 99 WHERE session_id = 'parcel'")
    assert turnlog(lived, "check") == 1
    said = capsys.readouterr().out
    assert "parcel" in said
    assert "messages is 99, not 2" in said
    assert "directory: 1 differ" in said


def test_check_verifies_the_log(lived: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change(
        lived, "UPDATE stored_events SET state = replace(CAST(state AS TEXT), 'heron', 'gnu') WHERE rowid = 2"
    )
    assert turnlog(lived, "check", "--json") == 1
    assert [finding["version"] for finding in output(capsys)["log"]["findings"]] == [1]


def test_check_says_how_far_a_view_is_behind(lived: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert turnlog(lived, "rebuild", "view") == 0
    with service_on(lived) as sessions:
        turn(sessions, "parcel")
    capsys.readouterr()
    assert turnlog(lived, "check", "--json") == 0
    assert output(capsys)["behind"]["view"] == 2


def test_check_changes_nothing(lived: Path) -> None:
    before = lived.read_bytes()
    assert turnlog(lived, "check") == 0
    assert lived.read_bytes() == before


def test_rebuild_makes_right_what_check_named(lived: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change(lived, "UPDATE turnlog_sessions SET messages = 99")
    assert turnlog(lived, "rebuild", "directory") == 0
    assert "directory: rebuilt from" in capsys.readouterr().out
    assert turnlog(lived, "check") == 0


def test_rebuild_makes_what_the_database_has(lived: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert turnlog(lived, "rebuild", "--json") == 0
    assert [one["model"] for one in output(capsys)["rebuilt"]] == ["directory", "recall"]


def test_rows_of_another_rule_are_named_by_check_and_made_anew(
    lived: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(lived, "UPDATE turnlog_read_models SET rule = 9")
    assert turnlog(lived, "sessions") == 5
    assert "turnlog rebuild directory" in capsys.readouterr().err
    assert turnlog(lived, "check") == 1
    assert "rule 9" in capsys.readouterr().out
    assert turnlog(lived, "rebuild", "directory") == 0
    assert turnlog(lived, "check") == 0


def test_a_store_without_rows_is_checked_and_rebuilt_too(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with service_on(path, PLAIN) as sessions:
        live(sessions, 1, 60)
        sessions.list_sessions()
    assert turnlog(path, "check") == 0
    assert turnlog(path, "rebuild", "recall") == 0
    assert "directory: rebuilt" in capsys.readouterr().out
    assert turnlog(path, "check") == 0


def test_a_model_that_does_not_exist_is_refused(lived: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert turnlog(lived, "rebuild", "summary") == 2
    assert "summary" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["rebuild", "check"])
def test_a_server_is_refused_in_words(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([command, "--db", "postgresql://ada@localhost/shop"]) == 2
    assert "SQLite files" in capsys.readouterr().err
