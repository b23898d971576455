"""Scenarios 26 to 30 of `cases/concurrency_cases.md`: archive plans on a session, on every store."""

from __future__ import annotations

import pytest
from tests.support.conformance_stores import Store

from turnlog.application.service import SessionService
from turnlog.domain.archive import SlidingWindowCompactionStrategy
from turnlog.domain.compaction import CompactionReason
from turnlog.domain.errors import SessionNotFoundError, UnknownPlanEventError, VersionConflictError
from turnlog.domain.filters import EventFilter
from turnlog.domain.log import NewEvent
from turnlog.domain.messages import Message
from turnlog.domain.plan import CompactionPlan
from turnlog.domain.query import EventQuery

SID, OTHER = "conversation", "another conversation"
CODE_WORD = "zinnia"
IDS = ("u1", "a1", "u2", "a2", "u3", "a3")


@pytest.fixture
def sessions(store: Store) -> SessionService:
    """A service with two sessions at version 6; the first message of the one holds a code word."""
    service = store.service()
    for session_id in (SID, OTHER):
        prefix = "" if session_id == SID else "other-"
        service.create(session_id)
        for event_id in IDS:
            text = f"The code word is {CODE_WORD}." if event_id == "u1" else event_id
            said = Message.user(text) if event_id.startswith("u") else Message.assistant(text)
            service.append_events(session_id, [NewEvent(message=said, id=prefix + event_id)])
    return service


def test_conformance_scenario_26_a_plan_with_the_right_version(sessions: SessionService) -> None:
    result = sessions.apply_plan(SID, CompactionPlan(frozenset(("u1", "a1"))), expected_version=6)
    assert result.reason is CompactionReason.COMPACTED
    assert sessions.version(SID) == result.version == 7
    assert sessions.view(SID).ids == IDS[2:]


def test_conformance_scenario_26_a_plan_with_a_stale_version(sessions: SessionService) -> None:
    with pytest.raises(VersionConflictError) as conflict:
        sessions.apply_plan(SID, CompactionPlan(frozenset(("u1", "a1"))), expected_version=5)
    assert (conflict.value.expected, conflict.value.actual) == (5, 6)
    assert_as_before(sessions, SID)


def test_conformance_scenario_27_a_plan_with_an_unknown_id(sessions: SessionService) -> None:
    with pytest.raises(UnknownPlanEventError):
        sessions.apply_plan(SID, CompactionPlan(frozenset(("u1", "u9"))), expected_version=6)
    assert_as_before(sessions, SID)


def test_conformance_scenario_28_a_plan_with_an_id_of_another_session(sessions: SessionService) -> None:
    with pytest.raises(UnknownPlanEventError):
        sessions.apply_plan(SID, CompactionPlan(frozenset(("u1", "other-u1"))))
    assert_as_before(sessions, SID)
    assert_as_before(sessions, OTHER)


def test_conformance_scenario_29_a_plan_for_a_session_that_does_not_exist(sessions: SessionService) -> None:
    with pytest.raises(SessionNotFoundError):
        sessions.apply_plan("nobody", CompactionPlan(frozenset(("u1",))))


def test_conformance_scenario_30_archived_events_stay_findable(sessions: SessionService) -> None:
    sessions.compact(SID, None, SlidingWindowCompactionStrategy(2))
    (by_filter,) = sessions.get_events(SID, EventFilter(keyword=CODE_WORD))
    (by_search,) = sessions.search_events(SID, EventQuery(keywords=CODE_WORD))
    assert by_filter.id == by_search.id == "u1"
    assert by_filter.archived
    assert by_search.archived
    assert sessions.view(SID).ids == ("u3", "a3")


def assert_as_before(sessions: SessionService, session_id: str) -> None:
    assert sessions.version(session_id) == 6
    log = sessions.get_events(session_id)
    assert [event.archived for event in log] == [False] * 6
    assert sessions.view(session_id).events == log
