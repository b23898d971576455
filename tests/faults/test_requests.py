"""What other systems send to a provider that refuses it, as it must be here, for every API with checks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.support.providers.rules import (
    anthropic_rule_faults,
    openai_rule_faults,
    responses_rule_faults,
)
from tests.support.providers.types import (
    anthropic_type_faults,
    openai_type_faults,
    responses_type_faults,
)

from turnlog.application.chat import ChatRequest, InvalidReplyError, ModelError
from turnlog.application.service import SessionService
from turnlog.domain.log import NewEvent
from turnlog.domain.messages import Message, ReasoningPart, TextPart, ToolCallPart
from turnlog.domain.window import CompactionWindow, WindowCompactionStrategy
from turnlog.infrastructure.formats import anthropic_messages, openai_responses
from turnlog.infrastructure.models.anthropic_messages import AnthropicMessagesCodec
from turnlog.infrastructure.models.codec import Codec
from turnlog.infrastructure.models.openai_chat import OpenAIChatCodec
from turnlog.infrastructure.models.openai_responses import OpenAIResponsesCodec

ANTHROPIC, CHAT, RESPONSES = AnthropicMessagesCodec(), OpenAIChatCodec(), OpenAIResponsesCodec()
CHECKS: dict[str, tuple[Codec, Callable[[Any], list[str]]]] = {
    "anthropic": (ANTHROPIC, lambda body: anthropic_type_faults(body) + anthropic_rule_faults(body)),
    "chat": (CHAT, lambda body: openai_type_faults(body) + openai_rule_faults(body)),
    "responses": (RESPONSES, lambda body: responses_type_faults(body) + responses_rule_faults(body)),
}
EACH = pytest.mark.parametrize("name", CHECKS)
U = Message.user("Where is it?")
A = Message.assistant("In Lund.")
S = Message.system("You work for a post office.")
INTERRUPTED = "[no result: the call was interrupted]"


def calls(*names: str, arguments: str = "{}", **fields: Any) -> Message:
    return Message.assistant(
        [ToolCallPart(id=name, name="find", arguments=arguments, **fields) for name in names]
    )


def result(name: str, text: str = "here", **fields: Any) -> Message:
    return Message.tool(text, id=name, **fields)


def sent(name: str, *conversation: Message, **fields: Any) -> dict[str, Any]:
    """The body, which the provider accepts."""
    codec, faults = CHECKS[name]
    body = codec.encode(ChatRequest(conversation, **fields), "gpt-5", stream=False, adaptations=frozenset())
    assert faults(body) == []
    return body


def results(name: str, *conversation: Message) -> list[Any]:
    """The results that are sent, in order."""
    body = sent(name, *conversation)
    if name == "anthropic":
        blocks = [block for one in body["messages"] for block in one["content"]]
        return [block["content"] for block in blocks if block["type"] == "tool_result"]
    if name == "chat":
        return [one["content"] for one in body["messages"] if one["role"] == "tool"]
    return [item["output"] for item in body["input"] if item.get("type") == "function_call_output"]


def texts(name: str, *conversation: Message, **fields: Any) -> str:
    return str(sent(name, *conversation, **fields))


@EACH
def test_fault_002_a_call_that_was_interrupted_is_closed_with_a_result_that_says_so(name: str) -> None:
    assert results(name, U, calls("c1"), U) == [INTERRUPTED]


@EACH
def test_fault_002_of_three_parallel_calls_the_finished_one_keeps_its_result(name: str) -> None:
    assert results(name, U, calls("c1", "c2", "c3"), result("c2"), U) == [INTERRUPTED, "here", INTERRUPTED]


def test_fault_007_parallel_results_stand_in_one_message_in_front_of_the_text() -> None:
    told = sent(
        "anthropic", U, calls("c1", "c2", "c3"), result("c3", "3"), result("c1", "1"), result("c2", "2"), U
    )
    kinds = [(block["type"], block.get("content")) for block in told["messages"][2]["content"]]
    assert kinds == [("tool_result", "1"), ("tool_result", "2"), ("tool_result", "3"), ("text", None)]


@pytest.mark.parametrize("name", ["chat", "responses"])
def test_fault_007_parallel_results_stand_one_by_one_where_the_api_has_it_so(name: str) -> None:
    assert results(name, U, calls("c1", "c2"), result("c2", "2"), result("c1", "1"), U) == ["1", "2"]


@EACH
@pytest.mark.parametrize("text", ["", " \n"])
def test_fault_017_an_empty_answer_is_left_out(name: str, text: str) -> None:
    assert sent(name, U, Message.assistant(text), U) == sent(name, U, Message.assistant(), U)


@EACH
@pytest.mark.parametrize("text", ["", " \n"])
def test_fault_017_a_call_beside_empty_text_is_sent_alone(name: str, text: str) -> None:
    beside = Message.assistant([TextPart(content=text), *calls("c1").parts])
    assert sent(name, U, beside, result("c1")) == sent(name, U, calls("c1"), result("c1"))


def say(sessions: SessionService, session_id: str, *messages: Message) -> None:
    sessions.append_events(session_id, [NewEvent(message=message) for message in messages])


THOUGHT = ReasoningPart.model_validate({"id": "rs_1", "encrypted_content": "gA=="})
_ITEM: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "In Lund.", "annotations": []}],
}
ANSWER = openai_responses.message(_ITEM)


def reasoned(*parts: Any) -> Message:
    return Message.assistant(parts, origin=openai_responses.ORIGIN, metadata={"model": "gpt-5"})


def test_fault_019_reasoning_and_its_item_are_both_there() -> None:
    items = sent("responses", U, reasoned(THOUGHT), ANSWER, U)["input"]
    assert [item.get("id") for item in items] == [None, "rs_1", "msg_1", None]


def test_fault_019_reasoning_without_its_item_is_left_out() -> None:
    assert [item.get("id") for item in sent("responses", U, reasoned(THOUGHT), U)["input"]] == [None, None]


def test_fault_019_an_item_without_its_reasoning_is_told_as_a_text() -> None:
    items = sent("responses", U, ANSWER, U)["input"]
    assert items[1] == {"role": "assistant", "content": "In Lund."}


def test_fault_026_a_summary_of_the_users_role_is_joined_to_what_the_user_says() -> None:
    told = sent("anthropic", S, Message.user("So far: a parcel."), U, A, U)
    assert [one["role"] for one in told["messages"]] == ["user", "assistant", "user"]


@EACH
@pytest.mark.parametrize("arguments", ['{"path": ', "", "[1]", '{"a": NaN}'])
def test_fault_027_arguments_that_are_no_object_become_one_and_keep_their_pair(
    name: str, arguments: str
) -> None:
    assert results(name, U, calls("c1", arguments=arguments), result("c1", "bad arguments"), U) == [
        "bad arguments"
    ]


@EACH
def test_fault_029_instructions_are_told_whatever_is_cut(name: str) -> None:
    with SessionService() as sessions:
        sid = sessions.create().id
        sessions.append_message(sid, S)
        for _ in range(20):
            say(sessions, sid, U, A)
        sessions.compact(sid, None, WindowCompactionStrategy(CompactionWindow.last_turns(3)))
        told = sessions.view(sid).told()
    assert len(told) == 7
    assert "You work for a post office." in texts(name, *told)


@EACH
def test_fault_052_instructions_of_the_agent_are_told_where_the_log_has_none(name: str) -> None:
    assert "Be brief." in texts(name, U, A, U, system="Be brief.")


@EACH
def test_fault_054_a_summary_of_the_system_role_is_no_second_system_message(name: str) -> None:
    with SessionService() as sessions:
        sid = sessions.create().id
        say(sessions, sid, S, U, A, U, A, U)
        window = WindowCompactionStrategy(CompactionWindow.last_turns(1), _Recap())
        sessions.compact(sid, None, window)
        told = sessions.view(sid).events
    codec, faults = CHECKS[name]
    body = codec.encode(ChatRequest(told), "gpt-5", stream=False, adaptations=frozenset())
    wire: list[dict[str, Any]] = body.get("messages") or body["input"]
    roles = [one.get("role") for one in wire]
    assert (faults(body), roles.count("system") <= 1, "system" in roles[1:]) == ([], True, False)
    assert all(text in str(body) for text in ("You work for a post office.", "So far: a parcel."))


class _Recap:
    """A summarizer whose summary has the role system."""

    def summarize(self, request: object) -> list[Message]:  # noqa: ARG002 - the port's argument
        """The summary."""
        return [Message.system("So far: a parcel.")]


@EACH
def test_fault_077_of_an_interim_and_a_final_result_the_final_one_is_told(name: str) -> None:
    told = (
        U,
        calls("c1", awaiting=True),
        result("c1", "pending", provisional=True),
        A,
        result("c1", "done"),
        U,
    )
    assert results(name, *told) == ["done"]


@EACH
def test_fault_077_an_awaited_call_has_an_interim_result_at_least(name: str) -> None:
    assert results(name, U, calls("c1", awaiting=True), U) == ["[no result so far]"]


def test_fault_084_a_message_of_results_and_text_is_taken_apart_and_joined_again() -> None:
    asked: dict[str, Any] = {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "c1", "name": "find", "input": {}}],
    }
    mixed = {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "c1", "content": "here"},
            {"type": "text", "text": "And the other one?"},
        ],
    }
    read = anthropic_messages.messages([{"role": "user", "content": "Where is it?"}, asked, mixed])
    assert [one.role.value for one in read] == ["user", "assistant", "tool", "user"]
    assert sent("anthropic", *read)["messages"][2] == mixed


def test_fault_084_text_beside_a_result_without_its_call_is_kept() -> None:
    content = [
        {"type": "tool_result", "tool_use_id": "c9", "content": "here"},
        {"type": "text", "text": "Well?"},
    ]
    read = anthropic_messages.messages({"role": "user", "content": content})
    assert sent("anthropic", *read)["messages"] == [{"role": "user", "content": content[1:]}]


def test_fault_089_reasoning_that_only_the_provider_held_is_not_sent_back() -> None:
    stale = ReasoningPart.model_validate({"id": "rs_old"})
    parts = [stale, *ANSWER.parts]
    items = sent("responses", U, reasoned(*parts), U)["input"]
    assert items[1] == {"role": "assistant", "content": "In Lund."}


@EACH
def test_fault_124_two_calls_of_one_id_in_one_answer_keep_both_results(name: str) -> None:
    told = (U, calls("c1", "c1"), result("c1", "x"), result("c1", "y"), U)
    assert results(name, *told) == ["x", "y"]


def test_fault_133_a_request_begins_with_a_user_and_has_a_limit() -> None:
    body = sent("anthropic", A, U)
    assert (body["messages"][0]["role"], body["max_tokens"] > 0) == ("user", True)


@pytest.mark.parametrize("codec", [ANTHROPIC, CHAT, RESPONSES], ids=lambda codec: codec.renderer)
@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "upstream failed"}},
        {"error": "upstream failed"},
        {"choices": []},
        {},
        {"detail": "x"},
    ],
)
def test_fault_134_a_body_with_status_200_that_is_no_answer_is_a_typed_error(
    codec: Codec, body: dict[str, Any]
) -> None:
    with pytest.raises(InvalidReplyError) as raised:
        codec.decode(body)
    assert isinstance(raised.value, ModelError)
