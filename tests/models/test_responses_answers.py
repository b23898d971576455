"""Answers of the OpenAI Responses API, whole and streamed."""

from __future__ import annotations

from typing import Any

import pytest
from tests.models.codecs import U, calls_of, fed, streamed, text_of, thought_of
from tests.support.providers.streams import read_by_openai, responses_events, sse
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
from turnlog.domain.messages import ReasoningPart, ServerToolCallPart, TextPart, ToolCallPart
from turnlog.infrastructure.formats import openai_responses
from turnlog.infrastructure.models.openai_responses import OpenAIResponsesCodec

CODEC = OpenAIResponsesCodec()
RECORDED = [
    pytest.param(body, id=f"{path.stem}-{place}")
    for path in files("openai_responses")
    for place, body in enumerate(answers(path))
]


def said(text: str, name: str = "msg_1", **fields: Any) -> dict[str, Any]:
    content: list[Any] = [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]
    item: dict[str, Any] = {
        "id": name,
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": content,
    }
    return {**item, **fields}


REFUSED = {**said(""), "content": [{"type": "refusal", "refusal": "I cannot help with that."}]}
REASONING = {
    "id": "rs_1",
    "type": "reasoning",
    "summary": [
        {"type": "summary_text", "text": "**Looking it up**\n\nA parcel."},
        {"type": "summary_text", "text": "Lund, then."},
    ],
    "encrypted_content": "gAAA==",
}
SHORT: dict[str, Any] = {"id": "rs_2", "type": "reasoning", "summary": [], "encrypted_content": "gBBB=="}
OPEN = {
    "id": "rs_3",
    "type": "reasoning",
    "summary": [],
    "content": [{"type": "reasoning_text", "text": "A parcel in Lund."}],
}
CALL = {
    "id": "fc_1",
    "type": "function_call",
    "status": "completed",
    "call_id": "call_1",
    "name": "find",
    "arguments": '{"no": "7"}',
}
SECOND = {**CALL, "id": "fc_2", "call_id": "call_2", "name": "now", "arguments": "{}"}
CUSTOM = {"id": "ctc_1", "type": "custom_tool_call", "call_id": "call_3", "name": "sql", "input": "SELECT 1"}
SEARCH = {
    "id": "ws_1",
    "type": "web_search_call",
    "status": "completed",
    "action": {"type": "search", "query": "Lund"},
}
CITED = {
    "type": "url_citation",
    "url": "https://a.example",
    "title": "Lund",
    "start_index": 0,
    "end_index": 4,
}
USAGE = {
    "input_tokens": 1200,
    "input_tokens_details": {"cached_tokens": 1024, "cache_write_tokens": 100},
    "output_tokens": 90,
    "output_tokens_details": {"reasoning_tokens": 64},
    "total_tokens": 1290,
}


def body(*output: Any, status: str = "completed", **fields: Any) -> dict[str, Any]:
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1758054446,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "instructions": "Be brief.",
        "model": "gpt-5-2025-08-07",
        "output": list(output),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": USAGE,
        **fields,
    }


def incomplete(reason: str, *output: Any) -> dict[str, Any]:
    return body(*output, status="incomplete", incomplete_details={"reason": reason})


BODIES = {
    "text": body(said("In Lund, she says: «hej».")),
    "reasoning and calls": body(REASONING, CALL, SECOND),
    "commentary and an answer": body(
        SHORT, said("I look.", "msg_0", phase="commentary"), said("Lund.", phase="final_answer")
    ),
    "a call of a custom tool": body(SHORT, CUSTOM),
    "tools of the provider's own": body(SHORT, SEARCH, said("Lund.")),
    "citations": body(
        {**said("Lund."), "content": [{**said("Lund.")["content"][0], "annotations": [CITED]}]}
    ),
    "a refusal": body(REFUSED),
    "open reasoning": body(OPEN, said("Lund.")),
    "nothing": body(),
    "cut": incomplete("max_output_tokens", said("In", status="incomplete")),
}
EACH = pytest.mark.parametrize("whole", BODIES.values(), ids=BODIES)
COMPLETED = pytest.mark.parametrize(
    "whole", [b for b in BODIES.values() if b["status"] == "completed"], ids=lambda b: b["output"][-1:]
)


