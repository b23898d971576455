"""Ollama's own API: windows, calls without ids, prompts that were cut."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from typing import Any

import pytest
from tests.models.answers import ASKED
from tests.support.asking import Ask
from tests.support.scripted_server import Answer, ScriptedServer, json_answer

from turnlog.application.chat import (
    ChatRequest,
    ContextOverflowError,
    FinishReason,
    InvalidReplyError,
    ModelRejectedError,
    ReasoningDelta,
    StreamInterruptedError,
    TextDelta,
    ToolCallDelta,
    ToolDefinition,
)
from turnlog.domain.messages import BlobPart, Message, ReasoningPart, TextPart, ToolCallPart
from turnlog.infrastructure.models import AsyncOllamaChatModel, OllamaChatModel
from turnlog.infrastructure.models.ollama import OllamaCodec

OLLAMA = "OllamaChat"
NOTHING: frozenset[str] = frozenset()
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
END: dict[str, Any] = {
    "done": True,
    "done_reason": "stop",
    "total_duration": 5_000,
    "prompt_eval_count": 26,
    "eval_count": 4,
}
CALLS: list[dict[str, Any]] = [
    {"function": {"name": "find", "arguments": {"city": "Łódź"}}},
    {"function": {"name": "find", "arguments": {}}},
]
ports = itertools.count(20_000)


def line(message: dict[str, Any], **fields: Any) -> dict[str, Any]:
    about = {"model": "a-model", "created_at": "2026-01-01T00:00:00Z", "done": False}
    return {**about, "message": {"role": "assistant", "content": "", **message}, **fields}


def lines(*given: object, **fields: Any) -> Answer:
    text = "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in given)
    raw = text.encode()
    chunks = [raw[place : place + 7] for place in range(0, len(raw), 7)]
    return Answer(chunks, content_type="application/x-ndjson", **fields)


def encoded(request: ChatRequest, *adaptations: str) -> dict[str, Any]:
    return OllamaCodec().encode(request, "a-model", stream=False, adaptations=frozenset(adaptations))


# Answers


def test_a_streamed_answer_is_the_message_that_the_whole_answer_would_be(
    ask: Ask, server: ScriptedServer
) -> None:
    message: dict[str, Any] = {"thinking": "Where is it?", "content": "In Łódź.", "tool_calls": CALLS}
    server.script(
        json_answer(line(message, **END)),
        lines(
            line({"thinking": "Where "}),
            line({"thinking": "is it?"}),
            line({"content": "In "}),
            line({"content": "Łódź."}),
            line({"tool_calls": CALLS[:1]}),
            line({"tool_calls": CALLS[1:]}),
            line({}, **END),
        ),
    )
    whole, pieces = ask(OLLAMA, ASKED), ask(OLLAMA, ASKED, stream=True)
    assert pieces.answer == whole.answer
    assert pieces.pieces == [
        ReasoningDelta("Where "),
        ReasoningDelta("is it?"),
        TextDelta("In "),
        TextDelta("Łódź."),
        ToolCallDelta(0, "call_1", "find", '{"city":"Łódź"}'),
        ToolCallDelta(1, "call_2", "find", "{}"),
    ]


def test_an_answer_tells_what_is_known_of_it(ask: Ask, server: ScriptedServer) -> None:
    server.script(json_answer(line({"content": "In Lund."}, **{**END, "done_reason": "length"})))
    reply = ask(OLLAMA, ASKED).answer
    assert reply.finish_reason is FinishReason.LENGTH
    assert reply.usage
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (26, 4)
    metadata = reply.message.metadata or {}
    assert (metadata["provider"], metadata["model"]) == ("ollama", "a-model")
    assert reply.message.origin == "ollama.chat"


def test_calls_end_a_turn_though_ollama_says_stop(ask: Ask, server: ScriptedServer) -> None:
    server.script(json_answer(line({"tool_calls": CALLS}, **END)))
    assert ask(OLLAMA, ASKED).answer.finish_reason is FinishReason.TOOL_CALL


def test_an_error_behind_a_piece_interrupts_the_answer(ask: Ask, server: ScriptedServer) -> None:
    server.script(lines(line({"content": "In "}), {"error": "model runner has unexpectedly stopped"}))
    error = ask(OLLAMA, ASKED, stream=True).error
    assert isinstance(error, StreamInterruptedError)
    assert "unexpectedly stopped" in str(error)


def test_a_stream_that_is_not_done_is_interrupted(ask: Ask, server: ScriptedServer) -> None:
    server.script(lines(line({"content": "In "})))
    assert isinstance(ask(OLLAMA, ASKED, stream=True).error, StreamInterruptedError)


def test_an_answer_without_a_message_is_none(ask: Ask, server: ScriptedServer) -> None:
    server.script(json_answer({"model": "a-model", "done": True}))
    assert isinstance(ask(OLLAMA, ASKED).error, InvalidReplyError)


def test_a_model_that_is_not_there_can_be_pulled(ask: Ask, server: ScriptedServer) -> None:
    server.script(json_answer({"error": "model 'a-model' not found"}, 404))
    error = ask(OLLAMA, ASKED).error
    assert isinstance(error, ModelRejectedError)
    assert "ollama pull" in str(error)


def test_requests_go_to_its_own_api(ask: Ask, server: ScriptedServer) -> None:
    server.script(*[json_answer(line({"content": "a"}, **END))] * 2)
    ask(OLLAMA, ASKED)
    ask(OLLAMA, ASKED, base_url=f"{server.url}/v1/")
    assert [request.path for request in server.requests] == ["/api/chat", "/api/chat"]


# Requests


def test_nothing_may_be_cut() -> None:
    sent = encoded(ASKED)
    assert (sent["truncate"], sent["shift"]) == (False, False)


def test_a_request_cannot_ask_for_the_cut() -> None:
    sent = encoded(replace(ASKED, options={"truncate": True, "shift": True}))
    assert (sent["truncate"], sent["shift"]) == (False, False)


def test_options_stand_where_ollama_reads_them() -> None:
    options = {"temperature": 0, "think": False, "keep_alive": "5m", "options": {"seed": 1}}
    sent = encoded(replace(ASKED, options=options, max_output_tokens=9))
    assert (sent["think"], sent["keep_alive"]) == (False, "5m")
    assert sent["options"] == {"temperature": 0, "seed": 1, "num_predict": 9, "num_ctx": 4096}


def test_results_stand_in_the_order_of_their_calls_and_name_the_tool() -> None:
    calls = [
        ToolCallPart(id=f"call_{n}", name=name, arguments='{"n": 1}') for n, name in ((1, "a"), (2, "b"))
    ]
    told = (
        Message.user("Go."),
        Message.assistant(calls),
        Message.tool("second", id="call_2"),
        Message.tool("first", id="call_1"),
    )
    _, asking, *results = encoded(ChatRequest(told))["messages"]
    assert asking["tool_calls"] == [
        {"function": {"name": name, "arguments": {"n": 1}}} for name in ("a", "b")
    ]
    assert results == [
        {"role": "tool", "content": "first", "tool_name": "a"},
        {"role": "tool", "content": "second", "tool_name": "b"},
    ]


def test_ids_that_every_answer_has_anew_are_paired_with_the_newest_call() -> None:
    def round_of(text: str) -> list[Message]:
        return [Message.assistant([ToolCallPart(id="call_1", name="a")]), Message.tool(text, id="call_1")]

    sent = encoded(ChatRequest((Message.user("Go."), *round_of("x"), *round_of("y"))))["messages"]
    assert [one["content"] for one in sent if one["role"] == "tool"] == ["x", "y"]


def test_images_are_sent_beside_the_text() -> None:
    image = BlobPart(modality="image", mime_type="image/png", content=PNG)
    pdf = BlobPart(modality="document", mime_type="application/pdf", content="JVBERi0x")
    told = Message.user([TextPart(content="What is this?"), image, pdf])
    assert encoded(ChatRequest((told,)))["messages"] == [
        {"role": "user", "content": "What is this?\n[document application/pdf]", "images": [PNG]}
    ]


def test_a_conversation_without_a_turn_gets_one() -> None:
    roles = [one["role"] for one in encoded(ChatRequest((Message.system("A"),)))["messages"]]
    assert roles == ["system", "user"]


def test_tools_and_instructions_are_told() -> None:
    tool = ToolDefinition("find", "Finds it.")
    sent = encoded(replace(ASKED, tools=(tool,), system="Be kind."))
    assert sent["messages"][0] == {"role": "system", "content": "Be kind."}
    assert sent["tools"][0]["function"]["name"] == "find"


@pytest.mark.parametrize(("model", "is_told"), [("qwen3:8b", True), ("qwen3:32b", True), ("llama3", False)])
def test_thinking_goes_back_to_the_family_that_it_came_from(model: str, is_told: bool) -> None:
    said = Message.assistant(
        [ReasoningPart(content="Hm."), TextPart(content="Yes.")],
        origin="ollama.chat",
        metadata={"provider": "ollama", "model": "qwen3:8b"},
    )
    request = ChatRequest((Message.user("So?"), said, Message.user("Why?")))
    sent = OllamaCodec().encode(request, model, stream=False, adaptations=NOTHING)
    assert ("thinking" in sent["messages"][1]) is is_told


# Windows


def long(words: int) -> ChatRequest:
    return ChatRequest((Message.user("word " * words),))


def windows(*requests: ChatRequest, url: str | None = None) -> list[int]:
    """The windows that a model at an address of its own asks for, one request after the other."""
    model = OllamaChatModel("a-model", base_url=url or f"http://127.0.0.1:{next(ports)}")
    return [json.loads(model.render(request).body)["options"]["num_ctx"] for request in requests]


def test_a_window_is_a_power_of_two_that_holds_request_and_answer() -> None:
    assert windows(long(10)) == [4096]
    assert windows(long(5_000)) == [16_384]
    assert windows(replace(long(10), max_output_tokens=8_000)) == [8_192]
    assert windows(replace(long(10), max_output_tokens=8_192)) == [16_384]


def test_a_window_is_never_made_smaller() -> None:
    assert windows(long(10), long(5_000), long(10)) == [4096, 16_384, 16_384]


def test_a_window_is_remembered_for_all_models_of_an_address() -> None:
    url = f"http://127.0.0.1:{next(ports)}"
    windows(long(5_000), url=url)
    model = AsyncOllamaChatModel("a-model", base_url=url)
    assert json.loads(model.render(long(10)).body)["options"]["num_ctx"] == 16_384


def test_a_window_that_is_given_is_taken() -> None:
    assert windows(replace(long(5_000), options={"num_ctx": 2048})) == [2048]


def test_bytes_follow_from_the_request_and_its_adaptations() -> None:
    url = f"http://127.0.0.1:{next(ports)}"
    windows(long(5_000), url=url)
    rendered = OllamaChatModel("a-model", base_url=url).render(long(10))
    assert rendered.adaptations == ("num_ctx=16384",)
    assert json.loads(rendered.body) == encoded(long(10), *rendered.adaptations)


# Prompts that were cut


def cut(stream: bool, count: int) -> Answer:
    end = {**END, "prompt_eval_count": count}
    return (
        lines(line({"content": "a"}), line({}, **end))
        if stream
        else json_answer(line({"content": "a"}, **end))
    )


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_prompt_that_counts_too_little_was_cut(ask: Ask, server: ScriptedServer, stream: bool) -> None:
    server.script(cut(stream, 590))
    error = ask(OLLAMA, long(1_000), stream=stream).error
    assert isinstance(error, ContextOverflowError)
    assert error.sent
    assert 950 < error.sent < 1_100


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_prompt_that_counts_about_what_was_estimated_was_not(
    ask: Ask, server: ScriptedServer, stream: bool
) -> None:
    server.script(cut(stream, 700))
    assert ask(OLLAMA, long(1_000), stream=stream).answer.message.text == "a"


def test_an_answer_without_a_count_is_one(ask: Ask, server: ScriptedServer) -> None:
    server.script(json_answer(line({"content": "a"}, done=True, done_reason="stop")))
    assert ask(OLLAMA, long(1_000)).answer.usage is None


def test_an_overflow_that_ollama_notices_is_one(ask: Ask, server: ScriptedServer) -> None:
    server.script(json_answer({"error": "the input length exceeds the context length"}, 400))
    assert isinstance(ask(OLLAMA, ASKED).error, ContextOverflowError)
