"""Requests to the Anthropic Messages API."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from turnlog.domain.log import SessionEvent
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
    UriPart,
)
from turnlog.domain.view import View
from turnlog.infrastructure.formats import _media, _plain
from turnlog.infrastructure.formats._anthropic_format import ORIGIN, RESULT, SERVER_CALLS, block_of
from turnlog.infrastructure.formats._calls import (
    EMPTY_RESULT,
    START,
    Call,
    Said,
    WireIds,
    arguments_object,
    paired,
    response_parts,
    wire_name,
)
from turnlog.infrastructure.formats._plain import Plain, PrefillWarning
from turnlog.infrastructure.formats._told import instructions_first, told

DEFAULT_MAX_TOKENS = 4096

_FITTING_ID = re.compile(r"[a-zA-Z0-9_-]+")
_MAX_NAME = 128
_MAX_CACHE_CONTROLS = 4
_OWN_MARKS = 2
_MARK = {"type": "ephemeral"}
_THINKING = ("thinking", "redacted_thinking")


def request(
    view: View | Iterable[SessionEvent | Message],
    *,
    model: str,
    tools: Sequence[Mapping[str, Any]] | None = None,
    max_tokens: int = DEFAULT_MAX_TOKENS,
    branch: str | None = None,
    system: str | None = None,
    prefill: bool = False,
    reasoning: bool = True,
    cache_control: bool = False,
    cache: bool = False,
    system_in_place: bool = False,
    **options: Any,
) -> Plain:
    """The keyword arguments of `client.messages.create`, such that the provider accepts them.

    All instructions and summaries with the role system become `system`; a given `system` is sent in place of
    the stored instructions. Neighbours of one role are joined. Results stand first in the message behind
    their calls, in the order of the calls; a call without a result gets one that says so, a result without
    its call is left out. What the format cannot carry becomes a text in brackets that names it; what another
    provider ran or thought itself is left out. Messages that came with files or compaction blocks need
    `client.beta.messages.create`.

    `branch` is the branch whose model is told. Tools are given in the provider's form or as `name`,
    `description` and `parameters`. `reasoning` sends back signed thinking that came in this format.
    `cache_control` sends the marks that messages came with, the newest ones where there are more than four
    with those of the tools. `cache` asks the provider to cache the whole request: tools and instructions by a
    mark of their own, and what lies before the end of the newest message by the option `cache_control`, so
    that the messages themselves are the same as without. `system_in_place` leaves the system messages behind
    the first other message where they stand. Further options are passed on.
    A request that ends with an assistant message gives a `PrefillWarning` unless `prefill`.
    """
    given = instructions_first(told(view, branch, system, system_in_place))
    wire = _finished(_conversation(paired(given.conversation), reasoning))
    if wire[-1]["role"] == "assistant" and not prefill:
        warnings.warn(PrefillWarning.MESSAGE, PrefillWarning, stacklevel=2)
    instructions = _system(given.system)
    body: Plain = {"model": model, "max_tokens": max_tokens}
    if instructions:
        body["system"] = instructions
    body["messages"] = wire
    if tools:
        body["tools"] = [_tool(tool) for tool in tools]
    sent = cast("Plain", _plain.sendable({**body, **options}))
    allowed = _MAX_CACHE_CONTROLS - (_OWN_MARKS if cache else 0)
    _limit_cache_controls(sent, allowed if cache_control else 0)
    if cache:
        _mark(sent)
    return sent


def _mark(sent: Plain) -> None:
    """Mark the end of tools and instructions, and ask for a mark at the end of the request."""
    sent.setdefault("cache_control", dict(_MARK))
    tools = [tool for tool in sent.get("tools", ()) if not tool.get("defer_loading")]
    beginning = sent.get("system") or tools
    if beginning and not any("cache_control" in tool for tool in tools):
        beginning[-1]["cache_control"] = dict(_MARK)


def mark_newest(sent: Plain) -> None:
    """Mark the last block, for servers that do not know the option `cache_control`. It is never thinking."""
    if mark := sent.pop("cache_control", None):
        sent["messages"][-1]["content"][-1].setdefault("cache_control", mark)


def _tool(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    if "type" in tool or "input_schema" in tool:
        return tool
    kept = {name: value for name, value in tool.items() if name != "parameters"}
    schema: Any = tool.get("parameters")
    schema = schema or {"type": "object", "properties": {}}
    return {**kept, "name": wire_name(tool["name"], _MAX_NAME), "input_schema": schema}


def _system(instructions: Iterable[Message]) -> list[Plain]:
    blocks = (_text(_media.as_text(part), part) for one in instructions for part in one.parts)
    return [block for block in blocks if block]


def _conversation(said: Iterable[Said], reasoning: bool) -> list[Plain]:
    """Messages of alternating roles; results are the first of the user message behind their calls."""
    ids = WireIds(_FITTING_ID)
    wire: list[Plain] = []
    for one in said:
        blocks: list[Plain] = []
        results: list[Plain] = []
        for part in one.parts:
            if isinstance(part, Call):
                name = ids.take(part.part.id)
                blocks.append(_sent_call(part.part, name, one.message.origin))
                results.append(_sent_result(part, name))
            else:
                block = _sent(part, one.message, reasoning)
                blocks += [block] if block else []
        _add(wire, one.message.role.value, blocks)
        _add(wire, "user", results)
    return wire


def _add(wire: list[Plain], role: str, blocks: list[Plain]) -> None:
    if not blocks:
        return
    if wire and wire[-1]["role"] == role:
        wire[-1]["content"] += blocks
    else:
        wire.append({"role": role, "content": blocks})


def _finished(wire: list[Plain]) -> list[Plain]:
    """The messages without what may not stand at its place, a user's message first."""
    finished: list[Plain] = []
    seen: set[str] = set()
    for place, one in enumerate(wire):
        blocks = one["content"]
        if one["role"] == "assistant":
            blocks = _with_paired_server_tools(blocks, seen, may_go_on=place == len(wire) - 1)
            while blocks and blocks[-1]["type"] in _THINKING:
                blocks = blocks[:-1]
        _add(finished, one["role"], blocks)
    if not finished or finished[0]["role"] != "user":
        finished.insert(0, {"role": "user", "content": [{"type": "text", "text": START}]})
    last = finished[-1]
    if last["role"] == "assistant" and last["content"][-1]["type"] == "text":
        last["content"][-1]["text"] = last["content"][-1]["text"].rstrip()
    return finished


