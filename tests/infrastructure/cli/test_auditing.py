"""`turnlog audit`: what a person reads, what a machine reads, and how it ends."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.audit.logs import SUMMARIZED, WordCount
from tests.contracts.stores import sqlite_env
from tests.infrastructure.cli.conftest import OpenService, Turnlog

from turnlog.application import SessionService
from turnlog.application.audit import SessionAudit
from turnlog.domain.messages import Message

SID = "parcel-42"


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with a session of recorded calls and two compactions."""
    file = tmp_path_factory.mktemp("audit") / "turnlog.db"
    with SessionService(env=sqlite_env(file), token_estimator=WordCount()) as sessions:
        sessions.create(SID)
        audit = SessionAudit(sessions)
        sessions.append_message(SID, Message.system("Be kind."), event_id="rule")
        for number in range(5):
            question = Message.user(f"Where is parcel {number}?")
            told = [*sessions.view(SID).messages, question]
            body = {"model": "m-1", "messages": [{"role": m.role.value, "content": m.text} for m in told]}
            audit.record_prompt(SID, body=body, append=[question], call_id=f"call-{number}")
            answer = Message.assistant(f"Parcel {number} is in Lund.")
            audit.record_reply(SID, f"call-{number}", append=[answer], finish_reason="stop")
            if number in (2, 3):
                sessions.compact(SID, None, SUMMARIZED)
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return file


@pytest.fixture(autouse=True)
def recorded(prepared: Path, database: Path) -> None:
    """The database of the test is a copy of the prepared one."""
    shutil.copy(prepared, database)


def test_told_shows_the_request_of_a_call(turnlog: Turnlog) -> None:
    result = turnlog("audit", "told", SID, "call-1")
    assert result.status == 0
    assert "call call-1" in result.out
    assert '"content": "Where is parcel 1?"' in result.out


def test_told_shows_the_newest_call_unless_one_is_named(turnlog: Turnlog) -> None:
    assert turnlog("audit", "told", "@last", "--json").json["call_id"] == "call-4"


def test_told_takes_the_event_of_an_answer_and_its_version(
    turnlog: Turnlog, open_service: OpenService
) -> None:
    with open_service() as sessions:
        answer = [event for event in sessions.get_events(SID) if event.role == "assistant"][1]
    for named in (answer.id, str(answer.version)):
        assert turnlog("audit", "told", SID, named, "--json").json["call_id"] == "call-1"


def test_told_writes_the_exact_bytes(turnlog: Turnlog, tmp_path: Path, open_service: OpenService) -> None:
    assert turnlog("audit", "told", SID, "call-2", "-o", tmp_path / "body").status == 0
    with open_service() as sessions:
        assert (tmp_path / "body").read_bytes() == SessionAudit(sessions).told(SID, "call-2").body


def test_an_unknown_call_is_status_3(turnlog: Turnlog) -> None:
    result = turnlog("audit", "told", SID, "nothing")
    assert result.status == 3
    assert "`timeline` lists the calls" in result.err


def test_a_session_without_calls_says_so(turnlog: Turnlog, open_service: OpenService) -> None:
    with open_service() as sessions:
        sessions.create("empty")
    assert turnlog("audit", "told", "empty").status == 3


def test_diff_shows_what_left_and_what_came(turnlog: Turnlog) -> None:
    lines = turnlog("audit", "diff", SID, "call-0", "call-4").out.splitlines()
    assert any(line.startswith("-") and "parcel 0" in line and "(boundary" in line for line in lines)
    assert any(line.startswith("+") and "parcel 4" in line for line in lines)


def test_no_difference_is_status_1(turnlog: Turnlog) -> None:
    assert turnlog("audit", "diff", SID, 3, 3).status == 1


def test_explain_says_why_in_words(turnlog: Turnlog) -> None:
    result = turnlog("audit", "explain", SID, "rule")
    assert "because it is a system message" in " ".join(result.out.split())


def test_explain_takes_a_moment(turnlog: Turnlog) -> None:
    found = turnlog("audit", "explain", SID, "rule", "--at", "call-0", "--json").json
    assert (found["reason"], found["at"]) == ("since", 2)


def test_lineage_shows_the_originals_of_the_newest_summary(turnlog: Turnlog) -> None:
    found = turnlog("audit", "lineage", SID, "--json").json
    assert [ref["excerpt"] for ref in found["originals"]] == [
        text
        for n in range(3)
        for text in (f"User: Where is parcel {n}?", f"Assistant: Parcel {n} is in Lund.")
    ]


def test_lineage_finds_the_newest_summary_though_a_later_compaction_kept_it(
    turnlog: Turnlog, open_service: OpenService
) -> None:
    before = turnlog("audit", "lineage", SID, "--json").json
    with open_service() as sessions:
        sessions.append_message(SID, Message.user("And now?"))
        sessions.append_message(SID, Message.assistant("Still there."))
    assert turnlog("compact", SID, "--last-turns", 1, "--json").json["summary"] == 0
    assert turnlog("audit", "lineage", SID, "--json").json["summary"] == before["summary"]


