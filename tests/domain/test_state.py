"""The state of a session: the view as ranges of versions, and the text in which an event carries it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st
from tests.domain.given import BEGIN, Command, asked, compacted, given, noted, said

from turnlog.domain.entries import entry_of
from turnlog.domain.log import SessionEvent
from turnlog.domain.session import Session, fold
from turnlog.domain.state import (
    MAX_GAP,
    AwaitedCall,
    Ranges,
    RangeSet,
    SessionState,
    near_ranges,
    parse_ranges,
    ranges_of,
    ranges_text,
)
from turnlog.domain.view import replay


def state(view: Ranges = (), *, sealed: bool = False, version: int = 0, anchor: int = 0) -> SessionState:
    return SessionState(version, BEGIN, BEGIN, "0" * 64, view=view, sealed=sealed, anchor=anchor)


def audits(count: int) -> list[Command]:
    return [noted("ACME.AUDIT", {})] * count


# --- ranges


def test_the_first_message_begins_a_range() -> None:
    assert state().with_message(1).view == ((1, 1),)


def test_the_next_message_lengthens_the_range() -> None:
    assert state(((1, 1),)).with_message(2).view == ((1, 2),)


@pytest.mark.parametrize(
    ("gap", "view"), [(MAX_GAP, ((1, 18),)), (MAX_GAP + 1, ((1, 1), (19, 19)))], ids=["spanned", "too wide"]
)
def test_a_range_spans_up_to_sixteen_versions_without_a_message(gap: int, view: Ranges) -> None:
    assert given(said("one"), *audits(gap), said("two")).session.state.view == view


def test_a_sealed_range_is_not_lengthened() -> None:
    assert state(((1, 1),), sealed=True).with_message(3).view == ((1, 1), (3, 3))


def test_a_message_behind_a_sealed_range_unseals_the_view() -> None:
    assert not state(((1, 1),), sealed=True).with_message(3).sealed


@pytest.mark.parametrize("sealed", [True, False])
def test_a_message_that_the_boundary_named_ahead_joins_nothing(sealed: bool) -> None:
    before = state(((4, 5),) if not sealed else ((4, 5), (2, 2)), sealed=sealed)
    assert before.with_message(4) == before


@pytest.mark.parametrize(
    ("kept", "view"),
    [
        ([1, 2, 3], ((1, 3),)),
        ([1, 3], ((1, 1), (3, 3))),
        ([3, 1], ((3, 3), (1, 1))),
        ([2, 5], ((2, 2), (5, 5))),
        ([3, 5], ((3, 5),)),
    ],
    ids=["neighbours", "one between left", "another order", "two between left", "no message between"],
)
def test_kept_messages_share_a_range_when_no_message_lies_between(kept: Sequence[int], view: Ranges) -> None:
    assert ranges_of(kept, messages=[1, 2, 3, 5], view=((1, 5),)) == view


def test_kept_messages_of_two_ranges_stay_in_two() -> None:
    assert ranges_of([1, 9], messages=[1, 9], view=((1, 1), (9, 9))) == ((1, 1), (9, 9))


def test_covered_versions_are_those_inside_a_range() -> None:
    assert [version for version in range(8) if version in RangeSet(((1, 2), (5, 6)))] == [1, 2, 5, 6]


def test_near_ranges_are_read_as_one_in_ascending_order() -> None:
    assert list(near_ranges([(20, 21), (1, 2), (5, 6)], gap=2)) == [(1, 6), (20, 21)]


@for_all(st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 100)).map(lambda r: (r[0], r[0] + r[1]))))
def test_ranges_come_back_from_their_text(ranges: list[tuple[int, int]]) -> None:
    assert parse_ranges(ranges_text(tuple(ranges))) == tuple(ranges)


# --- what a boundary makes of the view


def test_a_boundary_whose_newest_message_left_is_sealed() -> None:
    history = said("one"), said("two", branch="scout"), compacted(preserved=[1], covered=[2])
    assert given(*history).session.state.sealed


def test_a_view_stays_sealed_while_nothing_is_said() -> None:
    first = said("one"), said("two"), said("three", branch="scout"), compacted(preserved=[1, 2], covered=[3])
    state_ = given(*first, compacted(preserved=[2], covered=[1])).session.state
    assert (state_.view, state_.sealed) == (((2, 2),), True)


def test_a_range_never_grows_over_a_covered_message() -> None:
    history = said("one"), said("two", branch="scout"), compacted(preserved=[1], covered=[2])
    assert given(*history, said("three")).session.state.view == ((1, 1), (4, 4))


_messages = st.sampled_from([said("hi"), said("look", branch="scout"), noted("ACME.AUDIT", {})])


@for_all(st.data())
def test_the_ranges_hold_exactly_the_messages_of_the_view_in_order(data: st.DataObject) -> None:
    session = given().session
    for _ in range(data.draw(st.integers(0, 4))):
        for command in data.draw(st.lists(_messages, max_size=5)) + audits(data.draw(st.integers(0, 18))):
            command(session, BEGIN)
        in_view = [event.version for event in _view(session)]
        kept = data.draw(st.lists(st.sampled_from(in_view), unique=True)) if in_view else []
        pinned = data.draw(st.integers(0, len(kept)))
        compacted(
            pinned=kept[:pinned],
            preserved=kept[pinned:],
            covered=[version for version in in_view if version not in kept],
            summary=data.draw(st.lists(st.just("recap"), max_size=2)),
        )(session, BEGIN)
        _assert_same_view(session)
    for command in data.draw(st.lists(_messages, max_size=5)):
        command(session, BEGIN)
        _assert_same_view(session)


def _view(session: Session) -> Sequence[SessionEvent]:
    return replay(entry for event in session.recorded if (entry := entry_of(event, "parcel"))).events


def _assert_same_view(session: Session) -> None:
    expected = [event.version for event in _view(session)]
    messages = {event.originator_version for event in session.recorded if hasattr(event, "role")}
    spanned = [v for first, last in session.state.view for v in range(first, last + 1)]
    assert [version for version in spanned if version in messages] == expected


# --- anchors


@pytest.mark.parametrize(
    ("ranges", "behind", "carries"),
    [(7, 1, True), (8, 1, False), (15, 2, True), (16, 2, False)],
)
def test_a_state_is_carried_when_more_than_an_eighth_of_its_ranges_lie_behind(
    ranges: int, behind: int, carries: bool
) -> None:
    view = tuple((20 * n, 20 * n) for n in range(ranges))
    assert state(view, version=1000, anchor=1000 - behind).must_carry_at(1000) is carries


def _scattered(count: int) -> list[Command]:
    """A history whose view is in so many pieces."""
    versions = range(1, 2 * count + 1)
    return [
        *(said("…") for _ in versions),
        compacted(preserved=versions[::2], covered=versions[1::2]),
    ]


def test_an_event_names_the_last_one_that_carries_a_state() -> None:
    events = given(*_scattered(20), said("one"), said("two"), said("three")).session.recorded
    assert [event.anchor for event in events[41:]] == [None, 41, 41, None]


def test_a_boundary_always_carries_the_state() -> None:
    boundary = given(*_scattered(40)).session.recorded[-1]
    assert boundary.state is not None


def test_the_state_folds_from_the_anchor_that_an_event_names() -> None:
    session = given(*_scattered(20), said("one"), said("two")).session
    events = session.recorded
    anchored = events[-1]
    assert anchored.anchor is not None
    assert fold(events[anchored.anchor + 1 :], events[anchored.anchor].state_carried()) == session.state


# --- the text that is carried


@pytest.mark.parametrize(
    "carried",
    [
        state(),
        state(((1, 5), (9, 9))),
        state(((1, 5),), sealed=True),
        state()._replace(expires_at=BEGIN + timedelta(days=60)),
        state()._replace(expires_at=BEGIN - timedelta(microseconds=1)),
        state()._replace(idle=timedelta(microseconds=1), expires_at=BEGIN),
        state()._replace(metadata_version=0),
        state()._replace(awaited=(AwaitedCall(3, 'a;"≠ 🙂', "orch.x"), AwaitedCall(4, "", None, 2))),
        state()._replace(boundary=7),
        state()._replace(boundary=7, holds=(1, 2), awaited=(AwaitedCall(3, "b;1", None),)),
        state()._replace(created_on=datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)),
    ],
    ids=[
        "empty",
        "ranges",
        "sealed",
        "expiry",
        "expired before",
        "idle",
        "metadata",
        "awaited",
        "boundary",
        "boundary among others",
        "before 1970",
    ],
)
def test_a_state_comes_back_from_its_text(carried: SessionState) -> None:
    text = carried.to_text()
    assert SessionState.from_text(text, version=0, modified_on=BEGIN, head="0" * 64) == carried


def test_a_state_in_its_text_is_ascii() -> None:
    assert state()._replace(awaited=(AwaitedCall(3, "漢字", "é"),)).to_text().isascii()


def test_the_text_of_a_plain_state_is_short() -> None:
    session = given(said("one"), said("two"), expires_at=BEGIN + timedelta(days=60)).session
    assert session.recorded[-1].state == "1-2;1935388800000000;5184000000000;;"


def test_awaited_calls_are_carried() -> None:
    last = given(said(asked("c1"))).session.recorded[-1]
    assert last.state == '1;1935388800000000;;;;[[1,"c1",null,0]]'
