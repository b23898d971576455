"""A plan that a session refuses leaves it as it was; one that it takes is one boundary."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.contracts.stores import HOST_STORES, STORES, Order, Store

from turnlog.application.service import SessionService
from turnlog.domain.archive import SlidingWindowCompactionStrategy
from turnlog.domain.compaction import CompactionReason
from turnlog.domain.errors import (
    DuplicateEventError,
    ForeignEventError,
    InvalidBoundaryError,
    InvalidEventError,
    InvalidPlanError,
    TurnlogError,
    UnknownPlanEventError,
    VersionConflictError,
)
from turnlog.domain.log import EventType, SessionEvent
from turnlog.domain.messages import Message, ToolCallPart, ToolCallResponsePart
from turnlog.domain.plan import CompactionPlan, PlannedInsert

SID = "s"
_TIME = datetime(2031, 3, 1, 8, tzinfo=UTC)
IDS = ("u1", "k1", "t1", "u2", "w2", "u3")


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """One of the stores."""
    return STORES[request.param](tmp_path)


@pytest.fixture
def sessions(store: Store) -> SessionService:
    """A session of three turns: a call that was answered, a call that awaits its result, a question."""
    service = store.service()
    service.create(SID)
    for event_id, message in zip(
        IDS,
        (
            Message.user("one"),
            Message.assistant([ToolCallPart(id="c1", name="f")]),
            Message.tool([ToolCallResponsePart(id="c1", response="ok")]),
            Message.user("two"),
            Message.assistant([ToolCallPart(id="c2", name="f", awaiting=True)]),
            Message.user("three"),
        ),
        strict=True,
    ):
        service.append_message(SID, message, event_id=event_id)
    return service


def new(event_id: str, *, session_id: str = SID) -> SessionEvent:
    return SessionEvent(
        id=event_id,
        type=EventType.MESSAGE,
        version=0,
        timestamp=_TIME,
        session_id=session_id,
        message=Message.assistant("so far"),
    )


def insert(*events: SessionEvent, before: str | None = "u3") -> tuple[PlannedInsert, ...]:
    return (PlannedInsert(events, before),)


FIRST_TURN = frozenset(("u1", "k1", "t1"))

REFUSED: dict[str, tuple[Callable[[], CompactionPlan], type[TurnlogError]]] = {
    "two groups": (
        lambda: CompactionPlan(FIRST_TURN, (*insert(new("n1")), *insert(new("n2"), before="u2"))),
        InvalidPlanError,
    ),
    "two groups at one place": (
        lambda: CompactionPlan(FIRST_TURN, (*insert(new("n1")), *insert(new("n2")))),
        InvalidPlanError,
    ),
    "an unknown id": (lambda: CompactionPlan(FIRST_TURN | {"u9"}), UnknownPlanEventError),
    "an unknown anchor": (
        lambda: CompactionPlan(FIRST_TURN, insert(new("n1"), before="u9")),
        UnknownPlanEventError,
    ),
    "a new id that is held": (lambda: CompactionPlan(FIRST_TURN, insert(new("u2"))), DuplicateEventError),
    "a new id that it archives": (lambda: CompactionPlan(FIRST_TURN, insert(new("u1"))), DuplicateEventError),
    "a new id twice": (
        lambda: CompactionPlan(FIRST_TURN, insert(new("n1"), new("n1"))),
        DuplicateEventError,
    ),
    "a new event of another session": (
        lambda: CompactionPlan(FIRST_TURN, insert(new("n1", session_id="other"))),
        ForeignEventError,
    ),
    "a call without its result": (lambda: CompactionPlan(frozenset(("u1", "k1"))), InvalidBoundaryError),
    "a result without its call": (lambda: CompactionPlan(frozenset(("t1",))), InvalidBoundaryError),
    "a call that is awaited": (lambda: CompactionPlan(frozenset(("u2", "w2"))), InvalidBoundaryError),
    "a new event that calls a tool": (
        lambda: CompactionPlan(
            FIRST_TURN,
            insert(replace(new("n1"), message=Message.assistant([ToolCallPart(id="c", name="f")]))),
        ),
        InvalidEventError,
    ),
}


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_plan_that_is_refused_writes_nothing(sessions: SessionService, name: str) -> None:
    plan, error = REFUSED[name]
    before = _everything(sessions)
    with pytest.raises(error):
        sessions.apply_plan(SID, plan())
    assert _everything(sessions) == before


@pytest.mark.parametrize("stale", [0, 5, 7])
@pytest.mark.parametrize("plan", [CompactionPlan(FIRST_TURN), CompactionPlan()], ids=["some", "empty"])
def test_a_plan_for_another_version_writes_nothing(
    sessions: SessionService, plan: CompactionPlan, stale: int
) -> None:
    before = _everything(sessions)
    with pytest.raises(VersionConflictError) as conflict:
        sessions.apply_plan(SID, plan, expected_version=stale)
    assert (conflict.value.expected, conflict.value.actual) == (stale, 6)
    assert _everything(sessions) == before


def test_an_event_that_an_earlier_plan_archived_is_no_longer_known_to_a_plan(
    sessions: SessionService,
) -> None:
    sessions.apply_plan(SID, CompactionPlan(FIRST_TURN))
    before = _everything(sessions)
    with pytest.raises(UnknownPlanEventError):
        sessions.apply_plan(SID, CompactionPlan(frozenset(("u1",))))
    assert _everything(sessions) == before


def test_an_empty_plan_writes_nothing(sessions: SessionService) -> None:
    result = sessions.apply_plan(SID, CompactionPlan(), expected_version=6)
    assert (result.reason, sessions.version(SID)) == (CompactionReason.NOTHING_TO_COVER, 6)


def test_a_pass_that_finds_nothing_to_do_has_an_empty_plan(sessions: SessionService) -> None:
    result = sessions.compact(SID, None, SlidingWindowCompactionStrategy(100))
    assert CompactionPlan.of(SID, sessions.view(SID).events, result).is_empty


def test_the_group_stands_in_front_of_its_anchor_under_its_own_ids(sessions: SessionService) -> None:
    sessions.apply_plan(SID, CompactionPlan(FIRST_TURN, insert(new("n1"), new("n2"), before="w2")))
    assert sessions.view(SID).ids == ("u2", "n1", "n2", "w2", "u3")


def test_an_anchor_may_be_archived_by_the_same_plan(sessions: SessionService) -> None:
    sessions.apply_plan(SID, CompactionPlan(FIRST_TURN, insert(new("n1"), before="k1")))
    assert sessions.view(SID).ids == ("n1", "u2", "w2", "u3")


def test_a_group_without_an_anchor_stands_at_the_end(sessions: SessionService) -> None:
    sessions.apply_plan(SID, CompactionPlan(FIRST_TURN, insert(new("n1"), before=None)))
    assert sessions.view(SID).ids == ("u2", "w2", "u3", "n1")


def test_inserted_events_are_summaries_of_one_write_with_the_boundary(sessions: SessionService) -> None:
    result = sessions.apply_plan(SID, CompactionPlan(FIRST_TURN, insert(new("n1"), new("n2"))))
    assert result.boundary is not None
    written = sessions.get_events(SID)[6:]
    assert written == (result.boundary, *result.summary_events)
    assert all(event.synthetic for event in result.summary_events)
    assert {event.timestamp for event in written} == {result.boundary.timestamp}


@pytest.fixture(params=HOST_STORES)
def host_store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """Each of the stores that save several streams at once."""
    return STORES[request.param](tmp_path)


def test_a_plan_that_is_refused_saves_no_aggregate_of_the_host(host_store: Store) -> None:
    sessions = host_store.service()
    sessions.create(SID)
    order = Order("parcel")
    with pytest.raises(UnknownPlanEventError):
        sessions.apply_plan(SID, CompactionPlan(frozenset(("u9",))), also=[order])
    assert order.id not in sessions.app.repository


def _everything(sessions: SessionService) -> tuple[object, ...]:
    log = sessions.get_events(SID)
    return sessions.version(SID), log, [event.archived for event in log], sessions.view(SID).events
