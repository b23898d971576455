"""The ledger of event ids: compared with the log, and made anew from it."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from tests.projections.activity import compact, turn
from tests.projections.databases import Database
from tests.projections.test_commands import Turnlog, turnlog
from tests.projections.test_rebuilding import at_progress

from turnlog.application import Sessions
from turnlog.application.projections import Difference, replaying
from turnlog.application.service import SessionService
from turnlog.domain.errors import StorageError
from turnlog.domain.ids import aggregate_id
from turnlog.domain.log import EventType, NewEvent
from turnlog.domain.messages import Message

__all__ = ["turnlog"]

ENTRIES = "SELECT aggregate_id, event_id, version FROM turnlog_event_ids ORDER BY aggregate_id, event_id"


def say(sessions: SessionService, name: str, event_id: str | None, text: str = "a heron") -> bool:
    """Whether it was a repeat."""
    return sessions.append_message(name, Message.user(text), event_id=event_id).is_repeat


@pytest.fixture
def lived(database: Database) -> Database:
    """Sessions with ids of callers and without, ids that look like the service's own, ended ones too."""
    with database.service() as sessions:
        for name in ("parcel", "kept", "gone"):
            sessions.create(name)
            say(sessions, name, "question")
            turn(sessions, name)
        say(sessions, "parcel", "9-" + "a" * 20)
        given = (NewEvent(message=Message.user("x"), id="first"), NewEvent(message=Message.user("y")))
        sessions.append_events("parcel", [*given, NewEvent(message=Message.user("z"), id="third")])
        sessions.append_event("parcel", EventType.of("ACME.AUDIT"), {"heron": 1}, event_id="audit")
        compact(sessions, "parcel")
        sessions.redact("parcel", "question", reason="asked for", by="ada")
        sessions.delete("kept", erase=False)
        sessions.delete("gone")
    return database


def differences(database: Database) -> tuple[Difference, ...]:
    with Sessions(env=dict(database.env)) as app:
        found = database.models(app).compare().differences
    assert {one.model for one in found} <= {"ledger"}
    return found


def test_nothing_differs(lived: Database) -> None:
    assert {row[1] for row in lived.rows(ENTRIES)} == {
        "question",
        "9-" + "a" * 20,
        "first",
        "third",
        "audit",
    }
    assert differences(lived) == ()
    with Sessions(env=dict(lived.env)) as app:
        compared = lived.models(app).compare()
    assert compared.positions["ledger"] == compared.positions["directory"] == compared.events


