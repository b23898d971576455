"""Messages of the two providers, read and written."""

from __future__ import annotations

import json
from typing import Any

import pytest
from anthropic.types import Message as AnthropicMessage
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletionMessage

from turnlog.domain.errors import NotJsonError
from turnlog.domain.messages import Message, Role, ToolCallResponsePart
from turnlog.infrastructure.formats import MalformedMessageError, anthropic_messages, openai_chat

# OpenAI

CALLING: dict[str, Any] = {
    "role": "assistant",
    "content": None,
    "refusal": None,
    "annotations": [],
    "tool_calls": [
        {
            "id": "c1",
            "type": "function",
            "function": {"name": "find", "arguments": '{"b":1.0, "a":1}'},
            "index": 0,
        }
    ],
}


def test_a_call_of_openai_keeps_its_arguments_as_written_and_its_further_fields() -> None:
    (part,) = openai_chat.message(CALLING).tool_calls
    assert (part.id, part.name, part.arguments, part.extra) == (
        "c1",
        "find",
        '{"b":1.0, "a":1}',
        {"index": 0},
    )


def test_a_message_of_openai_keeps_its_origin_and_unknown_fields_flat() -> None:
    read = openai_chat.message(CALLING)
    assert (read.origin, read.extra) == ("openai.chat", {"refusal": None, "annotations": []})


def test_an_object_of_the_openai_sdk_is_read_as_what_was_sent() -> None:
    sent = ChatCompletionMessage.model_validate({**CALLING, "reasoning_content": "Lund?"})
    assert openai_chat.export([openai_chat.message(sent)]) == [{**CALLING, "reasoning_content": "Lund?"}]


@pytest.mark.parametrize("content", [{"content": None}, {}, {"content": ""}, {"content": []}])
def test_null_absent_and_empty_content_of_openai_stay_apart(content: dict[str, Any]) -> None:
    raw = {**CALLING, "content": 0, **content}
    if not content:
        del raw["content"]
    assert openai_chat.export([openai_chat.message(raw)]) == [raw]


@pytest.mark.parametrize(
    ("name", "role"), [("developer", Role.SYSTEM), ("function", Role.TOOL), ("system", Role.SYSTEM)]
)
def test_the_original_role_of_openai_is_remembered(name: str, role: Role) -> None:
    raw = {"role": name, "content": "Be brief."}
    read = openai_chat.message(raw)
    assert (read.role, openai_chat.export([read])) == (role, [raw])


def test_a_refusal_can_be_read_as_a_part() -> None:
    raw = {"role": "assistant", "content": None, "refusal": "No."}
    read = openai_chat.message(raw)
    assert [(part.type, part.extra) for part in read.parts] == [("refusal", {"refusal": "No."})]
    assert openai_chat.export([read]) == [raw]


def test_a_result_of_openai_has_the_id_of_its_call() -> None:
    read = openai_chat.message({"role": "tool", "tool_call_id": "c1", "content": "here"})
    assert read.tool_responses == (ToolCallResponsePart(id="c1", response="here"),)


def test_a_message_that_fits_no_part_is_kept_whole() -> None:
    raw = {"role": "user", "content": "hi", "parts": [1], "metadata": {"a": 1}}
    read = openai_chat.message(raw)
    assert (read.text, read.metadata, openai_chat.export([read])) == ("hi", None, [raw])


# Anthropic

RESULT = {"type": "tool_result", "tool_use_id": "c1", "content": "here", "is_error": False}
MIXED = {"role": "user", "content": [RESULT, {"type": "text", "text": "And the other?"}]}


def test_a_user_message_with_a_result_and_a_text_becomes_two_messages() -> None:
    tool, user = anthropic_messages.messages(MIXED)
    assert (tool.role, [part.id for part in tool.tool_responses]) == (Role.TOOL, ["c1"])
    assert (user.role, user.text) == (Role.USER, "And the other?")


def test_the_two_messages_are_joined_again_on_export() -> None:
    assert anthropic_messages.export(anthropic_messages.messages(MIXED)) == [MIXED]


def test_the_text_is_exported_alone_when_the_result_has_left_the_view() -> None:
    _, user = anthropic_messages.messages(MIXED)
    assert anthropic_messages.export([user]) == [{"role": "user", "content": MIXED["content"][1:]}]


def test_a_result_behind_a_text_comes_back_in_its_place() -> None:
    raw = {"role": "user", "content": [{"type": "text", "text": "Here:"}, RESULT]}
    assert anthropic_messages.export(anthropic_messages.messages(raw)) == [raw]


def test_one_message_cannot_be_a_result_and_a_text() -> None:
    with pytest.raises(MalformedMessageError, match="Read it with `messages`"):
        anthropic_messages.message(MIXED)


RESPONSE: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude",
    "content": [
        {"type": "thinking", "thinking": "Lund?", "signature": "c2ln"},
        {"type": "text", "text": "I look.", "citations": None},
        {"type": "tool_use", "id": "c1", "name": "find", "input": {"b": 1.0, "a": "ü"}},
    ],
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": {"input_tokens": 3, "output_tokens": 5},
}


def test_what_a_response_says_about_itself_is_metadata() -> None:
    read = anthropic_messages.message(RESPONSE)
    assert read.metadata == {name: RESPONSE[name] for name in RESPONSE if name not in ("role", "content")}
    assert read.extra == {}


