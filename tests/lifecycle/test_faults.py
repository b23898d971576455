"""What other systems get wrong about isolation, expiry and listing, as it must be here."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.lifecycle.conftest import Clock
from tests.support.conformance_stores import NoTokens, Store

from turnlog.application.service import SessionService
from turnlog.application.sessions import Sessions
from turnlog.domain.attributes import SessionAttributes
from turnlog.domain.errors import NaiveTimeError, SessionIdUnavailableError, SessionNotFoundError
from turnlog.domain.messages import Message
from turnlog.domain.query import EventQuery
from turnlog.domain.window import CompactionWindow, WindowCompactionStrategy

SID = "s1"


def service(store: Store, clock: Clock, **arguments: Any) -> SessionService:
    """A service on the store with a clock that the test moves."""
    return SessionService(Sessions(env=dict(store.env)), clock=clock, token_estimator=NoTokens(), **arguments)


# --- fault 021: two users with one session id


def test_tenants_with_one_session_id_have_memories_of_their_own(store: Store) -> None:
    app = store.service().app
    a, b = (SessionService(app, namespace=name, token_estimator=NoTokens()) for name in "ab")
    a.create(SID)
    b.create(SID)
    a.append_message(SID, Message.user("My pet is Rex."))
    b.append_message(SID, Message.user("What is my pet called?"))
    assert [message.text for message in b.get_messages(SID)] == ["What is my pet called?"]


FOREIGN: dict[str, Callable[[SessionService], object]] = {
    "view": lambda sessions: sessions.view(SID),
    "append": lambda sessions: sessions.append_message(SID, Message.user("hi")),
    "delete": lambda sessions: sessions.delete(SID),
    "hold": lambda sessions: sessions.hold(SID, "case 7", by="eve"),
    "release": lambda sessions: sessions.release(SID, by="eve"),
    "extend": lambda sessions: sessions.extend(SID, None),
    "metadata": lambda sessions: sessions.update_metadata(SID, {}),
}


@pytest.mark.parametrize("name", sorted(FOREIGN))
def test_to_another_principal_the_session_does_not_exist(store: Store, name: str) -> None:
    sessions = store.service()
    sessions.create(SID, metadata={SessionAttributes.PRINCIPAL_NAME: "ada"})
    with pytest.raises(SessionNotFoundError):
        FOREIGN[name](sessions.scoped_to("eve"))
    assert sessions.version(SID) == 0


def test_a_sweep_in_a_scope_leaves_the_sessions_of_others(store: Store) -> None:
    sessions = store.service()
    sessions.create(SID, metadata={SessionAttributes.PRINCIPAL_NAME: "ada"})
    assert sessions.scoped_to("eve").delete_expired(datetime(9999, 1, 1, tzinfo=UTC)) == 0
    assert sessions.find(SID) is not None


# --- fault 066: naive and aware times, one bad session


@pytest.mark.parametrize("ask", ["delete_expired", "erasures"])
def test_a_naive_time_is_refused(store: Store, ask: str) -> None:
    with pytest.raises(NaiveTimeError):
        getattr(store.service(), ask)(datetime(2031, 1, 1))


def test_an_expiry_in_another_zone_is_the_same_instant(store: Store, clock: Clock) -> None:
    sessions = service(store, clock)
    sessions.create(SID)
    sessions.extend(SID, datetime.fromisoformat("2031-05-01T12:00:00+02:00"))
    assert sessions.delete_expired(datetime(2031, 5, 1, 9, 59, tzinfo=UTC)) == 0
    assert sessions.delete_expired(datetime(2031, 5, 1, 10, tzinfo=UTC)) == 1


def test_one_bad_session_does_not_stop_the_sweep(
    file_store: Store, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    sessions = service(file_store, clock)
    for name in ("a", "bad", "c"):
        sessions.create(name, time_to_live=timedelta(hours=1))
    key = sessions._key("bad").aggregate_id.hex  # pyright: ignore[reportPrivateUsage] # the id of its stream
    with closing(sqlite3.connect(str(file_store.path))) as connection, connection:
        connection.execute("UPDATE stored_events SET state = X'FF' WHERE originator_id = ?", (key,))
    with caplog.at_level(logging.WARNING, "turnlog"):
        assert service(file_store, clock).delete_expired(clock.now + timedelta(hours=2)) == 2
    assert len(caplog.records) == 1


# --- fault 067: appending to an expired session


def test_a_swept_session_is_not_made_anew_by_an_append(store: Store) -> None:
    sessions = store.service()
    sessions.create(SID, time_to_live=timedelta(0))
    sessions.delete_expired(datetime.now(UTC))
    with pytest.raises(SessionNotFoundError):
        sessions.append_message(SID, Message.user("Are you there?"))


def test_a_swept_session_is_not_made_anew_by_find_or_create(store: Store) -> None:
    sessions = store.service()
    sessions.create(SID, time_to_live=timedelta(0))
    sessions.delete_expired(datetime.now(UTC))
    with pytest.raises(SessionIdUnavailableError):
        sessions.find_or_create(SID)


# --- fault 099: what moves an expiry

HOUSEKEEPING: dict[str, Callable[[SessionService], object]] = {
    "a view": lambda sessions: sessions.view(SID),
    "a log": lambda sessions: sessions.get_events(SID),
    "a search": lambda sessions: sessions.search_events(SID, EventQuery(keywords="parcel")),
    "a compaction": lambda sessions: sessions.compact(
        SID, None, WindowCompactionStrategy(CompactionWindow.last_turns(1))
    ),
    "a note": lambda sessions: sessions.append_event(SID, "ACME.AUDIT", {"ok": True}),
    "a tool result": lambda sessions: sessions.append_message(
        SID, Message.tool([{"type": "tool_call_response", "id": "c1", "response": "ok"}])
    ),
    "metadata": lambda sessions: sessions.update_metadata(SID, {"title": "a parcel"}),
    "a hold": lambda sessions: sessions.hold(SID, "case 7", by="ada"),
    "a sweep": lambda sessions: sessions.delete_expired(sessions.view(SID).events[0].timestamp),
}


@pytest.mark.parametrize("what", sorted(HOUSEKEEPING))
@pytest.mark.parametrize("idle", [None, timedelta(days=30)])
def test_housekeeping_moves_no_expiry(store: Store, clock: Clock, what: str, idle: timedelta | None) -> None:
    sessions = service(store, clock)
    sessions.create(SID, idle=idle)
    sessions.append_message(SID, Message.user("Where is my parcel?"))
    sessions.append_message(SID, Message.user("The parcel?"))
    before = sessions.find(SID)
    clock.pass_(days=1)
    HOUSEKEEPING[what](sessions)
    after = sessions.find(SID)
    assert before is not None
    assert after is not None
    assert after.expires_at == before.expires_at


def test_a_session_that_only_housekeeping_touches_expires(store: Store, clock: Clock) -> None:
    sessions = service(store, clock)
    sessions.create(SID, idle=timedelta(days=30))
    sessions.append_message(SID, Message.user("Where is my parcel?"))
    for _ in range(31):
        clock.pass_(days=1)
        sessions.append_event(SID, "ACME.AUDIT", {"ok": True})
    assert sessions.delete_expired(clock.now) == 1


@pytest.mark.parametrize("message", [Message.user("hi"), Message.assistant("hello")])
def test_what_a_person_or_the_model_says_moves_an_idle_expiry(
    store: Store, clock: Clock, message: Message
) -> None:
    sessions = service(store, clock)
    sessions.create(SID, idle=timedelta(days=30))
    clock.pass_(days=29)
    sessions.append_message(SID, message)
    clock.pass_(days=29)
    assert sessions.delete_expired(clock.now) == 0


# --- fault 109: two keys, one storage name

ALIKE = [
    ("/a/b-c", "/a-b/c"),
    ("A", "a"),
    ("caf\u00e9", "cafe\u0301"),
    ("a", "a "),
    ("a", "A\u0332"),
    ("1", "01"),
]


@pytest.mark.parametrize(("one", "other"), ALIKE)
def test_ids_that_look_alike_are_two_sessions(store: Store, one: str, other: str) -> None:
    sessions = store.service()
    sessions.create(one)
    sessions.create(other)
    sessions.append_message(one, Message.user("in one"))
    assert sessions.get_messages(other) == ()
    assert {row.session_id for row in sessions.list_sessions()} == {one, other}


@pytest.mark.parametrize(("one", "other"), ALIKE)
def test_deleting_one_of_two_ids_that_look_alike_leaves_the_other(store: Store, one: str, other: str) -> None:
    sessions = store.service()
    sessions.create(one)
    sessions.create(other)
    sessions.delete(one)
    assert [row.session_id for row in sessions.list_sessions()] == [other]


# --- fault 111: create on an existing id


def test_create_refuses_an_id_that_is_taken(store: Store) -> None:
    sessions = store.service()
    sessions.create(SID)
    sessions.append_message(SID, Message.user("hi"))
    with pytest.raises(SessionIdUnavailableError):
        store.service().create(SID)
    assert len(sessions.get_messages(SID)) == 1


# --- fault 112: the order of a list


def test_sessions_are_listed_by_their_creation_whatever_happens_to_them(store: Store) -> None:
    sessions = store.service()
    for name in "abcd":
        sessions.create(name)
    sessions.append_message("b", Message.user("hi"))
    sessions.update_metadata("a", {"title": "a parcel"})
    sessions.delete("d")
    assert [row.session_id for row in sessions.list_sessions()] == ["c", "b", "a"]


def test_pages_hold_each_session_once_though_one_is_deleted_between(store: Store) -> None:
    sessions = store.service()
    for name in "abcdef":
        sessions.create(name)
    first = sessions.list_sessions(limit=2)
    sessions.delete("e")
    sessions.create("g")
    second = sessions.list_sessions(limit=10, before=first[-1].position)
    assert [row.session_id for row in (*first, *second)] == ["f", "e", "d", "c", "b", "a"]
