"""Turns with a chat model over real HTTP: the ports fit, and leaving a stream closes the connection."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.chats import SID, lines, messages
from tests.support.scripted_server import Answer, ScriptedServer, json_answer, scripted_server, sse_answer

from turnlog.application import SessionService
from turnlog.application.chat import (
    AsyncSessionChat,
    ContextOverflowError,
    ModelUnavailableError,
    SessionChat,
    TextDelta,
    Usage,
)
from turnlog.infrastructure.models import AsyncOpenAIChatModel, OpenAIChatModel, RetryPolicy

QUICK = RetryPolicy(backoff=0.001)


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    """A server that answers as it is told."""
    with scripted_server() as running:
        yield running


@pytest.fixture
def model(server: ScriptedServer) -> Iterator[OpenAIChatModel]:
    """A model behind the server."""
    with OpenAIChatModel("a-model", base_url=server.url, retry=QUICK) as opened:
        yield opened


def answer(content: str | None = None, *tool_calls: dict[str, Any]) -> Answer:
    """An answer of Chat Completions."""
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if tool_calls:
        message["tool_calls"] = list(tool_calls)
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if tool_calls else "stop"}
    usage = {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}
    return json_answer({"id": "r1", "model": "a-model", "choices": [choice], "usage": usage})


def piece(text: str) -> dict[str, Any]:
    """A piece of a streamed answer."""
    choice = {"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": None}
    return {"id": "r1", "model": "a-model", "choices": [choice]}


CALL = {"id": "c1", "type": "function", "function": {"name": "where", "arguments": '{"parcel": 7}'}}


def where(parcel: int) -> str:
    """Says where a parcel is."""
    return f"{parcel} is in Lund"


def test_a_turn_with_a_tool(server: ScriptedServer, model: OpenAIChatModel, sessions: SessionService) -> None:
    server.script(answer(None, CALL), answer("In Lund."))
    turn = SessionChat(sessions, model, tools=[where], instructions="Be kind.").send(SID, "Where is 7?")
    assert turn.text == "In Lund."
    assert turn.usage == Usage(input_tokens=18, output_tokens=4)
    sent = [request.json["messages"] for request in server.requests]
    assert [message["role"] for message in sent[1]] == ["system", "user", "assistant", "tool"]
    assert sent[1][: len(sent[0])] == sent[0]
    assert server.requests[0].json["tools"][0]["function"]["name"] == "where"


def test_a_turn_with_a_tool_for_asyncio(server: ScriptedServer, sessions: SessionService) -> None:
    server.script(answer(None, CALL), answer("In Lund."))

    async def talk() -> str:
        async with AsyncOpenAIChatModel("a-model", base_url=server.url, retry=QUICK) as model:
            return (await AsyncSessionChat(sessions, model, tools=[where]).send(SID, "Where is 7?")).text

    assert asyncio.run(talk()) == "In Lund."
    assert len(messages(sessions)) == 4


def test_leaving_a_stream_closes_the_connection_and_stores_what_came(
    server: ScriptedServer, model: OpenAIChatModel, sessions: SessionService
) -> None:
    never = threading.Event()
    begun = sse_answer(piece("It is "), is_done=False)
    server.script(Answer([*begun.chunks, never], content_type="text/event-stream"))
    try:
        with SessionChat(sessions, model).stream(SID, "Where?") as turn:
            next(event for event in turn if isinstance(event, TextDelta))
        assert lines(sessions) == ["User: Where?", "Assistant: It is "]
    finally:
        never.set()


def test_a_server_that_cannot_be_reached_is_one_clear_sentence(sessions: SessionService) -> None:
    nowhere = OpenAIChatModel("a-model", base_url="http://127.0.0.1:9", retry=QUICK)
    with nowhere, pytest.raises(ModelUnavailableError):
        SessionChat(sessions, nowhere).send(SID, "hello")
    assert lines(sessions) == ["User: hello"]


def test_an_overflow_of_the_server_is_met_once(
    server: ScriptedServer, model: OpenAIChatModel, sessions: SessionService
) -> None:
    error = {
        "error": {
            "message": "This model's maximum context length is 4096 tokens. However, your messages "
            "resulted in 5000 tokens.",
            "type": "invalid_request_error",
            "code": "context_length_exceeded",
        }
    }
    server.script(json_answer(error, 400), json_answer(error, 400))
    with pytest.raises(ContextOverflowError):
        SessionChat(sessions, model).send(SID, "hello")
    assert len(server.requests) == 2