@EACH
def test_a_stream_gives_the_message_that_the_whole_answer_is(whole: dict[str, Any]) -> None:
    assert streamed(CODEC, responses_events(whole)) == CODEC.decode(whole)


@pytest.mark.parametrize("whole", RECORDED)
def test_a_recorded_answer_streamed_is_the_recorded_answer(whole: dict[str, Any]) -> None:
    assert streamed(CODEC, responses_events(whole)) == CODEC.decode(whole)


@EACH
def test_the_items_are_enough_where_the_response_repeats_none(whole: dict[str, Any]) -> None:
    events = list(responses_events(whole))
    events[-1]["response"] = {**whole, "output": []}
    assert streamed(CODEC, events) == CODEC.decode(whole)


@pytest.mark.parametrize("whole", [*BODIES.values(), *(param.values[0] for param in RECORDED)])
def test_the_items_of_an_answer_are_given_back_as_they_came(whole: dict[str, Any]) -> None:
    assert openai_responses.export([CODEC.decode(whole).message]) == whole["output"]


@COMPLETED
def test_the_sdk_reads_the_same_answer_from_the_same_bytes(whole: dict[str, Any]) -> None:
    read = read_by_openai(sse(responses_events(whole)))
    message = streamed(CODEC, responses_events(whole)).message
    assert read.output_text == "".join(part.content for part in message.parts if isinstance(part, TextPart))


@COMPLETED
def test_the_sdk_reads_the_same_calls_from_the_same_bytes(whole: dict[str, Any]) -> None:
    items = read_by_openai(sse(responses_events(whole))).output
    calls = [
        (item.call_id, item.name, item.input if item.type == "custom_tool_call" else item.arguments)
        for item in items
        if item.type in ("function_call", "custom_tool_call")
    ]
    message = streamed(CODEC, responses_events(whole)).message
    assert calls == [(call.id, call.name, call.arguments) for call in message.tool_calls]


@COMPLETED
def test_the_sdk_reads_the_same_usage_from_the_same_bytes(whole: dict[str, Any]) -> None:
    read = read_by_openai(sse(responses_events(whole))).usage
    usage = streamed(CODEC, responses_events(whole)).usage
    assert usage is not None
    assert (read.input_tokens, read.input_tokens_details.cached_tokens, read.output_tokens) == (
        usage.input_tokens,
        usage.cache_read_input_tokens,
        usage.output_tokens,
    )


@EACH
def test_the_pieces_are_the_text_of_the_message(whole: dict[str, Any]) -> None:
    parts = CODEC.decode(whole).message.parts
    texts = (part.content if isinstance(part, TextPart) else part.extra.get("refusal", "") for part in parts)
    assert text_of(fed(CODEC.decoder(), responses_events(whole))) == "".join(texts)


@EACH
def test_the_pieces_are_what_was_thought(whole: dict[str, Any]) -> None:
    parts = CODEC.decode(whole).message.parts
    thoughts = "".join(part.content or "" for part in parts if isinstance(part, ReasoningPart))
    assert thought_of(fed(CODEC.decoder(), responses_events(whole))) == thoughts


@EACH
def test_the_pieces_are_the_calls_each_under_its_own_number(whole: dict[str, Any]) -> None:
    calls = CODEC.decode(whole).message.tool_calls
    told = calls_of(fed(CODEC.decoder(), responses_events(whole)))
    assert told == [(call.id, call.name, call.arguments) for call in calls]


