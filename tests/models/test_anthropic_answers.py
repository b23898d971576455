"""Answers of the Anthropic Messages API, whole and streamed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.models.codecs import U, calls_of, fed, streamed, text_of, thought_of
from tests.support.providers.streams import anthropic_events, read_by_anthropic, sse
from tests.support.providers.transcripts import answers, files

from turnlog.application.chat import (
    ChatRequest,
    ContextOverflowError,
    FinishReason,
    InvalidReplyError,
    ModelRejectedError,
    ModelUnavailableError,
    Usage,
)
from turnlog.domain.messages import (
    ReasoningPart,
    ServerToolCallPart,
    ServerToolCallResponsePart,
    TextPart,
    ToolCallPart,
)
from turnlog.infrastructure.formats import anthropic_messages
from turnlog.infrastructure.models.anthropic_messages import AnthropicMessagesCodec

CODEC = AnthropicMessagesCodec()
RECORDED = [
    pytest.param(body, id=f"{path.stem}-{place}")
    for path in files("anthropic_messages")
    for place, body in enumerate(answers(path))
]

TEXT = {"type": "text", "text": "In Lund, she says: «hej»."}
THINKING = {"type": "thinking", "thinking": "A parcel. Look it up.", "signature": "sig=="}
HIDDEN = {"type": "redacted_thinking", "data": "opaque=="}
CALLS: list[dict[str, Any]] = [
    {"type": "tool_use", "id": "toolu_1", "name": "find", "input": {"no": "7", "deep": {"a": [1, None]}}},
    {"type": "tool_use", "id": "toolu_2", "name": "now", "input": {}},
]
SEARCH = [
    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "Lund"}},
    {
        "type": "web_search_tool_result",
        "tool_use_id": "srvtoolu_1",
        "content": [
            {
                "type": "web_search_result",
                "url": "https://a.example",
                "title": "Lund",
                "encrypted_content": "x",
                "page_age": None,
            }
        ],
    },
    {
        "type": "text",
        "text": "Lund is a city.",
        "citations": [
            {
                "type": "web_search_result_location",
                "url": "https://a.example",
                "title": "Lund",
                "encrypted_index": "y",
                "cited_text": "a city",
            }
        ],
    },
]
USAGE = {
    "input_tokens": 10,
    "cache_creation_input_tokens": 200,
    "cache_read_input_tokens": 3000,
    "cache_creation": {"ephemeral_5m_input_tokens": 200, "ephemeral_1h_input_tokens": 0},
    "output_tokens": 40,
    "output_tokens_details": {"thinking_tokens": 12},
}


def body(*content: Any, stop: str = "end_turn", **fields: Any) -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-opus-4-1-20250805",
        "content": list(content),
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": USAGE,
        **fields,
    }


BODIES = {
    "text": body(TEXT),
    "thinking and calls": body(THINKING, TEXT, *CALLS, stop="tool_use"),
    "hidden thinking": body(HIDDEN, TEXT),
    "thinking that is not shown": body({**THINKING, "thinking": ""}, TEXT),
    "server tools and citations": body(THINKING, *SEARCH),
    "a stop sequence": body(TEXT, stop="stop_sequence", stop_sequence="END"),
    "nothing": body(),
}
EACH = pytest.mark.parametrize("whole", BODIES.values(), ids=BODIES)


@EACH
def test_a_stream_gives_the_message_that_the_whole_answer_is(whole: dict[str, Any]) -> None:
    assert streamed(CODEC, anthropic_events(whole)) == CODEC.decode(whole)


@pytest.mark.parametrize("whole", RECORDED)
def test_a_recorded_answer_streamed_is_the_recorded_answer(whole: dict[str, Any]) -> None:
    assert streamed(CODEC, anthropic_events(whole)) == CODEC.decode(whole)


@pytest.mark.parametrize("whole", RECORDED)
def test_an_answer_is_given_back_as_it_came(whole: dict[str, Any]) -> None:
    assert anthropic_messages.export([CODEC.decode(whole).message]) == [whole]


@EACH
def test_the_sdk_reads_the_same_message_from_the_same_bytes(whole: dict[str, Any]) -> None:
    read = anthropic_messages.message(read_by_anthropic(sse(anthropic_events(whole))))
    assert read.parts == streamed(CODEC, anthropic_events(whole)).message.parts


@EACH
def test_the_sdk_reads_the_same_usage_from_the_same_bytes(whole: dict[str, Any]) -> None:
    usage = streamed(CODEC, anthropic_events(whole)).usage
    assert usage is not None
    read = read_by_anthropic(sse(anthropic_events(whole))).usage
    counts = (read.input_tokens, read.cache_read_input_tokens, read.cache_creation_input_tokens)
    assert (sum(counts), read.output_tokens) == (usage.input_tokens, usage.output_tokens)


@EACH
def test_the_pieces_are_the_text_of_the_message(whole: dict[str, Any]) -> None:
    pieces = fed(CODEC.decoder(), anthropic_events(whole))
    parts = CODEC.decode(whole).message.parts
    assert text_of(pieces) == "".join(part.content for part in parts if isinstance(part, TextPart))


def test_the_pieces_are_what_was_thought() -> None:
    assert (
        thought_of(fed(CODEC.decoder(), anthropic_events(BODIES["thinking and calls"])))
        == THINKING["thinking"]
    )


def test_the_pieces_are_the_calls_each_under_its_own_number() -> None:
    calls = calls_of(fed(CODEC.decoder(), anthropic_events(BODIES["thinking and calls"])))
    assert calls == [("toolu_1", "find", json.dumps(CALLS[0]["input"])), ("toolu_2", "now", "")]


def test_calls_that_the_provider_runs_are_no_calls_of_the_application() -> None:
    assert calls_of(fed(CODEC.decoder(), anthropic_events(BODIES["server tools and citations"]))) == []


def test_thinking_keeps_its_signature() -> None:
    part = streamed(CODEC, anthropic_events(BODIES["thinking and calls"])).message.parts[0]
    assert (isinstance(part, ReasoningPart), part.extra["signature"]) == (True, "sig==")


def test_what_the_provider_ran_are_parts_of_their_own() -> None:
    parts = CODEC.decode(BODIES["server tools and citations"]).message.parts
    kinds = [type(part) for part in parts]
    assert kinds == [ReasoningPart, ServerToolCallPart, ServerToolCallResponsePart, TextPart]


# Why an answer ended


@pytest.mark.parametrize(
    ("stop", "reason"),
    [
        ("end_turn", FinishReason.STOP),
        ("stop_sequence", FinishReason.STOP),
        ("max_tokens", FinishReason.LENGTH),
        ("tool_use", FinishReason.TOOL_CALL),
        ("refusal", FinishReason.CONTENT_FILTER),
        ("pause_turn", FinishReason.STOP),
        ("a_new_reason", FinishReason.STOP),
    ],
)
def test_the_stop_reason_is_told_in_common_words_beside_the_providers(
    stop: str, reason: FinishReason
) -> None:
    reply = CODEC.decode(body(TEXT, stop=stop))
    assert (reply.finish_reason, reply.provider_finish_reason) == (reason, stop)


def test_an_answer_at_the_end_of_the_window_is_an_overflow() -> None:
    with pytest.raises(ContextOverflowError) as raised:
        CODEC.decode(body(TEXT, stop="model_context_window_exceeded"))
    assert raised.value.sent == 3210


def test_a_stream_at_the_end_of_the_window_is_an_overflow() -> None:
    with pytest.raises(ContextOverflowError):
        streamed(CODEC, anthropic_events(body(TEXT, stop="model_context_window_exceeded")))


def test_a_paused_turn_goes_on_with_the_answer_sent_back() -> None:
    request = ChatRequest((U,))
    reply = CODEC.decode(body(*SEARCH[:1], stop="pause_turn"))
    following = CODEC.continued(request, reply)
    assert following is not None
    sent = CODEC.encode(following, "claude-opus-4-1", stream=False, adaptations=frozenset())["messages"]
    assert sent[-1] == {"role": "assistant", "content": SEARCH[:1]}


def test_a_turn_that_ended_does_not_go_on() -> None:
    assert CODEC.continued(ChatRequest((U,)), CODEC.decode(body(TEXT))) is None


# Usage


def test_input_tokens_are_the_whole_prompt_with_what_was_cached() -> None:
    assert CODEC.decode(body(TEXT)).usage == Usage(3210, 40, 3000, 200, 12, provider=USAGE)


def test_usage_without_a_cache_is_the_provider_s_own() -> None:
    usage = CODEC.decode(body(TEXT, usage={"input_tokens": 5, "output_tokens": 6})).usage
    assert usage == Usage(5, 6, provider={"input_tokens": 5, "output_tokens": 6})


def test_the_usage_is_stored_with_the_answer() -> None:
    reply = CODEC.decode(body(TEXT))
    assert Usage.of(reply.message) == reply.usage


def test_ids_are_stored_with_the_answer() -> None:
    reply = CODEC.decode(body(TEXT))
    stored = reply.message.metadata or {}
    assert (stored["response_id"], stored["model"], stored["provider"]) == (
        reply.response_id,
        reply.model,
        "anthropic",
    )


def test_counts_that_a_stream_tells_at_its_end_replace_those_of_its_beginning() -> None:
    events = list(anthropic_events(body(TEXT)))
    events[-2]["usage"] = {"input_tokens": 11, "output_tokens": 50, "cache_read_input_tokens": None}
    assert streamed(CODEC, events).usage == Usage(
        3211, 50, 3000, 200, 12, provider={**USAGE, "input_tokens": 11, "output_tokens": 50}
    )


# What broke off


def cut(whole: dict[str, Any], behind: str, times: int = 1) -> list[dict[str, Any]]:
    """The events up to the given one of this type."""
    events = list(anthropic_events(whole))
    places = [place for place, event in enumerate(events) if event["type"] == behind]
    return events[: places[times - 1] + 1]


def test_an_unfinished_text_is_kept() -> None:
    reply = streamed(CODEC, cut(body(TEXT), "content_block_delta"))
    assert (reply.message.text, reply.finish_reason) == ("In Lund, she ", FinishReason.CANCELLED)


def test_a_call_that_is_not_complete_is_left_out() -> None:
    events = cut(body(TEXT, *CALLS, stop="tool_use"), "content_block_delta", 4)
    assert streamed(CODEC, events).message.tool_calls == ()


def test_a_call_that_is_complete_is_kept() -> None:
    events = cut(body(TEXT, *CALLS, stop="tool_use"), "content_block_stop", 2)
    assert [call.id for call in streamed(CODEC, events).message.tool_calls] == ["toolu_1"]


def test_a_stream_is_finished_by_its_last_event_only() -> None:
    decoder = CODEC.decoder()
    fed(decoder, cut(body(TEXT), "message_delta"))
    assert not decoder.is_finished


def test_thinking_that_broke_off_is_kept_and_never_sent_back() -> None:
    message = streamed(CODEC, cut(body(THINKING), "content_block_delta")).message
    request = ChatRequest(
        (U, message.model_copy(update={"parts": (*message.parts, TextPart(content="Well."))}), U)
    )
    sent = CODEC.encode(request, "claude-opus-4-1", stream=False, adaptations=frozenset())
    assert sent["messages"][1]["content"] == [{"type": "text", "text": "Well."}]


def test_arguments_that_are_no_json_are_kept_as_the_model_wrote_them() -> None:
    events = [
        e for e in anthropic_events(body(CALLS[0], stop="max_tokens")) if e["type"] != "content_block_delta"
    ]
    delta = {"type": "input_json_delta", "partial_json": '{"no": "7'}
    events.insert(3, {"type": "content_block_delta", "index": 0, "delta": delta})
    reply = streamed(CODEC, events)
    assert reply.message.tool_calls == (ToolCallPart(id="toolu_1", name="find", arguments='{"no": "7'),)


# What is no answer


@pytest.mark.parametrize(
    "event",
    [
        {"type": "overloaded_error", "message": "Overloaded"},
        {"type": "api_error", "message": "Internal server error"},
        {"type": "rate_limit_error", "message": "Slow down"},
    ],
    ids=lambda event: event["type"],
)
def test_an_error_inside_a_stream_is_raised_as_what_it_is(event: dict[str, Any]) -> None:
    with pytest.raises(ModelUnavailableError):
        streamed(CODEC, [*cut(body(TEXT), "content_block_delta"), {"type": "error", "error": event}])


@pytest.mark.parametrize(
    "data", ["<html>", "[1]", "", '{"type": "content_block_delta"}', '{"type": "message_start"}']
)
def test_an_event_that_is_malformed_is_no_reply(data: str) -> None:
    with pytest.raises(InvalidReplyError):
        list(CODEC.decoder().feed(None, data))


def test_an_event_of_an_unknown_type_says_nothing() -> None:
    assert list(CODEC.decoder().feed("new", '{"type": "new_event", "x": 1}')) == []


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"choices": []},
        {"type": "message"},
        {"type": "message", "content": "x"},
        {"type": "message", "content": [], "role": 1},
    ],
)
def test_a_body_that_is_no_message_is_no_reply(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidReplyError):
        CODEC.decode(given)


def test_an_error_body_with_status_200_is_what_it_says() -> None:
    with pytest.raises(ModelUnavailableError):
        CODEC.decode({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})


def failed(status: int, kind: str, message: str) -> Exception:
    return CODEC.error(status, {"type": "error", "error": {"type": kind, "message": message}}, message)


@pytest.mark.parametrize(
    ("message", "limit", "sent"),
    [
        ("prompt is too long: 205351 tokens > 200000 maximum", 200_000, 205_351),
        (
            "input length and `max_tokens` exceed context limit: 178959 + 64000 > 200000, decrease",
            200_000,
            178_959,
        ),
        ("prompt is too long", None, None),
    ],
)
def test_a_prompt_that_is_too_long_is_an_overflow_with_its_figures(
    message: str, limit: int | None, sent: int | None
) -> None:
    error = failed(400, "invalid_request_error", message)
    assert isinstance(error, ContextOverflowError)
    assert (error.limit, error.sent) == (limit, sent)


def test_a_request_of_too_many_bytes_is_an_overflow() -> None:
    assert isinstance(
        failed(413, "request_too_large", "Request exceeds the maximum size"), ContextOverflowError
    )


@pytest.mark.parametrize(
    ("status", "kind", "error"),
    [
        (400, "invalid_request_error", ModelRejectedError),
        (401, "authentication_error", ModelRejectedError),
        (403, "permission_error", ModelRejectedError),
        (404, "not_found_error", ModelRejectedError),
        (429, "rate_limit_error", ModelUnavailableError),
        (500, "api_error", ModelUnavailableError),
        (529, "overloaded_error", ModelUnavailableError),
    ],
)
def test_a_failed_response_is_a_typed_error(status: int, kind: str, error: type[Exception]) -> None:
    assert type(failed(status, kind, "No.")) is error


def test_a_refused_request_names_the_providers_code() -> None:
    error = failed(404, "not_found_error", "model: claude-x")
    assert isinstance(error, ModelRejectedError)
    assert (error.status, error.code) == (404, "not_found_error")


def test_the_files_hold_recorded_answers() -> None:
    assert len(RECORDED) >= 10
