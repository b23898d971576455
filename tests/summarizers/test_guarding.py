"""`GuardedCompactionStrategy`: passes that would be for nothing are not run, and say why."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.faults.conversation import SID, Unasked, every_strategy, say, service, shown
from tests.support.summary_models import ScriptedModel

from turnlog.application.chat import ChatModelSummarizer, ModelTimeoutError
from turnlog.application.service import SessionService
from turnlog.domain.compaction import CompactionReason, CompactionResult
from turnlog.domain.errors import InvalidSettingError
from turnlog.domain.guarding import GuardedCompactionStrategy
from turnlog.domain.messages import Message
from turnlog.domain.triggers import TokenCountTrigger
from turnlog.domain.window import CompactionWindow, WindowCompactionStrategy

NEWEST = CompactionWindow.last_turns(1)
NO_SUMMARY = WindowCompactionStrategy(NEWEST)


class Clock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.seconds = 1_000.0

    def __call__(self) -> float:
        return self.seconds


def guarded(model: ScriptedModel, clock: Clock | None = None, **settings: Any) -> GuardedCompactionStrategy:
    """A window over the newest turn, summarized by this model."""
    strategy = WindowCompactionStrategy(NEWEST, ChatModelSummarizer(model))
    return GuardedCompactionStrategy(strategy, clock=clock or Clock(), **settings)


def compacted(sessions: SessionService, strategy: GuardedCompactionStrategy) -> CompactionResult | str:
    """The result, or the name of the error."""
    try:
        return sessions.compact(SID, None, strategy)
    except ModelTimeoutError as error:
        return type(error).__name__


def reason(sessions: SessionService, strategy: GuardedCompactionStrategy) -> str:
    """Why nothing happened, or the name of the error."""
    result = compacted(sessions, strategy)
    return result if isinstance(result, str) else str(result.reason)


def with_turns() -> SessionService:
    """A session of three turns."""
    sessions = service()
    say(sessions, "u1 a1 u2 a2 u3 a3", cost=60)
    return sessions


def test_after_failures_in_a_row_no_model_is_asked_until_the_cooldown_is_over() -> None:
    sessions, clock = with_turns(), Clock()
    model = ScriptedModel(ModelTimeoutError("down"), " ", "a recap")
    strategy = guarded(model, clock, max_failures=2, cooldown=timedelta(seconds=60))
    assert [reason(sessions, strategy) for _ in range(4)] == [
        "ModelTimeoutError",
        "summary was blank",
        "cooling down after repeated failures",
        "cooling down after repeated failures",
    ]
    assert len(model.requests) == 2
    clock.seconds += 61
    assert reason(sessions, strategy) == "compacted"


def test_one_more_failure_behind_the_cooldown_cools_down_again() -> None:
    sessions, clock = with_turns(), Clock()
    strategy = guarded(ScriptedModel(" "), clock, max_failures=2, cooldown=timedelta(seconds=60))
    for _ in range(2):
        reason(sessions, strategy)
    clock.seconds += 61
    assert [reason(sessions, strategy) for _ in range(2)] == [
        "summary was blank",
        "cooling down after repeated failures",
    ]


def test_a_pass_that_is_done_ends_the_row_of_failures() -> None:
    sessions = with_turns()
    strategy = guarded(ScriptedModel(" ", "recap", " ", "recap 2"), max_failures=2)
    reasons: list[str] = []
    for turn in (4, 5, 6, 7):
        reasons.append(reason(sessions, strategy))
        say(sessions, f"u{turn} a{turn}", cost=60)
    assert reasons == ["summary was blank", "compacted", "summary was blank", "compacted"]


def test_the_cooldown_says_how_long_it_lasts() -> None:
    sessions, clock = with_turns(), Clock()
    strategy = guarded(ScriptedModel(" "), clock, max_failures=1, cooldown=timedelta(seconds=60))
    reason(sessions, strategy)
    clock.seconds += 20
    result = compacted(sessions, strategy)
    assert isinstance(result, CompactionResult)
    assert "in 40 seconds" in result.detail


def test_sessions_and_branches_cool_down_each_for_itself() -> None:
    sessions = with_turns()
    for number in range(3):
        sessions.append_message(SID, Message.user("x" * 60), branch="scout", event_id=f"b{number}")
    strategy = guarded(ScriptedModel(" ", "recap"), max_failures=1)
    assert reason(sessions, strategy) == "summary was blank"
    assert not sessions.compact(SID, None, strategy, branch="scout").is_unchanged


def test_two_objects_share_no_memory() -> None:
    sessions = with_turns()
    assert reason(sessions, guarded(ScriptedModel(" "), max_failures=1)) == "summary was blank"
    assert reason(sessions, guarded(ScriptedModel("recap"), max_failures=1)) == "compacted"


@pytest.mark.parametrize("name", ["turns summarized", "turns dropped", "turn window", "recursive"])
def test_below_the_minimum_gain_no_model_is_asked_and_nothing_leaves(name: str) -> None:
    sessions = with_turns()
    before = sessions.get_events(SID)
    strategy = GuardedCompactionStrategy(every_strategy(Unasked(), _fails)[name], min_gain=10_000)
    result = sessions.compact(SID, None, strategy)
    assert result.reason is CompactionReason.GAIN_TOO_SMALL
    assert sessions.get_events(SID) == before


def _fails(_: object) -> str:
    raise AssertionError("the model was asked though too little would be saved")


def test_a_summary_that_saves_less_than_the_minimum_gain_is_thrown_away() -> None:
    sessions = with_turns()
    strategy = guarded(ScriptedModel("x" * 100), min_gain=200, max_failures=1)
    result = compacted(sessions, strategy)
    assert isinstance(result, CompactionResult)
    assert (result.reason, shown(sessions)) == (CompactionReason.GAIN_TOO_SMALL, "u1 a1 u2 a2 u3 a3")
    assert "the minimum gain is 200" in result.detail
    assert reason(sessions, strategy) == "cooling down after repeated failures", (
        "a model was asked for nothing"
    )


def test_too_little_to_cover_is_no_failure() -> None:
    sessions = with_turns()
    model = ScriptedModel("recap")
    strategy = guarded(model, min_gain=300, max_failures=1)
    assert reason(sessions, strategy) == "too little would be saved"
    say(sessions, "u4 a4 u5 a5", cost=60)
    assert reason(sessions, strategy) == "compacted"


def test_a_target_that_no_pass_can_reach_is_said_with_its_figures_and_asks_no_model() -> None:
    sessions = service()
    say(sessions, "s1 u1 a1", cost=60)
    model = ScriptedModel("recap")
    trigger = TokenCountTrigger(150, overhead=40)
    strategy = guarded(model, target_tokens=150, overhead=40)
    results = [sessions.compact(SID, trigger, strategy) for _ in range(5)]
    assert {result.reason for result in results} == {CompactionReason.TARGET_UNREACHABLE}
    assert (results[0].floor, results[0].target, results[0].is_target_reachable) == (220, 150, False)
    assert "220 tokens, the target is 150" in results[0].detail
    assert model.requests == []


def test_a_pass_that_helps_is_done_though_the_target_stays_out_of_reach() -> None:
    sessions = service()
    say(sessions, "s1 u1 a1 u2 a2", cost=60)
    result = sessions.compact(SID, None, guarded(ScriptedModel("recap"), target_tokens=150))
    assert (result.reason, result.is_target_reachable, result.floor) == (
        CompactionReason.COMPACTED,
        False,
        180,
    )


def test_a_target_within_reach_is_not_complained_about() -> None:
    sessions = service()
    say(sessions, "s1 u1 a1", cost=10)
    result = sessions.compact(SID, None, guarded(ScriptedModel("recap"), target_tokens=150))
    assert (result.reason, result.detail) == (CompactionReason.NOTHING_TO_COVER, "")
    assert (result.is_target_reachable, result.floor) == (True, 30)


def test_a_summary_is_no_part_of_the_floor() -> None:
    sessions = service()
    say(sessions, "x1 u1 a1", cost=60)
    result = sessions.compact(SID, None, guarded(ScriptedModel("recap"), target_tokens=500))
    assert result.floor == 120


def test_the_floor_of_a_branch_holds_what_it_is_told_from_above() -> None:
    sessions = service()
    say(sessions, "u1 a1", cost=60)
    sessions.append_message(SID, Message.user("x" * 9), branch="scout")
    strategy = GuardedCompactionStrategy(NO_SUMMARY, target_tokens=100)
    result = sessions.compact(SID, None, strategy, branch="scout")
    assert (result.reason, result.floor) == (CompactionReason.TARGET_UNREACHABLE, 130)


def test_the_boundary_names_the_strategy_within() -> None:
    sessions = with_turns()
    result = sessions.compact(SID, None, GuardedCompactionStrategy(NO_SUMMARY))
    assert result.boundary is not None
    assert result.boundary.boundary is not None
    assert result.boundary.boundary.strategy == str(NO_SUMMARY)


@pytest.mark.parametrize(
    "setting",
    [{"min_gain": -1}, {"overhead": -1}, {"target_tokens": 0}, {"max_failures": 0}],
)
def test_a_wrong_setting_is_refused(setting: dict[str, Any]) -> None:
    with pytest.raises(InvalidSettingError):
        GuardedCompactionStrategy(NO_SUMMARY, **setting)
