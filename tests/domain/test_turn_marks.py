"""The marks of running turns: they are recorded, refused, renewed and taken away, one on each branch."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from tests.domain.given import BEGIN, Command, deleted, given, recorded, said

from turnlog.domain.errors import TurnInProgressError
from turnlog.domain.events import TurnMarked
from turnlog.domain.session import Session
from turnlog.domain.state import OpenTurn, SessionState

MINUTE = timedelta(minutes=1)


def begun(turn_id: str, branch: str | None = None, lease: timedelta = MINUTE) -> Command:
    """A turn began."""
    return lambda session, now: session.begin_turn(turn_id, until=now + lease, now=now, branch=branch)


def renewed(turn_id: str, branch: str | None = None, lease: timedelta = MINUTE) -> Command:
    """A turn still runs."""
    return lambda session, now: session.renew_turn(turn_id, until=now + lease, now=now, branch=branch)


def ended(turn_id: str, branch: str | None = None) -> Command:
    """A turn ended."""
    return lambda session, now: session.end_turn(turn_id, now=now, branch=branch)


def test_beginning_records_until_when_the_turn_is_marked() -> None:
    case = given(said("hi")).when(begun("t1", "a")).then(recorded(TurnMarked, turn_id="t1", branch="a"))
    (open_turn,) = case.session.state.turns
    assert (open_turn.turn_id, open_turn.branch) == ("t1", "a")
    assert open_turn.until - case.session.modified_on == MINUTE


@pytest.mark.parametrize("turn_id", ["t1", "t2"])
def test_while_a_turn_runs_none_begins_not_even_the_same(turn_id: str) -> None:
    given(begun("t1")).when(begun(turn_id)).then_refused(TurnInProgressError, "wait=seconds")


def test_a_turn_on_another_branch_begins() -> None:
    given(begun("t1")).when(begun("t2", "a")).then(recorded(TurnMarked, turn_id="t2"))


def test_behind_its_time_a_turn_counts_as_dead() -> None:
    case = given(begun("t1", lease=timedelta(seconds=1)))
    case.when(begun("t2")).then(recorded(TurnMarked, turn_id="t2"))
    assert [turn.turn_id for turn in case.session.state.turns] == ["t2"]


def test_renewing_stays_quiet_while_half_of_the_time_is_left() -> None:
    given(begun("t1")).when(renewed("t1")).then()


def test_renewing_records_another_time_when_less_is_left() -> None:
    given(begun("t1", lease=timedelta(seconds=20))).when(renewed("t1")).then(
        recorded(TurnMarked, turn_id="t1")
    )


def test_a_turn_that_expired_but_was_not_taken_over_is_renewed() -> None:
    given(begun("t1", lease=timedelta(microseconds=1))).when(renewed("t1")).then(recorded(TurnMarked))


@pytest.mark.parametrize("command", [renewed("t1"), ended("t1")])
def test_of_a_turn_that_was_taken_over_nothing_is_recorded(command: Command) -> None:
    given(begun("t1", lease=timedelta(microseconds=1)), begun("t2")).when(command).then()


def test_ending_takes_the_mark_away() -> None:
    case = given(begun("t1"), begun("t2", "a")).when(ended("t1"))
    case.then(recorded(TurnMarked, turn_id="t1", until=None))
    assert [turn.turn_id for turn in case.session.state.turns] == ["t2"]


def test_ending_again_stays_quiet() -> None:
    given(begun("t1"), ended("t1")).when(ended("t1")).then()


def test_a_deleted_session_has_no_turns() -> None:
    assert given(begun("t1"), deleted).session.state.turns == ()


def test_a_mark_is_no_message_of_the_view() -> None:
    assert given(said("one"), begun("t1"), said("two")).session.state.view == ((1, 3),)


@pytest.mark.parametrize("branch", [None, "a;b", 'q"uo;te', "漢字"])
def test_open_turns_come_back_from_the_text_of_a_state(branch: str | None) -> None:
    session = Session.open("s", now=BEGIN)
    awaiting = session.state._replace(holds=(3,), turns=(OpenTurn("t;1", BEGIN + MINUTE, branch),))
    text = awaiting.to_text()
    assert text.isascii()
    assert SessionState.from_text(text, version=0, modified_on=BEGIN, head=awaiting.head) == awaiting


def test_a_session_that_never_had_a_turn_carries_nothing_of_it() -> None:
    session = Session.open("s", now=datetime(2031, 5, 1, 8).astimezone())
    begun("t1")(session, BEGIN)
    ended("t1")(session, BEGIN)
    assert "t1" not in (session.recorded[-1].state or "")