def test_timeline_lists_turns_calls_and_boundaries(turnlog: Turnlog) -> None:
    out = turnlog("audit", "timeline", SID).out
    assert "5 turns, 5 recorded calls, 2 compactions" in out
    assert "call-3 · m-1" in out


def test_verify_of_a_whole_log_is_status_0(turnlog: Turnlog) -> None:
    result = turnlog("audit", "verify")
    assert (result.status, result.out) == (0, result.out)
    assert "the log is as it was recorded" in result.out


def test_verify_names_what_was_changed_and_is_status_1(turnlog: Turnlog, database: Path) -> None:
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("DELETE FROM stored_events WHERE originator_version = 4")
    result = turnlog("audit", "verify")
    assert result.status == 1
    assert f"{SID}" in result.out
    assert "there is no event of this version" in result.out
    (finding,) = turnlog("audit", "verify", SID, "--json").json["findings"]
    assert (finding["version"], finding["kind"]) == (4, "missing")


def test_heads_prove_the_log_later(turnlog: Turnlog, tmp_path: Path, open_service: OpenService) -> None:
    assert turnlog("audit", "heads", "-o", tmp_path / "heads.json").status == 0
    with open_service() as sessions:
        sessions.append_message(SID, Message.user("more"))
    result = turnlog("audit", "verify", "--heads", tmp_path / "heads.json")
    assert "1 former head is part of it" in result.out


def test_signed_heads_need_their_key(turnlog: Turnlog, tmp_path: Path) -> None:
    heads, key = tmp_path / "heads.json", tmp_path / "key"
    public = turnlog("audit", "heads", "-o", heads, "--sign", key, "--json").json["key"]
    assert turnlog("audit", "verify", "--heads", heads, "--key", public).status == 0
    assert turnlog("audit", "verify", "--heads", heads, "--key", "0" * 64).status == 5
    assert "give --key" in turnlog("audit", "verify", "--heads", heads).err


def test_a_key_without_heads_is_a_mistake(turnlog: Turnlog) -> None:
    assert turnlog("audit", "verify", "--key", "0" * 64).status == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("told", SID),
        ("diff", SID, 2, 20),
        ("explain", SID, "rule"),
        ("lineage", SID),
        ("timeline", SID),
        ("verify",),
        ("heads",),
    ],
    ids=lambda arguments: arguments[0],
)
def test_every_command_tells_json(turnlog: Turnlog, arguments: tuple[object, ...]) -> None:
    assert turnlog("audit", *arguments, "--json").json


@pytest.mark.parametrize("arguments", [("timeline", SID), ("diff", SID, 2, 20), ("lineage", SID)])
def test_lines_fit_into_80_columns(
    turnlog: Turnlog, arguments: tuple[object, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("FORCE_COLOR", "")
    monkeypatch.setattr("turnlog.infrastructure.cli.auditing._WIDE", 80)
    events = [line for line in turnlog("audit", *arguments).out.splitlines() if "parcel" in line]
    assert events
    assert max(map(len, events)) <= 80


def test_the_database_is_not_changed_by_an_audit(turnlog: Turnlog, database: Path) -> None:
    before = database.read_bytes()
    for arguments in (("timeline", SID), ("verify",), ("told", SID)):
        turnlog("audit", *arguments)
    assert database.read_bytes() == before


def test_control_characters_of_a_message_do_not_reach_the_terminal(
    turnlog: Turnlog, open_service: OpenService
) -> None:
    with open_service() as sessions:
        sessions.append_message(SID, Message.user("\x1b[2J gone"), event_id="evil")
    for arguments in (("timeline", SID), ("explain", SID, "evil"), ("diff", SID, 1, "evil")):
        assert "\x1b[2J" not in turnlog("audit", *arguments).out


def test_a_message_can_be_named_by_its_version(turnlog: Turnlog, imported: str) -> None:
    (first,) = turnlog("log", imported, "--limit", 62, "--json").json[:1]

    by_version = turnlog("audit", "explain", imported, first["version"], "--json")

    assert by_version.json == turnlog("audit", "explain", imported, first["id"], "--json").json


def test_a_version_that_the_session_has_not_reached_names_no_message(turnlog: Turnlog, imported: str) -> None:
    assert turnlog("audit", "explain", imported, 99_999).status == 3


@pytest.mark.parametrize("arguments", [("explain", SID, "rule"), ("lineage", SID)])
def test_a_pipe_gets_lines_whole(
    turnlog: Turnlog, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    narrow = turnlog("audit", *arguments).out
    monkeypatch.setenv("COLUMNS", "300")
    assert turnlog("audit", *arguments).out == narrow
