"""What other systems get wrong about windows, as it must be here."""

from __future__ import annotations

from typing import Any

import pytest
from tests.faults.conversation import SID, STRATEGIES, Unasked, every_strategy, say, service, shown, unasked

from turnlog.domain.compaction import CompactionReason
from turnlog.domain.log import NewEvent
from turnlog.domain.messages import Message, Role, TextPart
from turnlog.domain.window import CompactionWindow, WindowCompactionStrategy


@pytest.mark.parametrize("size", range(1, 8))
def test_fault_001_a_window_of_events_never_begins_with_a_result(size: int) -> None:
    sessions = service()
    say(sessions, "u1 k1:c1 t1:c1 a1 u2")
    sessions.compact(SID, None, WindowCompactionStrategy(CompactionWindow.last_events(size)))
    assert shown(sessions) == ("u2" if size < 5 else "u1 k1 t1 a1 u2")


@pytest.mark.parametrize("budget", [1, 384, 387, 5_000, 5_600])
def test_fault_044_parallel_results_stay_with_their_calls_whatever_the_budget(budget: int) -> None:
    sessions = service()
    say(sessions, "u1 k1:c1,c2")
    for name, call, length in (("t1", "c1", 5_000), ("t2", "c2", 200)):
        part = {"type": "tool_call_response", "id": call, "response": [TextPart(content="x" * length)]}
        sessions.append_message(
            SID, Message.of(Role.TOOL, [TextPart(content="x" * length), part]), event_id=name
        )
    say(sessions, "a1 u2")
    sessions.compact(SID, None, WindowCompactionStrategy(CompactionWindow.token_budget(budget)))
    assert shown(sessions) == ("u1 k1 t1 t2 a1 u2" if budget > 5_200 else "u2")


@pytest.mark.parametrize("name", STRATEGIES)
def test_fault_104_under_the_limit_the_view_is_the_log(name: str) -> None:
    sessions = service()
    say(sessions, "s1 u1 k1:c1 t1:c1")
    result = sessions.compact(SID, None, every_strategy(Unasked(), unasked, size=100_000)[name])
    assert (result.reason, sessions.view(SID).events) == (
        CompactionReason.NOTHING_TO_COVER,
        sessions.get_events(SID),
    )


FORMS: dict[str, Any] = {
    "text": "found",
    "one text part": [{"type": "text", "content": "found"}],
    "two parts": [{"type": "text", "content": "a"}, {"type": "uri", "modality": "image", "uri": "x:y"}],
    "nothing": "",
    "no part": [],
}


@pytest.mark.parametrize("form", sorted(FORMS))
def test_fault_106_a_result_is_known_by_its_call_whatever_its_content(form: str) -> None:
    sessions = service()
    say(sessions, "u1 k1:c1 u2")
    result = Message.tool([{"type": "tool_call_response", "id": "c1", "response": FORMS[form]}])
    sessions.append_events(SID, [NewEvent(message=result, id="t1")])
    say(sessions, "a2")
    sessions.compact(SID, None, WindowCompactionStrategy(CompactionWindow.last_turns(1)))
    assert shown(sessions) == "u1 k1 u2 t1 a2"


@pytest.mark.parametrize("log", ["", "s1", "u1", "a1", "t1:c1", "k1:c1", "x1", "s1 x1", "s1 t1:c1 x1"])
@pytest.mark.parametrize("name", STRATEGIES)
def test_fault_107_a_log_with_next_to_nothing_is_left_as_it_is(name: str, log: str) -> None:
    sessions = service()
    say(sessions, log)
    result = sessions.compact(SID, None, every_strategy(Unasked(), unasked)[name])
    assert result.reason is CompactionReason.NOTHING_TO_COVER
    assert sessions.view(SID).events == sessions.get_events(SID)


@pytest.mark.parametrize("name", STRATEGIES)
def test_fault_122_summaries_alone_are_not_summarized(name: str) -> None:
    sessions = service()
    say(sessions, "x1 x2 x3")
    result = sessions.compact(SID, None, every_strategy(Unasked(), unasked)[name])
    assert result.reason is CompactionReason.NOTHING_TO_COVER
    assert shown(sessions) == "x1 x2 x3"
