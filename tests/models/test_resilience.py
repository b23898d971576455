"""What a server with faults says of its client: how it repeats, and what it takes for an answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.models.answers import ASKED
from tests.support.asking import ask_async, ask_sync
from tests.support.llm_server import RuledServer, ruled_server

from turnlog.application.chat import (
    ChatRequest,
    ContextOverflowError,
    ModelRejectedError,
    ModelUnavailableError,
    StreamInterruptedError,
)
from turnlog.domain.messages import Message
from turnlog.infrastructure.models import Limits, OpenAIChatModel, RetryPolicy

KINDS = {"OpenAIChat": "", "AnthropicChat": "/anthropic", "OpenAIResponses": ""}
PROVIDERS = {"OpenAIChat": "openai", "AnthropicChat": "anthropic", "OpenAIResponses": "openai"}


@pytest.fixture(scope="module")
def running() -> Iterator[RuledServer]:
    with ruled_server() as server:
        yield server


@pytest.fixture
def server(running: RuledServer) -> RuledServer:
    running.mock.reset()
    running.bodies.clear()
    running.faults.clear()
    return running


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def settings(server: RuledServer, kind: str) -> dict[str, Any]:
    return {
        "base_url": server.url + KINDS[kind],
        "api_key": "a-key-of-nobody",
        "retry": RetryPolicy(backoff=0.01),
        "limits": Limits(read=5, total=20),
    }


@pytest.fixture(params=[ask_sync, ask_async], ids=["sync", "async"])
def ask(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_an_answer_of_every_provider_is_read(server: RuledServer, kind: str, ask: Any, stream: bool) -> None:
    server.mock.reply("In Lund it is.")
    asked = ask(kind, ASKED, stream=stream, **settings(server, kind))
    assert asked.answer.message.text == "In Lund it is."
    assert asked.answer.usage.input_tokens > 0
    server.mock.assert_resilient(strict=True)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_rate_limit_is_waited_for(server: RuledServer, kind: str, ask: Any, stream: bool) -> None:
    server.mock.rate_limit(times=2, retry_after=0.1)
    assert ask(kind, ASKED, stream=stream, **settings(server, kind)).answer.message.text
    server.mock.assert_resilient(strict=True)


def test_an_outage_is_not_a_reason_for_a_storm(server: RuledServer, kind: str, ask: Any) -> None:
    server.mock.fail(503, times=None, retry_after=0.02)
    assert isinstance(ask(kind, ASKED, **settings(server, kind)).error, ModelUnavailableError)
    assert len(server.bodies) == 4
    server.mock.assert_resilient(strict=True)


@pytest.mark.parametrize("fault", ["truncate", "disconnect", "corrupt"])
def test_a_stream_with_a_fault_is_no_answer(server: RuledServer, kind: str, ask: Any, fault: str) -> None:
    server.mock.reply("In Lund it is, and has been for days.")
    getattr(server.mock, fault)(after_chunks=5)
    asked = ask(kind, ASKED, stream=True, **settings(server, kind))
    assert isinstance(asked.error, StreamInterruptedError)
    assert asked.error.reply.message.text == asked.text != ""


def test_a_context_that_is_too_large_is_told(server: RuledServer, kind: str, ask: Any) -> None:
    server.mock.context_overflow()
    assert isinstance(ask(kind, ASKED, **settings(server, kind)).error, ContextOverflowError)


def test_a_tool_that_is_called_is_named(server: RuledServer, kind: str, ask: Any) -> None:
    server.mock.call_tool("find", {"city": "Lund"})
    asked = ask(kind, ASKED, stream=True, **settings(server, kind))
    (call,) = asked.answer.message.tool_calls
    assert (call.name, json.loads(call.arguments)) == ("find", {"city": "Lund"})


def test_a_request_that_breaks_the_rules_is_refused(server: RuledServer) -> None:
    with OpenAIChatModel("a-model", base_url=server.url) as model:
        rendered = model.render(ChatRequest((Message.user("Hi"),), options={"messages": []}))
        with pytest.raises(ModelRejectedError, match="no messages"):
            model.complete(rendered)
    assert server.bodies == [rendered.body]
    assert "no messages" in server.faults
