"""What a real OpenTelemetry SDK exports of a chat."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode
from tests.otel.recorded import Recorded
from tests.support.chats import Characters
from tests.support.scripted_chat import AsyncScriptedModel, ScriptedModel, Stream, calls, says

from turnlog.application import AsyncSessionService, SessionService
from turnlog.application.chat import (
    AsyncSessionChat,
    ChatModelSummarizer,
    ModelUnavailableError,
    SessionChat,
    TextDelta,
    Usage,
)
from turnlog.domain import CompactionWindow, Message, TurnCountTrigger, WindowCompactionStrategy
from turnlog.infrastructure.otel import (
    AsyncTracedSessionChat,
    TracedModel,
    TracedSessionChat,
)
from turnlog.infrastructure.otel.telemetry import CAPTURE

SID = "parcel-42"
SECRET = "SECRET"  # noqa: S105 - what is said
USED = Usage(input_tokens=100, output_tokens=20, cache_read_input_tokens=40, provider={"x": 1})


def find(parcel: int) -> str:
    """Finds a parcel."""
    return f"{SECRET} {parcel} is in Lund"


def weigh(parcel: int) -> str:
    """Weighs a parcel."""
    raise ValueError(f"{SECRET}: no scale for {parcel}")


async def afind(parcel: int) -> str:
    """Finds a parcel."""
    await asyncio.sleep(0)
    return f"{SECRET} {parcel}"


def _asks() -> list[Any]:
    return [
        calls('c1 find {"parcel": 7}', 'c2 weigh {"parcel": 8}', usage=USED),
        says(f"{SECRET} in Lund", USED),
    ]


def _chat(
    sessions: SessionService, recorded: Recorded, *, compacts: bool = True, **settings: Any
) -> SessionChat:
    """A traced chat whose next turn has two calls of tools, and a pass behind it."""
    telemetry = recorded.telemetry(**settings)
    summarizer = ChatModelSummarizer(
        TracedModel(ScriptedModel([says(f"{SECRET} so far")], "small"), telemetry)
    )
    chat = SessionChat(
        sessions,
        ScriptedModel(_asks()),
        tools=[find, weigh],
        instructions=f"{SECRET} instructions",
        trigger=TurnCountTrigger(2) if compacts else None,
        strategy=WindowCompactionStrategy(CompactionWindow.last_turns(1), summarizer=summarizer),
    )
    return TracedSessionChat(chat, telemetry)


@pytest.fixture
def sessions() -> Any:
    """A session of two turns."""
    with SessionService(token_estimator=Characters()) as service:
        service.create(SID)
        for number in range(2):
            service.append_message(SID, Message.user(f"{SECRET} question {number}"))
            service.append_message(SID, Message.assistant(f"{SECRET} answer {number}"))
        yield service


def test_a_turn_with_two_tools_and_a_pass_is_one_tree_of_spans(
    sessions: SessionService, recorded: Recorded
) -> None:
    turn = _chat(sessions, recorded).send(SID, "Where is it?")
    assert turn.compaction is not None
    assert sorted(recorded.tree) == sorted(
        [
            "invoke_agent",
            "  compact",
            "    chat small",
            "  chat m",
            "  execute_tool find",
            "  execute_tool weigh",
            "  chat m",
        ]
    )
    assert {str((span.attributes or {})["gen_ai.conversation.id"]) for span in recorded.spans} == {SID}


def test_a_turn_says_what_it_used_and_that_it_compacted(sessions: SessionService, recorded: Recorded) -> None:
    _chat(sessions, recorded, agent_name="Parcels").send(SID, "Where is it?")
    said = dict(recorded.span("invoke_agent Parcels").attributes or {})
    assert said.pop("turnlog.turn.id")
    assert said == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": "scripted",
        "gen_ai.request.model": "m",
        "gen_ai.agent.name": "Parcels",
        "gen_ai.conversation.id": SID,
        "gen_ai.conversation.compacted": True,
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 200,
        "gen_ai.usage.output_tokens": 40,
        "gen_ai.usage.cache_read.input_tokens": 80,
    }


def test_a_call_says_what_was_asked_and_how_it_ended(sessions: SessionService, recorded: Recorded) -> None:
    _chat(sessions, recorded, compacts=False).send(SID, "Where is it?")
    span = recorded.span("chat m")
    assert span.kind is SpanKind.CLIENT
    assert dict(span.attributes or {}) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "scripted",
        "gen_ai.request.model": "m",
        "gen_ai.conversation.id": SID,
        "gen_ai.response.id": "r1",
        "gen_ai.response.model": "m-1",
        "gen_ai.response.finish_reasons": ("tool_call",),
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 20,
        "gen_ai.usage.cache_read.input_tokens": 40,
    }


def test_a_call_over_a_summary_says_that_the_conversation_was_compacted(
    sessions: SessionService, recorded: Recorded
) -> None:
    _chat(sessions, recorded).send(SID, "Where is it?")
    chats = [span for span in recorded.spans if span.name == "chat m"]
    compacted = [(span.attributes or {}).get("gen_ai.conversation.compacted") for span in chats]
    assert compacted == [None, True]


def test_a_pass_says_what_it_decided(sessions: SessionService, recorded: Recorded) -> None:
    _chat(sessions, recorded).send(SID, "Where is it?")
    said = recorded.span("compact").attributes or {}
    assert (said["turnlog.compaction.reason"], said["turnlog.compaction.covered"]) == ("compacted", 4)


def test_the_strategy_of_a_boundary_is_named_as_without_tracing(
    sessions: SessionService, recorded: Recorded
) -> None:
    turn = _chat(sessions, recorded).send(SID, "Where is it?")
    assert turn.compaction is not None
    assert turn.compaction.boundary is not None
    boundary = turn.compaction.boundary.boundary
    assert boundary is not None
    assert boundary.strategy == "window of the last 1 turns with ChatModelSummarizer"


def test_a_tool_that_fails_is_an_error_by_its_class_alone(
    sessions: SessionService, recorded: Recorded
) -> None:
    _chat(sessions, recorded, compacts=False).send(SID, "Where is it?")
    span = recorded.span("execute_tool weigh")
    assert (span.attributes or {})["error.type"] == "ValueError"
    assert (span.status.status_code, span.status.description, span.events) == (StatusCode.ERROR, None, ())


def test_metrics_count_the_calls_and_their_tokens(sessions: SessionService, recorded: Recorded) -> None:
    _chat(sessions, recorded, compacts=False).send(SID, "Where is it?")
    metrics = recorded.metrics
    common = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "scripted",
        "gen_ai.request.model": "m",
        "gen_ai.response.model": "m-1",
    }
    assert metrics["gen_ai.client.token.usage"] == [
        ({**common, "gen_ai.token.type": "input"}, 200, 2),
        ({**common, "gen_ai.token.type": "output"}, 40, 2),
    ]
    assert [(said, count) for said, _, count in metrics["gen_ai.client.operation.duration"]] == [(common, 2)]


def test_nothing_that_was_said_is_exported(sessions: SessionService, recorded: Recorded) -> None:
    _chat(sessions, recorded).send(SID, f"{SECRET}?")
    with _chat(sessions, recorded).stream(SID, f"{SECRET}?") as turn:
        list(turn)
    assert len(recorded.spans) > 10
    assert SECRET not in recorded.everything
    assert "parcel\\" not in recorded.everything


def test_content_is_exported_when_it_was_opted_in(
    sessions: SessionService, recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CAPTURE, "true")
    _chat(sessions, recorded, compacts=False).send(SID, "Where is it?")
    said = recorded.span("chat m").attributes or {}
    assert json.loads(str(said["gen_ai.input.messages"]))[-1] == {
        "role": "user",
        "parts": [{"type": "text", "content": "Where is it?"}],
    }
    assert SECRET in str(said["gen_ai.system_instructions"])
    assert json.loads(str(said["gen_ai.output.messages"]))[0]["finish_reason"] == "tool_call"
    tool = recorded.span("execute_tool find").attributes or {}
    assert tool["gen_ai.tool.call.arguments"] == '{"parcel": 7}'
    assert tool["gen_ai.tool.call.result"] == f"{SECRET} 7 is in Lund"


@pytest.mark.parametrize(
    ("value", "captures"), [("SPAN_ONLY", True), ("EVENT_ONLY", False), ("NO_CONTENT", False), ("", False)]
)
def test_the_environment_opts_in(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch, value: str, captures: bool
) -> None:
    monkeypatch.setenv(CAPTURE, value)
    assert recorded.telemetry().captures_content is captures


def test_a_call_that_fails_is_an_error_of_the_turn_too(sessions: SessionService, recorded: Recorded) -> None:
    telemetry = recorded.telemetry()
    model = ScriptedModel([ModelUnavailableError(f"{SECRET} no server")])
    chat = TracedSessionChat(SessionChat(sessions, model), telemetry)
    with pytest.raises(ModelUnavailableError):
        chat.send(SID, "Hello?")
    assert [(span.attributes or {})["error.type"] for span in recorded.spans] == ["ModelUnavailableError"] * 2
    (point,) = recorded.metrics["gen_ai.client.operation.duration"]
    assert point[0]["error.type"] == "ModelUnavailableError"
    assert SECRET not in recorded.everything


def test_a_streamed_turn_is_the_same_tree(sessions: SessionService, recorded: Recorded) -> None:
    with _chat(sessions, recorded, compacts=False).stream(SID, "Where is it?") as turn:
        for _ in turn:
            assert not trace.get_current_span().get_span_context().is_valid
    assert sorted(recorded.tree) == sorted(
        ["invoke_agent", "  chat m", "  execute_tool find", "  execute_tool weigh", "  chat m"]
    )
    said = [span.attributes or {} for span in recorded.spans if span.name == "chat m"][-1]
    assert said["gen_ai.request.stream"] is True
    assert "gen_ai.response.time_to_first_chunk" in said


def test_a_stream_that_is_left_ends_its_spans(sessions: SessionService, recorded: Recorded) -> None:
    model = ScriptedModel([Stream(["one ", "two ", "three"])])
    chat = TracedSessionChat(SessionChat(sessions, model), recorded.telemetry())
    with chat.stream(SID, "Count!") as turn:
        next(event for event in turn if isinstance(event, TextDelta))
    assert recorded.tree == ["invoke_agent", "  chat m"]
    for span in recorded.spans:
        assert (span.attributes or {})["gen_ai.response.finish_reasons"] == ("cancelled",)
        assert span.status.status_code is StatusCode.UNSET


def test_a_turn_for_asyncio_is_the_same_tree(recorded: Recorded) -> None:
    asks = [calls('c1 afind {"parcel": 7}', 'c2 weigh {"parcel": 8}', usage=USED), says("In Lund", USED)]

    async def talk(*, streams: bool) -> None:
        async with AsyncSessionService(token_estimator=Characters()) as sessions:
            plain = AsyncSessionChat(sessions, AsyncScriptedModel(asks), tools=[afind, weigh])
            chat = AsyncTracedSessionChat(plain, recorded.telemetry())
            if streams:
                async with chat.stream(SID, "Where is it?") as turn:
                    async for _ in turn:
                        pass
            else:
                await chat.send(SID, "Where is it?")

    tree = ["invoke_agent", "  chat m", "  execute_tool afind", "  execute_tool weigh", "  chat m"]
    asyncio.run(talk(streams=False))
    assert sorted(recorded.tree) == sorted(tree)
    asyncio.run(talk(streams=True))
    assert sorted(recorded.tree) == sorted([*tree, *tree])


def test_tools_of_one_call_are_traced_too(sessions: SessionService, recorded: Recorded) -> None:
    chat = TracedSessionChat(SessionChat(sessions, ScriptedModel(_asks())), recorded.telemetry())
    chat.send(SID, "Where is it?", tools=[find, weigh])
    assert "  execute_tool find" in recorded.tree
