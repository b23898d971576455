"""Whatever a conversation is, the request that is made of it is one that the provider accepts."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.providers.rules import anthropic_rule_faults, openai_rule_faults, responses_rule_faults
from tests.support.providers.types import anthropic_type_faults, openai_type_faults, responses_type_faults

from turnlog.domain.log import EventType, SessionEvent
from turnlog.domain.messages import (
    BlobPart,
    CompactionPart,
    FilePart,
    GenericPart,
    Message,
    Part,
    ReasoningPart,
    Role,
    ServerToolCallPart,
    ServerToolCallResponsePart,
    TextPart,
    ToolCallPart,
    ToolCallResponsePart,
    UriPart,
)
from turnlog.domain.view import View
from turnlog.infrastructure.formats import PrefillWarning, anthropic_messages, openai_chat, openai_responses

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
ARGUMENTS = ["{}", "", " ", '{"a": ', "[1]", '{"a": NaN}', '{"a": 1e999}', r'{"a": "\ud800"}', '{"a":' * 2000]
MARK = {"type": "ephemeral"}


def any_of(*values: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


texts = any_of("", " \n", "Well.", "It is ", "a\ud800", "\x00") | st.text(max_size=5)
ids = any_of(None, "", "c1", "c1", "c2", "c.3", "c" * 41, "с1")
names = any_of("find", "find", "find.it", "", "найди", "f" * 200)
marks = any_of({}, {}, {"cache_control": MARK})


def of(model: type[Part], **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Part]:
    """Parts of these fields, some with a mark for the cache."""
    return merged(st.fixed_dictionaries(fields), marks).map(model.model_validate)


def merged(
    first: st.SearchStrategy[dict[str, Any]], second: st.SearchStrategy[dict[str, Any]]
) -> st.SearchStrategy[dict[str, Any]]:
    """Dicts with the fields of both; those of the second win."""
    return st.tuples(first, second).map(lambda both: {**both[0], **both[1]})


media = st.one_of(
    of(
        BlobPart,
        modality=any_of("image", "audio", "document", "video"),
        mime_type=any_of(None, "image/png", "image/gif", "application/pdf", "text/plain", "audio/wav"),
        content=any_of(PNG, "", "???", "JVBERi0x", "aGVsbG8=", "UklGRgAAAABXQVZF"),
    ),
    of(UriPart, modality=any_of("image", "document"), uri=any_of("https://a.example/b", "x", "data:,", "")),
    of(FilePart, modality=any_of("image", "document", "audio"), file_id=any_of("file-1")),
    of(
        GenericPart,
        type=any_of("refusal", "widget", "document", "search_result"),
        refusal=texts,
        source=any_of(None, "https://a.example", {"type": "text", "data": "Long."}),
        title=any_of(None, "", "A"),
        content=any_of(None, [], [{"type": "text", "text": " "}], [{"type": "text", "text": "It says."}]),
    ),
)
thoughts = st.one_of(
    of(ReasoningPart, content=texts, signature=any_of("sig", "", None)),
    of(ReasoningPart, encrypted_content=any_of("data", "", None)),
    of(ReasoningPart, content=texts, encrypted_content=any_of("data", None)).map(
        lambda part: part.model_copy(update={"id": "rs_1"})
    ),
    of(CompactionPart, content=texts),
)
own_calls = st.one_of(
    of(
        ServerToolCallPart,
        id=any_of("s1", "s2"),
        name=any_of("web_search"),
        input=any_of({}, {"a": math.nan, "\ud800": "\ud800"}),
    ).map(lambda part: part.model_copy(update={"block": "server_tool_use"})),
    of(ServerToolCallResponsePart, id=any_of("s1", "s2"), content=any_of([])).map(
        lambda part: part.model_copy(update={"block": "web_search_tool_result"})
    ),
)
calls = of(
    ToolCallPart,
    id=ids,
    name=names,
    arguments=any_of(*ARGUMENTS) | texts,
    awaiting=st.booleans(),
    item_id=any_of(None, "fc_1"),
    call_type=any_of(None, None, "custom", "shell_call"),
)
results = of(
    ToolCallResponsePart,
    id=ids,
    name=any_of(None, "find"),
    response=texts | st.lists(of(TextPart, content=texts) | media, max_size=2).map(tuple),
    provisional=st.booleans(),
    is_error=st.booleans(),
)
said = of(TextPart, content=texts)
kinds = {
    Role.SYSTEM: said | media,
    Role.USER: said | media | results | calls,
    Role.ASSISTANT: said | calls | thoughts | own_calls | media,
    Role.TOOL: results | results | said | media,
}


@st.composite
def events(draw: st.DrawFn) -> SessionEvent:
    role = draw(any_of(*Role, Role.ASSISTANT, Role.TOOL))
    message = Message.of(
        role,
        draw(st.lists(kinds[role], max_size=3)),
        origin=draw(any_of(None, openai_chat.ORIGIN, anthropic_messages.ORIGIN, openai_responses.ORIGIN)),
        name=draw(names),
    )
    return SessionEvent(
        id="",
        type=EventType.MESSAGE,
        version=0,
        timestamp=datetime(2026, 1, 1, tzinfo=UTC),
        branch=draw(any_of(None, None, "a", "a.b", "c")),
        synthetic=role is not Role.TOOL and draw(st.booleans()),
        message=message,
    )


@st.composite
def views(draw: st.DrawFn) -> View:
    drawn = draw(st.lists(events(), max_size=10))
    return View(tuple(numbered(drawn)), len(drawn))


def numbered(drawn: Sequence[SessionEvent]) -> Iterator[SessionEvent]:
    for place, event in enumerate(drawn):
        yield SessionEvent(
            f"e{place}",
            event.type,
            place,
            event.timestamp,
            branch=event.branch,
            synthetic=event.synthetic,
            message=event.message,
        )


@pytest.fixture(autouse=True)
def _prefills_are_fine() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction] - pytest uses it
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrefillWarning)
        yield


@settings(deadline=None, max_examples=200)
@given(views(), st.booleans(), any_of(None, "a.b"))
def test_openai_accepts_the_request_of_any_view(view: View, alternate: bool, branch: str | None) -> None:
    body = openai_chat.request(view, model="m", branch=branch, alternate=alternate)
    assert openai_type_faults(body) + openai_rule_faults(body) == []


@settings(deadline=None, max_examples=200)
@given(views(), st.booleans(), any_of(None, "a.b"))
def test_anthropic_accepts_the_request_of_any_view(view: View, marked: bool, branch: str | None) -> None:
    body = anthropic_messages.request(view, model="m", branch=branch, cache_control=marked)
    assert anthropic_type_faults(body) + anthropic_rule_faults(body) == []


@settings(deadline=None, max_examples=200)
@given(views(), st.booleans(), any_of(None, "a.b"))
def test_responses_accepts_the_request_of_any_view(view: View, reasoning: bool, branch: str | None) -> None:
    body = openai_responses.request(view, model="m", branch=branch, send_reasoning=reasoning)
    assert responses_type_faults(body) + responses_rule_faults(body) == []


@settings(deadline=None)
@given(views())
def test_roles_alternate_where_the_server_demands_it(view: View) -> None:
    body = openai_chat.request(view, model="m", alternate=True)
    spoken = [one["role"] for one in body["messages"] if one["role"] != "system"]
    assert spoken[0] == "user"
    assert not {("user", "user"), ("assistant", "assistant")} & set(pairwise(spoken))


@st.composite
def steps(draw: st.DrawFn) -> list[Message]:
    """Messages without an open call: texts of both sides, and batches that are answered at once."""
    if draw(st.booleans()):
        return [Message.of(draw(any_of(Role.USER, Role.ASSISTANT)), draw(any_of("a", "b", "  ")))]
    batch = [
        ToolCallPart(id=name, name="find") for name in draw(st.lists(any_of("c1", "c2", "c.3"), min_size=1))
    ]
    return [
        Message.assistant(batch),
        *(Message.tool("here", id=call.id) for call in batch),
    ]


@settings(deadline=None)
@given(st.lists(steps(), max_size=5), st.lists(steps(), max_size=5))
def test_a_request_that_grows_keeps_its_beginning(
    first: list[list[Message]], then: list[list[Message]]
) -> None:
    before = [Message.user("Hello."), *(message for step in first for message in step)]
    after = before + [message for step in then for message in step]
    for told in (told_to_openai, told_to_anthropic, told_to_responses):
        earlier = told(before)
        assert told(after)[: len(earlier)] == earlier


def told_to_openai(messages: list[Message]) -> list[Any]:
    return list(openai_chat.request(messages, model="m")["messages"])


def told_to_responses(messages: list[Message]) -> list[Any]:
    return list(openai_responses.request(messages, model="m")["input"])


def told_to_anthropic(messages: list[Message]) -> list[Any]:
    """The blocks with their roles: a message of the same role joins the one before it."""
    wire = anthropic_messages.request(messages, model="m")["messages"]
    return [(one["role"], block) for one in wire for block in one["content"]]


# Import and export

scalars = any_of(None, True, False) | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    scalars | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=5,
)
types = any_of(
    *("text", "image_url", "input_audio", "file", "refusal", "reasoning", "blob", "other", "thinking"),
    *("redacted_thinking", "tool_use", "tool_result", "image", "document", "server_tool_use", "compaction"),
    *("web_search_tool_result", "tool_call"),
)
fields = any_of(
    *("text", "image_url", "url", "file", "file_id", "file_data", "data", "format", "source", "id", "name"),
    *("input", "content", "tool_use_id", "thinking", "signature", "block", "role", "parts", "shape"),
    *("origin", "metadata", "cache_control", "arguments", "function", "type", "awaiting", "modality"),
)
sources = st.fixed_dictionaries(
    {"type": any_of("base64", "url", "file", "text"), "data": st.text(max_size=3), "url": st.text(max_size=3)}
)
block_fields = st.dictionaries(fields, json_values | sources, max_size=4)
blocks = merged(block_fields, st.fixed_dictionaries({"type": types}))
contents = any_of(None, "") | st.text() | st.lists(blocks | json_values, max_size=3)
message_fields = st.dictionaries(fields.filter(lambda name: name != "content"), json_values, max_size=2)


functions = st.fixed_dictionaries(
    {"name": st.text(max_size=3)},
    optional={
        "arguments": st.text(max_size=3) | json_values,
        "input": st.text(max_size=3),
        "block": json_values,
    },
)
given_calls = merged(
    st.dictionaries(fields.filter(lambda name: name not in ("id", "name")), json_values, max_size=2),
    st.fixed_dictionaries(
        {"function": functions, "custom": functions},
        optional={"id": st.text(max_size=3), "type": any_of("function", "custom", "tool")},
    ),
)


def given_messages(*roles: str) -> st.SearchStrategy[dict[str, Any]]:
    known = st.fixed_dictionaries(
        {"role": any_of(*roles)},
        optional={
            "content": contents,
            "refusal": json_values,
            "reasoning": st.text(max_size=3),
            "tool_calls": st.lists(given_calls, max_size=2),
            "function_call": functions,
            "tool_call_id": json_values,
        },
    )
    return merged(message_fields, known)


@settings(deadline=None)
@given(given_messages("system", "developer", "user", "assistant", "tool", "function"))
def test_any_message_of_openai_comes_back_exactly(raw: dict[str, Any]) -> None:
    assert exactly(openai_chat.export(openai_chat.messages(raw))) == exactly([raw])


@settings(deadline=None)
@given(given_messages("user", "assistant", "system"))
def test_any_message_of_anthropic_comes_back_exactly(raw: dict[str, Any]) -> None:
    assert exactly(anthropic_messages.export(anthropic_messages.messages(raw))) == exactly([raw])


texts_of_items = st.fixed_dictionaries(
    {"type": any_of("output_text", "input_text", "refusal", "summary_text", "reasoning_text", "input_image")},
    optional={
        "text": st.text(max_size=3),
        "refusal": st.text(max_size=3),
        "annotations": json_values,
        "image_url": st.text(max_size=3),
        "file_id": json_values,
        "detail": json_values,
    },
)
item_kinds = any_of(
    *(
        "message",
        "reasoning",
        "function_call",
        "custom_tool_call",
        "web_search_call",
        "mcp_call",
        "compaction",
    ),
    *("computer_call", "shell_call", "function_call_output", "custom_tool_call_output", "shell_call_output"),
    *("computer_call_output", "item_reference", "tool_search_output", "text", "blob", "other"),
)
given_items = st.fixed_dictionaries(
    {"type": item_kinds, "role": any_of("user", "assistant", "system", "developer")},
    optional={
        "id": st.text(max_size=3) | json_values,
        "call_id": st.text(max_size=3),
        "name": st.text(max_size=3),
        "content": any_of(None, "x") | st.lists(texts_of_items, max_size=2),
        "summary": st.lists(texts_of_items, max_size=2) | json_values,
        "encrypted_content": json_values,
        "arguments": st.text(max_size=3) | json_values,
        "input": st.text(max_size=3),
        "action": json_values,
        "actions": json_values,
        "output": json_values | st.lists(texts_of_items, max_size=2),
        "status": any_of("completed", None),
        "block": json_values,
        "item_id": json_values,
        "call_type": json_values,
        "field": json_values,
        "phase": any_of("commentary", None),
    },
)


@settings(deadline=None, max_examples=300)
@given(st.lists(given_items, max_size=4))
def test_any_items_of_responses_come_back_exactly(raw: list[dict[str, Any]]) -> None:
    assert exactly(openai_responses.export(openai_responses.messages(raw))) == exactly(raw)


def exactly(value: object) -> str:
    """The value as text, in which 1, 1.0 and true differ and the order of names does not."""
    return json.dumps(value, sort_keys=True)