DAMAGES = {
    "an entry is gone": (
        "DELETE FROM turnlog_event_ids WHERE event_id = 'question'",
        "1 event id is missing: 'question'",
    ),
    "a version": (
        "UPDATE turnlog_event_ids SET version = 77 WHERE event_id = 'third'",
        "'third': version is 77, not 7",
    ),
    "an id that the log does not have": (
        "INSERT INTO turnlog_event_ids SELECT aggregate_id, 'ghost', 1 FROM turnlog_event_ids LIMIT 1",
        "1 event id that the log does not have: 'ghost'",
    ),
    "another id": (
        "UPDATE turnlog_event_ids SET event_id = 'ghost' WHERE event_id = 'third'",
        "1 event id that the log does not have: 'ghost'; 1 event id is missing: 'third'",
    ),
    "an id that says its version itself": (
        "INSERT INTO turnlog_event_ids SELECT aggregate_id, '2-aaaaaaaaaaaaaaaaaaaa', 2 "
        "FROM turnlog_event_ids LIMIT 1",
        "1 event id that the log does not have: '2-aaaaaaaaaaaaaaaaaaaa'",
    ),
    "all of it": (
        "DELETE FROM turnlog_event_ids",
        "5 event ids are missing: '9-aaaaaaaaaaaaaaaaaaaa', 'audit', 'first', …",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_differs_is_named_and_repaired(lived: Database, damage: str) -> None:
    statement, detail = DAMAGES[damage]
    before = lived.rows(ENTRIES)
    lived.change(statement)
    (one,) = differences(lived)
    assert one.detail == detail
    assert (one.session_id, one.aggregate_id) == ("parcel", aggregate_id("parcel").hex)
    with Sessions(env=dict(lived.env)) as app:
        (rebuilt,) = lived.models(app).rebuild(["ledger"])
    assert rebuilt.model == "ledger"
    assert lived.rows(ENTRIES) == before
    with lived.service() as sessions:
        assert say(sessions, "parcel", "third", "z")


def test_entries_of_a_deleted_session_are_named(lived: Database) -> None:
    deleted = aggregate_id("gone")
    shown = f"X'{deleted.hex}'" if hasattr(lived, "path") else f"'{deleted}'"
    lived.change(f"INSERT INTO turnlog_event_ids VALUES ({shown}, 'question', 1)")
    (one,) = differences(lived)
    assert one.aggregate_id == deleted.hex


def test_a_table_that_is_gone_is_all_that_is_named(lived: Database, turnlog: Turnlog) -> None:
    lived.change("DROP TABLE turnlog_event_ids")
    assert turnlog("check") == 1
    assert not lived.tables() & {"turnlog_event_ids", "sessions_turnlog_event_ids"}


def test_what_check_says_of_a_table_that_is_gone(
    lived: Database, turnlog: Turnlog, capsys: pytest.CaptureFixture[str]
) -> None:
    lived.change("DROP TABLE turnlog_event_ids")
    turnlog("check", "--json")
    said = json.loads(capsys.readouterr().out)
    assert [(one["model"], one["detail"]) for one in said["differences"]] == [
        ("ledger", f"its table {lived.named('turnlog_event_ids')} is gone: run `turnlog rebuild ledger`")
    ]
    assert said["log"]["findings"] == []
    assert turnlog("rebuild", "ledger") == 0
    assert turnlog("check") == 0


def test_the_commands_name_it(lived: Database, turnlog: Turnlog, capsys: pytest.CaptureFixture[str]) -> None:
    assert turnlog("check") == 0
    assert "ledger: nothing differs" in capsys.readouterr().out
    lived.change("DELETE FROM turnlog_event_ids WHERE event_id = 'first'")
    assert turnlog("check") == 1
    said = capsys.readouterr().out
    assert "'first'" in said
    assert "ledger: 1 difference" in said
    assert turnlog("rebuild") == 0
    assert "ledger: rebuilt from" in capsys.readouterr().out
    assert turnlog("check") == 0


def test_what_is_written_and_deleted_meanwhile_is_in_it(
    sessions: SessionService, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replaying, "PAGE", 5)
    for name in ("a", "b"):
        sessions.create(name)
        for number in range(20):
            say(sessions, name, f"old {number}")
    database.change("DELETE FROM turnlog_event_ids WHERE version > 10")
    with database.service() as other:
        steps: list[Callable[[], object]] = [
            lambda: say(other, "a", "meanwhile"),
            lambda: other.delete("b"),
            lambda: other.create("late"),
            *[lambda: say(other, "late", "late")] * 12,
        ]
        models = database.models(sessions.app)
        models.rebuild(["ledger"], at_progress(steps))
        assert models.compare().differences == ()
    assert say(sessions, "a", "meanwhile")
    assert say(sessions, "a", "old 15")
    assert say(sessions, "late", "late")


def test_an_id_that_the_log_has_twice_is_where_it_was_first(database: Database) -> None:
    with database.service() as sessions:
        sessions.create("a")
        say(sessions, "a", "question")
        database.change("DELETE FROM turnlog_event_ids")
        assert not say(sessions, "a", "question")
        models = database.models(sessions.app)
        assert "'question': version is 2, not 1" in {one.detail for one in models.compare().differences}
        models.rebuild(["ledger"])
    database.change("DROP TABLE turnlog_event_ids")
    with database.service() as sessions:
        assert sessions.append_message("a", Message.user("a heron"), event_id="question").version == 1


def test_where_it_is_streams_there_is_nothing_to_compare_or_rebuild(database: Database) -> None:
    with database.service(database.plain_recorder) as sessions:
        sessions.create("a")
        say(sessions, "a", "question")
        models = database.models(sessions.app)
        assert "ledger" not in {one.model for one in models.rebuild()}
        assert "ledger" not in models.present()
        compared = models.compare()
        assert compared.differences == ()
        assert "ledger" not in compared.positions
        with pytest.raises(StorageError, match="no rows of it to rebuild"):
            models.rebuild(["ledger"])
