"""The law of branches over random logs: what each scope is told, and what a pass of a branch leaves alone."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.branches.random_logs import (
    SCOPES,
    Summarizer,
    archive_strategies,
    branches,
    conversations,
    service_on,
    window_of,
    windows,
)
from tests.laws.oracle import (
    Expected,
    Unit,
    awaiting,
    expected_pass,
    is_stored_system,
    pairs,
    sent_cost,
    starts_turn,
)
from tests.laws.profiles import IS_SOAK, effort

from turnlog.application.service import SessionService
from turnlog.domain.compaction import CompactionReason, CompactionResult
from turnlog.domain.log import CompactionBoundary, NewEvent, SessionEvent
from turnlog.domain.messages import Message
from turnlog.domain.view import project, replay
from turnlog.domain.window import WindowCompactionStrategy


def sees(scope: str | None, branch: str | None) -> bool:
    """Whether what happens on the branch is told to the scope: compared by the names of the path."""
    path = [] if branch is None else branch.split(".")
    return (scope or "").split(".")[: len(path)] == path


def told_alone(log: Sequence[SessionEvent], scope: str | None) -> list[SessionEvent]:
    """The log of a session that held only what the scope can see, each boundary reduced to that."""
    seen = {event.id for event in log if event.message and sees(scope, event.branch)}
    alone: list[SessionEvent] = []
    for event in log:
        if event.boundary:
            alone.append(replace(event, boundary=_reduced(event.boundary, seen)))
        elif event.id in seen:
            alone.append(event)
    return alone


def _reduced(boundary: CompactionBoundary, seen: Set[str]) -> CompactionBoundary:
    pinned, summary, preserved = (
        tuple(name for name in group if name in seen)
        for group in (boundary.pinned, boundary.summary, boundary.preserved)
    )
    return replace(boundary, pinned=pinned, summary=summary, preserved=preserved)


def placed(before: Sequence[SessionEvent], result: CompactionResult, branch: str) -> list[str]:
    """The view behind a pass of a branch: the rule once more, message by message."""
    gone = {event.id for event in result.covered_events}
    last = max(place for place, event in enumerate(before) if event.id in gone)
    following = [place for place in range(last + 1, len(before)) if before[place].branch == branch]
    at = min(following, default=last)
    own = [pair for pair in _places(before) if before[pair[0]].branch == branch]
    while parted := [call for call, answer in own if before[call].id not in gone and call < at <= answer]:
        turns = [
            p for p in range(min(parted)) if _starts_turn_of(before[p], branch) and before[p].id not in gone
        ]
        at = max(turns, default=min(parted))
    summary = [event.id for event in result.summary_events]
    kept = [[event.id for event in part if event.id not in gone] for part in (before[:at], before[at:])]
    return [*kept[0], *summary, *kept[1]]


def _places(events: Sequence[SessionEvent]) -> list[tuple[int, int]]:
    """Where each call stands, and where its result."""
    at = {event.id: place for place, event in enumerate(events)}
    return [(at[call], at[answer]) for call, answer in pairs(events)]


def _starts_turn_of(event: SessionEvent, branch: str) -> bool:
    return event.branch == branch and starts_turn(replace(event, branch=None))


class Life:
    """One session of several branches, and the laws it is held to behind every step."""

    def __init__(self, sessions: SessionService, data: st.DataObject) -> None:
        self.sessions = sessions
        self.data = data
        self.sid = sessions.create().id

    @property
    def view(self) -> tuple[SessionEvent, ...]:
        return self.sessions.view(self.sid).events

    def append(self, events: Sequence[NewEvent]) -> None:
        self.sessions.append_events(self.sid, events)
        self.check()

    def meanwhile(self, depth: int) -> None:
        """What happens while the summarizer of a pass works."""
        match self.data.draw(st.sampled_from(["nothing", "append", "append", "pass", "note"]), "meanwhile"):
            case "append":
                self.append(self.data.draw(conversations(2), "late"))
            case "pass" if depth < 2:
                self.compact(depth + 1)
            case "note":
                self.sessions.append_event(self.sid, "NOTE")
            case _:
                pass

    def compact(self, depth: int = 0) -> None:
        branch = self.data.draw(branches, "branch of the pass")
        before = self.view
        if self.data.draw(st.booleans(), "of the archive design"):
            strategy = self.data.draw(archive_strategies(lambda: self.meanwhile(depth)), "strategy")
            result = self.sessions.compact(self.sid, None, strategy, branch=branch)
        else:
            unit, size = self.data.draw(windows, "window")
            summarizes = self.data.draw(st.booleans(), "with a summary")
            summarizer = Summarizer(lambda: self.meanwhile(depth)) if summarizes else None
            expected = self.expected(before, branch, unit, size, summarizes)
            result = self.sessions.compact(
                self.sid, None, WindowCompactionStrategy(window_of(unit, size), summarizer), branch=branch
            )
            if not result.is_unchanged and expected.is_plain:
                assert {event.id for event in result.covered_events} == set(expected.covered)
            lost = result.reason is CompactionReason.RACE_LOST
            assert not expected.is_plain or lost or result.is_unchanged == (not expected.covered)
        self.check()
        if not result.is_unchanged:
            self.check_pass(result, branch)

    def expected(
        self, view: Sequence[SessionEvent], branch: str | None, unit: Unit, size: int, summarizes: bool
    ) -> Expected:
        """What a pass covers: to a branch its own messages are a root conversation."""
        owned = [event for event in view if branch in (None, event.branch)]
        if branch is not None:
            owned = [replace(event, branch=None) for event in owned]
        awaited = awaiting(self.sessions.get_events(self.sid))
        return expected_pass(owned, unit, size, summarizes=summarizes, awaited=awaited)

    def check(self) -> None:
        """The view is the projection, and each scope is told what it would be told alone."""
        log = self.sessions.get_events(self.sid)
        view = self.sessions.view(self.sid)
        assert view.events == project(log).events
        for scope in SCOPES:
            alone = told_alone(log, scope)
            assert view.told_events(scope) == project(alone).events == replay(alone).events, scope

    def check_pass(self, result: CompactionResult, branch: str | None) -> None:
        """What was recorded against the view in front of its boundary."""
        boundary = result.boundary
        assert boundary is not None
        assert boundary.boundary is not None
        assert boundary.boundary.branch == branch
        assert all(event.branch == branch for event in result.summary_events)
        before = self.sessions.view(self.sid, at_version=boundary.version - 1)
        after = self.sessions.view(self.sid, at_version=result.version)
        gone = {event.id for event in result.covered_events}
        assert gone == set(before.ids) - set(after.ids)
        assert not [pair for pair in pairs(before.events) if (pair[0] in gone) != (pair[1] in gone)]
        assert not gone & awaiting(self.sessions.get_events(self.sid))
        self.check_summary(after.events, result, branch)
        told = after.events if branch is None else after.told_events(branch)
        assert result.tokens_after == sent_cost(told)
        if branch is None:
            self.check_turns(before.events, gone)
            return
        assert {event.branch for event in result.covered_events} == {branch}, "it covers what it owns"
        for scope in SCOPES:
            if not sees(scope, branch):
                assert after.told_events(scope) == before.told_events(scope), scope
        assert list(after.ids) == placed(before.events, result, branch)
        owned = [replace(event, branch=None) for event in before.events if event.branch == branch]
        self.check_turns(owned, gone)

    @staticmethod
    def check_summary(after: Sequence[SessionEvent], result: CompactionResult, branch: str | None) -> None:
        """The summary parts no call of its own from its result."""
        summary = {event.id for event in result.summary_events}
        for call, answer in _places(after):
            if branch in (None, after[call].branch):
                assert summary.isdisjoint(event.id for event in after[call:answer])

    @staticmethod
    def check_turns(owned: Sequence[SessionEvent], gone: set[str]) -> None:
        """The newest turn is kept as a whole, and no turn in part."""
        conversation = [event for event in owned if not is_stored_system(event) and not event.synthetic]
        starts = [place for place, event in enumerate(conversation) if starts_turn(event)]
        answers = {answer for _, answer in pairs(owned)}
        for start, end in pairwise([*starts, None]):
            turn = [event.id for event in conversation[start:end] if event.id not in answers]
            assert gone.isdisjoint(turn) or gone.issuperset(turn), "a turn stays or leaves as a whole"
            assert end is not None or gone.isdisjoint(turn), "the newest turn stays"


def live(sessions: SessionService, data: st.DataObject, steps: int) -> Life:
    """A random life of one session."""
    life = Life(sessions, data)
    life.append(data.draw(conversations(), "first"))
    for _ in range(data.draw(st.integers(1, steps), "steps")):
        life.compact()
        life.append(data.draw(conversations(6), "next"))
    return life


@effort(100, 5000)
@given(data=st.data())
def test_every_scope_is_told_what_a_session_of_its_own_would_tell_it_in_memory(data: st.DataObject) -> None:
    with service_on("memory") as sessions:
        live(sessions, data, 8 if IS_SOAK else 4)


@effort(25, 800)
@given(data=st.data())
def test_every_scope_is_told_what_a_session_of_its_own_would_tell_it_in_sqlite(data: st.DataObject) -> None:
    with service_on("sqlite") as sessions:
        live(sessions, data, 8 if IS_SOAK else 4)


@effort(40, 1000)
@given(data=st.data(), scope=st.sampled_from(SCOPES))
def test_a_session_can_hold_what_one_scope_sees_and_nothing_else(
    data: st.DataObject, scope: str | None
) -> None:
    with service_on("memory") as sessions:
        life = live(sessions, data, 3)
        alone = told_alone(sessions.get_events(life.sid), scope)
        copy = sessions.create().id
        while alone:
            event = alone.pop(0)
            if event.boundary:
                length = len(event.boundary.summary)
                summary, alone = [NewEvent.of(one) for one in alone[:length]], alone[length:]
                sessions.restore_boundary(copy, event.id, event.boundary, summary)
            else:
                sessions.append_event(copy, event)
        told = sessions.view(life.sid).told_events(scope)
        assert sessions.view(copy).ids == tuple(event.id for event in told)


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("branch", SCOPES)
def test_a_scope_sees_its_own_branch_and_those_above_it(scope: str | None, branch: str | None) -> None:
    with service_on("memory") as sessions:
        sid = sessions.create().id
        sessions.append_events(sid, [NewEvent(message=Message.user("hello"), branch=branch)])
        assert bool(sessions.view(sid).told(scope)) == sees(scope, branch)
