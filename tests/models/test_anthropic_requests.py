"""Requests to the Anthropic Messages API."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from tests.models.codecs import FIND, U, encoded
from tests.support.providers.rules import anthropic_rule_faults
from tests.support.providers.types import anthropic_type_faults

from turnlog.application.chat import ChatRequest
from turnlog.domain.log import EventType, SessionEvent
from turnlog.domain.messages import Message, ReasoningPart, TextPart, ToolCallPart
from turnlog.infrastructure.formats import anthropic_messages, openai_responses
from turnlog.infrastructure.models.anthropic_messages import (
    CACHE_IN_BLOCKS,
    DEFAULT_MAX_TOKENS,
    AnthropicMessagesCodec,
)

CODEC = AnthropicMessagesCodec()
MARK = {"type": "ephemeral"}
S = Message.system("You work for a post office.")
A = Message.assistant("In Lund.")


def thinking(
    model: str | None = "claude-opus-4-1-20250805", origin: str = anthropic_messages.ORIGIN
) -> Message:
    parts = [
        ReasoningPart.model_validate({"content": "Hm.", "signature": "sig=="}),
        TextPart(content="In Lund."),
    ]
    return Message.assistant(parts, origin=origin, metadata={"model": model} if model else None)


def thoughts(*conversation: Message, model: str) -> list[Any]:
    wire = encoded(CODEC, *conversation, model=model)["messages"]
    return [block for one in wire for block in one["content"] if block["type"] == "thinking"]


def error(message: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": "invalid_request_error", "message": message}}


# Address and headers


@pytest.mark.parametrize(
    "base", ["https://api.anthropic.com", "https://api.anthropic.com/", "https://api.anthropic.com/v1"]
)
def test_the_address_is_the_same_with_and_without_a_version(base: str) -> None:
    assert CODEC.url(base) == "https://api.anthropic.com/v1/messages"


def test_the_key_and_the_version_are_headers() -> None:
    assert CODEC.headers("k") == {"x-api-key": "k", "anthropic-version": "2023-06-01"}


def test_betas_are_a_header() -> None:
    headers = AnthropicMessagesCodec(betas=("files-1", "mcp-2")).headers(None)
    assert headers == {"anthropic-beta": "files-1,mcp-2", "anthropic-version": "2023-06-01"}


# The body


def test_a_request_has_instructions_tools_and_a_limit() -> None:
    body = encoded(CODEC, S, U, tools=(FIND,), options={"temperature": 0.5})
    assert body == {
        "model": "a-model",
        "max_tokens": DEFAULT_MAX_TOKENS,
        "system": [{"type": "text", "text": "You work for a post office."}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Where is it?"}]}],
        "tools": [{"name": "find", "description": "Where a parcel is.", "input_schema": FIND.parameters}],
        "temperature": 0.5,
    }


def test_nothing_is_said_that_was_not_asked_for() -> None:
    assert set(encoded(CODEC, U)) == {"model", "max_tokens", "messages"}


def test_a_request_that_streams_says_so() -> None:
    body = CODEC.encode(ChatRequest((U,)), "m", stream=True, adaptations=frozenset())
    assert body["stream"] is True


def test_given_instructions_take_the_place_of_the_stored_ones() -> None:
    assert encoded(CODEC, S, U, system="Be brief.")["system"] == [{"type": "text", "text": "Be brief."}]


@pytest.mark.parametrize(
    ("fields", "limit"),
    [
        ({"max_output_tokens": 100}, 100),
        ({"options": {"max_tokens": 200}}, 200),
        ({"max_output_tokens": 100, "options": {"max_tokens": 200}}, 100),
        ({"options": {"thinking": {"type": "enabled", "budget_tokens": 2000}}}, DEFAULT_MAX_TOKENS + 2000),
        ({}, DEFAULT_MAX_TOKENS),
    ],
)
def test_the_limit_that_the_api_demands_is_always_there(fields: dict[str, Any], limit: int) -> None:
    assert encoded(CODEC, U, **fields)["max_tokens"] == limit


def test_tools_of_the_provider_are_told_beside_those_of_the_application() -> None:
    search = {"type": "web_search_20250305", "name": "web_search"}
    body = encoded(CODEC, U, tools=(FIND,), options={"tools": [search]})
    assert [tool["name"] for tool in body["tools"]] == ["find", "web_search"]


def test_the_conversation_of_a_branch_is_told_as_a_whole() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    events = [
        SessionEvent(f"e{place}", EventType.MESSAGE, place, now, branch=branch, message=message)
        for place, (branch, message) in enumerate([(None, U), ("orch", A), ("orch.researcher", U)])
    ]
    roles = [one["role"] for one in encoded(CODEC, *events)["messages"]]
    assert roles == ["user", "assistant", "user"]


# Instructions where they stand


def test_later_instructions_stay_where_they_stand() -> None:
    body = encoded(CODEC, S, U, A, Message.system("Be brief."), U, system_in_place=True)
    assert [one["role"] for one in body["messages"]] == ["user", "assistant", "system", "user"]
    assert body["system"] == [{"type": "text", "text": "You work for a post office."}]


def test_instructions_where_they_stand_are_a_valid_request() -> None:
    body = encoded(CODEC, S, U, Message.system("Be brief."), A, U, system_in_place=True)
    assert anthropic_type_faults(body) + anthropic_rule_faults(body) == []


# Thinking


@pytest.mark.parametrize(
    "model", ["claude-opus-4-1-20250805", "claude-opus-4-1", "anthropic/claude-opus-4-1"]
)
def test_thinking_goes_back_to_its_family_as_it_came(model: str) -> None:
    assert thoughts(U, thinking(), U, model=model) == [
        {"type": "thinking", "thinking": "Hm.", "signature": "sig=="}
    ]


@pytest.mark.parametrize("model", ["claude-sonnet-4-5", "claude-opus-4-5", "gpt-5"])
def test_thinking_goes_to_no_other_family(model: str) -> None:
    assert thoughts(U, thinking(), U, model=model) == []


def test_thinking_of_nobody_is_not_sent() -> None:
    assert thoughts(U, thinking(model=None), U, model="claude-opus-4-1") == []


def test_reasoning_of_another_provider_is_not_sent() -> None:
    said = thinking(origin=openai_responses.ORIGIN)
    assert thoughts(U, said, U, model="claude-opus-4-1") == []


def test_the_answer_of_another_family_is_told_without_its_thinking() -> None:
    wire = encoded(CODEC, U, thinking(), U, model="claude-sonnet-4-5")["messages"]
    assert wire[1] == {"role": "assistant", "content": [{"type": "text", "text": "In Lund."}]}


# Caching

CALL = Message.assistant([ToolCallPart(id="c1", name="find", arguments="{}")])
RESULT = Message.tool("Lund", id="c1")


def test_without_cache_nothing_is_marked() -> None:
    assert "cache_control" not in str(encoded(CODEC, S, U, tools=(FIND,)))


def test_the_beginning_and_the_newest_message_are_cached() -> None:
    body = encoded(CODEC, S, U, A, U, tools=(FIND,), cache=True)
    assert (body["system"][-1]["cache_control"], body["cache_control"]) == (MARK, MARK)


def test_tools_are_marked_where_there_are_no_instructions() -> None:
    assert encoded(CODEC, U, tools=(FIND,), cache=True)["tools"][-1]["cache_control"] == MARK


def test_tools_that_are_loaded_later_are_not_marked() -> None:
    later = {"name": "later", "input_schema": {"type": "object"}, "defer_loading": True}
    body = encoded(CODEC, U, tools=(FIND,), cache=True, options={"tools": [later]})
    assert ["cache_control" in tool for tool in body["tools"]] == [True, False]


def test_marks_of_the_option_are_left_as_they_are() -> None:
    mark = {"type": "ephemeral", "ttl": "1h"}
    assert encoded(CODEC, U, cache=True, options={"cache_control": mark})["cache_control"] == mark


@pytest.mark.parametrize("conversation", [(S, U), (U,), (S, U, CALL, RESULT), (U, thinking())])
def test_a_request_that_is_cached_is_valid(conversation: tuple[Message, ...]) -> None:
    body = encoded(CODEC, *conversation, tools=(FIND,), cache=True)
    assert anthropic_type_faults(body) + anthropic_rule_faults(body) == []


def test_the_messages_are_the_same_with_and_without_cache() -> None:
    asked = (S, U, CALL, RESULT)
    assert encoded(CODEC, *asked, cache=True)["messages"] == encoded(CODEC, *asked)["messages"]


def test_a_server_that_does_not_know_the_option_is_given_a_mark_on_the_newest_block() -> None:
    name = CODEC.adaptation(400, error("cache_control: Extra inputs are not permitted"))
    assert name == CACHE_IN_BLOCKS
    request = ChatRequest((U, CALL, RESULT), cache=True)
    body = CODEC.encode(request, "m", stream=False, adaptations=frozenset((name,)))
    assert ("cache_control" in body, body["messages"][-1]["content"][-1]["cache_control"]) == (False, MARK)


def test_no_mark_is_put_on_thinking() -> None:
    request = ChatRequest(
        (U, thinking(model="m"), *(Message.assistant([part]) for part in thinking().parts[:1]))
    )
    body = CODEC.encode(request, "m", stream=False, adaptations=frozenset((CACHE_IN_BLOCKS,)))
    assert anthropic_rule_faults(body) == []


# What models do not take


@pytest.mark.parametrize(
    ("message", "name"),
    [
        (
            "`temperature` and `top_p` cannot both be specified for this model. Please use only one.",
            "no_top_p",
        ),
        ("`temperature` is deprecated for this model.", "no_temperature"),
        ("top_k: Extra inputs are not permitted", "no_top_k"),
        ("`temperature` may only be set to 1 when thinking is enabled.", "no_temperature"),
        ("messages: at least one message is required", None),
        ("metadata.user_id: Extra inputs are not permitted", None),
    ],
)
def test_what_a_server_refuses_is_left_out_from_a_fixed_list(message: str, name: str | None) -> None:
    assert CODEC.adaptation(400, error(message)) == name


@pytest.mark.parametrize("status", [200, 401, 429, 500])
def test_nothing_is_adapted_to_other_failures(status: int) -> None:
    assert CODEC.adaptation(status, error("`temperature` is deprecated for this model.")) is None


def test_a_parameter_that_the_model_does_not_take_is_left_out() -> None:
    request = ChatRequest((U,), options={"temperature": 0.5, "top_p": 0.9})
    body = CODEC.encode(request, "m", stream=False, adaptations=frozenset(("no_temperature",)))
    assert ("temperature" in body, body["top_p"]) == (False, 0.9)


def test_only_anthropics_own_server_demands_a_key() -> None:
    assert (CODEC.needs_key, AnthropicMessagesCodec("http://localhost:8080").needs_key) == (True, False)


def test_thinking_that_was_not_shown_goes_back_by_its_signature() -> None:
    hidden = ReasoningPart.model_validate({"content": "", "signature": "sig=="})
    said = thinking().model_copy(update={"parts": (hidden, TextPart(content="In Lund."))})
    assert thoughts(U, said, U, model="claude-opus-4-1") == [
        {"type": "thinking", "thinking": "", "signature": "sig=="}
    ]
