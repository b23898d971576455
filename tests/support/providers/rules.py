"""Rules of the providers that types cannot say. Each function lists what a request body breaks."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any, TypeAlias, cast

Body: TypeAlias = Mapping[str, Any]


# Both providers


def _common(body: Body) -> Iterator[str]:
    try:
        json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:
        yield "a text is no valid UTF-8"
    except ValueError:
        yield "a number is NaN or infinite"
    if not body.get("model"):
        yield "no model"
    if not body.get("messages") and not body.get("input"):
        yield "no messages"
    if body.get("tools") == []:
        yield "an empty list of tools"


def _names(names: Iterable[object], longest: int) -> Iterator[str]:
    for name in names:
        if not isinstance(name, str) or not re.fullmatch(rf"[a-zA-Z0-9_-]{{1,{longest}}}", name):
            yield f"a tool is named {name!r}"


def _repeated(kind: str, values: Iterable[object]) -> Iterator[str]:
    for value, times in Counter(values).items():
        if times > 1:
            yield f"{kind} {value!r} is there {times} times"


def _is_blank(text: object) -> bool:
    return not isinstance(text, str) or not text.strip()


def _image_faults(mime_type: object, data: object) -> Iterator[str]:
    try:
        start = base64.b64decode(str(data), validate=True)[:16]
    except (binascii.Error, ValueError):
        yield "an image is no valid base64"
        return
    if mime_type != _image_type(start):
        yield f"an image is declared as {mime_type} and is {_image_type(start)}"


def _image_type(start: bytes) -> str:
    if start[:4] == b"RIFF" and start[8:12] == b"WEBP":
        return "image/webp"
    for magic, kind in ((b"\x89PNG", "png"), (b"\xff\xd8\xff", "jpeg"), (b"GIF8", "gif")):
        if start.startswith(magic):
            return f"image/{kind}"
    return "no image"


def _blocks(content: object) -> list[Body]:
    return cast("list[Body]", content) if isinstance(content, list) else []


# OpenAI


def openai_rule_faults(body: Body) -> list[str]:
    """The rules of Chat Completions that the body breaks."""
    messages = cast("list[Body]", body.get("messages") or [])
    tools = [_called(tool) for tool in body.get("tools") or ()]
    calls = [call for one in messages for call in one.get("tool_calls") or ()]
    return [
        *_common(body),
        *_names((tool.get("name") for tool in tools), 64),
        *_repeated("tool", (tool.get("name") for tool in tools)),
        *_repeated("call id", (call.get("id") for call in calls)),
        *(fault for call in calls for fault in _openai_call(call)),
        *(fault for one in messages for fault in _openai_message(one)),
        *_openai_pairs(messages),
    ]


def _called(tool: Body) -> Body:
    return cast("Body", tool.get("function") or tool.get("custom") or {})


def _openai_call(call: Body) -> Iterator[str]:
    if not 1 <= len(str(call.get("id") or "")) <= 40:
        yield f"the call id {call.get('id')!r} has no 1 to 40 characters"
    yield from _names([_called(call).get("name")], 64)
    if "function" in call:
        yield from _arguments(call["function"].get("arguments"))


def _arguments(text: object) -> Iterator[str]:
    def refuse(constant: str) -> None:
        raise ValueError(constant)

    try:
        if not isinstance(json.loads(str(text), parse_constant=refuse), dict):
            yield f"arguments are no object: {text!r}"
    except ValueError:
        yield f"arguments are no JSON: {text!r}"


def _openai_message(one: Body) -> Iterator[str]:
    role, content = one.get("role"), one.get("content")
    has_calls = bool(one.get("tool_calls") or one.get("function_call"))
    if one.get("tool_calls") == []:
        yield "an empty list of calls"
    if content in ("", []):
        yield f"empty content of {role}"
    if content is None and not (role == "assistant" and (has_calls or one.get("refusal"))):
        yield f"no content of {role}"
    if isinstance(content, str) and content and _is_blank(content):
        yield f"blank content of {role}"
    if "name" in one and not re.fullmatch(r"[^\s<|\\/>]{1,64}", str(one["name"])):
        yield f"the name {one['name']!r}"
    for block in _blocks(content):
        yield from _openai_block(block)


def _openai_block(block: Body) -> Iterator[str]:
    kind = block.get("type")
    if kind in ("text", "refusal") and _is_blank(block.get(kind)):
        yield f"a blank {kind}"
    if kind == "image_url":
        url = str(block["image_url"].get("url"))
        match = re.fullmatch(r"data:([^;,]*);base64,(.*)", url, re.DOTALL)
        if match:
            yield from _image_faults(*match.groups())
        elif not url.startswith(("https://", "http://")):
            yield f"an image at {url[:40]!r}"
    if kind == "file" and len({"file_id", "file_data"} & set(block["file"])) != 1:
        yield "a file without an id or data"


def _openai_pairs(messages: list[Body]) -> Iterator[str]:
    """The results of an assistant message follow it directly, one for each call."""
    waiting: list[object] = []
    end: Body = {"role": "end"}
    for one in [*messages, end]:
        if one.get("role") == "tool":
            if one.get("tool_call_id") in waiting:
                waiting.remove(one.get("tool_call_id"))
            else:
                yield f"a result without its call: {one.get('tool_call_id')!r}"
            continue
        if waiting:
            yield f"calls without a result directly behind them: {waiting}"
        waiting = [call.get("id") for call in one.get("tool_calls") or ()]


# OpenAI Responses


def responses_rule_faults(body: Body) -> list[str]:
    """The rules of the Responses API that the body breaks, and those of a request that leaves no state."""
    items = cast("list[Body]", body.get("input") or [])
    tools = cast("list[Body]", body.get("tools") or [])
    return [
        *_common(body),
        *_names((tool.get("name") for tool in tools if tool.get("type") in ("function", "custom")), 64),
        *_repeated("tool", (tool["name"] for tool in tools if "name" in tool)),
        *_responses_state(body),
        *(fault for item in items for fault in _responses_item(item)),
        *_responses_pairs(items),
        *_responses_reasoning(items),
        *_repeated("item id", (item["id"] for item in items if item.get("id"))),
    ]


_RESPONSES_CALLS = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "computer_call": "computer_call_output",
    "local_shell_call": "local_shell_call_output",
    "shell_call": "shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
}
_ID_OF = {"message": "msg", "function_call": "fc", "reasoning": "rs", "custom_tool_call": "ctc"}


def _responses_state(body: Body) -> Iterator[str]:
    if body.get("store") is not False:
        yield "the answer is stored"
    for name in ("previous_response_id", "conversation"):
        if body.get(name):
            yield f"{name} is sent"
    instructions = body.get("instructions")
    if instructions is not None and _is_blank(instructions):
        yield "blank instructions"


def _responses_item(item: Body) -> Iterator[str]:
    kind, name = str(item.get("type", "message")), item.get("id")
    if name is not None and not str(name).startswith(_ID_OF.get(kind, "")):
        yield f"the id {name!r} of a {kind}"
    if kind in _RESPONSES_CALLS and not 1 <= len(str(item.get("call_id") or "")) <= 64:
        yield f"the call id {item.get('call_id')!r} has no 1 to 64 characters"
    if kind in ("function_call", "custom_tool_call"):
        yield from _names([item.get("name")], 64)
    if kind == "function_call":
        yield from _arguments(item.get("arguments"))
    if kind == "message":
        yield from _responses_message(item)
    if kind in ("function_call_output", "custom_tool_call_output"):
        if item.get("output") in ("", []):
            yield "an empty result"
        for block in _blocks(item.get("output")):
            yield from _responses_block(block, "user")


def _responses_message(item: Body) -> Iterator[str]:
    role, content = item.get("role"), item.get("content")
    if not content or (isinstance(content, str) and _is_blank(content)):
        yield f"empty content of {role}"
    for block in _blocks(content):
        yield from _responses_block(block, role)


def _responses_block(block: Body, role: object) -> Iterator[str]:
    kind = block.get("type")
    allowed = (
        ("output_text", "refusal") if role == "assistant" else ("input_text", "input_image", "input_file")
    )
    if kind not in allowed:
        yield f"{kind} of {role}"
    if kind in ("input_text", "output_text") and _is_blank(block.get("text")):
        yield "a blank text"
    if kind == "input_image" and ("image_url" in block) == ("file_id" in block):
        yield "an image without an address or an id"
    url = str(block.get("image_url") or "")
    match = re.fullmatch(r"data:([^;,]*);base64,(.*)", url, re.DOTALL)
    if match:
        yield from _image_faults(*match.groups())
    elif url and not url.startswith(("https://", "http://")):
        yield f"an image at {url[:40]!r}"
    if kind == "input_file" and len({"file_id", "file_data", "file_url"} & set(block)) != 1:
        yield "a file without an id, data or address"


def _responses_pairs(items: list[Body]) -> Iterator[str]:
    """Every call is answered behind it, once, by an output of its own type."""
    waiting: dict[object, str] = {}
    for item in items:
        kind = str(item.get("type", "message"))
        if kind in _RESPONSES_CALLS:
            if item["call_id"] in waiting:
                yield f"two open calls {item['call_id']!r}"
            waiting[item["call_id"]] = _RESPONSES_CALLS[kind]
        elif kind in _RESPONSES_CALLS.values() and waiting.pop(item.get("call_id"), None) != kind:
            yield f"a {kind} without its call"
    if waiting:
        yield f"calls without a result: {list(waiting)}"


def _responses_reasoning(items: list[Body]) -> Iterator[str]:
    """Reasoning can be read by the server and is followed by what it led to, which has an id only then."""
    is_led_to = False
    for item, following in zip(items, [*items[1:], {}], strict=False):
        kind, next_kind = item.get("type", "message"), following.get("type", "message")
        if kind == "reasoning":
            is_led_to = True
            if not item.get("encrypted_content"):
                yield "reasoning that is not encrypted"
            if next_kind in _RESPONSES_CALLS.values() or following.get("role", "assistant") != "assistant":
                yield "reasoning without the item that it led to"
            if not following:
                yield "reasoning at the end"
        elif item.get("role") in ("user", "system", "developer"):
            is_led_to = False
        elif item.get("id") and kind in ("message", "function_call", "custom_tool_call") and not is_led_to:
            yield f"a {kind} with an id without its reasoning"


# Anthropic


def anthropic_rule_faults(body: Body) -> list[str]:
    """The rules of the Messages API that the body breaks."""
    messages = cast("list[Body]", body.get("messages") or [])
    tools = cast("list[Body]", body.get("tools") or [])
    blocks = [block for one in messages for block in _blocks(one.get("content"))]
    calls = [block for block in blocks if block.get("type") in _CALLS]
    return [
        *_common(body),
        *_names((tool.get("name") for tool in tools), 128),
        *_repeated("tool", (tool.get("name") for tool in tools)),
        *_repeated("call id", (call.get("id") for call in calls)),
        *_anthropic_top(body, messages),
        *_anthropic_cache_controls(body, blocks),
        *(fault for one in messages for fault in _anthropic_message(one)),
        *_anthropic_pairs(messages),
        *_anthropic_server_pairs(messages),
    ]


_CALLS = ("tool_use", "server_tool_use", "mcp_tool_use")
_THINKING = ("thinking", "redacted_thinking")


def _anthropic_top(body: Body, messages: list[Body]) -> Iterator[str]:
    if not isinstance(body.get("max_tokens"), int) or body["max_tokens"] < 1:
        yield "no max_tokens"
    if messages and messages[0].get("role") != "user":
        yield "the first message is not a user's"
    if any(first.get("role") == second.get("role") for first, second in pairwise(messages)):
        yield "two messages of one role in a row"
    system = body.get("system")
    texts = [system] if isinstance(system, str) else [block.get("text") for block in _blocks(system)]
    if any(map(_is_blank, texts)) or system == []:
        yield "a blank system text"
    if messages and messages[-1].get("role") == "assistant":
        content = messages[-1].get("content")
        blocks = _blocks(content)
        last = str(blocks[-1].get("text", "") if blocks else content)
        if last != last.rstrip():
            yield "the last assistant text ends with white space"


def _anthropic_cache_controls(body: Body, blocks: list[Body]) -> Iterator[str]:
    everything = [body, *(body.get("tools") or ()), *_blocks(body.get("system")), *blocks]
    inner = [nested for block in blocks for nested in _blocks(block.get("content"))]
    marked = [block for block in [*everything, *inner] if block.get("cache_control")]
    if len(marked) > 4:
        yield f"{len(marked)} cache_control"
    if any(block.get("type") in _THINKING for block in marked):
        yield "cache_control on thinking"


def _anthropic_message(one: Body) -> Iterator[str]:
    role, content = one.get("role"), one.get("content")
    if isinstance(content, str) and _is_blank(content):
        yield f"blank content of {role}"
    if content == [] or content is None:
        yield f"empty content of {role}"
    blocks = _blocks(content)
    for block in blocks:
        yield from _anthropic_block(block, role)
    kinds = [block.get("type") for block in blocks]
    if role == "assistant" and kinds and kinds[-1] in _THINKING:
        yield "an assistant message ends with thinking"
    results = [place for place, kind in enumerate(kinds) if kind == "tool_result"]
    if results != list(range(len(results))):
        yield "results are not the first of their message"


def _anthropic_block(block: Body, role: object) -> Iterator[str]:
    kind = block.get("type")
    if kind == "text" and _is_blank(block.get("text")):
        yield "a blank text"
    if kind == "thinking" and not block.get("signature"):
        yield "thinking without its signature"
    if kind == "redacted_thinking" and not block.get("data"):
        yield "redacted thinking without its data"
    if kind in (*_CALLS, *_THINKING) and role != "assistant":
        yield f"{kind} of {role}"
    if kind in ("tool_result", "image", "document") and role != "user":
        yield f"{kind} of {role}"
    if kind == "tool_use":
        yield from _names([block.get("name")], 128)
        if not isinstance(block.get("input"), dict):
            yield "an input is no object"
        if not re.fullmatch(r"[a-zA-Z0-9_-]+", str(block.get("id"))):
            yield f"the call id {block.get('id')!r}"
    if kind == "image" and block["source"].get("type") == "base64":
        yield from _image_faults(block["source"].get("media_type"), block["source"].get("data"))
    if kind == "tool_result":
        content = block.get("content")
        if content == [] or (isinstance(content, str) and content and _is_blank(content)):
            yield "an empty or blank result"
        if block.get("is_error") and not content:
            yield "an error without a text"
        for nested in _blocks(content):
            yield from _anthropic_block(nested, role)


def _anthropic_pairs(messages: list[Body]) -> Iterator[str]:
    """Every call is answered in the user message behind it, once, and every result has its call there."""
    for one, following in zip([{}, *messages], [*messages, {}], strict=True):
        calls = [b.get("id") for b in _blocks(one.get("content")) if b.get("type") == "tool_use"]
        blocks = _blocks(following.get("content"))
        results = [b.get("tool_use_id") for b in blocks if b.get("type") == "tool_result"]
        if missing := [name for name in calls if name not in results]:
            yield f"calls without a result directly behind them: {missing}"
        if orphans := [name for name in results if name not in calls]:
            yield f"results without their call: {orphans}"
        yield from _repeated("result", results)


def _anthropic_server_pairs(messages: list[Body]) -> Iterator[str]:
    """Calls that the provider ran are answered in their message, except where it is to go on."""
    for place, one in enumerate(messages):
        calls: list[object] = []
        for block in _blocks(one.get("content")):
            kind = str(block.get("type"))
            if kind in ("server_tool_use", "mcp_tool_use"):
                calls.append(block.get("id"))
            elif kind.endswith("_tool_result"):
                if block.get("tool_use_id") in calls:
                    calls.remove(block.get("tool_use_id"))
                else:
                    yield f"a {kind} without its call"
        if calls and place < len(messages) - 1:
            yield f"calls of the provider's own without a result: {calls}"
