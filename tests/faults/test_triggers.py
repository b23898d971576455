"""What other systems get wrong about triggers, as it must be here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.branches.random_logs import Summarizer
from tests.contracts.stores import STORES
from tests.faults.conversation import SID, Unasked, every_strategy, say, service, shown, unasked

from turnlog.application.service import SessionService
from turnlog.domain.compaction import CompactionReason
from turnlog.domain.log import NewEvent, SessionEvent
from turnlog.domain.messages import Message, Role, ToolCallPart
from turnlog.domain.summarizing import INSTRUCTIONS
from turnlog.domain.triggers import CompositeCompactionTrigger, TokenCountTrigger, TurnCountTrigger
from turnlog.domain.window import CompactionWindow, WindowCompactionStrategy

NEWEST_TURN = WindowCompactionStrategy(CompactionWindow.last_turns(1))
SUMMARIZED = WindowCompactionStrategy(CompactionWindow.last_turns(1), Summarizer())


def test_fault_006_system_text_calls_and_results_count_and_tools_are_an_overhead() -> None:
    said = {
        "system": Message.system("You look after parcels. " * 20),
        "arguments": Message.assistant(
            [ToolCallPart(id="c", name="look_up", arguments='{"parcel": 7} ' * 20)]
        ),
        "result": Message.tool("in Lund " * 20, id="c"),
    }
    with SessionService() as sessions:
        counted = [0]
        for number, message in enumerate(said.values()):
            sid = sessions.create(f"{number}").id
            sessions.append_message(sid, message)
            counted.append(sessions.usage(sid).tokens)
            for overhead in (0, 9_000):
                trigger = TokenCountTrigger(counted[-1] + 9_000, overhead)
                result = sessions.compact(sid, trigger, NEWEST_TURN)
                assert (result.reason is CompactionReason.TRIGGER_DID_NOT_FIRE) == (overhead == 0)
    assert min(counted[1:]) > 40


def test_fault_041_a_trigger_that_made_a_pass_does_not_fire_again_on_what_is_left() -> None:
    sessions = service()
    say(sessions, "u1 a1 u2 a2 u3", cost=30)
    trigger = TokenCountTrigger(75)
    assert not sessions.compact(SID, trigger, SUMMARIZED).is_unchanged
    again = sessions.compact(SID, trigger, SUMMARIZED)
    assert again.reason is CompactionReason.TRIGGER_DID_NOT_FIRE


def test_fault_071_a_turn_with_a_hundred_results_is_one_turn() -> None:
    sessions = service()
    say(sessions, "u1 " + " ".join(f"k{n}:c{n} t{n}:c{n}" for n in range(100)))
    assert sessions.usage(SID).turns == 1
    result = sessions.compact(SID, TurnCountTrigger(3), NEWEST_TURN)
    assert result.reason is CompactionReason.TRIGGER_DID_NOT_FIRE


def test_fault_071_turns_or_tokens_fire_on_one_long_turn() -> None:
    sessions = service()
    say(sessions, "u1 " + " ".join(f"k{n}:c{n} t{n}:c{n} a{n}" for n in range(100)), cost=2_000)
    say(sessions, "u2")
    trigger = CompositeCompactionTrigger.any_of(TurnCountTrigger(3), TokenCountTrigger(100_000))
    assert not sessions.compact(SID, trigger, NEWEST_TURN).is_unchanged
    assert shown(sessions) == "u2"


@pytest.mark.parametrize("limit", [40, 60, 90])
def test_fault_072_a_session_that_was_loaded_anew_triggers_as_before(tmp_path: Path, limit: int) -> None:
    store = STORES["sqlite"](tmp_path)
    with store.service() as first:
        first.create(SID)
        for number in range(50):
            first.append_message(SID, Message.user(f"question {number}"))
    asked: list[bool] = []
    for trigger in (TurnCountTrigger(limit), TokenCountTrigger(limit)):
        with store.service() as again:
            result = again.compact(SID, trigger, WindowCompactionStrategy(CompactionWindow.last_turns(1000)))
            asked.append(result.reason is not CompactionReason.TRIGGER_DID_NOT_FIRE)
    assert asked == [limit < 50, limit <= 100]  # a question costs two tokens


@pytest.mark.parametrize("usage", [None, {"total_tokens": 10**9}, {"total_tokens": 0}])
def test_fault_101_a_trigger_counts_itself_whatever_usage_a_provider_reports(
    usage: dict[str, int] | None,
) -> None:
    sessions = service()
    metadata = None if usage is None else {"usage": usage}
    sessions.append_message(SID, Message.user("x" * 29))
    sessions.append_message(SID, Message.of(Role.ASSISTANT, "x" * 29, metadata=metadata))
    reasons = [sessions.compact(SID, TokenCountTrigger(tokens), NEWEST_TURN).reason for tokens in (60, 61)]
    assert reasons == [CompactionReason.NOTHING_TO_COVER, CompactionReason.TRIGGER_DID_NOT_FIRE]


def test_fault_114_a_second_pass_that_has_no_whole_turn_to_cover_asks_no_model() -> None:
    sessions = service()
    say(sessions, "u1 a1 u2 a2")
    sessions.compact(SID, None, SUMMARIZED)
    say(sessions, "a3")
    again = WindowCompactionStrategy(CompactionWindow.last_turns(1), Unasked())
    assert sessions.compact(SID, None, again).reason is CompactionReason.NOTHING_TO_COVER
    recursive = every_strategy(model=unasked)["recursive"]
    assert sessions.compact(SID, None, recursive).reason is CompactionReason.NOTHING_TO_COVER


def test_fault_114_the_prompt_asks_for_the_third_person() -> None:
    assert "third person" in INSTRUCTIONS


def _by_results(sessions: SessionService) -> None:
    for number in range(4):
        say(sessions, f"k{number}:c{number} t{number}:c{number} a{number}", cost=30)


def _by_import(sessions: SessionService) -> None:
    other = sessions.create().id
    for _ in range(4):
        sessions.append_message(other, Message.user("x" * 29))
    log: tuple[SessionEvent, ...] = sessions.get_events(other)
    sessions.append_events(SID, log)


def _by_a_branch(sessions: SessionService) -> None:
    said = [NewEvent(message=Message.user("x" * 29), branch="scout") for _ in range(4)]
    sessions.append_events(SID, said)


def _by_another_service(sessions: SessionService) -> None:
    other = SessionService(sessions.app)
    for _ in range(4):
        other.append_message(SID, Message.user("x" * 29))


PATHS: dict[str, Callable[[SessionService], None]] = {
    "results inside a turn": _by_results,
    "an import": _by_import,
    "a branch": _by_a_branch,
    "another service": _by_another_service,
}


@pytest.mark.parametrize("path", sorted(PATHS))
def test_fault_121_a_threshold_is_seen_however_it_was_passed(path: str) -> None:
    sessions = service()
    say(sessions, "u1")
    trigger = TokenCountTrigger(100)
    before = sessions.compact(SID, trigger, NEWEST_TURN).reason
    PATHS[path](sessions)
    after = sessions.compact(SID, trigger, NEWEST_TURN).reason
    assert before is CompactionReason.TRIGGER_DID_NOT_FIRE
    assert after is not CompactionReason.TRIGGER_DID_NOT_FIRE
