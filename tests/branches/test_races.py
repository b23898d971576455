"""Two passes of different branches over late appends are both recorded, in any order with the same view."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.branches.random_logs import (
    BRANCHES,
    Summarizer,
    conversations,
    service_on,
    window_of,
    windows,
)
from tests.laws.oracle import Unit
from tests.laws.profiles import effort

from turnlog.application.service import SessionService
from turnlog.domain.compaction import (
    CompactionReason,
    CompactionRequest,
    CompactionResult,
    CompactionStrategy,
)
from turnlog.domain.log import NewEvent, SessionEvent
from turnlog.domain.messages import Message
from turnlog.domain.view import project
from turnlog.domain.window import WindowCompactionStrategy


@dataclass
class Held:
    """A strategy that does something else between its decision and the write of the pass."""

    strategy: CompactionStrategy
    meanwhile: Callable[[], object]

    def compact(self, request: CompactionRequest) -> CompactionResult:
        """The strategy's result."""
        result = self.strategy.compact(request)
        self.meanwhile()
        return result


class Pass:
    """A pass of one branch that can be run on several sessions with the same log."""

    def __init__(self, branch: str, window: tuple[Unit, int], summarizes: bool) -> None:
        self.branch = branch
        self._window = window_of(*window)
        self._summarizes = summarizes

    def run(
        self, sessions: SessionService, sid: str, meanwhile: Callable[[], object] = lambda: None
    ) -> CompactionResult:
        """Run it, and something else between its decision and its write."""
        summarizer = Summarizer() if self._summarizes else None
        strategy = WindowCompactionStrategy(self._window, summarizer)

        return sessions.compact(sid, None, Held(strategy, meanwhile), branch=self.branch)


passes = st.builds(Pass, st.sampled_from(BRANCHES), windows, st.booleans())


def shown(sessions: SessionService, sid: str) -> list[tuple[object, ...]]:
    """The view, summaries by what they say, since their ids are new in each session."""
    view = sessions.view(sid)
    assert view.events == project(sessions.get_events(sid)).events
    return [_named(event) for event in view.events]


def _named(event: SessionEvent) -> tuple[object, ...]:
    return (event.branch, event.text) if event.text and event.synthetic else (event.branch, event.id)


def same_log(sessions: SessionService, said: Sequence[NewEvent], copies: int) -> list[str]:
    """Sessions that hold the same messages under the same ids."""
    sids = [sessions.create().id for _ in range(copies)]
    for sid in sids:
        sessions.append_events(sid, _with_ids(said, "m"))
    return sids


def _with_ids(said: Sequence[NewEvent], prefix: str) -> list[NewEvent]:
    return [
        NewEvent(message=new.message, branch=new.branch, synthetic=new.synthetic, id=f"{prefix}{place}")
        for place, new in enumerate(said)
    ]


@effort(80, 5000)
@given(said=conversations(18), one=passes, other=passes)
def test_the_order_of_two_passes_of_different_branches_makes_no_difference(
    said: list[NewEvent], one: Pass, other: Pass
) -> None:
    assume(one.branch != other.branch)
    with service_on("memory") as sessions:
        sids = same_log(sessions, said, 4)
        done = [
            (one.run(sessions, sids[0]), other.run(sessions, sids[0])),
            tuple(reversed((other.run(sessions, sids[1]), one.run(sessions, sids[1])))),
            _raced(sessions, sids[2], one, other),
            tuple(reversed(_raced(sessions, sids[3], other, one))),
        ]
        reasons = [tuple(result.reason for result in results) for results in done]
        assert len(set(reasons)) == 1, "each is recorded, or has nothing to do, in any order"
        assert CompactionReason.RACE_LOST not in reasons[0]
        views = [shown(sessions, sid) for sid in sids]
        assert all(view == views[0] for view in views)


def _raced(
    sessions: SessionService, sid: str, outer: Pass, inner: Pass
) -> tuple[CompactionResult, CompactionResult]:
    """The results of the one pass and of the other, which ran while the first was about to write."""
    within: list[CompactionResult] = []
    result = outer.run(sessions, sid, lambda: within.append(inner.run(sessions, sid)))
    return result, within[0]


@effort(80, 5000)
@given(said=conversations(), late=conversations(4), one=passes)
def test_late_messages_of_others_stand_behind_what_a_pass_leaves(
    said: list[NewEvent], late: list[NewEvent], one: Pass
) -> None:
    late = [new for new in _with_ids(late, "late") if new.branch != one.branch]
    with service_on("memory") as sessions:
        raced, calm = same_log(sessions, said, 2)
        result = one.run(sessions, raced, lambda: sessions.append_events(raced, late))
        one.run(sessions, calm)
        sessions.append_events(calm, late)
        assert result.reason is not CompactionReason.RACE_LOST
        assert shown(sessions, raced) == shown(sessions, calm)


@effort(80, 2000)
@given(said=conversations(), one=passes)
def test_a_late_message_of_its_own_wins_against_a_pass(said: list[NewEvent], one: Pass) -> None:
    with service_on("memory") as sessions:
        (sid,) = same_log(sessions, said, 1)
        log = sessions.get_events(sid)
        late: list[SessionEvent] = []

        def say() -> None:
            late.append(sessions.append_message(sid, Message.user("wait"), branch=one.branch))

        result = one.run(sessions, sid, say)
        assert result.is_unchanged
        assert result.reason in (
            CompactionReason.RACE_LOST,
            CompactionReason.NOTHING_TO_COVER,
            CompactionReason.AWAITED_CALL,
        )
        assert sessions.get_events(sid) == (*log, *late)


TURNS = [
    NewEvent(message=Message.user(f"{branch}{number}"), branch=branch)
    for number, branch in product(range(3), (None, "a", "a.b", "d"))
]
NEWEST: tuple[Unit, int] = ("turns", 1)


@pytest.mark.parametrize("store", ["memory", "sqlite", "postgres"])
def test_a_pass_of_the_root_covers_what_a_pass_of_a_branch_would_and_that_one_has_lost(store: str) -> None:
    with service_on(store) as sessions:
        (sid,) = same_log(sessions, TURNS, 1)
        root = WindowCompactionStrategy(window_of(*NEWEST), Summarizer())
        result = Pass("a", NEWEST, summarizes=True).run(
            sessions, sid, lambda: sessions.compact(sid, None, root)
        )
        assert result.reason is CompactionReason.RACE_LOST
        assert shown(sessions, sid)[:2] == [(None, "so far?"), (None, "summary of None")]


@pytest.mark.parametrize("store", ["memory", "sqlite", "postgres"])
def test_a_pass_of_a_branch_wins_against_a_pass_of_the_root(store: str) -> None:
    with service_on(store) as sessions:
        (sid,) = same_log(sessions, TURNS, 1)
        one = Pass("a", NEWEST, summarizes=True)

        root = WindowCompactionStrategy(window_of(*NEWEST), Summarizer(lambda: one.run(sessions, sid)))
        assert sessions.compact(sid, None, root).reason is CompactionReason.RACE_LOST
        boundaries = [event.boundary for event in sessions.get_events(sid) if event.boundary]
        assert [boundary.branch for boundary in boundaries] == ["a"]
