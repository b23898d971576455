"""The command line on a PostgreSQL database."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from psycopg import sql
from tests.infrastructure.cli.conftest import AIRLINE, Result, Turnlog
from tests.infrastructure.cli.test_talking import streamed
from tests.postgres.conftest import service_on
from tests.support.postgres import connect, server
from tests.support.scripted_server import ScriptedServer, scripted_server

from turnlog.domain.messages import Message
from turnlog.infrastructure.cli.app import run
from turnlog.infrastructure.cli.settings import PostgresUrl


@pytest.fixture
def turnlog(
    env: Mapping[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Turnlog:
    """Runs a command line in this process, on a schema of the test's own."""
    monkeypatch.setenv("TURNLOG_DB", server())
    monkeypatch.setenv("POSTGRES_SCHEMA", env["POSTGRES_SCHEMA"])

    def command(*arguments: object) -> Result:
        capsys.readouterr()
        status = run([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return Result(status, printed.out, printed.err)

    return command


@pytest.fixture
def imported(turnlog: Turnlog) -> str:
    """The id of a session that holds the conversation with the airline's agent."""
    return str(turnlog("import", AIRLINE, "--json").json[0]["sessions"][0]["id"])


def test_what_was_imported_is_listed_read_searched_and_exported(turnlog: Turnlog, imported: str) -> None:
    (session,) = turnlog("sessions", "--json").json
    assert (session["id"], session["messages"]) == (imported, 62)
    assert turnlog("log", "@last").status == 0
    assert len(turnlog("view", imported[:6], "--json").json["messages"]) == 62
    assert turnlog("search", imported, "flight").status == 0
    assert turnlog("export", imported).status == 0


def test_a_second_import_adds_nothing(turnlog: Turnlog, imported: str) -> None:
    (session,) = turnlog("import", AIRLINE, "--json").json[0]["sessions"]
    assert (session["written"], session["held"]) == (0, 62)


def test_a_session_is_compacted(turnlog: Turnlog, imported: str) -> None:
    before = len(turnlog("view", imported, "--json").json["messages"])
    assert turnlog("compact", imported, "--strategy", "turns").status == 0
    assert len(turnlog("view", imported, "--json").json["messages"]) < before


def test_a_session_is_held_released_extended_and_deleted(turnlog: Turnlog, imported: str) -> None:
    assert turnlog("hold", imported, "--reason", "a claim", "--by", "ada").status == 0
    assert turnlog("delete", imported, "--yes").status == 4
    assert turnlog("release", imported, "--by", "ada").status == 0
    assert turnlog("extend", imported, "--days", 3).status in (0, 1)
    assert turnlog("delete", imported, "--yes", "--json").json["erasure"] == "done"
    assert turnlog("log", imported).status == 3


def test_a_sweep_removes_what_was_erased(turnlog: Turnlog, imported: str) -> None:
    turnlog("delete", imported, "--yes")
    assert turnlog("sweep", "--purge", 0, "--json").json["purged"] == 62


def test_backup_and_restore_name_the_tools_of_postgresql(
    turnlog: Turnlog, imported: str, tmp_path: Path
) -> None:
    refused = turnlog("backup", tmp_path / "copy", "--json")
    assert (refused.status, "pg_dump" in refused.error["message"]) == (5, True)
    (tmp_path / "copy").write_text("")
    assert "pg_restore" in turnlog("restore", tmp_path / "copy", "--json").error["message"]


def test_a_database_without_sessions_is_not_found_and_left_as_it_is(
    turnlog: Turnlog, env: Mapping[str, str]
) -> None:
    assert turnlog("sessions", "--json").error["error"] == "DatabaseNotFoundError"
    with connect() as connection:
        tables = connection.execute(
            "SELECT count(*) FROM pg_tables WHERE schemaname = %s", (env["POSTGRES_SCHEMA"],)
        ).fetchone()
    assert tables == (0,)


def test_a_server_that_cannot_be_reached_is_status_6_and_no_password_is_shown(turnlog: Turnlog) -> None:
    result = turnlog("sessions", "--db", "postgresql://ada:s3cret@127.0.0.1:1/none", "--json")
    assert (result.status, result.error["error"]) == (6, "UnreachableDatabaseError")
    assert "postgresql://ada@127.0.0.1:1/none" in result.err
    assert "s3cret" not in result.err
    assert "Connection refused" in result.error["message"]


def test_a_uri_that_is_none_is_wrong_usage_and_not_repeated(turnlog: Turnlog) -> None:
    result = turnlog("sessions", "--db", "postgresql://ada:s3%zzcret@host/none")
    assert result.status == 2
    assert "cret" not in result.err


def test_a_place_shows_no_password_however_it_is_printed() -> None:
    url = PostgresUrl("postgresql://ada:s3cret@host/none?password=s3cret")
    assert "s3cret" not in f"{url} {url!r}"


def test_what_is_read_is_opened_such_that_it_cannot_be_changed(
    turnlog: Turnlog, imported: str, env: Mapping[str, str]
) -> None:
    from turnlog.infrastructure.cli import database

    with database.reading(PostgresUrl(server())) as sessions, pytest.raises(Exception, match="read-only"):
        sessions.append_message(imported, Message.user("late"))


@pytest.mark.parametrize("ids", ["uuid", "text"])
def test_sessions_in_the_application_of_a_host_are_found(
    turnlog: Turnlog, env: Mapping[str, str], ids: str
) -> None:
    from tests.contracts.stores import Shop

    from turnlog.application.service import SessionService

    with Shop(env={**env, "ORIGINATOR_ID_TYPE": ids}) as shop:
        SessionService(shop).create("of the shop")
    assert [one["id"] for one in turnlog("sessions", "--json").json] == ["of the shop"]


def test_of_several_applications_one_must_be_named(
    turnlog: Turnlog, imported: str, env: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.contracts.stores import Shop

    from turnlog.application.service import SessionService

    recorder = "turnlog.infrastructure.postgres:PostgresSessionRecorder"
    with Shop(env={**env, "APPLICATION_RECORDER_TOPIC": recorder}) as shop:
        SessionService(shop).create("of the shop")
    assert [one["id"] for one in turnlog("sessions", "--json").json] == [imported]
    monkeypatch.setenv("TURNLOG_APPLICATION", "Shop")
    assert [one["id"] for one in turnlog("sessions", "--json").json] == ["of the shop"]
    with service_on(env) as sessions:
        assert sessions.find("of the shop") is None
    assert json.dumps(turnlog("view", "@last", "--json").json)


def test_an_application_that_the_database_does_not_have_is_named(
    turnlog: Turnlog, imported: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TURNLOG_APPLICATION", "nix")
    result = turnlog("sessions")
    assert result.status == 5
    assert "has no sessions of an application 'nix', which TURNLOG_APPLICATION names." in result.err
    assert "It has those of sessions" in result.err


# --- audits, reports and chats


@pytest.fixture
def chatted(turnlog: Turnlog, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedServer]:
    """The server of a model that was asked once, in the session `parcel`."""
    with scripted_server() as running:
        monkeypatch.setenv("OPENAI_BASE_URL", running.url)
        monkeypatch.setenv("TURNLOG_MODEL", "small")
        running.script(streamed("In ", "Lund."))
        said = turnlog("chat", "parcel", "-m", "Where is it?")
        assert (said.status, said.out.splitlines()[0]) == (0, "small> In Lund.")
        yield running


def test_a_chat_is_stored_and_what_it_told_comes_back_byte_for_byte(
    turnlog: Turnlog, chatted: ScriptedServer, tmp_path: Path
) -> None:
    assert turnlog("audit", "told", "parcel", "-o", tmp_path / "body").status == 0
    assert (tmp_path / "body").read_bytes() == chatted.requests[0].body
    assert "In Lund." in turnlog("view", "parcel").out


def test_moments_of_a_session_are_explained(turnlog: Turnlog, imported: str) -> None:
    assert turnlog("compact", imported, "--strategy", "turns").status == 0
    assert turnlog("audit", "diff", imported, 10, 63).status == 0
    assert "1 compaction" in turnlog("audit", "timeline", imported).out
    first = turnlog("log", imported, "--json").json[0]["id"]
    assert turnlog("audit", "explain", imported, first, "--json").json["reason"] == "preserved"


def test_a_whole_log_is_verified_with_its_former_heads(
    turnlog: Turnlog, imported: str, tmp_path: Path
) -> None:
    assert turnlog("audit", "heads", "-o", tmp_path / "heads").status == 0
    turnlog("compact", imported, "--strategy", "turns")
    verified = turnlog("audit", "verify", "--heads", tmp_path / "heads", "--json")
    assert (verified.status, verified.json["heads_proven"]) == (0, 1)


def test_what_was_changed_is_named_and_is_status_1(
    turnlog: Turnlog, imported: str, env: Mapping[str, str]
) -> None:
    with connect() as connection:
        connection.execute(
            sql.SQL("DELETE FROM {} WHERE originator_version = 62").format(
                sql.Identifier(env["POSTGRES_SCHEMA"], "sessions_events")
            )
        )
    found = turnlog("audit", "verify", "--json")
    assert (found.status, [one["version"] for one in found.json["findings"]]) == (1, [62])
    assert turnlog("audit", "verify", imported).status == 1


def test_a_report_is_written(turnlog: Turnlog, imported: str, tmp_path: Path) -> None:
    written = turnlog("report", imported, "-o", tmp_path / "report.html", "--json")
    assert (written.status, written.json["messages"]) == (0, 62)
    assert "</html>" in (tmp_path / "report.html").read_text("utf-8")
