"""Searching all sessions of one principal: order, pages, and nobody else's."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from turnlog.application.service import SessionService
from turnlog.domain.attributes import SessionAttributes
from turnlog.domain.errors import NotJsonError
from turnlog.domain.messages import Message
from turnlog.domain.query import EventQuery
from turnlog.domain.window import CompactionWindow, WindowCompactionStrategy

OAK = EventQuery(keywords="oak")
NOON = datetime(2031, 5, 1, 12, tzinfo=UTC)


def of(principal: str) -> dict[str, str]:
    return {SessionAttributes.PRINCIPAL_NAME: principal}


def say(sessions: SessionService, session_id: str, text: str, *, after: int = 0) -> None:
    """Something that was said this many seconds after noon."""
    sessions.append_message(session_id, Message.user(text), occurred_at=NOON + timedelta(seconds=after))


@pytest.fixture
def two_owners(sessions: SessionService) -> SessionService:
    for name, owner in (("ada-1", "ada"), ("bob-1", "bob"), ("ada-2", "ada")):
        sessions.create(name, metadata=of(owner))
        say(sessions, name, f"oak of {name}")
    return sessions


def texts(sessions: SessionService, query: EventQuery, principal: str) -> list[str | None]:
    return [event.text for event in sessions.search_all(query, where=of(principal))]


def test_only_sessions_of_the_principal_are_searched(two_owners: SessionService) -> None:
    assert texts(two_owners, OAK, "ada") == ["oak of ada-1", "oak of ada-2"]


def test_a_session_that_changed_hands_is_found_by_its_new_owner_only(two_owners: SessionService) -> None:
    two_owners.update_metadata("ada-1", of("bob"))
    assert (texts(two_owners, OAK, "ada"), texts(two_owners, OAK, "bob")) == (
        ["oak of ada-2"],
        ["oak of ada-1", "oak of bob-1"],
    )


def test_a_scope_finds_its_own_sessions_only(two_owners: SessionService) -> None:
    scoped = two_owners.scoped_to("ada")
    assert [event.session_id for event in scoped.search_all(OAK)] == ["ada-1", "ada-2"]


def test_messages_of_others_take_no_place_on_a_page_of_a_scope(two_owners: SessionService) -> None:
    page = two_owners.scoped_to("bob").search_all(EventQuery(keywords="oak", page_size=1))
    assert [event.session_id for event in page] == ["bob-1"]


def test_a_scope_finds_nothing_under_the_name_of_somebody_else(two_owners: SessionService) -> None:
    assert two_owners.scoped_to("ada").search_all(OAK, where=of("bob")) == ()


def test_a_foreign_session_is_to_a_scope_like_none(two_owners: SessionService) -> None:
    assert two_owners.scoped_to("ada").search_events("bob-1", OAK) == ()


def test_another_namespace_is_never_searched(sessions: SessionService) -> None:
    tenant = SessionService(sessions.app, namespace="tenant")
    tenant.create("t", metadata=of("ada"))
    say(tenant, "t", "oak of a tenant")
    assert (texts(sessions, OAK, "ada"), texts(tenant, OAK, "ada")) == ([], ["oak of a tenant"])


def test_results_are_in_the_order_in_which_they_were_said(sessions: SessionService) -> None:
    for name in ("b", "a"):
        sessions.create(name, metadata=of("ada"))
    for number, name in enumerate("abba"):
        say(sessions, name, f"oak {number}", after=-number)
    assert texts(sessions, OAK, "ada") == ["oak 3", "oak 2", "oak 1", "oak 0"]


def test_what_was_said_at_one_time_is_ordered_by_session_then_by_version(sessions: SessionService) -> None:
    for name in ("b", "a"):
        sessions.create(name, metadata=of("ada"))
        for number in range(2):
            say(sessions, name, f"oak {name}{number}")
    assert texts(sessions, OAK, "ada") == ["oak a0", "oak a1", "oak b0", "oak b1"]


def test_pages_over_sessions_hold_each_result_once(sessions: SessionService) -> None:
    for name in "abc":
        sessions.create(name, metadata=of("ada"))
        for number in range(5):
            say(sessions, name, f"oak {name}{number}", after=number % 2)
    pages = [texts(sessions, EventQuery(keywords="oak", page=page, page_size=4), "ada") for page in range(5)]
    assert [text for page in pages for text in page] == texts(sessions, OAK, "ada")


def test_covered_messages_are_marked_in_every_session(sessions: SessionService) -> None:
    for name in "ab":
        sessions.create(name, metadata=of("ada"))
        for number in range(2):
            say(sessions, name, f"oak {number}")
    sessions.compact("a", None, WindowCompactionStrategy(CompactionWindow.last_turns(1)))
    assert [event.archived for event in sessions.search_all(OAK)] == [True, False, False, False]


def test_more_sessions_than_are_listed_at_once_are_all_searched(sessions: SessionService) -> None:
    for number in range(510):
        sessions.create(f"s{number}", metadata=of("ada"))
    say(sessions, "s0", "oak first")
    say(sessions, "s509", "oak last", after=1)
    assert texts(sessions, OAK, "ada") == ["oak first", "oak last"]


def test_what_json_cannot_say_is_no_criterion(sessions: SessionService) -> None:
    with pytest.raises(NotJsonError):
        sessions.search_all(OAK, where={"user.name": {1, 2}})