@EACH
def test_what_is_told_only_at_the_end_of_an_item_is_a_piece_too(whole: dict[str, Any]) -> None:
    events = [event for event in responses_events(whole) if not event["type"].endswith(".delta")]
    pieces = fed(CODEC.decoder(), events)
    every = fed(CODEC.decoder(), responses_events(whole))
    assert (text_of(pieces), calls_of(pieces)) == (text_of(every), calls_of(every))


def test_reasoning_keeps_what_is_encrypted() -> None:
    part = CODEC.decode(BODIES["reasoning and calls"]).message.parts[0]
    assert (isinstance(part, ReasoningPart), part.extra["encrypted_content"]) == (True, "gAAA==")


def test_a_call_of_a_custom_tool_is_a_call_with_its_text() -> None:
    call = CODEC.decode(BODIES["a call of a custom tool"]).message.tool_calls[0]
    assert (call.name, call.arguments, call.extra["call_type"]) == ("sql", "SELECT 1", "custom")


def test_what_the_provider_ran_is_a_part_of_its_own() -> None:
    parts = CODEC.decode(BODIES["tools of the provider's own"]).message.parts
    assert [type(part) for part in parts] == [ReasoningPart, ServerToolCallPart, TextPart]


def test_what_the_response_repeats_of_the_request_is_not_stored() -> None:
    assert not {"instructions", "tools", "output"} & set(CODEC.decode(body()).message.metadata or {})


# Why an answer ended


@pytest.mark.parametrize(
    ("whole", "reason", "word"),
    [
        (body(said("x")), FinishReason.STOP, "completed"),
        (body(CALL), FinishReason.TOOL_CALL, "completed"),
        (body(CUSTOM), FinishReason.TOOL_CALL, "completed"),
        (incomplete("max_output_tokens", said("x")), FinishReason.LENGTH, "max_output_tokens"),
        (incomplete("content_filter", said("x")), FinishReason.CONTENT_FILTER, "content_filter"),
        (incomplete("a_new_reason"), FinishReason.LENGTH, "a_new_reason"),
        (body(REFUSED), FinishReason.CONTENT_FILTER, "refusal"),
    ],
)
def test_the_ending_is_told_in_common_words_beside_the_providers(
    whole: dict[str, Any], reason: FinishReason, word: str
) -> None:
    reply = CODEC.decode(whole)
    assert (reply.finish_reason, reply.provider_finish_reason) == (reason, word)


def test_no_turn_of_this_provider_goes_on() -> None:
    assert CODEC.continued(ChatRequest((U,)), CODEC.decode(body(said("x")))) is None


# Usage


def test_usage_has_cached_and_reasoning_tokens() -> None:
    assert CODEC.decode(body(said("x"))).usage == Usage(1200, 90, 1024, 100, 64, provider=USAGE)


def test_the_usage_is_stored_with_the_answer() -> None:
    reply = CODEC.decode(body(said("x")))
    assert Usage.of(reply.message) == reply.usage


def test_an_answer_without_usage_has_none() -> None:
    assert CODEC.decode(body(said("x"), usage=None)).usage is None


# What broke off


def cut(whole: dict[str, Any], behind: str, times: int = 1) -> list[dict[str, Any]]:
    """The events up to the given one of this type."""
    events = list(responses_events(whole))
    places = [place for place, event in enumerate(events) if event["type"] == behind]
    return events[: places[times - 1] + 1]


def test_an_unfinished_text_is_kept() -> None:
    reply = streamed(CODEC, cut(BODIES["text"], "response.output_text.delta"))
    assert (reply.message.text, reply.finish_reason) == ("In Lund, she ", FinishReason.CANCELLED)


def test_a_call_that_is_not_complete_is_left_out() -> None:
    events = cut(BODIES["reasoning and calls"], "response.function_call_arguments.delta", 3)
    assert [call.id for call in streamed(CODEC, events).message.tool_calls] == ["call_1"]


def test_reasoning_that_broke_off_is_kept_and_never_sent_back() -> None:
    events = cut(BODIES["reasoning and calls"], "response.reasoning_summary_text.delta")
    message = streamed(CODEC, events).message
    assert message.parts[0].extra.get("encrypted_content") is None


