"""Faults that who runs a turn decides: interruptions, repeats, tools, instructions, long turns."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.support.chats import SID, Characters, lines, messages, service
from tests.support.providers.rules import anthropic_rule_faults, openai_rule_faults
from tests.support.scripted_chat import AsyncScriptedModel, ScriptedModel, calls, says

from turnlog.application import SessionService
from turnlog.application.chat import AsyncSessionChat, Awaiting, SessionChat, Tool, Usage
from turnlog.application.chat.calibration import CalibratedTrigger
from turnlog.application.turns import TurnMark, TurnStep
from turnlog.domain import (
    CompactionWindow,
    Message,
    ReasoningPart,
    SummaryRequest,
    TextPart,
    TokenCountTrigger,
    ToolCallPart,
    WindowCompactionStrategy,
)
from turnlog.infrastructure.formats import anthropic_messages

LAST_TURN = WindowCompactionStrategy(CompactionWindow.last_turns(1))


@pytest.fixture
def sessions() -> SessionService:
    """A service in memory; a character costs a token."""
    return SessionService(token_estimator=Characters())


def ping() -> str:
    """Says pong."""
    return "pong"


def _body(model: ScriptedModel, place: int = -1) -> dict[str, Any]:
    return json.loads(model.render(model.asked[place]).body)  # type: ignore[no-any-return]


@pytest.mark.parametrize("count", [1, 3])
def test_fault_002_a_turn_that_is_cancelled_in_its_tools_does_not_block_the_next(
    sessions: SessionService, count: int
) -> None:
    async def talk() -> None:
        hanging = asyncio.Event()

        async def hang() -> None:
            while len(messages(sessions)) < 1 + count:
                await asyncio.sleep(0.001)
            hanging.set()
            await asyncio.Event().wait()

        asked = calls("c1 hang", *(f"c{n} ping" for n in range(2, 1 + count)))
        chat = AsyncSessionChat(sessions, AsyncScriptedModel([asked]), tools=[hang, ping])
        task = asyncio.ensure_future(chat.send(SID, "U1"))
        await hanging.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(talk())
    model = ScriptedModel(["hi"])
    assert SessionChat(sessions, model).send(SID, "U2").text == "hi"
    assert openai_rule_faults(_body(model)) == []
    assert b"interrupted" in model.render(model.asked[0]).body
    assert (
        anthropic_rule_faults(anthropic_messages.request(sessions.view(SID), model="m", prefill=True)) == []
    )
    assert len(messages(sessions)[1].tool_calls) == count


def test_fault_006_the_trigger_counts_what_is_sent_beside_the_conversation(sessions: SessionService) -> None:
    tools = [Tool.of(ping, name=f"ping_{number}", description="d" * 400) for number in range(20)]

    def passes(**settings: Any) -> bool:
        chat = SessionChat(
            sessions, ScriptedModel(["hi"]), trigger=TokenCountTrigger(10_000), strategy=LAST_TURN, **settings
        )
        session_id = f"{len(settings)}"
        chat.send(session_id, "x" * 1_000)
        return chat.send(session_id, "x" * 100).compaction is not None

    assert not passes()
    assert passes(tools=tools, instructions="i" * 3_000)


def test_fault_011_order_is_that_of_the_answer_also_with_a_clock_that_stands_still(tmp_path: Path) -> None:
    now = datetime(2031, 5, 1, tzinfo=UTC)
    with service(tmp_path / "s.db", clock=lambda: now) as sessions:
        parts = [
            ReasoningPart(content="hm"),
            TextPart(content="let me see"),
            ToolCallPart(id="c1", name="ping"),
        ]
        asked = says("")
        model = ScriptedModel([type(asked)(Message.assistant(parts), asked.finish_reason), "done"])
        for number in range(10):
            model.asked.clear()
            SessionChat(sessions, model, tools=[ping]).send(SID, f"{number}")
        said = [event.role for event in messages(sessions)]
        assert said == ["user", "assistant", "tool", "assistant"] * 10
        stored = messages(sessions)[1].message
        assert stored is not None
        assert list(stored.parts) == parts


@pytest.mark.parametrize("arguments", ['{"path": ', "", '"text"'])
def test_fault_027_malformed_arguments_are_answered_and_break_no_later_request(
    sessions: SessionService, arguments: str
) -> None:
    def read(path: str) -> str:
        return path

    part = ToolCallPart(id="c1", name="read", arguments=arguments)
    asked = says("")
    model = ScriptedModel([type(asked)(Message.assistant([part]), asked.finish_reason), "sorry", "ok"])
    chat = SessionChat(sessions, model, tools=[read])
    chat.send(SID, "U1")
    chat.send(SID, "U2")
    assert messages(sessions)[1].tool_calls[0].arguments == arguments
    assert "The arguments are malformed" in lines(sessions)[2]
    assert openai_rule_faults(_body(model)) == []


def test_fault_029_the_system_message_is_sent_whatever_is_compacted(sessions: SessionService) -> None:
    sessions.create(SID)
    sessions.append_message(SID, Message.system("S"))
    model = ScriptedModel(["hi"])
    strategy = WindowCompactionStrategy(CompactionWindow.last_turns(3))
    chat = SessionChat(sessions, model, trigger=TokenCountTrigger(50), strategy=strategy)
    for number in range(20):
        chat.send(SID, f"U{number}")
    assert [told[0] for told in model.told] == ["System: S"] * 20
    assert max(len(told) for told in model.told) <= 1 + 2 * 3 + 1


def test_fault_031_a_retry_whose_first_call_landed_says_nothing_twice(sessions: SessionService) -> None:
    chat = SessionChat(sessions, ScriptedModel(["hi"]))
    first = chat.send(SID, "U1", idempotency_key="k")  # its answer was lost on the way
    assert chat.send(SID, "U1", idempotency_key="k").events == first.events
    chat.send(SID, "U1", idempotency_key="k2")
    assert lines(sessions) == ["User: U1", "Assistant: hi"] * 2


def test_fault_052_instructions_of_the_agent_go_with_every_request(sessions: SessionService) -> None:
    model = ScriptedModel(["hi"])
    chat = SessionChat(sessions, model, instructions="S", trigger=TokenCountTrigger(40), strategy=LAST_TURN)
    for number in range(5):
        chat.send(SID, f"U{number}")
    assert [told[0] for told in model.told] == ["System: S"] * 5


def test_fault_059_a_pass_that_fails_is_tried_again_by_the_next_turn(sessions: SessionService) -> None:
    class Failing:
        asked = 0

        def summarize(self, _: SummaryRequest) -> list[Message]:
            self.asked += 1
            raise TimeoutError

    summarizer = Failing()
    strategy = WindowCompactionStrategy(CompactionWindow.last_turns(1), summarizer)
    chat = SessionChat(sessions, ScriptedModel(["hi"]), trigger=TokenCountTrigger(30), strategy=strategy)
    errors = [chat.send(SID, f"U{number}").compaction_error for number in range(4)]
    assert [type(error) for error in errors][2:] == [TimeoutError, TimeoutError]
    assert summarizer.asked > 2


def test_fault_072_the_trigger_says_the_same_behind_a_restart(tmp_path: Path) -> None:
    def asked(sessions: SessionService) -> list[bool]:
        fired: list[bool] = []
        for tokens in range(1_000, 12_000, 500):
            chat = SessionChat(
                sessions, ScriptedModel(["hi"]), trigger=TokenCountTrigger(tokens), strategy=LAST_TURN
            )
            result = sessions.compact(SID, _asked_by(chat, fired), LAST_TURN)
            assert result.is_unchanged
        return fired

    with service(tmp_path / "s.db") as sessions:
        model = ScriptedModel([says("hi", Usage(input_tokens=900, provider={}))])
        chat = SessionChat(sessions, model, trigger=TokenCountTrigger(10**6), strategy=LAST_TURN)
        for number in range(50):
            chat.send(SID, f"U{number} " + "x" * 60)
        before = asked(sessions)
    with service(tmp_path / "s.db") as sessions:
        assert asked(sessions) == before
        assert len(set(before)) == 2


def _asked_by(chat: SessionChat, fired: list[bool]) -> Any:
    trigger = chat._settings.trigger  # pyright: ignore[reportPrivateUsage] # what the chat asks
    assert trigger is not None
    calibrated = CalibratedTrigger(trigger, "m")

    def note(request: Any) -> bool:
        fired.append(calibrated(request))
        return False

    return note


def test_fault_077_an_interim_answer_leaves_the_call_open(sessions: SessionService) -> None:
    ship = Tool.of(lambda: Awaiting("pending"), name="ship", awaits=True)
    model = ScriptedModel([calls("c1 ship"), "arrived"])
    chat = SessionChat(sessions, model, tools=[ship])
    (call,) = chat.send(SID, "U").awaiting
    assert chat.answer(SID, call.event_id, "c1", "final").text == "arrived"
    results = [one for one in _body(model)["messages"] if one["role"] == "tool"]
    assert [one["content"] for one in results] == ["final"]
    assert len([event for event in messages(sessions) if event.role == "tool"]) == 2


def test_fault_101_the_trigger_works_without_any_usage(sessions: SessionService) -> None:
    chat = SessionChat(sessions, ScriptedModel(["hi"]), trigger=TokenCountTrigger(300), strategy=LAST_TURN)
    results = [chat.send(SID, "x" * 80).compaction for _ in range(4)]
    assert results[0] is None
    assert any(result is not None and not result.is_unchanged for result in results)


def test_fault_121_results_within_a_long_turn_are_seen_by_the_trigger(sessions: SessionService) -> None:
    big = Tool.of(lambda: "x" * 500, name="big")
    model = ScriptedModel(["hi", calls("c1 big"), calls("c2 big"), "done"])
    chat = SessionChat(sessions, model, tools=[big], trigger=TokenCountTrigger(900), strategy=LAST_TURN)
    chat.send(SID, "U1")
    turn = chat.send(SID, "U2")
    assert turn.compaction is not None
    assert [told[0] for told in model.told[1:]] == ["User: U1", "User: U1", "User: U2"]


def test_fault_124_two_calls_of_one_id_are_each_answered(sessions: SessionService) -> None:
    def echo(text: str) -> str:
        return text

    model = ScriptedModel([calls('c1 echo {"text":"x"}', 'c1 echo {"text":"y"}'), "done"])
    SessionChat(sessions, model, tools=[echo]).send(SID, "U")
    body = _body(model)
    assert openai_rule_faults(body) == []
    results = [one for one in body["messages"] if one["role"] == "tool"]
    assert sorted(one["content"] for one in results) == ["x", "y"]
    assert len({one["tool_call_id"] for one in results}) == 2


def test_a_mark_of_a_dead_process_is_no_flag_for_ever(tmp_path: Path) -> None:
    """Of fault 059: whatever says that something is running has an expiry."""
    with service(tmp_path / "s.db") as sessions:
        sessions.create(SID)
        sessions.record_turn(SID, [], TurnMark("dead"), TurnStep.BEGIN)
    later = datetime.now(UTC) + timedelta(minutes=2)
    with service(tmp_path / "s.db", clock=lambda: later) as sessions:
        assert SessionChat(sessions, ScriptedModel(["hi"])).send(SID, "U").text == "hi"
