"""Types and rules of requests: they refuse what providers refuse and accept what was sent."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from tests.support.providers.rules import anthropic_rule_faults, openai_rule_faults, responses_rule_faults
from tests.support.providers.transcripts import files, recorded_requests
from tests.support.providers.types import anthropic_type_faults, openai_type_faults, responses_type_faults

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

Fields = dict[str, Any]


def faults_for_openai(body: Fields) -> list[str]:
    return openai_type_faults(body) + openai_rule_faults(body)


def faults_for_anthropic(body: Fields) -> list[str]:
    return anthropic_type_faults(body) + anthropic_rule_faults(body)


@pytest.mark.parametrize("path", files("openai_chat"), ids=lambda path: path.name)
def test_every_recorded_request_to_openai_is_accepted(path: Path) -> None:
    assert [fault for body in recorded_requests(path) for fault in faults_for_openai(body)] == []


@pytest.mark.parametrize("path", files("anthropic_messages"), ids=lambda path: path.name)
def test_every_recorded_request_to_anthropic_is_accepted(path: Path) -> None:
    assert [fault for body in recorded_requests(path) for fault in faults_for_anthropic(body)] == []


# OpenAI

USER: Fields = {"role": "user", "content": "Where is it?"}


def openai_call(name: str = "c1", tool: Any = "find", arguments: Any = "{}", **more: Any) -> Fields:
    return {"id": name, "type": "function", "function": {"name": tool, "arguments": arguments}, **more}


def calling(*calls: Fields) -> Fields:
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


def result(name: str = "c1", content: Any = "here") -> Fields:
    return {"role": "tool", "tool_call_id": name, "content": content}


def to_openai(*messages: Any, **fields: Any) -> Fields:
    return {"model": "a-model", "messages": list(messages), **fields}


def openai_image(url: str) -> Fields:
    return to_openai({"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]})


BAD_FOR_OPENAI: dict[str, Fields] = {
    "no messages": to_openai(),
    "no model": {"messages": [USER]},
    "a message without a role": to_openai({"content": "hi"}),
    "an unknown role": to_openai({"role": "robot", "content": "hi"}),
    "a field that does not exist": to_openai({**USER, "turn": 1}),
    "a field of a part that does not exist": to_openai(
        {"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]}
    ),
    "an unknown field of the request": to_openai(USER, max_token=3),
    "a part of an unknown type": to_openai({"role": "user", "content": [{"type": "words", "text": "a"}]}),
    "a content that is a number": to_openai({"role": "user", "content": 7}),
    "a user without content": to_openai({"role": "user", "content": None}),
    "empty text": to_openai({"role": "user", "content": ""}),
    "blank text": to_openai({"role": "user", "content": " \n"}),
    "an empty list of parts": to_openai({"role": "user", "content": []}),
    "a blank part": to_openai({"role": "user", "content": [{"type": "text", "text": " "}]}),
    "an assistant that says nothing": to_openai(USER, {"role": "assistant", "content": None}),
    "an empty list of calls": to_openai(USER, {"role": "assistant", "content": "a", "tool_calls": []}),
    "a call without a result": to_openai(USER, calling(openai_call())),
    "one of two calls without a result": to_openai(
        USER, calling(openai_call("c1"), openai_call("c2")), result("c1")
    ),
    "a result behind a user message": to_openai(USER, calling(openai_call()), USER, result()),
    "a result without a call": to_openai(USER, result()),
    "two results for one call": to_openai(USER, calling(openai_call()), result(), result()),
    "a result for another call": to_openai(USER, calling(openai_call("c1")), result("c2")),
    "one id twice in a batch": to_openai(
        USER, calling(openai_call("c1"), openai_call("c1")), result("c1"), result("c1")
    ),
    "an id of 41 characters": to_openai(USER, calling(openai_call("c" * 41)), result("c" * 41)),
    "an empty id": to_openai(USER, calling(openai_call("")), result("")),
    "a name with a space": to_openai(USER, calling(openai_call(tool="find it")), result()),
    "a name of 65 characters": to_openai(USER, calling(openai_call(tool="f" * 65)), result()),
    "an empty name": to_openai(USER, calling(openai_call(tool="")), result()),
    "arguments cut off": to_openai(USER, calling(openai_call(arguments='{"a": ')), result()),
    "empty arguments": to_openai(USER, calling(openai_call(arguments="")), result()),
    "arguments that are a list": to_openai(USER, calling(openai_call(arguments="[1]")), result()),
    "arguments with NaN": to_openai(USER, calling(openai_call(arguments='{"a": NaN}')), result()),
    "arguments that are an object": to_openai(USER, calling(openai_call(arguments={"a": 1})), result()),
    "a call with a further field": to_openai(USER, calling(openai_call(index=0)), result()),
    "a result with an image": to_openai(
        USER,
        calling(openai_call()),
        result(content=[{"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}]),
    ),
    "an empty result": to_openai(USER, calling(openai_call()), result(content="")),
    "an image of another type than declared": openai_image(f"data:image/jpeg;base64,{PNG}"),
    "an image that is no base64": openai_image("data:image/png;base64,???"),
    "an image on a disk": openai_image("file:///tmp/a.png"),
    "a lone surrogate": to_openai({"role": "user", "content": "a\ud800"}),
    "NaN": to_openai(USER, temperature=math.nan),
    "two tools of one name": to_openai(
        USER, tools=[{"type": "function", "function": {"name": "find"}} for _ in range(2)]
    ),
    "a tool without its wrapper": to_openai(USER, tools=[{"name": "find", "parameters": {}}]),
}


@pytest.mark.parametrize("name", BAD_FOR_OPENAI)
def test_a_bad_request_to_openai_is_refused(name: str) -> None:
    assert faults_for_openai(BAD_FOR_OPENAI[name])


# Anthropic


def said(*blocks: Any) -> Fields:
    return {"role": "assistant", "content": list(blocks)}


def told(*blocks: Any) -> Fields:
    return {"role": "user", "content": list(blocks)}


def text(content: Any = "Well.", **more: Any) -> Fields:
    return {"type": "text", "text": content, **more}


def use(name: str = "c1", tool: Any = "find", given: Any = None, **more: Any) -> Fields:
    return {"type": "tool_use", "id": name, "name": tool, "input": {} if given is None else given, **more}


def used(name: str = "c1", **more: Any) -> Fields:
    return {"type": "tool_result", "tool_use_id": name, "content": "here", **more}


def server_use(name: str = "s1") -> Fields:
    return {"type": "server_tool_use", "id": name, "name": "web_search", "input": {"query": "a"}}


def server_result(name: str = "s1") -> Fields:
    return {"type": "web_search_tool_result", "tool_use_id": name, "content": []}


def image(mime_type: str = "image/png", data: str = PNG) -> Fields:
    return {"type": "image", "source": {"type": "base64", "media_type": mime_type, "data": data}}


def to_anthropic(*messages: Any, **fields: Any) -> Fields:
    return {"model": "a-model", "max_tokens": 100, "messages": list(messages), **fields}


MARK: Fields = {"cache_control": {"type": "ephemeral"}}

BAD_FOR_ANTHROPIC: dict[str, Fields] = {
    "no messages": to_anthropic(),
    "no max_tokens": {"model": "a-model", "messages": [USER]},
    "no tokens": to_anthropic(USER, max_tokens=0),
    "max_tokens as text": to_anthropic(USER, max_tokens="100"),
    "an assistant first": to_anthropic(said(text()), USER),
    "two users in a row": to_anthropic(USER, USER),
    "an unknown role": to_anthropic(USER, {"role": "tool", "content": "a"}),
    "a field that does not exist": to_anthropic({**USER, "name": "ada"}),
    "a field of a block that does not exist": to_anthropic(told(text(parsed_output=None))),
    "a block of an unknown type": to_anthropic(told({"type": "words", "text": "a"})),
    "empty text": to_anthropic(told(text(""))),
    "blank text": to_anthropic(told(text("\n"))),
    "blank content": to_anthropic({"role": "user", "content": " "}),
    "an empty list of blocks": to_anthropic(told()),
    "no content": to_anthropic({"role": "user", "content": None}),
    "blank instructions": to_anthropic(USER, system=[text(" ")]),
    "instructions that are a message": to_anthropic(USER, system={"role": "system", "content": "a"}),
    "a call without a result": to_anthropic(USER, said(use()), told(text())),
    "a call at the end": to_anthropic(USER, said(use())),
    "one of two calls without a result": to_anthropic(USER, said(use("c1"), use("c2")), told(used("c1"))),
    "results in two messages": to_anthropic(
        USER, said(use("c1"), use("c2")), told(used("c1")), said(text()), told(used("c2"))
    ),
    "a result behind a text": to_anthropic(USER, said(use()), told(text(), used())),
    "a result without a call": to_anthropic(told(used())),
    "two results for one call": to_anthropic(USER, said(use()), told(used(), used())),
    "one id twice": to_anthropic(USER, said(use(), use()), told(used(), used())),
    "one id again later": to_anthropic(USER, said(use()), told(used()), said(use()), told(used())),
    "an id with a dot": to_anthropic(USER, said(use("c.1")), told(used("c.1"))),
    "a name with a dot": to_anthropic(USER, said(use(tool="a.b")), told(used())),
    "an input that is text": to_anthropic(USER, said(use(given="{}")), told(used())),
    "an input that is a list": to_anthropic(USER, said(use(given=[1])), told(used())),
    "a call of the user's": to_anthropic(told(use()), told(used())),
    "an image of the assistant's": to_anthropic(USER, said(image(), text()), USER),
    "an error without a text": to_anthropic(USER, said(use()), told(used(content="", is_error=True))),
    "an empty list as a result": to_anthropic(USER, said(use()), told(used(content=[]))),
    "thinking without its signature": to_anthropic(
        USER, said({"type": "thinking", "thinking": "Hm.", "signature": ""}, text()), USER
    ),
    "thinking with a cache mark": to_anthropic(
        USER, said({"type": "thinking", "thinking": "Hm.", "signature": "s", **MARK}, text()), USER
    ),
    "thinking at the end": to_anthropic(
        USER, said(text(), {"type": "thinking", "thinking": "Hm.", "signature": "s"}), USER
    ),
    "redacted thinking without its data": to_anthropic(
        USER, said({"type": "redacted_thinking", "data": ""}, text()), USER
    ),
    "five cache marks": to_anthropic(told(*(text(**MARK) for _ in range(5)))),
    "five cache marks, one of a tool": to_anthropic(
        told(*(text(**MARK) for _ in range(4))),
        tools=[{"name": "find", "input_schema": {"type": "object"}, **MARK}],
    ),
    "a cache mark of an unknown type": to_anthropic(told(text(cache_control={"type": "forever"}))),
    "an image of another type than declared": to_anthropic(told(image("image/gif"))),
    "an image of a type that is not supported": to_anthropic(told(image("image/bmp", "Qk0="))),
    "an image that is no base64": to_anthropic(told(image(data="???"))),
    "a call of the provider's without a result": to_anthropic(USER, said(server_use(), text()), USER),
    "a result of the provider's without a call": to_anthropic(USER, said(server_result(), text()), USER),
    "a lone surrogate": to_anthropic(told(text("\udc00"))),
    "NaN in an input": to_anthropic(USER, said(use(given={"a": math.nan})), told(used())),
    "white space at the end of a prefill": to_anthropic(USER, said(text("It is "))),
    "a tool in the form of OpenAI": to_anthropic(
        USER, tools=[{"type": "function", "function": {"name": "find", "parameters": {}}}]
    ),
}


@pytest.mark.parametrize("name", BAD_FOR_ANTHROPIC)
def test_a_bad_request_to_anthropic_is_refused(name: str) -> None:
    assert faults_for_anthropic(BAD_FOR_ANTHROPIC[name])


GOOD: dict[str, list[str]] = {
    "openai, plain": faults_for_openai(to_openai(USER)),
    "openai, parallel calls": faults_for_openai(
        to_openai(USER, calling(openai_call("c1"), openai_call("c2")), result("c1"), result("c2"))
    ),
    "openai, an image": faults_for_openai(openai_image(f"data:image/png;base64,{PNG}")),
    "anthropic, plain": faults_for_anthropic(to_anthropic(USER)),
    "anthropic, parallel calls": faults_for_anthropic(
        to_anthropic(USER, said(use("c1"), use("c2")), told(used("c1"), used("c2"), text()))
    ),
    "anthropic, an image": faults_for_anthropic(to_anthropic(told(image()))),
    "anthropic, a call of its own": faults_for_anthropic(
        to_anthropic(USER, said(server_use(), server_result(), text()), USER)
    ),
    "anthropic, a turn to go on with": faults_for_anthropic(to_anthropic(USER, said(server_use()))),
}


@pytest.mark.parametrize("name", GOOD)
def test_the_good_neighbour_of_the_bad_requests_is_accepted(name: str) -> None:
    assert GOOD[name] == []


# OpenAI Responses


def to_responses(*items: Any, **fields: Any) -> Fields:
    return {"model": "a-model", "input": list(items), "store": False, **fields}


def faults_for_responses(body: Fields) -> list[str]:
    return responses_type_faults(body) + responses_rule_faults(body)


RS: Fields = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gA=="}
FC: Fields = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "find", "arguments": "{}"}
FREE: Fields = {name: value for name, value in FC.items() if name != "id"}
OUT: Fields = {"type": "function_call_output", "call_id": "c1", "output": "here"}
MSG: Fields = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "In Lund.", "annotations": []}],
}
TEXT: Fields = {"role": "assistant", "content": "In Lund."}

GOOD_FOR_RESPONSES: dict[str, Fields] = {
    "a question": to_responses(USER),
    "reasoning, its call and a result": to_responses(USER, RS, FC, OUT),
    "reasoning and its message": to_responses(USER, RS, MSG, USER),
    "an answer without an id": to_responses(USER, TEXT, USER),
    "a call without an id": to_responses(USER, FREE, OUT),
    "a result between reasoning and more": to_responses(USER, RS, FC, OUT, {**RS, "id": "rs_2"}, MSG),
}
BAD_FOR_RESPONSES: dict[str, Fields] = {
    "no input": to_responses(),
    "an answer that is stored": to_responses(USER, store=True),
    "an answer before": to_responses(USER, previous_response_id="resp_1"),
    "an unknown field of the request": to_responses(USER, max_token=3),
    "blank instructions": to_responses(USER, instructions=" "),
    "an item of an unknown type": to_responses(USER, {"type": "thing"}),
    "a field of an item that does not exist": to_responses({**USER, "turn": 1}),
    "blank text": to_responses({"role": "user", "content": " "}),
    "an empty list of parts": to_responses({"role": "user", "content": []}),
    "a part of the wrong side": to_responses(
        {"role": "user", "content": [{"type": "output_text", "text": "a"}]}
    ),
    "an image of another type": to_responses(
        {
            "role": "user",
            "content": [
                {"type": "input_image", "detail": "auto", "image_url": f"data:image/gif;base64,{PNG}"}
            ],
        }
    ),
    "an image without an address": to_responses(
        {"role": "user", "content": [{"type": "input_image", "detail": "auto"}]}
    ),
    "a file without data": to_responses(
        {"role": "user", "content": [{"type": "input_file", "filename": "a"}]}
    ),
    "a call without a result": to_responses(USER, FREE),
    "a result without its call": to_responses(USER, OUT),
    "a result of another type": to_responses(USER, FREE, {**OUT, "type": "custom_tool_call_output"}),
    "two results of one call": to_responses(USER, FREE, OUT, OUT),
    "an empty result": to_responses(USER, FREE, {**OUT, "output": ""}),
    "arguments that are no object": to_responses(USER, {**FREE, "arguments": "[1]"}, OUT),
    "a name of a tool with a dot": to_responses(USER, {**FREE, "name": "find.it"}, OUT),
    "a call id of 65 characters": to_responses(
        USER, {**FREE, "call_id": "c" * 65}, {**OUT, "call_id": "c" * 65}
    ),
    "a call with the id of something else": to_responses(USER, RS, {**FC, "id": "call_1"}, OUT),
    "reasoning that is not encrypted": to_responses(USER, {**RS, "encrypted_content": None}, MSG),
    "reasoning without what it led to": to_responses(USER, RS, USER),
    "reasoning before a result": to_responses(USER, FREE, RS, OUT),
    "reasoning at the end": to_responses(USER, RS),
    "a message without its reasoning": to_responses(USER, MSG, USER),
    "a call without its reasoning": to_responses(USER, FC, OUT),
    "an item twice": to_responses(USER, RS, MSG, USER, RS, MSG, USER),
    "a lone surrogate": to_responses({"role": "user", "content": "\ud800"}),
}


@pytest.mark.parametrize("body", GOOD_FOR_RESPONSES.values(), ids=GOOD_FOR_RESPONSES)
def test_what_responses_accepts_is_accepted(body: Fields) -> None:
    assert faults_for_responses(body) == []


@pytest.mark.parametrize("body", BAD_FOR_RESPONSES.values(), ids=BAD_FOR_RESPONSES)
def test_what_responses_refuses_is_refused(body: Fields) -> None:
    assert faults_for_responses(body)


@pytest.mark.parametrize("path", files("openai_responses"), ids=lambda path: path.name)
def test_every_recorded_request_to_responses_has_items_of_known_types(path: Path) -> None:
    bodies = [{**body, "input": body["input"]} for body in recorded_requests(path)]
    lists = [body for body in bodies if isinstance(body["input"], list)]
    assert [fault for body in lists for fault in responses_type_faults(body)] == []
