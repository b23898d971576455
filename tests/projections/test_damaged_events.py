"""What goes on where a stored event cannot be read: sessions are deleted, read models are made anew."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.projections.databases import Database, SqliteFile
from tests.projections.test_commands import Turnlog, turnlog

from turnlog.application import Sessions, SessionService
from turnlog.application.audit import SessionAudit
from turnlog.domain.errors import LegalHoldError, SessionNotFoundError, UnreadableEventError
from turnlog.domain.ids import aggregate_id
from turnlog.domain.messages import Message
from turnlog.domain.query import EventQuery

__all__ = ["turnlog"]

DAMAGED = b"\x00"


def _fill(sessions: SessionService, *session_ids: str) -> None:
    """Sessions of an opening event and three messages each, one after the other."""
    for session_id in session_ids:
        sessions.create(session_id, time_to_live=timedelta(days=1))
        for number in range(3):
            sessions.append_message(
                session_id,
                Message.user(f"{session_id} word{number} parcel"),
                event_id=f"{session_id}-{number}",
            )


def _findings(database: Database) -> list[tuple[str, int | None]]:
    with database.service() as sessions:
        return [(one.kind, one.version) for one in SessionAudit(sessions).verify().findings]


# --- deletion


@pytest.mark.parametrize("erase", [True, False])
def test_a_session_whose_newest_event_cannot_be_read_is_deleted(database: Database, erase: bool) -> None:
    with database.service() as sessions:
        _fill(sessions, "alpha", "beta")
    database.put_state(8, DAMAGED)
    assert [version for _, version in _findings(database)] == [3]
    with database.service() as sessions:
        deleted = sessions.delete("beta", erase=erase)
        assert (deleted.version, deleted.erasure) == (4, "done" if erase else "kept")
        assert sessions.find("beta") is None
        assert [row.session_id for row in sessions.list_sessions()] == ["alpha"]
        with pytest.raises(SessionNotFoundError):
            sessions.delete("beta")
    assert [version for _, version in _findings(database)] == ([] if erase else [3])


def test_its_tombstone_is_linked_to_the_event_that_cannot_be_read(database: Database) -> None:
    with database.service() as sessions:
        _fill(sessions, "beta")
        recorder: Any = sessions.app.recorder
        head = recorder.recorded_head(aggregate_id("beta"))
    database.put_state(4, DAMAGED)
    with database.service() as sessions:
        sessions.delete("beta", erase=False)
        tombstone: Any = next(iter(sessions.app.events.get(aggregate_id("beta"), gt=3)))
        assert tombstone.previous == head.chain


@pytest.mark.parametrize("damaged", [(5,), (6,), (5, 6)])
def test_a_legal_hold_still_keeps_it(database: Database, damaged: tuple[int, ...]) -> None:
    with database.service() as sessions:
        _fill(sessions, "beta")
        sessions.hold("beta", "a case", by="ada")
        sessions.append_message("beta", Message.user("more"))
    for position in damaged:
        database.put_state(position, DAMAGED)
    with database.service() as sessions, pytest.raises(LegalHoldError):
        sessions.delete("beta")


def test_metadata_that_cannot_be_read_name_no_owner(database: Database) -> None:
    with database.service() as sessions:
        sessions.scoped_to("ada").create("beta")
        sessions.update_metadata("beta", {"user.name": "bob"})
    database.put_state(2, DAMAGED)
    with database.service() as sessions:
        with pytest.raises(SessionNotFoundError):
            sessions.scoped_to("ada").delete("beta")
        sessions.delete("beta")


def test_the_owner_deletes_a_session_whose_newest_event_cannot_be_read(database: Database) -> None:
    with database.service() as sessions:
        _fill(sessions.scoped_to("ada"), "beta")
    database.put_state(4, DAMAGED)
    with database.service() as sessions:
        sessions.scoped_to("ada").delete("beta")
        assert sessions.find("beta") is None


def test_a_session_of_which_nothing_can_be_read_is_not_deleted(database: Database) -> None:
    with database.service() as sessions:
        _fill(sessions, "beta")
    for position in range(1, 5):
        database.put_state(position, DAMAGED)
    with database.service() as sessions, pytest.raises(UnreadableEventError):
        sessions.delete("beta")


def test_a_long_session_that_is_indexed_is_deleted(database: Database) -> None:
    with database.service() as sessions:
        _fill(sessions, "alpha", "beta")
        sessions.append_events("alpha", [Message.user(f"number {number}") for number in range(200)])
        sessions.append_message("alpha", Message.user("and one more"))
    database.put_state(8, DAMAGED)
    with database.service() as sessions:
        sessions.delete("beta")
        found = sessions.search_all(EventQuery(keywords=["word1"]))
        assert [one.id for one in found] == ["alpha-1"]


def test_what_a_newer_version_wrote_last_is_not_deleted(database: Database) -> None:
    with database.service() as sessions:
        _fill(sessions, "beta")
    table = "stored_events" if isinstance(database, SqliteFile) else "sessions_events"
    database.change(
        f"UPDATE {table} SET topic = 'turnlog.domain.events:HoldOfAnotherKind' WHERE originator_version = 3"
    )
    with database.service() as sessions, pytest.raises(UnreadableEventError):
        sessions.delete("beta")


# --- what expired


def _expiring(sessions: SessionService, idle: timedelta | None = None) -> None:
    for name in ("alpha", "beta"):
        if idle is None:
            sessions.create(name, time_to_live=timedelta(days=1))
        else:
            sessions.create(name, idle=idle)
        for number in range(2):
            sessions.append_message(name, Message.user(f"{name} heron {number}"))


def _swept(database: Database, days: float, recorder: str | None = None) -> tuple[int, list[str]]:
    """How many were deleted so many days from now, and which could not be because of damage."""
    failed: list[str] = []

    def told(name: str, error: Exception) -> None:
        assert isinstance(error, UnreadableEventError)
        failed.append(name)

    with database.service(recorder) as sessions:
        at = datetime.now(UTC) + timedelta(days=days)
        return sessions.delete_expired(at, on_failure=told), failed


@pytest.mark.parametrize("position", [5, 6])
def test_a_damaged_session_that_expired_is_deleted(database: Database, position: int) -> None:
    with database.service() as sessions:
        _expiring(sessions)
    database.put_state(position, DAMAGED)
    assert _swept(database, 0.5) == (0, [])
    assert _swept(database, 2) == (2, [])
    assert _findings(database) == []


@pytest.mark.parametrize("is_rebuilt", [False, True])
@pytest.mark.parametrize("position", [5, 6])
def test_one_whose_time_counts_from_its_messages_is_deleted(
    database: Database, position: int, is_rebuilt: bool
) -> None:
    with database.service() as sessions:
        _expiring(sessions, timedelta(days=1))
    database.put_state(position, DAMAGED)
    if is_rebuilt:
        with database.service() as sessions:
            database.models(sessions.app).rebuild(["directory"])
    assert _swept(database, 0.5) == (0, [])
    assert _swept(database, 2) == (2, [])


def test_where_the_time_of_the_newest_event_is_not_known_it_stays_and_is_named(database: Database) -> None:
    with database.service() as sessions:
        _expiring(sessions, timedelta(days=1))
    database.put_state(6, DAMAGED)
    database.change("DROP TABLE turnlog_sessions")
    with Sessions(env=dict(database.env)) as app:
        database.models(app).rebuild(["directory"])
    assert _swept(database, 2) == (1, ["beta"])
    with database.service() as sessions:
        assert [row.session_id for row in sessions.list_sessions()] == ["beta"]
        sessions.delete("beta")


def test_where_it_may_have_been_extended_it_stays_and_is_named(database: Database) -> None:
    with database.service() as sessions:
        _expiring(sessions)
        sessions.extend("beta", datetime.now(UTC) + timedelta(days=2))
    database.put_state(7, DAMAGED)
    assert _swept(database, 1.5) == (1, [])
    assert _swept(database, 3) == (0, ["beta"])


def test_one_under_a_legal_hold_stays(database: Database) -> None:
    with database.service() as sessions:
        _expiring(sessions)
        sessions.hold("beta", "a case", by="ada")
    database.put_state(7, DAMAGED)
    assert _swept(database, 2) == (1, [])


def test_where_no_rows_are_written_it_is_deleted_too(database: Database) -> None:
    with database.service(database.plain_recorder) as sessions:
        _expiring(sessions)
    database.put_state(6, DAMAGED)
    assert _swept(database, 2, database.plain_recorder) == (2, [])


def test_the_command_names_what_it_could_not_delete(
    database: Database, turnlog: Turnlog, capsys: pytest.CaptureFixture[str]
) -> None:
    with database.service() as sessions:
        sessions.create("beta", time_to_live=timedelta(days=1))
        sessions.extend("beta", datetime.now(UTC) + timedelta(microseconds=1))
    database.put_state(2, DAMAGED)
    assert turnlog("sweep") == 1
    assert "session beta expired and was not deleted: The event at version 1" in capsys.readouterr().err
    assert turnlog("sweep", "--json") == 1
    assert set(json.loads(capsys.readouterr().out)["failed"]) == {"beta"}


# --- the command line


def test_the_command_deletes_it(
    database: Database, turnlog: Turnlog, capsys: pytest.CaptureFixture[str]
) -> None:
    with database.service() as sessions:
        _fill(sessions, "beta")
    database.put_state(4, DAMAGED)
    assert turnlog("delete", "beta") == 2
    assert "not every event can be read" in capsys.readouterr().err
    assert turnlog("delete", "beta", "--yes") == 0
    assert turnlog("audit", "verify") == 0


# --- rebuilds


def test_a_rebuild_goes_on_and_names_the_event(
    database: Database, turnlog: Turnlog, capsys: pytest.CaptureFixture[str]
) -> None:
    with database.service() as sessions:
        _fill(sessions, "alpha", "beta")
    database.put_state(7, DAMAGED)
    assert turnlog("rebuild", "--json") == 1
    named = json.loads(capsys.readouterr().out)["unreadable_events"]
    assert [(one["session_id"], one["version"]) for one in named] == [("beta", 2)]
    assert turnlog("rebuild") == 1
    assert "beta: event 2 cannot be read" in capsys.readouterr().err
    assert turnlog("rebuild", "view") == 1
    with database.service() as sessions:
        assert [row.session_id for row in sessions.list_sessions()] == ["beta", "alpha"]
        assert sessions.append_message("alpha", Message.user("again"), event_id="alpha-1").is_repeat
        sessions.append_message("alpha", Message.user("healthy"))


def test_a_search_still_says_that_a_message_cannot_be_read(database: Database, turnlog: Turnlog) -> None:
    with database.service() as sessions:
        _fill(sessions, "alpha", "beta")
        sessions.append_events("beta", [Message.user(f"number {number}") for number in range(40)])
    database.put_state(7, DAMAGED)
    assert turnlog("rebuild") == 1
    with database.service() as sessions:
        with pytest.raises(UnreadableEventError):
            sessions.search_events("beta", EventQuery(keywords=["word2"]))
        assert [one.id for one in sessions.search_events("alpha", EventQuery(keywords=["word2"]))] == [
            "alpha-2"
        ]


@pytest.mark.parametrize("lost", ["turnlog_event_ids", "turnlog_sessions"])
def test_a_lost_table_is_repaired_beside_a_damaged_event(
    database: Database, turnlog: Turnlog, lost: str
) -> None:
    with database.service() as sessions:
        _fill(sessions, "alpha", "beta")
    database.put_state(7, DAMAGED)
    database.change(f"DROP TABLE {lost}")
    assert turnlog("rebuild") == 1
    with database.service() as sessions:
        assert len(sessions.view("alpha").messages) == 3
        assert sessions.append_message("alpha", Message.user("again"), event_id="alpha-1").is_repeat


def test_a_service_starts_beside_a_damaged_event(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    with database.service() as sessions:
        _fill(sessions, "alpha", "beta")
    database.put_state(7, DAMAGED)
    database.change("DROP TABLE turnlog_event_ids")
    with caplog.at_level("WARNING", logger="turnlog"), database.service() as sessions:
        assert len(sessions.view("alpha").messages) == 3
    assert "The event at version 2" in caplog.text


def test_where_nothing_can_be_read_nothing_is_rebuilt(database: Database, turnlog: Turnlog) -> None:
    with database.service() as sessions:
        _fill(sessions, "beta")
    for position in range(1, 5):
        database.put_state(position, DAMAGED)
    assert turnlog("rebuild", "directory") == 5
    assert database.one("SELECT count(*) FROM turnlog_sessions") == 1


def test_what_can_be_read_and_not_be_applied_is_passed_over(database: Database, turnlog: Turnlog) -> None:
    with database.service() as sessions:
        _fill(sessions, "alpha", "beta")
        recorder = sessions.app.recorder
        (row,) = recorder.select_events(aggregate_id("beta"), gt=1, lte=2)
        fields = json.loads(row.state)
    fields["content"] = '{"parts":[{"type":7}]}'
    database.put_state(7, json.dumps(fields).encode())
    assert turnlog("rebuild") == 1
    with database.service() as sessions:
        assert len(sessions.list_sessions()) == 2
