"""OpenAI Chat: what is sent, and what an answer becomes, whole and in pieces."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionMessage
from tests.models.answers import ASKED, USAGE, body, chunk, chunks, streamed
from tests.support.asking import ask_sync
from tests.support.providers.rules import openai_rule_faults
from tests.support.providers.types import openai_type_faults
from tests.support.scripted_server import Answer, ScriptedServer, json_answer, sse_answer

from turnlog.application.chat import (
    ChatReply,
    ChatRequest,
    FinishReason,
    ToolCallDelta,
    ToolDefinition,
    Usage,
)
from turnlog.domain.messages import Message, ReasoningPart, ToolCallPart
from turnlog.infrastructure.models import OpenAIChatModel
from turnlog.infrastructure.models.openai_chat import OpenAIChatCodec

CHAT = "OpenAIChat"
OPENAI = "https://api.openai.com/v1"
NOTHING: frozenset[str] = frozenset()


def call(index: int, name: str, arguments: str) -> dict[str, Any]:
    return {"id": f"call_{index}", "type": "function", "function": {"name": name, "arguments": arguments}}


def deltas_of(message: dict[str, Any], size: int = 2) -> Iterator[dict[str, Any]]:
    """The message in pieces, as the provider cuts it."""
    for name in ("reasoning_content", "reasoning", "content", "refusal"):
        text = message.get(name) or ""
        yield from ({name: text[start : start + size]} for start in range(0, len(text), size))
    for index, one in enumerate(message.get("tool_calls") or ()):
        function = {"name": one["function"]["name"], "arguments": ""}
        yield {"tool_calls": [{"index": index, "id": one["id"], "type": "function", "function": function}]}
        text = one["function"]["arguments"]
        for start in range(0, len(text), size):
            piece = {"index": index, "function": {"arguments": text[start : start + size]}}
            yield {"tool_calls": [piece]}


MESSAGES: dict[str, dict[str, Any]] = {
    "text": {"role": "assistant", "content": "In Lund. 🎁", "refusal": None, "annotations": []},
    "empty": {"role": "assistant", "content": ""},
    "nothing": {"role": "assistant", "content": None},
    "refusal": {"role": "assistant", "content": None, "refusal": "I cannot help with that."},
    "one call": {"role": "assistant", "content": None, "tool_calls": [call(0, "find", '{"id": "7"}')]},
    "calls": {
        "role": "assistant",
        "content": "I look.",
        "tool_calls": [call(0, "find", '{"id": "7"}'), call(1, "find", "{}"), call(2, "stop", "")],
    },
    "reasoning": {"role": "assistant", "content": "In Lund.", "reasoning_content": "Where is Lund?"},
    "reasoning of others": {"role": "assistant", "content": "In Lund.", "reasoning": "Where is Lund?"},
    "reasoning and calls": {
        "role": "assistant",
        "content": None,
        "reasoning_content": "I must look.",
        "tool_calls": [call(0, "find", "{}")],
    },
}
ALL = pytest.mark.parametrize("message", MESSAGES.values(), ids=MESSAGES.keys())


@pytest.fixture
def asked(server: ScriptedServer) -> Any:
    """The reply to what the server is told to answer."""

    def reply(answer: Answer, request: ChatRequest = ASKED, stream: bool = False) -> ChatReply:
        server.script(answer)
        return ask_sync(CHAT, request, stream=stream, base_url=server.url).answer

    return reply


# Answers


@ALL
def test_a_streamed_answer_is_the_message_that_the_whole_answer_would_be(
    asked: Any, message: dict[str, Any]
) -> None:
    reason = "tool_calls" if message.get("tool_calls") else "stop"
    whole = asked(json_answer(body(message, reason)))
    pieces = asked(streamed(*deltas_of(message), reason=reason), stream=True)
    assert pieces == whole


@ALL
def test_the_official_sdk_reads_the_same_from_the_stream(
    server: ScriptedServer, message: dict[str, Any]
) -> None:
    server.script(*[streamed(*deltas_of(message))] * 2)
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        stream = client.chat.completions.create(
            model="a-model", messages=[{"role": "user", "content": "Hi"}], stream=True
        )
        read = sdk_message([piece.to_dict() for piece in stream])
    ours = ask_sync(CHAT, ASKED, stream=True, base_url=server.url).answer.message
    ChatCompletionMessage.model_validate({"role": "assistant", **read})
    assert (ours.text or "") == read["content"]
    assert [(c.id, c.name, c.arguments) for c in ours.tool_calls] == read["calls"]


def sdk_message(pieces: list[Any]) -> dict[str, Any]:
    """The text and the calls that the pieces of the SDK make together."""
    deltas = [choice["delta"] for piece in pieces for choice in piece["choices"]]
    calls: dict[int, list[str]] = {}
    for piece in (piece for delta in deltas for piece in delta.get("tool_calls") or ()):
        function = piece["function"]
        found = calls.setdefault(piece["index"], [piece.get("id"), function.get("name"), ""])
        found[2] += function.get("arguments") or ""
    text = "".join(delta.get("content") or "" for delta in deltas)
    return {"content": text, "calls": [tuple(found) for found in calls.values()]}


def test_parts_stand_in_the_order_in_which_a_model_makes_them(asked: Any) -> None:
    message = asked(json_answer(body({**MESSAGES["reasoning and calls"], "content": "I look."}))).message
    assert [part.type for part in message.parts] == ["reasoning", "text", "tool_call"]


def test_the_metadata_of_an_answer_has_what_is_known_of_it(asked: Any) -> None:
    metadata = asked(json_answer(body(MESSAGES["text"], "length"))).message.metadata
    usage = {"input_tokens": 20, "output_tokens": 3, "provider": USAGE}
    assert metadata == {
        "provider": "openai",
        "model": "a-model",
        "response_id": "chatcmpl-1",
        "finish_reason": "length",
        "provider_finish_reason": "length",
        "usage": usage,
    }


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("stop", FinishReason.STOP),
        ("length", FinishReason.LENGTH),
        ("content_filter", FinishReason.CONTENT_FILTER),
        ("tool_calls", FinishReason.TOOL_CALL),
        ("eos", FinishReason.STOP),
        (None, FinishReason.STOP),
    ],
)
def test_finish_reasons_are_told_in_one_vocabulary(asked: Any, said: str, meant: FinishReason) -> None:
    reply = asked(json_answer(body(MESSAGES["text"], said)))
    assert (reply.finish_reason, reply.provider_finish_reason) == (meant, said)


def test_calls_are_a_reason_of_their_own_whatever_the_server_says(asked: Any) -> None:
    assert asked(json_answer(body(MESSAGES["calls"], "stop"))).finish_reason is FinishReason.TOOL_CALL


def test_usage_is_told_with_its_details(asked: Any) -> None:
    details = {
        "prompt_tokens": 100,
        "completion_tokens": 50,
        "prompt_tokens_details": {"cached_tokens": 64},
        "completion_tokens_details": {"reasoning_tokens": 40},
    }
    usage = asked(json_answer({**body(MESSAGES["text"]), "usage": details})).usage
    assert usage == Usage(100, 50, 64, None, 40, details)


def test_usage_of_deepseek_names_what_was_cached(asked: Any) -> None:
    details = {"prompt_tokens": 9, "completion_tokens": 1, "prompt_cache_hit_tokens": 8}
    usage = asked(json_answer({**body(MESSAGES["text"]), "usage": details})).usage
    assert usage.cache_read_input_tokens == 8


def test_a_call_arrives_in_pieces_that_name_it_once(server: ScriptedServer) -> None:
    server.script(streamed(*deltas_of(MESSAGES["one call"], 20)))
    pieces = ask_sync(CHAT, ASKED, stream=True, base_url=server.url).pieces
    assert pieces == [ToolCallDelta(0, "call_0", "find"), ToolCallDelta(0, None, None, '{"id": "7"}')]


@pytest.mark.parametrize("index", [{}, {"index": 0}, {"index": None}], ids=["none", "same", "null"])
def test_parallel_calls_are_told_apart_where_a_server_does_not_number_them(
    asked: Any, index: dict[str, Any]
) -> None:
    deltas = [{"tool_calls": [{**index, **call(place, "find", f'{{"a":{place}}}')}]} for place in (1, 2)]
    calls = asked(streamed(*deltas), stream=True).message.tool_calls
    assert [(one.id, one.arguments) for one in calls] == [("call_1", '{"a":1}'), ("call_2", '{"a":2}')]


def test_arguments_that_come_as_an_object_become_text(asked: Any) -> None:
    given = {"index": 0, "id": "c", "function": {"name": "find", "arguments": {"a": "б"}}}
    assert (
        asked(streamed({"tool_calls": [given]}), stream=True).message.tool_calls[0].arguments == '{"a":"б"}'
    )


def test_other_choices_and_chunks_without_choices_are_passed_over(asked: Any) -> None:
    other = {**chunk({"content": "No."}), "choices": [{"index": 1, "delta": {"content": "No."}}]}
    first, *rest = chunks({"content": "Yes."})
    answer = sse_answer({"choices": [], "prompt_filter_results": []}, first, other, *rest)
    assert asked(answer, stream=True).message.text == "Yes."


def test_pings_comments_and_characters_cut_in_two_are_survived(asked: Any) -> None:
    text = "".join(
        f"data: {json.dumps(one, ensure_ascii=False)}\r\n\r\n" for one in chunks({"content": "Лунд 🎁"})
    )
    raw = (": ping\r\n\r\nevent: ping\r\n\r\n" + text + ": end\r\n\r\ndata: [DONE]\r\n\r\n").encode()
    answer = Answer([raw[place : place + 1] for place in range(len(raw))], content_type="text/event-stream")
    assert asked(answer, stream=True).message.text == "Лунд 🎁"


# Requests


def encoded(request: ChatRequest, *adaptations: str, url: str = "http://localhost:1/v1") -> dict[str, Any]:
    codec = OpenAIChatCodec(url)
    return codec.encode(request, "a-model", stream=False, adaptations=frozenset(adaptations))


def test_bytes_are_compact_json_in_utf_8() -> None:
    model = OpenAIChatModel("gpt-5", base_url=OPENAI)
    rendered = model.render(ChatRequest((Message.user("Лунд \ud800"),)))
    assert rendered.body.decode() == '{"model":"gpt-5","messages":[{"role":"user","content":"Лунд \ufffd"}]}'
    assert (rendered.renderer, rendered.model, rendered.is_stream) == ("openai.chat/1", "gpt-5", False)


def test_the_bytes_that_are_sent_are_those_that_were_rendered(server: ScriptedServer) -> None:
    server.script(json_answer(body(MESSAGES["text"])))
    with OpenAIChatModel("gpt-5", base_url=server.url) as model:
        rendered = model.render(ASKED)
        model.complete(rendered)
    assert server.requests[0].body == rendered.body


def test_nothing_is_sent_that_nobody_asked_for() -> None:
    assert set(encoded(ASKED)) == {"model", "messages"}


def test_a_stream_asks_for_its_usage() -> None:
    body = OpenAIChatCodec().encode(ASKED, "m", stream=True, adaptations=NOTHING)
    assert (body["stream"], body["stream_options"]) == (True, {"include_usage": True})


def test_openai_and_others_are_told_a_limit_under_their_own_name() -> None:
    limited = replace(ASKED, max_output_tokens=5)
    assert encoded(limited, url=OPENAI)["max_completion_tokens"] == 5
    assert encoded(limited)["max_tokens"] == 5


def test_options_are_sent_as_they_are() -> None:
    options = {"temperature": 0, "stop": ["x"], "reasoning": {"effort": "low"}, "branch": "b"}
    sent = encoded(replace(ASKED, options=options))
    assert {name: sent[name] for name in options} == options


def test_tools_are_told_in_the_form_of_the_provider() -> None:
    tool = ToolDefinition("find", "Finds it.", {"type": "object", "properties": {}})
    sent = encoded(replace(ASKED, tools=(tool,)))
    function = {"name": "find", "description": "Finds it.", "parameters": tool.parameters}
    assert sent["tools"] == [{"type": "function", "function": function}]
    assert openai_type_faults(sent) == openai_rule_faults(sent) == []


REFUSALS: list[tuple[str, dict[str, Any], str]] = [
    (
        "max_completion_tokens",
        {
            "message": "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
            "'max_completion_tokens' instead.",
            "param": "max_tokens",
        },
        "max_tokens",
    ),
    ("max_tokens", {"message": "Unrecognized request argument supplied: max_completion_tokens"}, ""),
    (
        "no_temperature",
        {
            "message": "Unsupported value: 'temperature' does not support 0.2 with this model. Only the "
            "default (1) value is supported.",
            "param": "temperature",
            "code": "unsupported_value",
        },
        "temperature",
    ),
    ("no_stream_options", {"message": "Unknown parameter: 'stream_options'"}, "stream_options"),
    (
        "developer_role",
        {"message": "Unsupported value: 'messages[0].role' does not support 'system' with this model."},
        "",
    ),
    ("system_role", {"message": "'developer' is not one of ['system', 'assistant', 'user', 'function']"}, ""),
    ("system_as_user", {"message": "System role not supported"}, ""),
    ("alternate", {"message": "Conversation roles must alternate user/assistant/user/assistant/..."}, ""),
    ("no_reasoning", {"message": "property 'reasoning_content' is unsupported"}, ""),
]


@pytest.mark.parametrize(("name", "error", "gone"), REFUSALS, ids=[one[0] for one in REFUSALS])
def test_a_refused_part_is_known_and_left_out(name: str, error: dict[str, Any], gone: str) -> None:
    assert OpenAIChatCodec().adaptation(400, {"error": error}) == name
    request = replace(ASKED, max_output_tokens=5, options={"temperature": 0.2})
    sent = OpenAIChatCodec().encode(request, "m", stream=True, adaptations=frozenset((name,)))
    assert gone not in sent


def test_a_form_that_forbids_further_fields_is_understood() -> None:
    detail = [
        {
            "type": "extra_forbidden",
            "loc": ["body", "max_completion_tokens"],
            "msg": "Extra inputs are not permitted",
        }
    ]
    assert OpenAIChatCodec().adaptation(422, {"detail": detail}) == "max_tokens"


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "max_tokens is too large: 5000. This model supports at most 4096 completion tokens"),
        (400, "Invalid value for 'temperature': must be between 0 and 2."),
        (400, "Invalid schema for function 'find'"),
        (401, "Unknown parameter: 'stream_options'"),
    ],
)
def test_another_refusal_changes_nothing(status: int, message: str) -> None:
    assert OpenAIChatCodec().adaptation(status, {"error": {"message": message}}) is None


def test_instructions_are_sent_in_the_role_that_the_server_takes() -> None:
    roles = {
        name: [one["role"] for one in encoded(ASKED, *names)["messages"]]
        for name, names in {
            "system": (),
            "developer": ("developer_role",),
            "back": ("developer_role", "system_role"),
            "user": ("system_as_user",),
        }.items()
    }
    assert roles == {
        "system": ["system", "user"],
        "developer": ["developer", "user"],
        "back": ["system", "user"],
        "user": ["user"],
    }


def test_system_messages_stay_in_their_place_where_that_is_asked_for() -> None:
    told = (Message.system("A"), Message.user("a"), Message.system("B"), Message.user("b"))
    in_place = [
        (one["role"], one["content"]) for one in encoded(ChatRequest(told, system_in_place=True))["messages"]
    ]
    assert in_place == [("system", "A"), ("user", "a"), ("system", "B"), ("user", "b")]
    assert [one["content"] for one in encoded(ChatRequest(told))["messages"]] == ["B", "a", "b"]


def test_a_system_message_between_a_call_and_its_result_stands_behind_the_result() -> None:
    asking = Message.assistant([ToolCallPart(id="c", name="find", arguments="{}")])
    told = (Message.user("a"), asking, Message.system("B"), Message.tool("x", id="c"))
    sent = encoded(ChatRequest(told, system_in_place=True))
    assert [one["role"] for one in sent["messages"]] == ["user", "assistant", "tool", "system"]
    assert openai_rule_faults(sent) == []


# Reasoning


def thinking(**metadata: Any) -> Message:
    parts = [ReasoningPart(content="Where?"), *Message.assistant("In Lund.").parts]
    return Message.assistant(parts, origin="openai.chat", metadata=metadata or None)


def sent_reasoning(message: Message, url: str, model: str = "a-model") -> list[str]:
    request = ChatRequest((Message.user("Where?"), message, Message.user("And now?")))
    sent = OpenAIChatCodec(url).encode(request, model, stream=False, adaptations=NOTHING)
    return [one["reasoning_content"] for one in sent["messages"] if "reasoning_content" in one]


DEEPSEEK = "https://api.deepseek.com"
FOREIGN = thinking(provider="deepseek", model="deepseek-reasoner").model_copy(update={"origin": "other"})


def test_reasoning_goes_back_to_the_family_that_it_came_from() -> None:
    said = thinking(provider="deepseek", model="deepseek-reasoner-2025-05-28")
    assert sent_reasoning(said, DEEPSEEK, "deepseek-reasoner") == ["Where?"]


@pytest.mark.parametrize(
    ("message", "url", "model"),
    [
        (thinking(provider="deepseek", model="deepseek-reasoner"), DEEPSEEK, "deepseek-chat"),
        (thinking(provider="deepseek", model="deepseek-reasoner"), OPENAI, "deepseek-reasoner"),
        (thinking(), DEEPSEEK, "deepseek-reasoner"),
        (
            thinking(provider="deepseek", model="deepseek-reasoner").model_copy(
                update={"origin": "ollama.chat"}
            ),
            DEEPSEEK,
            "deepseek-reasoner",
        ),
    ],
    ids=["another model", "another provider", "nobody knows whose", "another API"],
)
def test_reasoning_goes_to_nobody_else(message: Message, url: str, model: str) -> None:
    assert sent_reasoning(message, url, model) == []


def test_reasoning_goes_back_where_a_server_names_its_model_in_its_own_way(server: ScriptedServer) -> None:
    named = {**body(MESSAGES["reasoning"]), "model": "/models/qwen3.gguf"}
    server.script(json_answer(named))
    said = ask_sync(CHAT, ASKED, base_url=server.url).answer.message
    assert sent_reasoning(said, server.url) == ["Where is Lund?"]


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_number_that_json_cannot_say_does_not_lose_the_answer(
    asked: Any, stream: bool, number: str
) -> None:
    usage = {"prompt_tokens": 3, "cost": 0.25, "score": "-"}
    event = chunk({"content": "Hi"}, "stop") if stream else body(MESSAGES["text"])
    text = json.dumps({**event, "usage": usage}).replace('"-"', number)
    answer = sse_answer(text) if stream else Answer([text.encode()])
    message = asked(answer, stream=stream).message
    assert message.metadata["usage"]["provider"] == {"prompt_tokens": 3, "cost": 0.25, "score": None}
