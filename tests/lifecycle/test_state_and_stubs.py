"""Holds in the state that events carry, and streams of which events were erased."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from eventsourcing.domain import OriginatorVersionError
from hypothesis import given
from hypothesis import strategies as st

from turnlog.domain.errors import LegalHoldError
from turnlog.domain.events import EventErased, HoldPlaced, HoldReleased, SessionDeleted, StreamEvent
from turnlog.domain.session import Session, fold
from turnlog.domain.state import AwaitedCall, SessionState

BEGIN = datetime(2031, 5, 1, 8, tzinfo=UTC)
call_ids = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
awaited_calls = st.lists(
    st.builds(AwaitedCall, st.integers(0, 9), call_ids, st.none() | st.just("a.b")), max_size=3
)


def read_back(state: SessionState) -> SessionState:
    return SessionState.from_text(
        state.to_text(), version=state.version, modified_on=state.modified_on, head=state.head
    )


def a_state(**fields: Any) -> SessionState:
    state = SessionState(version=7, created_on=BEGIN, modified_on=BEGIN, head="0" * 64, anchor=7)
    return state._replace(**fields)


@given(
    holds=st.lists(st.integers(0, 9999), max_size=3, unique=True),
    awaited=awaited_calls,
    expires=st.booleans(),
)
def test_holds_and_awaited_calls_come_back_from_the_text(
    holds: list[int], awaited: list[AwaitedCall], expires: bool
) -> None:
    state = a_state(
        holds=tuple(holds), awaited=tuple(awaited), expires_at=BEGIN + timedelta(days=1) if expires else None
    )
    assert read_back(state) == state


def test_a_state_without_holds_has_the_text_that_it_had_before_there_were_any() -> None:
    state = a_state(view=((1, 3),), awaited=(AwaitedCall(2, "h;1", None),))
    assert state.to_text() == '1-3;1935388800000000;;;;[[2,"h;1",null,0]]'


def held() -> Session:
    session = Session.open("parcel", now=BEGIN)
    session.hold("case 7", by="ada", now=BEGIN)
    return session


def test_a_hold_records_who_and_why() -> None:
    placed = held().recorded[-1]
    assert isinstance(placed, HoldPlaced)
    assert (placed.reason, placed.by) == ("case 7", "ada")


def test_a_release_records_which_hold() -> None:
    session = held()
    session.release(by="bob", now=BEGIN)
    released = session.recorded[-1]
    assert isinstance(released, HoldReleased)
    assert (released.placed_at, released.by) == (1, "bob")


def test_a_deletion_under_a_hold_records_nothing() -> None:
    session = held()
    with pytest.raises(LegalHoldError):
        session.delete(now=BEGIN)
    assert len(session.recorded) == 2


def test_what_a_fold_says_of_holds_is_what_events_carry() -> None:
    session = held()
    session.extend(None, now=BEGIN)
    session.hold("case 8", by="ada", now=BEGIN)
    session.release(1, by="ada", now=BEGIN)
    assert [event.state_carried() for event in session.recorded] == [
        fold(session.recorded[: place + 1]) for place in range(len(session.recorded))
    ]


# --- erased streams


def deleted(length: int) -> tuple[list[StreamEvent], SessionDeleted]:
    """A stream of this many events and a tombstone: what is written over them, and the tombstone."""
    session = Session.open("parcel", now=BEGIN)
    for number in range(length - 1):
        session.update_metadata({"n": number}, now=BEGIN)
    tombstone = session.delete(now=BEGIN)
    assert isinstance(tombstone, SessionDeleted)
    stubs: list[StreamEvent] = [
        EventErased(originator_id=session.id, originator_version=version, timestamp=BEGIN)
        for version in range(length)
    ]
    return stubs, tombstone


@given(length=st.integers(1, 6), left=st.sets(st.integers(1, 5)))
def test_a_stream_of_stubs_and_a_tombstone_is_a_deleted_session_whichever_stubs_are_left(
    length: int, left: set[int]
) -> None:
    stubs, tombstone = deleted(length)
    state = fold([stubs[0], *(stub for stub in stubs if stub.originator_version in left), tombstone])
    assert state == tombstone.state_carried()
    assert state is not None
    assert (state.version, state.is_deleted, state.view) == (length, True, ())


def test_stubs_fold_to_a_deleted_session_before_the_tombstone_is_read() -> None:
    state = fold(deleted(3)[0])
    assert state is not None
    assert state.is_deleted


def test_stubs_in_another_order_are_refused() -> None:
    stubs, _ = deleted(3)
    with pytest.raises(OriginatorVersionError):
        fold([stubs[0], stubs[2], stubs[1]])


def test_a_tombstone_always_carries_its_state() -> None:
    assert deleted(40)[1].state_carried() is not None