def _with_paired_server_tools(blocks: list[Plain], seen: set[str], may_go_on: bool) -> list[Plain]:
    """Without calls that the provider ran and whose result is not behind them, and without such results.

    Only at the end of a request a call may stand alone: the provider goes on with it.
    """
    kept: set[int] = set()
    waiting: dict[str, int] = {}
    for place, block in enumerate(blocks):
        if block["type"] in SERVER_CALLS:
            if block["id"] not in seen:
                waiting[block["id"]] = place
            seen.add(block["id"])
        elif "tool_use_id" not in block:
            kept.add(place)
        elif block["tool_use_id"] in waiting:
            kept |= {waiting.pop(block["tool_use_id"]), place}
    if may_go_on:
        kept.update(waiting.values())
    return [block for place, block in enumerate(blocks) if place in kept]


def _sent_call(part: ToolCallPart, name: str, origin: str | None) -> Plain:
    caller = part.extra.get("caller") if origin == ORIGIN else None
    return {
        "type": "tool_use",
        "id": name,
        "name": wire_name(part.name, _MAX_NAME),
        "input": arguments_object(part.arguments),
        **({"caller": caller} if caller else {}),
        **_cache_control(part),
    }


def _sent_result(call: Call, name: str) -> Plain:
    fields: Plain = {"type": RESULT, "tool_use_id": name}
    if call.response is None:
        return {**fields, "content": call.placeholder, **({} if call.part.awaiting else {"is_error": True})}
    blocks = [_sent_media(part, call.response_origin) for part in response_parts(call.response)]
    content = [block for block in blocks if block]
    if content:
        is_plain = isinstance(call.response.response, str)
        fields["content"] = content[0]["text"] if is_plain else content
    if call.response.extra.get("is_error"):
        fields = {"content": EMPTY_RESULT, **fields, "is_error": True}
    return {**fields, **_cache_control(call.response)}


def _sent(part: Part, said: Message, reasoning: bool) -> Plain | None:
    is_ours = said.origin == ORIGIN
    if said.role is Role.USER:
        return _sent_media(part, said.origin)
    match part:
        case TextPart():
            return _with_citations(part) if is_ours else _text(part.content, part)
        case ReasoningPart():
            return _sent_thinking(part) if is_ours and reasoning else None
        case ServerToolCallPart() | ServerToolCallResponsePart() if is_ours and "block" in part.extra:
            return cast("Plain", block_of(part))
        case CompactionPart() if is_ours:
            return cast("Plain", block_of(part))
        case _:
            return _text(_media.as_text(part), part)


def _with_citations(part: TextPart) -> Plain | None:
    block = _text(part.content, part)
    citations = part.extra.get("citations")
    if block and citations and isinstance(citations, list):
        block["citations"] = [_citation(one) for one in cast("list[Mapping[str, Any]]", citations)]
    return block


