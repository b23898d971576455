"""How the command line says what went wrong: in whole words, with the names that people used."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.contracts.stores import sqlite_env
from tests.infrastructure.cli.conftest import OpenService, Turnlog

from turnlog.application import SessionService
from turnlog.application.audit import SessionAudit
from turnlog.application.chat import Usage
from turnlog.domain.messages import Message
from turnlog.infrastructure.bundle import InvalidKeyError, UnsignedBundleError, check_bundle
from turnlog.infrastructure.bundle.verify import main as verify
from turnlog.infrastructure.cli.settings import PostgresUrl, place_of
from turnlog.infrastructure.formats.imported import ImportReport

KEY = "ab" * 32


@pytest.fixture
def one(database: Path) -> Path:
    """A database with one session of one message."""
    with SessionService(env=sqlite_env(database)) as sessions:
        sessions.create(session_id="s")
        sessions.append_message("s", Message.user("Where is my parcel?"))
    return database


@pytest.fixture
def unsigned(turnlog: Turnlog, one: Path, tmp_path: Path) -> Path:
    """A bundle without a signature."""
    turnlog("audit", "export", "s", "-o", tmp_path / "bundle.zip")
    return tmp_path / "bundle.zip"


def test_one_is_not_several(turnlog: Turnlog, unsigned: Path) -> None:
    assert ", 1 message in the view" in turnlog("audit", "check", unsigned).out
    assert "2 events of 1 session:" in turnlog("audit", "verify").out
    assert "1 head in" in turnlog("audit", "heads", "-o", f"{unsigned}.heads").out


def test_what_an_import_dropped_once_is_one() -> None:
    report = ImportReport()
    report.dropped("sets of tools and settings of requests")
    report.mapped("messages", 2)
    assert report.lines() == ["mapped: 2 messages", "dropped: 1 set of tools and settings of requests"]


def test_an_unsigned_bundle_is_not_forged(turnlog: Turnlog, unsigned: Path) -> None:
    result = turnlog("audit", "check", unsigned, "--key", KEY)
    assert (result.status, "is not signed" in result.err) == (5, True)
    with pytest.raises(UnsignedBundleError):
        check_bundle(unsigned, key=KEY)


def test_heads_without_a_signature_do_not_make_a_bundle_signed(
    turnlog: Turnlog, one: Path, tmp_path: Path
) -> None:
    turnlog("audit", "heads", "-o", tmp_path / "heads")
    turnlog("audit", "export", "s", "-o", tmp_path / "b.zip", "--heads", tmp_path / "heads")
    with pytest.raises(UnsignedBundleError):
        check_bundle(tmp_path / "b.zip", key=KEY)


def test_a_key_that_is_none_is_said_to_be_none(
    turnlog: Turnlog, unsigned: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = turnlog("audit", "check", unsigned, "--key", "abc")
    assert (result.status, "64 hex digits" in result.err) == (5, True)
    with pytest.raises(InvalidKeyError):
        check_bundle(unsigned, key="abc")
    assert verify([str(unsigned), "--key", "abc"]) == 2
    assert "64 hex digits" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_the_verifier_says_how_it_is_used(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify([option]) == 0
    assert capsys.readouterr().out.startswith("usage: verify.py BUNDLE.zip")


def test_an_expiry_that_has_passed_is_refused(turnlog: Turnlog, one: Path) -> None:
    before = turnlog("sessions", "--json").json
    result = turnlog("extend", "s", "--until", "2001-01-01")
    assert (result.status, "has passed" in result.err) == (2, True)
    assert turnlog("sessions", "--json").json == before


def test_a_missing_table_of_ours_is_made_anew_by_a_rebuild(turnlog: Turnlog, one: Path) -> None:
    with closing(sqlite3.connect(one)) as connection:
        connection.execute("DROP TABLE turnlog_sessions")
    result = turnlog("sessions")
    assert (result.status, "turnlog rebuild" in result.err) == (5, True)
    assert turnlog("rebuild").status == 0
    assert [row["id"] for row in turnlog("sessions", "--json").json] == ["s"]


def test_a_database_of_something_else_is_not_rebuilt(turnlog: Turnlog, one: Path) -> None:
    with closing(sqlite3.connect(one)) as connection:
        connection.execute("DROP TABLE stored_events")
    assert "rebuild" not in turnlog("log", "s").err


@pytest.mark.parametrize("option", [("audit", "verify", "--heads"), ("audit", "check")])
def test_a_file_that_is_not_there_is_named_without_numbers(
    turnlog: Turnlog, one: Path, option: tuple[str, ...]
) -> None:
    result = turnlog(*option, "nowhere.json")
    assert (result.status, result.err) == (5, "turnlog: nowhere.json: No such file or directory.\n")


def test_where_nothing_is_created_the_list_of_sessions_is_named(turnlog: Turnlog, one: Path) -> None:
    result = turnlog("view", "nobody")
    assert ("Create it first" in result.err, "turnlog sessions" in result.err) == (False, True)


@pytest.mark.parametrize("name", ["mysql://host/x", "sqlite:///x.db", "postgresql+psycopg://host/x"])
def test_a_database_of_another_kind_is_not_taken_as_a_file(turnlog: Turnlog, name: str) -> None:
    result = turnlog("sessions", "--db", name)
    assert (result.status, "postgresql://" in result.err) == (2, True)


def test_files_and_servers_are_told_apart() -> None:
    assert place_of("a:b.db") == Path("a:b.db")
    assert isinstance(place_of("postgres://host/x"), PostgresUrl)


def test_a_table_in_a_pipe_has_no_trailing_blanks(turnlog: Turnlog, one: Path) -> None:
    for command in (("sessions",), ("audit", "timeline", "s")):
        lines = turnlog(*command).out.splitlines()
        assert lines == [line.rstrip() for line in lines]


@pytest.mark.parametrize(
    ("usage", "said"),
    [
        (None, "cancelled"),
        (Usage(input_tokens=5), "cancelled, 5 tokens in"),
        (Usage(output_tokens=7), "cancelled, 7 tokens out"),
        (Usage(input_tokens=5, output_tokens=0), "cancelled, 5 tokens in, 0 out"),
    ],
)
def test_tokens_that_nobody_counted_are_not_none(
    turnlog: Turnlog, one: Path, open_service: OpenService, usage: Usage | None, said: str
) -> None:
    with open_service() as sessions:
        audit = SessionAudit(sessions)
        call_id = audit.record_prompt("s", body=b"{}")
        audit.record_reply("s", call_id, finish_reason="cancelled", usage=usage)
    assert turnlog("log", "s").out.endswith(f": {said}\n")


def test_events_that_are_not_indexed_yet_are_no_worry(turnlog: Turnlog, one: Path) -> None:
    result = turnlog("check")
    assert (result.status, "behind" in result.out) == (0, False)
    assert "recall: nothing differs; the newest event is read from the log" in result.out


@pytest.mark.parametrize("command", [("log",), ("import",), ("audit", "told"), ("export",)])
def test_help_shows_no_types_of_python(
    turnlog: Turnlog, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert not re.search(r"<(str|Path|list)\b", turnlog(*command, "--help").out)


def test_help_says_that_status_1_is_also_that_of_a_check(turnlog: Turnlog) -> None:
    assert "1 nothing found, nothing to do, or something is wrong" in " ".join(turnlog("--help").out.split())


def test_a_rebuild_of_no_time_says_none(turnlog: Turnlog, one: Path) -> None:
    assert turnlog("rebuild").err == ""
