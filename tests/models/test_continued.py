"""Turns that the provider paused go on by themselves and are one answer."""

from __future__ import annotations

from typing import Any

import pytest
from tests.models.answers import ASKED
from tests.support.asking import Ask
from tests.support.providers.streams import anthropic_events, sse
from tests.support.scripted_server import Answer, ScriptedServer, json_answer

from turnlog.application.chat import FinishReason, InvalidReplyError

ANTHROPIC = "AnthropicChat"
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "Lund"}}
BOTH = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


def body(*content: dict[str, Any], reason: str = "end_turn") -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "a-model",
        "content": list(content),
        "stop_reason": reason,
        "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 5},
    }


def answer(given: dict[str, Any], stream: bool) -> Answer:
    if not stream:
        return json_answer(given)
    return Answer([sse(anthropic_events(given))], content_type="text/event-stream")


def text(content: str) -> dict[str, Any]:
    return {"type": "text", "text": content}


PAUSED = body(text("I look. "), SEARCH, reason="pause_turn")


@BOTH
def test_a_paused_turn_goes_on_and_is_one_answer(ask: Ask, server: ScriptedServer, stream: bool) -> None:
    server.script(answer(PAUSED, stream), answer(body(text("In Lund.")), stream))
    asked = ask(ANTHROPIC, ASKED, stream=stream, api_key="none-at-all")
    reply = asked.answer
    assert [part.type for part in reply.message.parts] == ["text", "server_tool_call", "text"]
    assert reply.finish_reason is FinishReason.STOP
    assert reply.usage
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (20, 10)
    assert (reply.message.metadata or {})["continued"] == 1
    if stream:
        assert asked.text == "I look. In Lund."


@BOTH
def test_what_goes_on_is_told_before_it_is_sent(ask: Ask, server: ScriptedServer, stream: bool) -> None:
    server.script(answer(PAUSED, stream), answer(body(text("In Lund.")), stream))
    asked = ask(ANTHROPIC, ASKED, stream=stream, api_key="none-at-all")
    assert [told.body for told in asked.told] == [server.requests[1].body]
    assert server.requests[1].json["messages"][-1]["content"] == [text("I look. "), SEARCH]


def test_a_turn_that_is_paused_for_ever_is_given_up(ask: Ask, server: ScriptedServer) -> None:
    server.script(*[answer(PAUSED, False)] * 11)
    error = ask(ANTHROPIC, ASKED, api_key="none-at-all").error
    assert isinstance(error, InvalidReplyError)
    assert len(server.requests) == 11


def test_what_came_before_the_pause_is_kept_when_the_rest_breaks_off(
    ask: Ask, server: ScriptedServer
) -> None:
    server.script(answer(PAUSED, True), Answer([b"event: ping\n\n"], 400), answer(PAUSED, True))
    error = ask(ANTHROPIC, ASKED, stream=True, api_key="none-at-all").error
    assert error
    reply = getattr(error, "reply", None)
    assert reply
    assert reply.message.text == "I look. "
