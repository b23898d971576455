"""Plans of the archive design: derived from a result, applied to a log that is held as a list."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import pytest
from tests.support.conformance_archive import ScriptedModel, strategy_of, summary_costs
from tests.support.conformance_cases import cases, check, checked_case, outcome
from tests.support.events import Data, ListedTokens, event_of, log_of, only

from turnlog.domain.compaction import CompactionRequest
from turnlog.domain.errors import (
    DuplicateEventError,
    ForeignEventError,
    InvalidPlanError,
    UnknownPlanEventError,
)
from turnlog.domain.log import SessionEvent
from turnlog.domain.plan import CompactionPlan, PlannedInsert
from turnlog.domain.view import View

_ERRORS: dict[type[Exception], str] = {
    InvalidPlanError: "invalid_plan",
    ForeignEventError: "foreign_event",
    UnknownPlanEventError: "unknown_event",
    DuplicateEventError: "duplicate_event",
}


@dataclass(frozen=True)
class _Result:
    compacted_events: Sequence[SessionEvent]


def _kind(name: str) -> Callable[[Data], bool]:
    return lambda case: bool(case["kind"] == name)


def _events(data: Sequence[Data], session: str) -> tuple[SessionEvent, ...]:
    plain = [{name: value for name, value in one.items() if name != "session"} for one in data]
    return tuple(
        replace(event, session_id=one.get("session", session))
        for one, event in zip(data, log_of(plain), strict=True)
    )


def _marked(log: Sequence[SessionEvent]) -> list[str]:
    return [event.id + "*" * event.archived for event in log]


def _active(log: Sequence[SessionEvent]) -> list[str]:
    return [event.id for event in log if not event.archived]


def _of_plan(plan: CompactionPlan, expect: Data) -> Mapping[str, Callable[[], object]]:
    return {
        "archive_ids": lambda: sorted(plan.archive_ids, key=list(expect["archive_ids"]).index),
        "inserts": lambda: [
            {"before": group.before, "events": [event.id for event in group.events]} for group in plan.inserts
        ],
        "empty": lambda: plan.is_empty,
    }


@pytest.mark.parametrize("case", cases("plan", keep=_kind("of")))
def test_conformance_plan_derived(case: Data) -> None:
    checked_case(case, "kind", "session", "active", "result")
    only(case["result"], ("compacted", "archived", "new_events"))
    expect, active = case["expect"], _events(case["active"], case["session"])
    new = _events(case["result"]["new_events"], case["session"])
    known = {event.id: event for event in (*active, *new)}

    def derive() -> CompactionPlan:
        kept = [known[name] for name in case["result"]["compacted"]]
        return CompactionPlan.of(case["session"], active, _Result(kept))

    plan, error = outcome(derive, _ERRORS)
    found: dict[str, Callable[[], object]] = {"nothing_changed": lambda: plan is None}
    if plan is not None:
        applied = plan.apply_to(active)
        found |= _of_plan(plan, expect)
        found |= {
            "log_after_apply": lambda: _marked(applied),
            "active_after_apply": lambda: _active(applied),
        }
    check(expect, found, error)


@pytest.mark.parametrize("case", cases("plan", keep=_kind("apply")))
def test_conformance_plan_applied(case: Data) -> None:
    checked_case(case, "kind", "plan", "log")
    only(case["plan"], ("archive_ids", "inserts"))
    log = log_of(case["log"])
    before = list(log)

    def apply() -> tuple[SessionEvent, ...]:
        inserts = tuple(
            PlannedInsert(tuple(map(event_of, group["events"])), group["before"])
            for group in case["plan"]["inserts"]
        )
        return CompactionPlan(frozenset(case["plan"]["archive_ids"]), inserts).apply_to(log)

    applied, error = outcome(apply, _ERRORS)
    check(
        case["expect"],
        {
            "log": lambda: _marked(applied or ()),
            "active": lambda: _active(applied or ()),
            "nothing_changed": lambda: applied is None and list(log) == before,
        },
        error,
    )


@pytest.mark.parametrize("case", cases("plan", keep=_kind("sequence")))
def test_conformance_plan_sequence(case: Data) -> None:
    checked_case(case, "kind", "steps")
    log: Sequence[SessionEvent] = ()
    listed: list[Data] = []
    for step in case["steps"]:
        only(step, ("append", "strategy", "llm", "new_summary", "expect"))
        if "append" in step:
            listed += step["append"]
            log = (*log, *log_of(step["append"], first_version=len(log) + 1))
            continue
        model = ScriptedModel(step.get("llm", {}))
        tokens = ListedTokens([*listed, *summary_costs(step["strategy"], model.script)])
        active = tuple(event for event in log if not event.archived)
        result = strategy_of(step["strategy"], model).compact(
            CompactionRequest(View(active), tokens.of_event, tokens.estimate)
        )
        names = step.get("new_summary", ())
        written = result.written(names, session_id="", timestamp=active[-1].timestamp)
        plan = CompactionPlan.of("", active, written)
        log = plan.apply_to(log)
        check(
            step["expect"],
            {**_of_plan(plan, step["expect"]), "log": lambda: _marked(log), "active": lambda: _active(log)},  # noqa: B023 - called at once
        )
