"""What a window counts, where the cases leave room."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.support.events import ListedTokens, log_of

from turnlog.domain.compaction import CompactionRequest, CompactionResult, SummaryRequest
from turnlog.domain.messages import Message
from turnlog.domain.view import project
from turnlog.domain.window import CompactionWindow, WindowCompactionStrategy


def message(event_id: str, **fields: Any) -> dict[str, Any]:
    role = {"u": "user", "a": "assistant", "s": "system"}[event_id[0]]
    return {"id": event_id, "kind": "message", "role": role, "text": event_id, **fields}


def compact(log: Sequence[dict[str, Any]], strategy: WindowCompactionStrategy) -> CompactionResult:
    tokens = ListedTokens(log)
    return strategy.compact(CompactionRequest(project(log_of(log)), tokens.of_event, tokens.estimate))


def preserved(log: Sequence[dict[str, Any]], window: CompactionWindow) -> list[str]:
    return [event.id for event in compact(log, WindowCompactionStrategy(window)).preserved_events]


def test_events_of_a_branch_use_no_slot_of_an_event_window() -> None:
    log = [
        message("u1"),
        message("a1"),
        message("u2"),
        *(message(f"a{n}", branch="scout") for n in range(20, 25)),
        message("a2"),
        message("u3"),
        message("a3"),
    ]
    expected = [event["id"] for event in log[2:]]
    assert preserved(log, CompactionWindow.last_events(4)) == expected


def test_events_of_a_branch_cost_tokens() -> None:
    log = [
        message("u1", tokens=1),
        message("u2", tokens=1),
        message("a2", tokens=9, branch="scout"),
        message("u3", tokens=1),
    ]
    assert preserved(log, CompactionWindow.token_budget(10)) == ["u3"]


def test_a_superseded_system_message_that_leaves_saves_nothing() -> None:
    log = [message("s1", tokens=100), message("s2", tokens=50), message("u1", tokens=7), message("u2")]
    result = compact(log, WindowCompactionStrategy(CompactionWindow.last_turns(1)))
    assert [event.id for event in result.covered_events] == ["s1", "u1"]
    assert result.tokens_estimated_saved == 7


def test_the_messages_of_the_summary_are_taken_off_the_saving() -> None:
    class Recap:
        def summarize(self, request: SummaryRequest) -> list[Message]:  # noqa: ARG002 - the port
            return [Message.assistant("a9")]

    log = [message("u1", tokens=7), message("u2"), message("a9", tokens=3)]
    result = compact(log, WindowCompactionStrategy(CompactionWindow.last_turns(1), Recap()))
    assert result.tokens_estimated_saved == 4