def test_a_response_of_anthropic_has_the_parts_of_the_neutral_form() -> None:
    read = anthropic_messages.message(RESPONSE)
    assert [part.to_dict() for part in read.parts] == [
        {"type": "reasoning", "content": "Lund?", "signature": "c2ln"},
        {"type": "text", "content": "I look.", "citations": None},
        {"type": "tool_call", "id": "c1", "name": "find", "arguments": '{"b":1.0,"a":"ü"}'},
    ]


def test_an_object_of_the_anthropic_sdk_comes_back_as_what_was_sent() -> None:
    read = anthropic_messages.message(AnthropicMessage.model_validate(RESPONSE))
    assert anthropic_messages.export([read]) == [RESPONSE]


def test_a_signature_and_a_redacted_thought_come_back_from_the_log_as_they_were() -> None:
    redacted = {"type": "redacted_thinking", "data": "EvgF+/="}
    raw = {"role": "assistant", "content": [RESPONSE["content"][0], redacted]}
    logged = json.loads(json.dumps(anthropic_messages.message(raw).to_dict()))
    assert anthropic_messages.export([Message.model_validate(logged)]) == [raw]


@pytest.mark.parametrize("value", ["Be brief.", [{"type": "text", "text": "Be brief."}]])
def test_the_system_of_a_request_is_a_system_message(value: Any) -> None:
    read = anthropic_messages.system(value)
    assert (read.role, read.text) == (Role.SYSTEM, "Be brief.")
    assert anthropic_messages.export([read])[0]["content"] == value


# Both

TWO_INSTRUCTIONS: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {
        "role": "system",
        "content": [{"type": "text", "text": "Be kind."}, {"type": "text", "text": "Please."}],
    },
]


@pytest.mark.parametrize("module", [openai_chat, anthropic_messages])
def test_system_messages_in_a_row_are_one_message(module: Any) -> None:
    (read,) = module.messages(TWO_INSTRUCTIONS)
    assert [part.content for part in read.parts] == ["Be brief.", "Be kind.", "Please."]


@pytest.mark.parametrize("module", [openai_chat, anthropic_messages])
def test_none_of_several_system_messages_is_missing_in_a_request(module: Any) -> None:
    told = module.messages([*TWO_INSTRUCTIONS, {"role": "user", "content": "hi"}])
    body = json.dumps(module.request(told, model="m", max_tokens=9))
    assert "Be brief." in body
    assert "Please." in body


@pytest.mark.parametrize("module", [openai_chat, anthropic_messages])
def test_system_messages_that_something_parts_stay_apart(module: Any) -> None:
    first, second = TWO_INSTRUCTIONS
    read = module.messages([first, {"role": "user", "content": "hi"}, second])
    assert [one.text for one in read if one.role is Role.SYSTEM] == ["Be brief.", "Be kind.\nPlease."]


INSTRUCTION = st.fixed_dictionaries(
    {"role": st.sampled_from(("system", "developer"))},
    optional={
        "content": st.sampled_from(
            ("", "Be brief.", None, [], [{"type": "text", "text": "Be kind.", "x": 1}])
        ),
        "name": st.sampled_from(("house", 7)),
        "parts": st.just([1]),
    },
)


@given(st.lists(INSTRUCTION, max_size=5))
def test_system_and_developer_messages_in_a_row_come_back_exactly(raw: list[dict[str, Any]]) -> None:
    given_back = [*raw, {"role": "user", "content": "hi"}, *raw]
    logged = [json.loads(json.dumps(one.to_dict())) for one in openai_chat.messages(given_back)]
    assert openai_chat.export(map(Message.model_validate, logged)) == given_back


@pytest.mark.parametrize("module", [openai_chat, anthropic_messages])
@pytest.mark.parametrize(
    "raw",
    [{"content": "hi"}, {"role": "robot", "content": "hi"}, {"role": "user", "content": 7}, "hi", None],
)
def test_what_is_no_message_is_refused(module: Any, raw: Any) -> None:
    with pytest.raises(MalformedMessageError):
        module.message(raw)


@pytest.mark.parametrize("module", [openai_chat, anthropic_messages])
def test_what_json_cannot_hold_is_refused_with_its_place(module: Any) -> None:
    with pytest.raises(NotJsonError, match=r"message\.score"):
        module.message({"role": "user", "content": "hi", "score": float("nan")})


@pytest.mark.parametrize(
    "call", [None, {"type": "function"}, {"type": "custom", "function": {"name": "find"}}]
)
def test_a_malformed_call_of_openai_is_refused(call: Any) -> None:
    with pytest.raises(MalformedMessageError):
        openai_chat.message({"role": "assistant", "tool_calls": [call]})


def test_a_message_of_one_provider_can_be_exported_in_the_form_of_the_other() -> None:
    calling = {"role": "assistant", "content": RESPONSE["content"][2:]}
    read = anthropic_messages.messages([calling, {"role": "user", "content": [RESULT]}])
    function = {"name": "find", "arguments": '{"b":1.0,"a":"ü"}'}
    call = {"id": "c1", "type": "function", "function": function}
    assert openai_chat.export(read) == [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "here"},
    ]
