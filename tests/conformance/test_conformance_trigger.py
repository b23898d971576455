"""When a trigger fires on the view of a log."""

from __future__ import annotations

import pytest
from tests.support.conformance_cases import cases, check, checked_case, outcome
from tests.support.events import Data, ListedTokens, log_of, only

from turnlog.domain.compaction import CompactionRequest, CompactionTrigger
from turnlog.domain.errors import InvalidSettingError
from turnlog.domain.triggers import CompositeCompactionTrigger, TokenCountTrigger, TurnCountTrigger
from turnlog.domain.turns import turn_starts
from turnlog.domain.view import project

_ERRORS: dict[type[Exception], str] = {InvalidSettingError: "invalid_setting"}


@pytest.mark.parametrize("case", cases("trigger"))
def test_conformance_trigger_on_a_view(case: Data) -> None:
    checked_case(case, "log", "trigger")
    tokens = ListedTokens(case["log"])
    request = CompactionRequest(project(log_of(case["log"])), tokens.of_event, tokens.estimate)
    fires, error = outcome(lambda: _trigger(case["trigger"])(request), _ERRORS)
    check(
        case["expect"],
        {
            "fires": lambda: fires,
            "turns": lambda: len(turn_starts(request.events)),
            "tokens": request.cost_of_view,
        },
        error,
    )


def _trigger(data: Data) -> CompactionTrigger:
    ((kind, value),) = only(data, ("turn_count", "token_count", "any_of", "always")).items()
    match kind:
        case "turn_count":
            return TurnCountTrigger(value)
        case "token_count":
            return TokenCountTrigger(value)
        case "any_of":
            return CompositeCompactionTrigger.any_of(*map(_trigger, value))
        case _:
            return lambda _: bool(value)
