"""What a rebuild and a check say of a log that lost events, or has an id twice, and how they say it."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from eventsourcing.domain import Aggregate
from tests.projections.activity import live, turn
from tests.projections.databases import Database
from tests.projections.test_commands import Turnlog, turnlog
from tests.projections.test_rebuilding import at_progress

from turnlog.application import Sessions, SessionService
from turnlog.application.audit import SessionAudit
from turnlog.application.projections import MissingEvents, RepeatedId, links, replaying
from turnlog.domain.ids import aggregate_id
from turnlog.domain.messages import Message

__all__ = ["turnlog"]

ALPHA, BETA = aggregate_id("alpha").hex, aggregate_id("beta").hex


@pytest.fixture
def two(database: Database) -> Database:
    """Two sessions of an opening event and four messages each, one after the other."""
    with database.service() as sessions:
        for name in ("alpha", "beta"):
            sessions.create(name)
            for number in range(4):
                say(sessions, name, number)
    return database


def say(sessions: SessionService, name: str, number: int) -> bool:
    """Whether it was a repeat."""
    message = Message.user(f"{name} heron {number}")
    return sessions.append_message(name, message, event_id=f"{name}-{number}").is_repeat


def remove(database: Database, *positions: int) -> None:
    """Remove events past everything."""
    database.change(f"DELETE FROM stored_events WHERE rowid IN ({', '.join(map(str, positions))})")


def rebuilt(database: Database, *models: str) -> tuple[MissingEvents, ...]:
    with Sessions(env=dict(database.env)) as app:
        found = database.models(app)
        found.rebuild(models or None)
        return found.missing_events()


def said(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


# --- events that are gone


@pytest.mark.parametrize("model", ["directory", "view", "recall", "ledger"])
@pytest.mark.parametrize(
    ("positions", "first", "last"),
    [((2,), 1, 1), ((1,), 0, 0), ((2, 3, 4), 1, 3), ((4, 5), 3, 4), ((1, 2, 3, 4, 5), 0, 4)],
)
def test_a_rebuild_names_events_that_are_gone(
    two: Database, model: str, positions: tuple[int, ...], first: int, last: int
) -> None:
    remove(two, *positions)
    (one,) = rebuilt(two, model)
    assert (one.aggregate_id, one.first, one.last) == (ALPHA, first, last)


def test_the_end_is_what_a_row_of_the_view_tells_where_the_directory_is_gone(two: Database) -> None:
    rebuilt(two, "view")
    remove(two, 9, 10)
    two.change("DROP TABLE turnlog_sessions")
    assert rebuilt(two) == (MissingEvents(BETA, 3, 4),)


def test_a_store_without_rows_in_the_transaction_tells_it_too(database: Database) -> None:
    with database.service(database.plain_recorder) as sessions:
        sessions.create("alpha")
        turn(sessions, "alpha")
        sessions.list_sessions()
        (newest,) = database.rows("SELECT max(rowid) FROM stored_events WHERE topic LIKE '%MessageAppended'")
        remove(database, newest[0])
        models = database.models(sessions.app)
        models.rebuild(["directory"])
        assert [(one.first, one.last) for one in models.missing_events()] == [(2, 2)]


def test_in_a_store_whose_ids_are_texts_too(database: Database) -> None:
    database.env = {**database.env, "ORIGINATOR_ID_TYPE": "text"}
    with database.service() as sessions:
        for name in ("alpha", "beta"):
            sessions.create(name)
            say(sessions, name, 0)
    assert rebuilt(database) == ()
    remove(database, 4)
    assert rebuilt(database) == (MissingEvents(BETA, 1, 1, "beta"),)


def test_the_command_names_them_and_has_status_1(
    two: Database, turnlog: Turnlog, capsys: pytest.CaptureFixture[str]
) -> None:
    remove(two, 2, 9, 10)
    assert turnlog("rebuild", "--json") == 1
    missing = said(capsys)["missing_events"]
    assert sorted((one["session_id"], one["first"], one["last"]) for one in missing) == [
        ("alpha", 1, 1),
        ("beta", 3, 4),
    ]
    assert turnlog("rebuild") == 1
    assert "alpha: event 1 is missing in the log" in capsys.readouterr().err


def test_a_session_that_is_gone_as_a_whole_is_named_by_its_id(
    two: Database, turnlog: Turnlog, capsys: pytest.CaptureFixture[str]
) -> None:
    remove(two, *range(1, 6))
    assert turnlog("check", "--json") == 1
    assert {one["session_id"] for one in said(capsys)["differences"]} == {"alpha"}
    assert turnlog("rebuild") == 1
    assert "alpha: events 0 to 4 are missing in the log" in capsys.readouterr().err
    assert turnlog("check") == 0


def test_a_newest_event_that_was_exchanged_is_named(two: Database) -> None:
    """Its link is right, so that only the head that was recorded tells it."""
    with two.service() as sessions:
        recorder: Any = sessions.app.recorder
        former = recorder.recorded_head(aggregate_id("beta")).chain
    two.change(f"UPDATE turnlog_sessions SET head = '{former[::-1]}' WHERE session_id = 'beta'")
    with Sessions(env=dict(two.env)) as app:
        models = two.models(app)
        models.rebuild(["directory"])
        assert models.broken_links() == ((BETA, 4),)


def test_what_is_deleted_and_purged_is_not_missing(
    sessions: SessionService, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replaying, "PAGE", 5)
    life = live(sessions, 5, 70)
    with database.service() as other:
        steps: list[Callable[[], object]] = [
            lambda: other.delete(life.names[0]),
            lambda: other.sweep(purge_after=timedelta(0)),
            lambda: turn(other, life.names[1]),
            lambda: other.delete(life.names[2], erase=False),
            lambda: other.sweep(purge_after=timedelta(0)),
        ]
        models = database.models(sessions.app)
        models.rebuild(progress=at_progress(steps))
        models.rebuild()
        assert models.missing_events() == ()
        assert models.broken_links() == ()
        assert models.compare().differences == ()


@pytest.mark.parametrize("is_plain", [False, True])
def test_a_session_that_lost_an_event_is_erased_and_keeps_no_other_from_being_so(
    database: Database, is_plain: bool
) -> None:
    with database.service(database.plain_recorder if is_plain else None) as sessions:
        for name in ("alpha", "beta"):
            sessions.create(name)
            turn(sessions, name)
    remove(database, 3)
    with database.service(database.plain_recorder if is_plain else None) as sessions:
        assert [sessions.delete(name).erasure for name in ("alpha", "beta")] == ["done", "done"]
        assert sessions.sweep().pending == 0
    assert database.one("SELECT count(*) FROM stored_events WHERE topic LIKE '%MessageAppended'") == 0


def test_what_a_purge_left_of_a_session_is_not_missing(sessions: SessionService, database: Database) -> None:
    """On SQLite the event that says how far the index got stays."""
    sessions.create("alpha")
    turn(sessions, "alpha")
    database.models(sessions.app).rebuild(["recall"])
    sessions.delete("alpha")
    turn(sessions, sessions.create("beta").id)
    sessions.sweep(timedelta(0))
    assert SessionAudit(sessions).verify().findings == ()
    database.change("UPDATE turnlog_erasures SET purged = false")
    assert SessionAudit(sessions).verify().findings


def test_an_event_that_cannot_be_read_is_not_missing(two: Database) -> None:
    for position in (3, 10):
        two.put_state(position, b"\0")
    assert rebuilt(two) == ()


def test_of_a_session_that_was_silent_for_long_nothing_is_said(
    sessions: SessionService, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "_STREAMS", 2)
    for name in ("a", "b", "c", "d"):
        sessions.create(name)
    for name in ("a", "b", "c", "d"):
        turn(sessions, name)
    models = database.models(sessions.app)
    models.rebuild()
    assert models.missing_events() == ()
    assert models.broken_links() == ()


# --- the newest event cannot be read


def test_a_rebuild_keeps_the_head_of_a_session_whose_newest_event_cannot_be_read(two: Database) -> None:
    row = "SELECT version, head, messages, modified_at FROM turnlog_sessions WHERE session_id = 'beta'"
    before = two.rows(row)
    two.put_state(10, b"\0")
    rebuilt(two)
    assert two.rows(row) == before
    with two.service() as sessions:
        assert [one.version for one in SessionAudit(sessions).verify().findings] == [4]
        sessions.delete("beta")
        assert SessionAudit(sessions).verify().is_whole


def test_a_rebuild_keeps_the_ids_of_events_that_cannot_be_read(two: Database) -> None:
    two.put_state(4, b"\0")
    two.change("UPDATE turnlog_event_ids SET version = 77 WHERE event_id = 'beta-0'")
    rebuilt(two)
    with two.service() as sessions:
        with pytest.raises(Exception, match="cannot be read"):
            say(sessions, "alpha", 2)
        assert say(sessions, "beta", 0)


def test_check_says_it_once(two: Database, turnlog: Turnlog, capsys: pytest.CaptureFixture[str]) -> None:
    for position in (3, 4, 10):
        two.put_state(position, b"\0")
    assert turnlog("check") == 1
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("log  ")]
    assert lines == [
        "log   alpha    events 2 and 3 cannot be read (its bytes cannot be decoded)",
        "log   beta     event 4 cannot be read (its bytes cannot be decoded)",
    ]
    assert turnlog("check", "--json") == 1
    assert said(capsys)["differences"] == []


def test_check_names_no_expiry_that_a_message_moved_which_cannot_be_read(database: Database) -> None:
    with database.service() as sessions:
        sessions.create("alpha", idle=timedelta(days=1))
        say(sessions, "alpha", 0)
        database.put_state(2, b"\0")
        assert [one.model for one in database.models(sessions.app).compare().differences] == ["log"]


def test_an_erased_session_whose_end_cannot_be_read_has_no_head_where_the_directory_is_lost(
    two: Database,
) -> None:
    with two.service() as sessions:
        sessions.delete("alpha")
    two.put_state(11, b"\0")
    two.change("DROP TABLE turnlog_sessions", "DROP TABLE turnlog_erasures")
    rebuilt(two)
    with two.service() as sessions:
        found = SessionAudit(sessions).verify().findings
    assert {one.aggregate_id for one in found} == {ALPHA}
    assert "inserted" not in {one.kind for one in found}


# --- ids that are in the log twice


@pytest.fixture
def twice(two: Database) -> Database:
    """An id was stored a second time while the ledger lacked it."""
    two.change("DELETE FROM turnlog_event_ids WHERE event_id = 'alpha-1'")
    with two.service() as sessions:
        assert not say(sessions, "alpha", 1)
    return two


def test_a_rebuild_of_the_ledger_names_an_id_that_the_log_has_twice(twice: Database) -> None:
    with Sessions(env=dict(twice.env)) as app:
        models = twice.models(app)
        models.rebuild()
        models.rebuild()
        assert models.repeated_ids() == (RepeatedId(ALPHA, "alpha-1", 2, 5),)


def test_the_commands_name_it_until_its_content_is_redacted(
    twice: Database, turnlog: Turnlog, capsys: pytest.CaptureFixture[str]
) -> None:
    assert turnlog("rebuild") == 1
    err = capsys.readouterr().err
    assert "alpha: id 'alpha-1' is in the log twice, at versions 2 and 5" in err
    advice = "turnlog redact alpha --version 5 --reason TEXT --by NAME --yes"
    assert advice in err
    assert turnlog("rebuild", "--json") == 1
    (one,) = said(capsys)["repeated_ids"]
    assert (one["session_id"], one["event_id"], one["versions"]) == ("alpha", "alpha-1", [2, 5])
    assert turnlog("check") == 1
    captured = capsys.readouterr()
    assert "id 'alpha-1' is in the log twice, at versions 2 and 5" in captured.out
    assert advice in captured.out
    assert turnlog("redact", "alpha", "--version", "5", "--reason", "twice", "--by", "ada", "--yes") == 0
    assert turnlog("check") == turnlog("rebuild") == 0


def test_it_is_named_where_the_first_content_was_redacted_neither(twice: Database) -> None:
    with twice.service() as sessions:
        sessions.redact("alpha", "alpha-1", reason="r", by="ada")
        models = twice.models(sessions.app)
        models.rebuild(["ledger"])
        assert models.repeated_ids() == ()


@pytest.mark.parametrize("page", [1, 1000])
@pytest.mark.parametrize("erase", [True, False])
def test_of_a_deleted_session_none_is_named(
    twice: Database, monkeypatch: pytest.MonkeyPatch, erase: bool, page: int
) -> None:
    monkeypatch.setattr(replaying, "PAGE", page)
    with twice.service() as sessions:
        sessions.delete("alpha", erase=erase)
        models = twice.models(sessions.app)
        models.rebuild(["ledger"])
        assert models.repeated_ids() == ()
        assert models.compare().differences == ()


# --- what was gone


@pytest.mark.parametrize(
    ("table", "model"),
    [
        ("turnlog_event_ids", "ledger"),
        ("turnlog_sessions", "directory"),
        ("turnlog_redactions", "erasures"),
    ],
)
def test_a_rebuild_says_which_table_was_gone(
    two: Database, turnlog: Turnlog, capsys: pytest.CaptureFixture[str], table: str, model: str
) -> None:
    two.change(f"DROP TABLE {table}")
    assert turnlog("rebuild", "--json") == 0
    assert {one["model"] for one in said(capsys)["rebuilt"] if one["was_gone"]} == {model}
    two.change(f"DROP TABLE {table}")
    assert turnlog("rebuild") == 0
    assert f"{model}: rebuilt from 10 events, as it was gone" in capsys.readouterr().out


# --- how it is said


def test_what_is_counted_are_events(
    two: Database, turnlog: Turnlog, capsys: pytest.CaptureFixture[str]
) -> None:
    assert turnlog("rebuild", "view") == 0
    remove(two, 2)
    capsys.readouterr()
    assert turnlog("check", "--json") == 1
    assert said(capsys)["events"] == 9
    turnlog("rebuild")
    assert "view: rebuilt from 9 events" in capsys.readouterr().out


@pytest.mark.parametrize("is_plain", [False, True])
def test_those_of_a_hosts_own_aggregates_and_the_entries_of_ids_are_not_counted(
    database: Database, turnlog: Turnlog, capsys: pytest.CaptureFixture[str], is_plain: bool
) -> None:
    with database.service(database.plain_recorder if is_plain else None) as sessions:
        sessions.app.save(Aggregate())
        sessions.create("alpha")
        say(sessions, "alpha", 0)
        sessions.list_sessions()
        models = database.models(sessions.app)
        assert {one.events for one in models.rebuild(["directory", "view"])} == {2}
        sessions.app.save(Aggregate())
        assert models.compare().behind["view"] == 0
        say(sessions, "alpha", 1)
        found = models.compare()
    assert (found.events, found.behind["view"]) == (3, 1)
    assert turnlog("check", "--json") == 0
    checked = said(capsys)
    assert checked["events"] == checked["log"]["events"] == 3
    assert turnlog("check") == 0
    assert "log: 3 events, nothing differs" in capsys.readouterr().out


def test_behind_are_events_too(two: Database) -> None:
    rebuilt(two, "view")
    with two.service() as sessions:
        for _ in range(2):
            turn(sessions, "beta")
    remove(two, 12)
    with Sessions(env=dict(two.env)) as app:
        assert two.models(app).compare().behind["view"] == 3


def test_check_says_what_to_run(two: Database, turnlog: Turnlog, capsys: pytest.CaptureFixture[str]) -> None:
    two.change("UPDATE turnlog_sessions SET messages = 9, version = 9 WHERE session_id = 'beta'")
    assert turnlog("check") == 1
    captured = capsys.readouterr()
    assert captured.out.splitlines()[1:3] == [
        "log        beta     events 5 to 9 are missing",
        "directory  beta     version is 9, not 4; messages is 9, not 4",
    ]
    assert captured.out.splitlines()[-3:] == [
        "no rebuild repairs the log: take what is wrong there from a backup",
        "keep this output and a copy: a rebuild forgets what was lost",
        "first follow docs/howto/damaged-log.md, and rebuild only where it says so",
    ]


def test_check_says_to_rebuild_where_the_log_is_whole(
    two: Database, turnlog: Turnlog, capsys: pytest.CaptureFixture[str]
) -> None:
    two.change("UPDATE turnlog_sessions SET messages = 9 WHERE session_id = 'beta'")
    assert turnlog("check") == 1
    assert capsys.readouterr().out.splitlines()[-1] == "to repair directory: turnlog rebuild directory"


def test_a_row_that_is_missing_is_named_once(
    two: Database, turnlog: Turnlog, capsys: pytest.CaptureFixture[str]
) -> None:
    two.change("DELETE FROM turnlog_sessions WHERE session_id = 'beta'")
    assert turnlog("check") == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:3] == ["directory  beta     1 row is missing", "log: 10 events, nothing differs"]


def test_a_long_value_is_cut_and_columns_behind_the_second_are_counted(
    two: Database, turnlog: Turnlog, capsys: pytest.CaptureFixture[str]
) -> None:
    two.change(
        f"UPDATE turnlog_sessions SET head = '{'x' * 64}' WHERE session_id = 'alpha'",
        "UPDATE turnlog_sessions SET expires_at = 0, idle = 7, modified_at = 0 WHERE session_id = 'beta'",
    )
    turnlog("check")
    lines = [one for one in capsys.readouterr().out.splitlines() if one.startswith("directory  ")]
    (alpha,) = (one for one in lines if "alpha" in one)
    (beta,) = (one for one in lines if "beta" in one)
    assert f"head is '{'x' * 19}…, not '" in alpha
    assert len(alpha) < 80
    assert "modified_at is 1970-01-01 00:00:00.000, not " in beta
    assert beta.endswith("; 1 more column")


def test_messages_of_the_index_are_named_together(
    two: Database, turnlog: Turnlog, capsys: pytest.CaptureFixture[str]
) -> None:
    with two.service() as sessions:
        for number in range(4, 40):
            say(sessions, "beta", number)
    assert turnlog("rebuild", "recall") == 0
    if hasattr(two, "path"):
        two.change("INSERT INTO turnlog_recall_0 (turnlog_recall_0) VALUES ('delete-all')")
    else:
        two.change("UPDATE turnlog_recall SET grams = '{}' WHERE first > 0")
    capsys.readouterr()
    assert turnlog("check") == 1
    lines = [one for one in capsys.readouterr().out.splitlines() if one.startswith("recall  beta")]
    assert len(lines) == 1
