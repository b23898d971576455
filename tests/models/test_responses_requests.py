"""Requests to the OpenAI Responses API."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from tests.models.codecs import FIND, U, encoded
from tests.models.test_responses_answers import CALL, CUSTOM, REASONING, SEARCH, SECOND, SHORT, body, said
from tests.support.providers.rules import responses_rule_faults
from tests.support.providers.types import responses_type_faults

from turnlog.application.chat import ChatRequest
from turnlog.domain.errors import InvalidSettingError
from turnlog.domain.log import EventType, SessionEvent
from turnlog.domain.messages import Message
from turnlog.infrastructure.formats import anthropic_messages, openai_chat, openai_responses
from turnlog.infrastructure.models.openai_responses import NO_REASONING, OpenAIResponsesCodec

CODEC = OpenAIResponsesCodec()
S = Message.system("You work for a post office.")
MODEL = "gpt-5"


def answered(*items: Any, model: str = "gpt-5-2025-08-07") -> Message:
    return CODEC.decode(body(*items, model=model)).message


def sent(*conversation: Message, model: str = MODEL, **fields: Any) -> list[dict[str, Any]]:
    """The items of a request that the provider accepts."""
    made = encoded(CODEC, *conversation, model=model, **fields)
    assert responses_type_faults(made) + responses_rule_faults(made) == []
    return list(made["input"])


def kinds(*conversation: Message, **fields: Any) -> list[tuple[str, str | None]]:
    """Type and id of the items that are sent."""
    items = sent(*conversation, **fields)
    return [(item.get("type") or item["role"], item.get("id")) for item in items]


def result(name: str = "call_1") -> Message:
    return Message.tool("Lund", id=name)


# Address and headers


@pytest.mark.parametrize(
    "base", ["https://api.openai.com", "https://api.openai.com/v1", "https://api.openai.com/v1/"]
)
def test_the_address_is_the_same_with_and_without_a_version(base: str) -> None:
    assert CODEC.url(base) == "https://api.openai.com/v1/responses"


def test_the_key_is_a_header() -> None:
    assert CODEC.headers("k") == {"authorization": "Bearer k"}


# The body


def test_a_request_leaves_nothing_with_the_provider_and_asks_for_reasoning() -> None:
    made = encoded(
        CODEC, S, U, tools=(FIND,), max_output_tokens=100, options={"reasoning": {"effort": "low"}}
    )
    assert made == {
        "model": "a-model",
        "instructions": "You work for a post office.",
        "input": [{"role": "user", "content": "Where is it?"}],
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "tools": [
            {
                "type": "function",
                "strict": False,
                "name": "find",
                "description": "Where a parcel is.",
                "parameters": FIND.parameters,
            }
        ],
        "max_output_tokens": 100,
        "reasoning": {"effort": "low"},
    }


def test_nothing_is_said_that_was_not_asked_for() -> None:
    assert set(encoded(CODEC, U)) == {"model", "input", "store", "include"}


def test_a_request_that_streams_says_so() -> None:
    made = CODEC.encode(ChatRequest((U,)), MODEL, stream=True, adaptations=frozenset())
    assert made["stream"] is True


@pytest.mark.parametrize(
    "options",
    [
        {"previous_response_id": "resp_1"},
        {"conversation": "conv_1"},
        {"store": True},
        {"background": True},
        {"truncation": "auto"},
    ],
)
def test_options_that_leave_the_conversation_with_the_provider_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidSettingError):
        encoded(CODEC, U, options=options)


def test_the_same_options_with_values_that_change_nothing_are_let_through() -> None:
    made = encoded(CODEC, U, options={"store": False, "truncation": "disabled", "previous_response_id": None})
    assert made["store"] is False


def test_what_else_is_to_be_included_stands_beside_reasoning() -> None:
    wanted = "code_interpreter_call.outputs"
    assert encoded(CODEC, U, options={"include": [wanted]})["include"] == [
        wanted,
        "reasoning.encrypted_content",
    ]


def test_tools_of_the_provider_are_told_beside_those_of_the_application() -> None:
    made = encoded(CODEC, U, tools=(FIND,), options={"tools": [{"type": "web_search"}]})
    assert [tool["type"] for tool in made["tools"]] == ["function", "web_search"]


def test_the_conversation_of_a_branch_is_told_as_a_whole() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    events = [
        SessionEvent(f"e{place}", EventType.MESSAGE, place, now, branch=branch, message=message)
        for place, (branch, message) in enumerate(
            [(None, U), ("orch", Message.assistant("Yes.")), ("orch.r", U)]
        )
    ]
    assert len(encoded(CODEC, *events)["input"]) == 3


def test_later_instructions_stay_where_they_stand() -> None:
    made = encoded(CODEC, S, U, Message.system("Be brief."), U, system_in_place=True)
    assert [item["role"] for item in made["input"]] == ["user", "system", "user"]


# Reasoning and what it led to


def test_reasoning_goes_back_directly_before_the_call_that_it_led_to() -> None:
    assert sent(U, answered(REASONING, CALL), result())[1:] == [
        REASONING,
        {
            "type": "function_call",
            "call_id": "call_1",
            "id": "fc_1",
            "name": "find",
            "arguments": '{"no": "7"}',
        },
        {"type": "function_call_output", "call_id": "call_1", "output": "Lund"},
    ]


def test_reasoning_goes_back_before_the_message_that_it_led_to_with_id_and_phase() -> None:
    items = sent(U, answered(SHORT, said("Lund.", phase="final_answer")), U)
    assert items[1:3] == [
        SHORT,
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "Lund.", "annotations": []}],
            "phase": "final_answer",
        },
    ]


def test_parallel_calls_stay_together_behind_their_reasoning() -> None:
    told = kinds(U, answered(SHORT, CALL, SECOND), result(), result("call_2"))
    assert told[1:4] == [("reasoning", "rs_2"), ("function_call", "fc_1"), ("function_call", "fc_2")]


@pytest.mark.parametrize("model", ["gpt-5", "gpt-5-2025-08-07", "gpt-5-mini", "openai/gpt-5"])
def test_reasoning_goes_back_to_its_family(model: str) -> None:
    assert ("reasoning", "rs_2") in kinds(U, answered(SHORT, said("Lund.")), U, model=model)


@pytest.mark.parametrize("model", ["gpt-4.1", "o4-mini", "gpt-5.6", "grok-4"])
def test_to_another_family_the_answer_goes_without_reasoning_and_ids(model: str) -> None:
    told = kinds(U, answered(SHORT, CALL), result(), answered(SHORT, said("Lund.")), U, model=model)
    assert told == [
        ("user", None),
        ("function_call", None),
        ("function_call_output", None),
        ("assistant", None),
        ("user", None),
    ]


@pytest.mark.parametrize("missing", ["encrypted_content", "id"])
def test_reasoning_that_the_server_could_not_read_is_left_out_with_the_id_of_what_it_led_to(
    missing: str,
) -> None:
    stale = {name: value for name, value in SHORT.items() if name != missing}
    assert kinds(U, answered(stale, CALL), result()) == [
        ("user", None),
        ("function_call", None),
        ("function_call_output", None),
    ]


def test_reasoning_that_led_to_nothing_is_left_out() -> None:
    assert kinds(U, answered(SHORT), U) == [("user", None), ("user", None)]


def test_reasoning_whose_message_is_blank_is_left_out_with_it() -> None:
    assert kinds(U, answered(SHORT, said(" ")), U) == [("user", None), ("user", None)]


def test_an_item_of_which_the_reasoning_is_lost_has_no_id() -> None:
    assert kinds(U, answered(said("Lund.")), U) == [("user", None), ("assistant", None), ("user", None)]


def test_reasoning_and_its_message_are_sent_though_they_were_stored_apart() -> None:
    told = kinds(U, answered(SHORT), answered(said("Lund.")), U)
    assert told[1:3] == [("reasoning", "rs_2"), ("message", "msg_1")]


def test_an_answer_that_is_told_twice_has_its_ids_once() -> None:
    answer = answered(SHORT, said("Lund."))
    told = kinds(U, answer, U, answer, U)
    assert [one for one in told if one[1]] == [("reasoning", "rs_2"), ("message", "msg_1")]


def test_without_reasoning_none_is_sent_and_none_asked_for() -> None:
    request = ChatRequest((U, answered(SHORT, said("Lund.")), U))
    made = CODEC.encode(request, MODEL, stream=False, adaptations=frozenset((NO_REASONING,)))
    assert ("include" in made, [item.get("type") for item in made["input"]]) == (False, [None, None, None])


def test_reasoning_of_other_providers_is_not_sent() -> None:
    thought = {"role": "assistant", "content": "Lund.", "reasoning_content": "Hm."}
    foreign = openai_chat.message(thought)
    assert kinds(U, foreign, U) == [("user", None), ("assistant", None), ("user", None)]


# Further items


def test_what_the_provider_ran_goes_back_to_it() -> None:
    told = kinds(U, answered(SHORT, SEARCH, REASONING, said("Lund.")), U)
    assert told[1:5] == [
        ("reasoning", "rs_2"),
        ("web_search_call", "ws_1"),
        ("reasoning", "rs_1"),
        ("message", "msg_1"),
    ]


def test_what_the_provider_ran_is_left_out_where_its_reasoning_is() -> None:
    told = kinds(U, answered(SHORT, SEARCH, said("Lund.")), U, model="gpt-4.1")
    assert told == [("user", None), ("assistant", None), ("user", None)]


def test_a_call_of_a_custom_tool_has_an_output_of_its_own_type() -> None:
    items = sent(U, answered(SHORT, CUSTOM), result("call_3"))
    assert items[2:] == [
        {"type": "custom_tool_call", "call_id": "call_3", "id": "ctc_1", "name": "sql", "input": "SELECT 1"},
        {"type": "custom_tool_call_output", "call_id": "call_3", "output": "Lund"},
    ]


SHELL = {
    "id": "sh_1",
    "type": "shell_call",
    "call_id": "call_9",
    "action": {"commands": ["ls"], "timeout_ms": None},
    "status": "completed",
    "created_by": "gpt",
}
LISTED = {
    "type": "shell_call_output",
    "call_id": "call_9",
    "output": [{"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}],
}


def test_a_call_of_a_built_in_tool_goes_back_with_its_result() -> None:
    items = sent(U, answered(SHORT, SHELL), *openai_responses.messages([LISTED]))
    assert items[2:] == [{name: value for name, value in SHELL.items() if name != "created_by"}, LISTED]


def test_a_call_of_a_built_in_tool_with_a_text_as_result_is_told_as_a_function() -> None:
    assert kinds(U, answered(SHORT, SHELL), result("call_9"))[2:] == [
        ("function_call", None),
        ("function_call_output", None),
    ]


def test_the_same_call_is_told_to_other_providers() -> None:
    told = anthropic_messages.request(
        [U, answered(SHORT, SHELL), *openai_responses.messages([LISTED])], model="m"
    )["messages"]
    assert told[1]["content"][0]["name"] == "shell"


def test_images_and_files_go_into_results() -> None:
    png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    image = {"type": "blob", "modality": "image", "mime_type": "image/png", "content": png}
    shown = Message.tool([{"type": "tool_call_response", "id": "call_1", "response": [image]}])
    assert sent(U, answered(CALL), shown)[2]["output"] == [
        {"type": "input_image", "image_url": f"data:image/png;base64,{png}", "detail": "auto"}
    ]


# What servers do not take


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (
            {"message": "Encrypted content is not supported with this model.", "param": "include"},
            NO_REASONING,
        ),
        (
            {
                "message": "The encrypted content gA== could not be verified.",
                "code": "invalid_encrypted_content",
            },
            NO_REASONING,
        ),
        (
            {
                "message": "Unsupported parameter: 'temperature' is not supported with this model.",
                "param": "temperature",
            },
            "no_temperature",
        ),
        ({"message": "Unsupported parameter: 'top_p' is not supported with this model."}, "no_top_p"),
        (
            {"message": "Unsupported parameter: max_output_tokens", "param": "max_output_tokens"},
            "no_max_output_tokens",
        ),
        ({"message": "Invalid value for 'temperature': expected at most 2", "param": "temperature"}, None),
        ({"message": "Unsupported parameter: 'nope'", "param": "nope"}, None),
    ],
)
def test_what_a_server_refuses_is_left_out_from_a_fixed_list(error: dict[str, Any], name: str | None) -> None:
    assert CODEC.adaptation(400, {"error": {"type": "invalid_request_error", **error}}) == name


def test_a_parameter_that_the_model_does_not_take_is_left_out() -> None:
    request = ChatRequest((U,), options={"temperature": 0.5, "top_p": 0.9})
    made = CODEC.encode(request, "m", stream=False, adaptations=frozenset(("no_temperature",)))
    assert ("temperature" in made, made["top_p"]) == (False, 0.9)


@pytest.mark.parametrize("status", [200, 401, 429, 500])
def test_nothing_is_adapted_to_other_failures(status: int) -> None:
    assert CODEC.adaptation(status, {"error": {"code": "invalid_encrypted_content"}}) is None


@pytest.mark.parametrize(
    ("base", "provider", "needs_key"),
    [
        ("https://api.openai.com/v1", "openai", True),
        ("https://a.openai.azure.com/openai/v1", "azure.ai.openai", True),
        ("https://api.x.ai/v1", "x_ai", False),
        ("http://localhost:8080", "openai", False),
    ],
)
def test_the_server_decides_the_provider_and_whether_a_key_is_needed(
    base: str, provider: str, needs_key: bool
) -> None:
    codec = OpenAIResponsesCodec(base)
    assert (codec.provider, codec.needs_key) == (provider, needs_key)


def test_reasoning_goes_to_no_other_provider_of_the_same_model() -> None:
    azure = OpenAIResponsesCodec("https://a.openai.azure.com/openai/v1")
    made = encoded(azure, U, answered(SHORT, said("Lund.")), U, model=MODEL)
    assert [item.get("id") for item in made["input"]] == [None, None, None]