def test_a_stream_is_finished_by_its_last_event_only() -> None:
    decoder = CODEC.decoder()
    fed(decoder, list(responses_events(BODIES["text"]))[:-1])
    assert not decoder.is_finished


def test_a_broken_off_answer_can_be_told_to_the_model_again() -> None:
    message = streamed(
        CODEC, cut(BODIES["commentary and an answer"], "response.output_text.delta", 3)
    ).message
    sent = CODEC.encode(ChatRequest((U, message, U)), "gpt-5", stream=False, adaptations=frozenset())["input"]
    assert [item.get("id") for item in sent] == [None, "rs_2", "msg_0", "msg_1", None]


# What is no answer


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        ({"code": "server_error", "message": "No."}, ModelUnavailableError),
        ({"code": "rate_limit_exceeded", "message": "No."}, ModelUnavailableError),
        ({"code": "context_length_exceeded", "message": "No."}, ContextOverflowError),
        ({"code": "invalid_prompt", "message": "No."}, InvalidReplyError),
    ],
    ids=["server", "rate limit", "overflow", "prompt"],
)
def test_a_failed_response_is_raised_as_what_it_is(error: dict[str, Any], raised: type[Exception]) -> None:
    with pytest.raises(raised):
        CODEC.decode(body(status="failed", error=error))
    with pytest.raises(raised):
        streamed(CODEC, responses_events(body(status="failed", error=error)))


@pytest.mark.parametrize(
    "event",
    [
        {"type": "error", "code": "server_error", "message": "No.", "param": None},
        {"type": "error", "error": {"type": "server_error", "code": "server_error", "message": "No."}},
    ],
)
def test_an_error_inside_a_stream_is_raised_as_what_it_is(event: dict[str, Any]) -> None:
    with pytest.raises(ModelUnavailableError):
        streamed(CODEC, [*cut(BODIES["text"], "response.output_text.delta"), event])


@pytest.mark.parametrize("data", ["<html>", "[1]", "", '{"type": "response.output_item.added"}'])
def test_an_event_that_is_malformed_is_no_reply(data: str) -> None:
    with pytest.raises(InvalidReplyError):
        list(CODEC.decoder().feed(None, data))


@pytest.mark.parametrize("data", ['{"type": "response.new_thing", "x": 1}', "[DONE]", "{}"])
def test_an_event_of_an_unknown_type_says_nothing(data: str) -> None:
    assert list(CODEC.decoder().feed(None, data)) == []


@pytest.mark.parametrize(
    "given", [{}, {"choices": []}, {"output": "x"}, {"output": ["x"]}, body(status="cancelled")]
)
def test_a_body_that_is_no_response_is_no_reply(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidReplyError):
        CODEC.decode(given)


def failed(status: int, **error: Any) -> Exception:
    return CODEC.error(status, {"error": {"message": "No.", "type": "invalid_request_error", **error}}, "")


def test_an_input_that_exceeds_the_window_is_an_overflow() -> None:
    message = "Your input exceeds the context window of this model. Please adjust your input and try again."
    error = failed(400, code="context_length_exceeded", message=message, param="input")
    assert isinstance(error, ContextOverflowError)


@pytest.mark.parametrize(
    ("status", "raised"), [(400, ModelRejectedError), (401, ModelRejectedError), (503, ModelUnavailableError)]
)
def test_a_refused_request_is_a_typed_error(status: int, raised: type[Exception]) -> None:
    assert type(failed(status)) is raised


def test_calls_of_an_answer_have_the_ids_that_results_name() -> None:
    assert CODEC.decode(body(CALL)).message.tool_calls == (
        ToolCallPart.model_validate(
            {
                "id": "call_1",
                "name": "find",
                "arguments": '{"no": "7"}',
                "item_id": "fc_1",
                "status": "completed",
            }
        ),
    )
