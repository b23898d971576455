"""The codecs behind real HTTP on the loopback: whole and streamed, sync and async."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from tests.models import test_anthropic_answers as anthropic
from tests.models import test_responses_answers as responses
from tests.models.codecs import FIND, U, calls_of, text_of
from tests.support.providers.rules import anthropic_rule_faults, responses_rule_faults
from tests.support.providers.streams import anthropic_events, responses_events, sse
from tests.support.providers.types import anthropic_type_faults, responses_type_faults
from tests.support.scripted_server import Answer, Request, ScriptedServer, json_answer

from turnlog.application.chat import (
    ChatRequest,
    ContextOverflowError,
    FinishReason,
    ModelUnavailableError,
    StreamInterruptedError,
)
from turnlog.domain.messages import Message
from turnlog.infrastructure.models import AsyncHttpChatModel, HttpChatModel, RetryPolicy
from turnlog.infrastructure.models.anthropic_messages import AnthropicMessagesCodec
from turnlog.infrastructure.models.codec import Codec
from turnlog.infrastructure.models.openai_responses import OpenAIResponsesCodec

QUICK = RetryPolicy(retries=2, backoff=0.001)


@dataclass(frozen=True)
class Api:
    """A codec, an answer of its provider with calls, and how that is streamed and checked."""

    codec: Codec
    model: str
    whole: dict[str, Any]
    events: Callable[[dict[str, Any]], Iterable[dict[str, Any]]]
    faults: Callable[[dict[str, Any]], list[str]]
    error: Callable[[str, str], dict[str, Any]]

    def stream(self, cut: int | None = None, *more: dict[str, Any]) -> Answer:
        """The answer streamed in chunks of seven bytes, up to an event."""
        events = [*list(self.events(self.whole))[:cut], *more]
        data = sse(events)
        chunks = [data[i : i + 7] for i in range(0, len(data), 7)]
        return Answer(chunks, content_type="text/event-stream", is_cut=cut is not None)


def _anthropic_error(kind: str, message: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}}


def _openai_error(kind: str, message: str) -> dict[str, Any]:
    return {"error": {"type": kind, "code": kind, "message": message}}


APIS = [
    Api(
        AnthropicMessagesCodec(),
        "claude-opus-4-1",
        anthropic.BODIES["thinking and calls"],
        anthropic_events,
        lambda body: anthropic_type_faults(body) + anthropic_rule_faults(body),
        _anthropic_error,
    ),
    Api(
        OpenAIResponsesCodec(),
        "gpt-5",
        responses.BODIES["reasoning and calls"],
        responses_events,
        lambda body: responses_type_faults(body) + responses_rule_faults(body),
        _openai_error,
    ),
]
EACH = pytest.mark.parametrize("api", APIS, ids=lambda api: api.codec.renderer)
ASKED = ChatRequest((Message.system("Be brief."), U), tools=(FIND,), max_output_tokens=100, cache=True)


@pytest.fixture(autouse=True)
def refuses_what_providers_refuse(server: ScriptedServer) -> None:
    def rule(request: Request) -> Answer | None:
        api = APIS[0] if request.path.endswith("/messages") else APIS[1]
        body = {name: value for name, value in request.json.items() if name != "stream"}
        faults = api.faults(body)
        return json_answer(api.error("invalid_request_error", str(faults)), 400) if faults else None

    server.rule = rule


@pytest.fixture
def model(api: Api, server: ScriptedServer) -> Iterator[HttpChatModel]:
    with HttpChatModel(api.codec, api.model, base_url=server.url, api_key="secret-key", retry=QUICK) as model:
        yield model


@EACH
def test_a_whole_answer(api: Api, server: ScriptedServer, model: HttpChatModel) -> None:
    server.script(json_answer(api.whole))
    assert model.complete(model.render(ASKED)).message.parts == api.codec.decode(api.whole).message.parts


@EACH
def test_a_streamed_answer_is_the_whole_answer(
    api: Api, server: ScriptedServer, model: HttpChatModel
) -> None:
    server.script(json_answer(api.whole), api.stream())
    whole = model.complete(model.render(ASKED))
    with model.stream(model.render(ASKED, stream=True)) as stream:
        pieces = list(stream)
    assert stream.reply == whole
    assert [call[0] for call in calls_of(pieces)] == [call.id for call in whole.message.tool_calls]


@EACH
def test_the_same_with_asyncio(api: Api, server: ScriptedServer) -> None:
    server.script(json_answer(api.whole), api.stream())

    async def both() -> tuple[Any, Any, str]:
        async with AsyncHttpChatModel(api.codec, api.model, base_url=server.url, api_key="k") as model:
            whole = await model.complete(model.render(ASKED))
            async with model.stream(model.render(ASKED, stream=True)) as stream:
                pieces = [piece async for piece in stream]
            return whole, stream.reply, text_of(pieces)

    whole, streamed, text = asyncio.run(both())
    assert (streamed, text) == (whole, whole.message.text or "")


@EACH
def test_the_answer_and_the_results_of_its_calls_can_be_sent_back(
    api: Api, server: ScriptedServer, model: HttpChatModel
) -> None:
    server.script(api.stream(), json_answer(api.whole))
    with model.stream(model.render(ASKED, stream=True)) as stream:
        list(stream)
    said = stream.reply.message
    results = [Message.tool("Lund", id=call.id) for call in said.tool_calls]
    following = ChatRequest((*ASKED.conversation, said, *results), tools=(FIND,))
    assert model.complete(model.render(following)).finish_reason is FinishReason.TOOL_CALL
    assert "sig==" in str(server.requests[-1].json) or "gAAA==" in str(server.requests[-1].json)


@EACH
def test_the_key_is_sent_as_the_provider_wants_it(
    api: Api, server: ScriptedServer, model: HttpChatModel
) -> None:
    server.script(json_answer(api.whole))
    model.complete(model.render(ASKED))
    headers = server.requests[0].headers
    assert "secret-key" in (
        headers.get("x-api-key"),
        headers.get("authorization", "").removeprefix("Bearer "),
    )


@EACH
def test_a_stream_that_breaks_off_gives_what_came(
    api: Api, server: ScriptedServer, model: HttpChatModel
) -> None:
    server.script(api.stream(-3))
    with (
        pytest.raises(StreamInterruptedError) as raised,
        model.stream(model.render(ASKED, stream=True)) as stream,
    ):
        list(stream)
    assert raised.value.reply.finish_reason is FinishReason.ERROR
    assert raised.value.reply.message.tool_calls


@EACH
def test_an_error_inside_a_stream_behind_a_piece_keeps_what_came(
    api: Api, server: ScriptedServer, model: HttpChatModel
) -> None:
    error = {"type": "error", **api.error("server_error", "No.")}
    server.script(api.stream(-3, error))
    with pytest.raises(StreamInterruptedError), model.stream(model.render(ASKED, stream=True)) as stream:
        list(stream)


@EACH
def test_an_error_before_the_first_piece_is_tried_again(
    api: Api, server: ScriptedServer, model: HttpChatModel
) -> None:
    error = {"type": "error", **api.error("server_error", "No.")}
    failed = Answer([sse([error])], content_type="text/event-stream")
    server.script(failed, api.stream())
    with model.stream(model.render(ASKED, stream=True)) as stream:
        list(stream)
    assert (len(server.requests), len(stream.reply.message.tool_calls)) == (2, 2)


@EACH
def test_an_overflow_is_no_reason_to_try_again(
    api: Api, server: ScriptedServer, model: HttpChatModel
) -> None:
    text = "prompt is too long: 205351 tokens > 200000 maximum"
    server.script(json_answer(api.error("context_length_exceeded", text), 400))
    with pytest.raises(ContextOverflowError) as raised:
        model.complete(model.render(ASKED))
    assert (raised.value.limit, raised.value.sent, len(server.requests)) == (200_000, 205_351, 1)


@EACH
def test_a_busy_server_is_asked_again(api: Api, server: ScriptedServer, model: HttpChatModel) -> None:
    server.script(json_answer(api.error("overloaded_error", "Busy."), 529), json_answer(api.whole))
    assert model.complete(model.render(ASKED)).message.tool_calls


@EACH
def test_a_server_that_stays_busy_is_unavailable(
    api: Api, server: ScriptedServer, model: HttpChatModel
) -> None:
    server.script(*[json_answer(api.error("overloaded_error", "Busy."), 529)] * 5)
    with pytest.raises(ModelUnavailableError):
        model.complete(model.render(ASKED))


@EACH
def test_a_parameter_that_is_refused_is_left_out_once(
    api: Api, server: ScriptedServer, model: HttpChatModel
) -> None:
    text = "Unsupported parameter: 'temperature' is not supported with this model."
    server.script(json_answer(api.error("invalid_request_error", text), 400), json_answer(api.whole))
    told: list[bytes] = []
    request = ChatRequest((U,), options={"temperature": 0.5})
    model.complete(model.render(request), on_send=lambda rendered: told.append(rendered.body))
    assert ["temperature" in one.json for one in server.requests] == [True, False]
    assert told == [server.requests[1].body]


PAUSED = anthropic.body(*anthropic.SEARCH[:1], stop="pause_turn")
RESUMED = anthropic.body(*anthropic.SEARCH[1:])


@pytest.mark.parametrize("api", APIS[:1], ids=["anthropic"])
def test_a_paused_turn_goes_on_and_is_one_answer(
    api: Api, server: ScriptedServer, model: HttpChatModel
) -> None:
    server.script(json_answer(PAUSED), json_answer(RESUMED))
    reply = model.complete(model.render(ASKED))
    whole = api.codec.decode(anthropic.body(*anthropic.SEARCH))
    assert reply.message.parts == whole.message.parts
    assert server.requests[1].json["messages"][-1] == {"role": "assistant", "content": PAUSED["content"]}


@pytest.mark.parametrize("api", APIS[:1], ids=["anthropic"])
def test_a_paused_turn_goes_on_in_a_stream(api: Api, server: ScriptedServer, model: HttpChatModel) -> None:
    for whole in (PAUSED, RESUMED):
        server.script(Answer([sse(anthropic_events(whole))], content_type="text/event-stream"))
    with model.stream(model.render(ASKED, stream=True)) as stream:
        pieces = list(stream)
    assert text_of(pieces) == "Lund is a city."
    assert [json.loads(one.body)["stream"] for one in server.requests] == [True, True]
