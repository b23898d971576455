"""A log that lost events is not written on as if it had not, and what misses them says so."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.contracts.stores import Order
from tests.projections.databases import Database, PostgresSchema
from tests.projections.test_damaged_logs import rebuilt, remove, say, two

from turnlog.application import SessionService
from turnlog.application.projections import replaying
from turnlog.domain import (
    EventQuery,
    Message,
    NewEvent,
    SessionIdUnavailableError,
    StorageError,
    UnreadableEventError,
    VersionConflictError,
)

__all__ = ["two"]

GONE = "newest events of the session are gone"


def appended(sessions: SessionService, count: int) -> None:
    """So many messages at once."""
    sessions.append_events("beta", [NewEvent(message=Message.user(f"new {n}")) for n in range(count)])


@pytest.mark.parametrize("count", [1, 2, 5])
def test_nothing_is_written_in_the_place_of_events_that_are_gone(two: Database, count: int) -> None:
    remove(two, 9, 10)  # the last two of five
    with two.service() as sessions:
        with pytest.raises(StorageError, match=GONE):
            appended(sessions, count)
        assert sessions.version("beta") == 2
        assert not say(sessions, "alpha", 4)  # others are not concerned

    rebuilt(two)
    with two.service() as sessions:
        appended(sessions, count)
        assert sessions.version("beta") == 2 + count


def test_no_redaction_takes_the_place_of_events_that_are_gone(two: Database) -> None:
    remove(two, 9, 10)
    with two.service() as sessions:
        with pytest.raises(StorageError, match=GONE):
            sessions.redact("beta", "beta-0", reason="asked", by="ada")
        assert sessions.version("beta") == 2
        (said,) = sessions.get_messages("beta")[:1]
        assert said.text == "beta heron 0"
    rebuilt(two)
    with two.service() as sessions:
        assert sessions.redact("beta", "beta-0", reason="asked", by="ada").erasure == "done"
        assert sessions.version("beta") == 3


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_hook_of_the_host_does_not_hide_it(two: Database, count: int) -> None:
    remove(two, 9, 10)
    with two.service(two.hooked_recorder) as sessions:
        with pytest.raises(StorageError, match=GONE):
            appended(sessions, count)
        assert sessions.version("beta") == 2
        assert not say(sessions, "alpha", 4)
        assert sessions.delete("beta").erasure == "done"


def test_what_is_taken_in_the_log_stays_a_conflict(two: Database) -> None:
    with two.service(two.hooked_recorder) as sessions, two.service(two.hooked_recorder) as others:
        assert sessions.version("beta") == 4
        appended(others, 2)
        with pytest.raises(VersionConflictError) as stale:
            sessions.append_events("beta", [NewEvent(message=Message.user("late"))], expected_version=4)
        assert (stale.value.expected, stale.value.actual) == (4, 6)
        appended(others, 1)
        assert not say(sessions, "beta", 8)  # on what it had read before the last one
        assert say(others, "beta", 8)
        assert sessions.redact("beta", "beta-0", reason="asked", by="ada").erasure == "done"
        assert sessions.version("beta") == 9


@pytest.mark.parametrize("hooked", [False, True])
def test_in_a_store_whose_ids_are_texts_too(database: Database, hooked: bool) -> None:
    database.env = {**database.env, "ORIGINATOR_ID_TYPE": "text"}
    recorder = database.hooked_recorder if hooked else None
    with database.service(recorder) as sessions:
        sessions.create("beta")
        appended(sessions, 3)
    remove(database, 3, 4)
    with database.service(recorder) as sessions:
        for count in (1, 2):
            with pytest.raises(StorageError, match=GONE):
                appended(sessions, count)
        assert sessions.version("beta") == 1


def test_rows_that_are_caught_up_follow_the_log_all_the_same(database: Database) -> None:
    with database.service(database.plain_recorder) as sessions:
        for name in ("alpha", "beta"):
            sessions.create(name)
            sessions.append_events(name, [Message.user(f"{name} {number}") for number in range(4)])
        assert [row.version for row in sessions.list_sessions()] == [4, 4]
        remove(database, 4, 5)
    with database.service(database.plain_recorder) as sessions:
        sessions.append_message("alpha", Message.user("new"))
        assert [row.version for row in sessions.list_sessions()] == [4, 3]


def test_a_session_that_was_lost_as_a_whole_and_begun_anew_keeps_no_other_from_being_listed(
    database: Database,
) -> None:
    database.env = {**database.env, "TURNLOG_RECALL_INDEX": "yes"}
    with database.service(database.plain_recorder) as sessions:
        for name in ("alpha", "beta"):
            sessions.create(name, metadata={"of": name})
            sessions.append_events(name, [Message.user(f"{name} heron {number}") for number in range(40)])
        assert len(sessions.search_all(EventQuery(keywords="heron 39"))) == 2
        assert len(sessions.list_sessions()) == 2
        remove(database, *range(1, 42))
    with database.service(database.plain_recorder) as sessions:
        sessions.create("alpha", metadata={"of": "gamma"})
        sessions.append_message("alpha", Message.user("a bittern"))
        found = {row.session_id: (row.version, row.messages) for row in sessions.list_sessions()}
        assert found == {"alpha": (1, 1), "beta": (40, 40)}
        assert not sessions.find_by_metadata({"of": "alpha"})
        assert [row.session_id for row in sessions.find_by_metadata({"of": "gamma"})] == ["alpha"]
        assert len(sessions.search_all(EventQuery(keywords="bittern"))) == 1
        assert len(sessions.search_all(EventQuery(keywords="heron 39"))) == 1
        if isinstance(database, PostgresSchema):  # a position is used once there
            for table in ("metadata", "by_metadata", "recall", "recall_mark"):
                kept = f"SELECT DISTINCT position FROM turnlog_plain_{table}"
                assert not database.rows(f"{kept} EXCEPT SELECT position FROM turnlog_plain_sessions"), table
        sessions.delete("alpha")
        assert [row.session_id for row in sessions.list_sessions()] == ["beta"]


@pytest.mark.parametrize("kind", ["rows", "hooked", "plain", "plain, listed"])
def test_no_session_is_begun_in_front_of_events_whose_opening_is_gone(database: Database, kind: str) -> None:
    recorders = {"rows": None, "hooked": database.hooked_recorder}
    recorder = recorders.get(kind, database.plain_recorder)
    with database.service(recorder) as sessions:
        sessions.create("alpha", metadata={"secret": "heron"})
        sessions.append_events("alpha", [Message.user("of ada"), Message.user("and of nobody else")])
        if kind == "plain, listed":
            sessions.list_sessions()
    remove(database, 1)
    if recorder != database.plain_recorder:
        rebuilt(database)
    with database.service(recorder) as sessions:
        for also in ((), [Order("tea")]):
            with pytest.raises(SessionIdUnavailableError):
                sessions.create("alpha", also=also)
        assert sessions.create("beta").version == 0
    assert database.one("SELECT count(*) FROM stored_events") == 3


def test_an_idle_expiry_does_not_hide_it(database: Database) -> None:
    with database.service() as sessions:
        sessions.create("beta", idle=timedelta(days=1))
        say(sessions, "beta", 0)
        say(sessions, "beta", 1)
    remove(database, 3)
    with database.service() as sessions, pytest.raises(StorageError, match=GONE):
        say(sessions, "beta", 2)


def test_a_session_whose_end_is_gone_can_be_deleted(two: Database) -> None:
    remove(two, 9, 10)
    with two.service() as sessions:
        assert sessions.delete("beta").erasure == "done"
        assert sessions.get_events("beta") == ()


def test_an_id_whose_event_is_gone_is_no_repeat_of_another_one(two: Database) -> None:
    remove(two, 9, 10)
    with two.service() as sessions, pytest.raises(StorageError, match=r"'beta-3'.*does not have its event"):
        say(sessions, "beta", 3)


def test_an_id_that_leads_to_another_event_is_no_repeat_of_that(two: Database) -> None:
    two.change("UPDATE turnlog_event_ids SET version = 3 WHERE event_id = 'beta-3'")
    with two.service() as sessions, pytest.raises(StorageError, match="Nothing was written"):
        say(sessions, "beta", 3)


def test_a_view_that_misses_a_message_says_which(two: Database) -> None:
    remove(two, 8)
    with two.service() as sessions, pytest.raises(UnreadableEventError, match="version 2 of session 'beta'"):
        sessions.view("beta")


@pytest.mark.parametrize("model", ["directory", "view", "recall", "ledger"])
def test_no_rebuild_follows_a_log_that_was_emptied(two: Database, model: str) -> None:
    two.change("DELETE FROM stored_events")
    with pytest.raises(StorageError, match="restore the log from a backup"):
        rebuilt(two, model)
    with two.service() as sessions:
        assert [row.session_id for row in sessions.list_sessions()] == ["beta", "alpha"]


def test_a_rebuild_reads_events_that_were_restored_behind_later_ones(
    two: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replaying, "PAGE", 1)
    two.change("UPDATE stored_events SET rowid = 99 WHERE rowid = 9")
    rebuilt(two)
    with two.service() as sessions:
        assert not say(sessions, "beta", 4)
        assert sessions.version("beta") == 5
