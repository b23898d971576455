"""A log that lost events is not written on as if it had not, and what misses them says so."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.projections.databases import Database
from tests.projections.test_damaged_logs import rebuilt, remove, say, two

from turnlog.application import SessionService
from turnlog.domain import Message, NewEvent, StorageError, UnreadableEventError

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
