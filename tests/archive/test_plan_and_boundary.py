"""A pass of the archive design says the same as a boundary, as a plan on a list, and on a session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from tests.branches.random_logs import archive_strategies, branches, conversations, service_on
from tests.laws.profiles import IS_SOAK, effort

from turnlog.application.service import SessionService
from turnlog.domain.log import NewEvent, SessionEvent, superseded_system
from turnlog.domain.plan import CompactionPlan, PlannedInsert
from turnlog.domain.view import project


def active(log: Sequence[SessionEvent]) -> list[str]:
    """The ids of what is not archived in a log that is held as a list."""
    return [event.id for event in log if not event.archived]


def of_session(session_id: str, plan: CompactionPlan) -> CompactionPlan:
    """The same plan with new events of another session."""
    groups = [
        PlannedInsert(tuple(replace(event, session_id=session_id) for event in group.events), group.before)
        for group in plan.inserts
    ]
    return replace(plan, inserts=tuple(groups))


def run_passes(sessions: SessionService, data: st.DataObject, steps: int) -> None:
    """Passes of the archive design over one session, each applied to a list and to a second session too."""
    first, second = sessions.create().id, sessions.create().id
    listed: tuple[SessionEvent, ...] = ()
    for _ in range(data.draw(st.integers(1, steps), "passes")):
        said = sessions.append_events(first, data.draw(conversations(8), "said"))
        sessions.append_events(second, said)
        listed += said
        before = sessions.view(first).events
        branch = data.draw(branches, "branch of the pass")
        result = sessions.compact(first, None, data.draw(archive_strategies(), "strategy"), branch=branch)
        owned = [event for event in sessions.view(first).events if branch in (None, event.branch)]
        assert not superseded_system(owned), "what is superseded leaves on every pass"
        if result.is_unchanged:
            assert sessions.view(first).events == before
            continue
        view = sessions.view(first)
        assert view.events == result.compacted_events == project(sessions.get_events(first)).events
        plan = CompactionPlan.of(first, before, result)
        listed = plan.apply_to(listed)
        assert active(listed) == list(view.ids)
        sessions.apply_plan(second, of_session(second, plan))
        assert sessions.view(second).ids == view.ids


@effort(80, 5000)
@given(data=st.data())
def test_view_list_and_plan_agree_on_what_is_active_in_memory(data: st.DataObject) -> None:
    with service_on("memory") as sessions:
        run_passes(sessions, data, 6 if IS_SOAK else 3)


@effort(25, 800)
@given(data=st.data())
def test_view_list_and_plan_agree_on_what_is_active_in_sqlite(data: st.DataObject) -> None:
    with service_on("sqlite") as sessions:
        run_passes(sessions, data, 6 if IS_SOAK else 3)


@effort(60, 1000)
@given(said=conversations(), data=st.data())
def test_a_pass_over_events_without_a_session_gives_the_plan_that_a_session_would_get(
    said: list[NewEvent], data: st.DataObject
) -> None:
    with service_on("memory") as sessions:
        sid = sessions.create().id
        events = sessions.append_events(sid, said)
        strategy = data.draw(archive_strategies(), "strategy")
        result = sessions.compact(sid, None, strategy)
        log = CompactionPlan.of(sid, events, result).apply_to(events)
        assert active(log) == list(sessions.view(sid).ids)