def _citation(given: Mapping[str, Any]) -> Plain:
    """A citation without the only field that responses have and requests do not."""
    return {name: value for name, value in given.items() if name != "file_id"}


def _sent_thinking(part: ReasoningPart) -> Plain | None:
    """Thinking goes back as it came, signature and all, or not at all."""
    if part.content is None:
        data = part.extra.get("encrypted_content")
        return {"type": "redacted_thinking", "data": data} if data and isinstance(data, str) else None
    signature = part.extra.get("signature")
    if not signature or not isinstance(signature, str):
        return None
    return {"type": "thinking", "thinking": part.content, "signature": signature}


def _sent_media(part: Part, origin: str | None) -> Plain | None:
    """The part of a user message or a result as the provider takes it."""
    match part:
        case BlobPart():
            return _sent_blob(part)
        case UriPart(modality="image" | "document") if _media.is_web(part.uri):
            return {**_head(part), "source": {"type": "url", "url": part.uri}}
        case UriPart() if part.uri.startswith("data:"):
            blob = _media.blob_of(part.uri, part.modality, {})
            return _sent_blob(blob) if isinstance(blob, BlobPart) else _text(_media.as_text(part), part)
        case FilePart(modality="image" | "document") if origin in (ORIGIN, None):
            return {**_head(part), "source": {"type": "file", "file_id": part.file_id}}
        case GenericPart(type="document"):
            return _sent_document(part)
        case GenericPart(type="search_result") if origin == ORIGIN:
            return _sent_search_result(part)
        case _:
            return _text(_media.as_text(part), part)


def _head(part: UriPart | FilePart) -> Plain:
    """Type, title and context of a block with a source."""
    if part.modality == "image":
        return {"type": "image", **_cache_control(part)}
    return {"type": "document", **_titles(part), **_cache_control(part)}


def _titles(part: Part) -> Plain:
    titles = {name: part.extra.get(name) for name in ("title", "context")}
    return {name: value for name, value in titles.items() if isinstance(value, str) and value.strip()}


def _sent_blob(part: BlobPart) -> Plain | None:
    blob = _media.checked(part)
    if blob and blob.mime_type in _media.IMAGES:
        source = {"type": "base64", "media_type": blob.mime_type, "data": blob.content}
        return {"type": "image", "source": source, **_cache_control(part)}
    if blob and blob.mime_type == "application/pdf":
        source = {"type": "base64", "media_type": blob.mime_type, "data": blob.content}
        return {"type": "document", "source": source, **_titles(part), **_cache_control(part)}
    return _text(
        _media.text_of(blob) if blob and blob.mime_type == "text/plain" else _media.as_text(part), part
    )


def _sent_document(part: Part) -> Plain | None:
    """A document whose source is its text."""
    data = _media.as_text(part)
    if not data.strip():
        return None
    source = {"type": "text", "media_type": "text/plain", "data": data}
    return {"type": "document", "source": source, **_titles(part), **_cache_control(part)}


def _sent_search_result(part: Part) -> Plain | None:
    names = {name: part.extra.get(name) for name in ("source", "title")}
    texts = [text for text in _media.texts(part.extra.get("content")) if text.strip()]
    if not texts or not all(isinstance(name, str) for name in names.values()):
        return _text(_media.as_text(part), part)
    content = [{"type": "text", "text": text} for text in texts]
    return {"type": "search_result", **names, "content": content, **_cache_control(part)}


def _text(text: str, part: Part) -> Plain | None:
    return {"type": "text", "text": text, **_cache_control(part)} if text.strip() else None


def _cache_control(part: Part) -> Plain:
    mark = part.extra.get("cache_control")
    if not isinstance(mark, Mapping) or cast("Mapping[str, Any]", mark).get("type") != "ephemeral":
        return {}
    return {"cache_control": mark}


def _limit_cache_controls(sent: Plain, allowed: int) -> None:
    """Take marks off the messages' blocks, the oldest first, until the provider accepts their number."""
    blocks: list[Plain] = [*sent.get("system", ())]
    for one in sent["messages"]:
        for block in one["content"]:
            inner = block.get("content")
            nested = cast("list[object]", inner) if isinstance(inner, list) else []
            blocks += [block, *(cast("Plain", one) for one in nested if isinstance(one, dict))]
    marked = [block for block in blocks if "cache_control" in block]
    by_tools = sum(1 for tool in sent.get("tools", ()) if tool.get("cache_control"))
    for block in marked[: max(0, len(marked) - max(0, allowed - by_tools))]:
        del block["cache_control"]
