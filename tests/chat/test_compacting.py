"""Compaction around a turn: behind the answer, before a request, and behind an overflow."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from tests.support.chats import SID, lines
from tests.support.scripted_chat import ScriptedModel, calls

from turnlog.application import SessionService
from turnlog.application.chat import ContextOverflowError, SessionChat, Tool
from turnlog.domain import (
    CompactionReason,
    CompactionRequest,
    CompactionWindow,
    Message,
    SummaryRequest,
    TokenCountTrigger,
    TurnCountTrigger,
    WindowCompactionStrategy,
)

LAST_TURN = WindowCompactionStrategy(CompactionWindow.last_turns(1))


def ping() -> str:
    """Says pong."""
    return "pong"


@dataclass
class Summarizer:
    """Writes one line, or fails."""

    error: Exception | None = None
    asked: int = 0
    covered: list[int] = field(default_factory=list[int])

    def summarize(self, request: SummaryRequest) -> Sequence[Message]:
        """The line."""
        self.asked += 1
        self.covered.append(len(request.covered))
        if self.error is not None:
            raise self.error
        return [Message.user("What was said?"), Message.assistant("This and that.")]


def test_a_pass_behind_the_answer_is_in_the_turn(sessions: SessionService) -> None:
    chat = SessionChat(sessions, ScriptedModel(["hi"]), trigger=TurnCountTrigger(1), strategy=LAST_TURN)
    assert chat.send(SID, "one").compaction is None
    turn = chat.send(SID, "two")
    assert turn.compaction is not None
    assert turn.compaction.reason is CompactionReason.COMPACTED
    assert len(sessions.view(SID)) == 2


def test_a_summarizer_that_fails_is_logged_and_reported_but_not_raised(
    sessions: SessionService, caplog: pytest.LogCaptureFixture
) -> None:
    strategy = WindowCompactionStrategy(CompactionWindow.last_turns(1), Summarizer(ValueError("zinnia")))
    chat = SessionChat(sessions, ScriptedModel(["hi"]), trigger=TurnCountTrigger(1), strategy=strategy)
    chat.send(SID, "one")
    with caplog.at_level(logging.DEBUG, "turnlog"):
        turn = chat.send(SID, "two")
    assert (turn.text, repr(turn.compaction_error)) == ("hi", "ValueError('zinnia')")
    assert [record.getMessage() for record in caplog.records] == ["A compaction failed: ValueError."]
    assert len(lines(sessions)) == 4


def test_the_trigger_is_asked_before_a_request_about_what_is_to_be_sent(sessions: SessionService) -> None:
    model = ScriptedModel(["hi"])
    chat = SessionChat(sessions, model, trigger=TokenCountTrigger(200), strategy=LAST_TURN)
    chat.send(SID, "one")
    chat.send(SID, "two")
    chat.send(SID, "x" * 300)
    assert model.told[2] == ["User: two", "Assistant: hi", "User: " + "x" * 300]


def test_in_a_long_turn_earlier_turns_leave_before_the_request(sessions: SessionService) -> None:
    model = ScriptedModel(["hi", calls("c1 big"), "done"])
    chat = SessionChat(
        sessions,
        model,
        tools=[Tool.of(lambda: "x" * 300, name="big")],
        trigger=TokenCountTrigger(300),
        strategy=LAST_TURN,
    )
    chat.send(SID, "one")
    chat.send(SID, "two")
    assert model.told[1][0] == "User: one"
    assert model.told[2][0] == "User: two"


def test_a_pass_that_fails_in_a_turn_is_not_tried_before_each_request(sessions: SessionService) -> None:
    summarizer = Summarizer(ValueError())
    strategy = WindowCompactionStrategy(CompactionWindow.last_turns(1), summarizer)
    SessionChat(sessions, ScriptedModel(["hi"])).send(SID, "one")
    SessionChat(sessions, ScriptedModel(["hi"])).send(SID, "two")
    model = ScriptedModel([calls("c1 ping"), calls("c2 ping"), calls("c3 ping"), "done"])
    chat = SessionChat(sessions, model, tools=[ping], trigger=TurnCountTrigger(1), strategy=strategy)
    chat.send(SID, "three")
    assert summarizer.asked == 2  # before the first request, and behind the answer


def test_the_trigger_counts_tools_and_instructions(sessions: SessionService) -> None:
    seen: list[int] = []

    def trigger(request: CompactionRequest) -> bool:
        seen.append(request.cost_of_view())
        return False

    def asked(**settings: object) -> int:
        seen.clear()
        chat = SessionChat(sessions, ScriptedModel(["hi"]), trigger=trigger, strategy=LAST_TURN, **settings)  # type: ignore[arg-type]
        chat.send(f"{settings}"[:50], "hello")
        return seen[0]

    bare = asked()
    assert asked(tools=[ping]) > bare + 50
    assert asked(instructions="Be kind. " * 10) > bare + 80


def test_behind_an_overflow_the_session_is_compacted_and_the_model_asked_once_more(
    sessions: SessionService,
) -> None:
    model = ScriptedModel(["hi", "hi", ContextOverflowError(100, 120), "done"])
    chat = SessionChat(sessions, model, strategy=LAST_TURN)
    chat.send(SID, "one")
    chat.send(SID, "two")
    turn = chat.send(SID, "three")
    assert turn.text == "done"
    assert turn.compaction is not None
    assert (len(model.told[2]), model.told[3]) == (5, ["User: three"])
    assert lines(sessions)[-2:] == ["User: three", "Assistant: done"]


@pytest.mark.parametrize("strategy", [None, LAST_TURN])
def test_a_second_overflow_is_raised(
    sessions: SessionService, strategy: WindowCompactionStrategy | None
) -> None:
    model = ScriptedModel([ContextOverflowError(100, 120), ContextOverflowError(100, 120), "hi"])
    chat = SessionChat(sessions, model, strategy=strategy)
    with pytest.raises(ContextOverflowError):
        chat.send(SID, "one")
    assert lines(sessions) == ["User: one"]
    assert chat.send(SID, "two").text == "hi"


def test_a_summarizer_that_fails_behind_an_overflow_leaves_the_overflow(sessions: SessionService) -> None:
    strategy = WindowCompactionStrategy(CompactionWindow.last_turns(1), Summarizer(ValueError()))
    model = ScriptedModel(["hi", ContextOverflowError(), ContextOverflowError()])
    chat = SessionChat(sessions, model, strategy=strategy)
    chat.send(SID, "one")
    with pytest.raises(ContextOverflowError):
        chat.send(SID, "two")


def test_an_overflow_in_a_long_turn_shortens_old_results(sessions: SessionService) -> None:
    big = Tool.of(lambda: "x" * 2_000, name="big")
    rounds = [calls(f"c{n} big") for n in range(4)]
    model = ScriptedModel([*rounds, ContextOverflowError(8_000, 9_000), "done"])
    chat = SessionChat(sessions, model, tools=[big], keep_tool_results=2)
    assert chat.send(SID, "go").text == "done"
    assert [len(line) > 1_000 for line in model.told[5] if line.startswith("Tool")] == [
        False,
        False,
        True,
        True,
    ]


def test_a_branch_is_compacted_by_its_own_turns(sessions: SessionService) -> None:
    chat = SessionChat(sessions, ScriptedModel(["hi"]))
    chat.send(SID, "root")
    on_branch = SessionChat(sessions, ScriptedModel(["hi"]), trigger=TurnCountTrigger(1), strategy=LAST_TURN)
    on_branch.send(SID, "one", branch="b")
    turn = on_branch.send(SID, "two", branch="b")
    assert turn.compaction is not None
    assert [event.text for event in sessions.view(SID).events] == ["root", "hi", "two", "hi"]
