"""Between two boundaries every request begins with the bytes of the one before, so prompt caches work."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.models.answers import body
from tests.support.providers.rules import anthropic_rule_faults, openai_rule_faults, responses_rule_faults

from turnlog.application.chat import ChatRequest, ToolDefinition
from turnlog.domain.messages import Message
from turnlog.infrastructure.models.anthropic_messages import AnthropicMessagesCodec
from turnlog.infrastructure.models.codec import Codec
from turnlog.infrastructure.models.ollama import OllamaCodec
from turnlog.infrastructure.models.openai_chat import OpenAIChatCodec
from turnlog.infrastructure.models.openai_responses import OpenAIResponsesCodec

MODEL = "a-model"
TOOL = ToolDefinition("find", "Finds it.")
Plain = dict[str, Any]


@dataclass(frozen=True)
class Answered:
    """What a model answers in one round, and what its tools return."""

    text: str = ""
    thought: str = ""
    calls: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    number: int = 0


@dataclass(frozen=True)
class Turn:
    """What the user says, and the rounds of answers to it."""

    user: str
    rounds: tuple[Answered, ...] = field(default_factory=tuple)


def openai(said: Answered) -> Plain:
    calls = [
        {"id": f"c{n}", "type": "function", "function": {"name": "find", "arguments": text}}
        for n, text in enumerate(said.calls)
    ]
    message: Plain = {"role": "assistant", "content": said.text or None, "tool_calls": calls or None}
    return body({**message, "reasoning_content": said.thought or None})


def anthropic(said: Answered) -> Plain:
    thought = {"type": "thinking", "thinking": said.thought, "signature": "c2ln"}
    calls = [
        {"type": "tool_use", "id": f"c{n}", "name": "find", "input": json.loads(text)}
        for n, text in enumerate(said.calls)
    ]
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": [
            *([thought] if said.thought else []),
            *([{"type": "text", "text": said.text}] if said.text else []),
            *calls,
        ],
        "stop_reason": "tool_use" if calls else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 9, "output_tokens": 1},
    }


def responses(said: Answered) -> Plain:
    thought: Plain = {
        "id": f"rs_{said.number}",
        "type": "reasoning",
        "summary": [],
        "encrypted_content": said.thought,
    }
    text: Plain = {"type": "output_text", "text": said.text, "annotations": []}
    message: Plain = {
        "id": f"msg_{said.number}",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [text],
    }
    calls = [
        {
            "id": f"fc_{said.number}_{n}",
            "type": "function_call",
            "call_id": f"c{n}",
            "name": "find",
            "arguments": arguments,
        }
        for n, arguments in enumerate(said.calls)
    ]
    output: list[Plain] = [*([thought] if said.thought else []), *([message] if said.text else []), *calls]
    return {
        "id": "resp_1",
        "object": "response",
        "status": "completed",
        "model": MODEL,
        "output": output,
        "usage": {"input_tokens": 9, "output_tokens": 1},
    }


def ollama(said: Answered) -> Plain:
    calls = [{"function": {"name": "find", "arguments": json.loads(text)}} for text in said.calls]
    message = {"role": "assistant", "content": said.text, "thinking": said.thought, "tool_calls": calls}
    return {"model": MODEL, "message": message, "done": True, "done_reason": "stop"}


def nothing(body: Plain) -> list[str]:
    """No rules are known."""
    return []


@dataclass(frozen=True)
class Api:
    """A codec, how its provider writes an answer, and what it refuses."""

    codec: Codec
    answer: Callable[[Answered], Plain]
    faults: Callable[[Plain], list[str]]
    place: str = "messages"


APIS = {
    "openai_chat": Api(OpenAIChatCodec("http://localhost"), openai, openai_rule_faults),
    "openai_responses": Api(OpenAIResponsesCodec(), responses, responses_rule_faults, "input"),
    "anthropic_messages": Api(AnthropicMessagesCodec(), anthropic, anthropic_rule_faults),
    "ollama": Api(OllamaCodec(), ollama, nothing),
}

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6).filter(str.strip)
arguments = st.sampled_from(["{}", '{"a":1}', '{"b":"é"}'])


@st.composite
def answers(draw: st.DrawFn, is_last: bool) -> Answered:
    calls = () if is_last else tuple(draw(st.lists(arguments, min_size=1, max_size=2)))
    text = draw(texts) if is_last else draw(st.just("") | texts)
    results = tuple(draw(st.just("") | texts) for _ in calls)
    return Answered(text, draw(st.just("") | texts), calls, results)


@st.composite
def turns(draw: st.DrawFn) -> Turn:
    rounds = [draw(answers(False)) for _ in range(draw(st.integers(0, 2)))]
    return Turn(draw(texts), (*rounds, draw(answers(True))))


def requests(api: Api, conversation: list[Turn], stream: bool) -> Iterator[Plain]:
    """The bodies of all calls of a conversation; every answer is stored and sent back."""
    told: list[Message] = [Message.system("Be brief.")]
    numbers = itertools.count()
    for turn in conversation:
        told.append(Message.user(turn.user))
        for said in turn.rounds:
            request = ChatRequest(tuple(told), tools=(TOOL,))
            yield api.codec.encode(request, MODEL, stream=stream, adaptations=frozenset())
            answer = api.codec.decode(api.answer(replace(said, number=next(numbers)))).message
            told.append(answer)
            told += [
                Message.tool(result, id=call.id)
                for call, result in zip(answer.tool_calls, said.results, strict=True)
            ]


def serialised(messages: list[Plain]) -> str:
    """The messages as they stand in the body, up to where a further one would stand."""
    return json.dumps(messages, ensure_ascii=False, separators=(",", ":"))[:-1]


@pytest.mark.parametrize("api", APIS.values(), ids=APIS.keys())
@settings(deadline=None, max_examples=30)
@given(conversation=st.lists(turns(), min_size=1, max_size=3))
def test_a_request_begins_with_the_bytes_of_the_one_before(api: Api, conversation: list[Turn]) -> None:
    before = ""
    for sent in requests(api, conversation, stream=False):
        now = serialised(sent[api.place])
        assert now.startswith(before)
        before = now


@pytest.mark.parametrize("api", APIS.values(), ids=APIS.keys())
@settings(deadline=None, max_examples=30)
@given(conversation=st.lists(turns(), min_size=1, max_size=3))
def test_every_request_of_a_conversation_is_one_that_the_provider_takes(
    api: Api, conversation: list[Turn]
) -> None:
    for sent in requests(api, conversation, stream=False):
        assert api.faults(sent) == []


@pytest.mark.parametrize("api", APIS.values(), ids=APIS.keys())
@settings(deadline=None, max_examples=10)
@given(conversation=st.lists(turns(), min_size=1, max_size=2))
def test_a_streamed_and_a_whole_request_tell_the_same(api: Api, conversation: list[Turn]) -> None:
    whole = [sent[api.place] for sent in requests(api, conversation, stream=False)]
    assert [sent[api.place] for sent in requests(api, conversation, stream=True)] == whole


@pytest.mark.parametrize("api", APIS.values(), ids=APIS.keys())
def test_new_instructions_in_their_place_change_nothing_before_them(api: Api) -> None:
    told = (Message.system("A"), Message.user("a"), Message.assistant("b"))
    first, second = (
        api.codec.encode(ChatRequest(one, system_in_place=True), MODEL, stream=False, adaptations=frozenset())
        for one in (told, (*told, Message.system("B"), Message.user("c")))
    )
    assert serialised(second[api.place]).startswith(serialised(first[api.place]))
