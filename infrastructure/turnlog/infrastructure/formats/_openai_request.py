"""Requests to OpenAI Chat Completions."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from turnlog.domain.log import SessionEvent
from turnlog.domain.messages import (
    BlobPart,
    FilePart,
    Message,
    Part,
    ReasoningPart,
    Role,
    TextPart,
    ToolCallPart,
    UriPart,
)
from turnlog.domain.view import View
from turnlog.infrastructure.formats import _media, _plain
from turnlog.infrastructure.formats._calls import (
    EMPTY_RESULT,
    START,
    Call,
    Said,
    WireIds,
    arguments_text,
    paired,
    response_parts,
    wire_name,
)
from turnlog.infrastructure.formats._openai_format import ORIGIN, block_of, reasoning_field
from turnlog.infrastructure.formats._plain import Plain, PrefillWarning
from turnlog.infrastructure.formats._told import told

_FITTING_ID = re.compile(r"[!-~]{1,40}")
_MAX_NAME = 64
_AUDIO = {"audio/wav": "wav", "audio/mpeg": "mp3"}


def request(
    view: View | Iterable[SessionEvent | Message],
    *,
    model: str,
    tools: Sequence[Mapping[str, Any]] | None = None,
    max_tokens: int | None = None,
    branch: str | None = None,
    system: str | None = None,
    prefill: bool = False,
    reasoning: bool = True,
    alternate: bool = False,
    system_in_place: bool = False,
    system_role: str = "system",
    **options: Any,
) -> Plain:
    """The keyword arguments of `client.chat.completions.create`, such that the provider accepts them.

    All instructions and summaries with the role system become one system message in front; `system` is sent
    in place of the stored instructions. Results stand behind their calls in the order of the calls; a call
    without a result gets one that says so, a result without its call is left out. What the format cannot
    carry becomes a text in brackets that names it; what another provider ran or thought itself is left out.

    `branch` is the branch whose model is told. `max_tokens` is sent as `max_completion_tokens`. Tools are
    given in the provider's form or as `name`, `description` and `parameters`. `reasoning` sends back the
    reasoning that came in this format. `alternate` joins neighbours of one role, for servers whose chat
    template demands that roles alternate. `system_in_place` leaves all system messages where they stand.
    `system_role` is the role of instructions, as in `developer`, or `user` for models that know none. Further
    options are passed on.
    A request that ends with an assistant message gives a `PrefillWarning` unless `prefill`.
    """
    given = told(view, branch, system, system_in_place)
    head = _system(given.system, system_role)
    wire = _conversation(paired(given.conversation), reasoning, system_role)
    if system_role == "user":
        head, wire = [], [*head, *wire]
    if alternate:
        wire = _alternating(wire)
    wire = [*head, *wire] or [_start()]
    if wire[-1]["role"] == "assistant" and not prefill:
        warnings.warn(PrefillWarning.MESSAGE, PrefillWarning, stacklevel=2)
    body: Plain = {"model": model, "messages": wire}
    if tools:
        body["tools"] = [_tool(tool) for tool in tools]
    if max_tokens is not None:
        body["max_completion_tokens"] = max_tokens
    return cast("Plain", _plain.sendable({**body, **options}))


def _start() -> Plain:
    return {"role": "user", "content": START}


def _tool(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    if "type" in tool:
        return tool
    return {"type": "function", "function": {**tool, "name": wire_name(tool["name"], _MAX_NAME)}}


def _system(instructions: Iterable[Message], role: str) -> list[Plain]:
    texts = [_media.as_text(part) for one in instructions for part in one.parts]
    text = "\n\n".join(text for text in texts if text.strip())
    return [{"role": role, "content": text}] if text else []


def _conversation(said: Iterable[Said], reasoning: bool, system_role: str) -> list[Plain]:
    ids = WireIds(_FITTING_ID)
    wire: list[Plain] = []
    for one in said:
        match one.message.role:
            case Role.USER:
                wire += _user(one)
            case Role.SYSTEM:
                wire += _system([one.message], system_role)
            case _:
                wire += _assistant(one, ids, reasoning)
    return wire


def _user(said: Said) -> list[Plain]:
    blocks = [_sent(part, said.message) for part in said.parts if not isinstance(part, Call)]
    content = _content([block for block in blocks if block])
    return [{"role": "user", "content": content, **_speaker(said.message)}] if content else []


def _assistant(said: Said, ids: WireIds, reasoning: bool) -> list[Plain]:
    fields: Plain = {"role": "assistant", **_speaker(said.message)}
    blocks: list[Plain] = []
    calls: list[Plain] = []
    results: list[Plain] = []
    for part in said.parts:
        if isinstance(part, Call):
            name = ids.take(part.part.id)
            calls.append(_sent_call(part.part, name))
            results.append({"role": "tool", "tool_call_id": name, "content": _sent_result(part)})
        elif isinstance(part, ReasoningPart):
            if reasoning and said.message.origin == ORIGIN and part.content is not None:
                fields[reasoning_field(said.message)] = part.content
        else:
            block = _sent_by_assistant(part)
            blocks += [block] if block else []
    content = _content(blocks)
    if not content and not calls:
        return []
    fields["content"] = content
    if calls:
        fields["tool_calls"] = calls
    return [fields, *results]


def _speaker(said: Message) -> Plain:
    name = said.extra.get("name") if said.origin == ORIGIN else None
    return {"name": wire_name(name, _MAX_NAME)} if isinstance(name, str) and name else {}


def _content(blocks: list[Plain]) -> str | list[Plain] | None:
    if len(blocks) == 1 and blocks[0]["type"] == "text":
        return str(blocks[0]["text"])
    return blocks or None


def _sent_call(part: ToolCallPart, name: str) -> Plain:
    called = wire_name(part.name, _MAX_NAME)
    if part.extra.get("call_type") == "custom":
        return {"id": name, "type": "custom", "custom": {"name": called, "input": part.arguments}}
    function = {"name": called, "arguments": arguments_text(part.arguments)}
    return {"id": name, "type": "function", "function": function}


def _sent_result(call: Call) -> str | list[Plain]:
    """Results carry text only in this format."""
    if call.response is None:
        return call.placeholder
    texts = [_media.as_text(part) for part in response_parts(call.response)]
    return _content([block_of(TextPart(content=text)) for text in texts if text.strip()]) or EMPTY_RESULT


def _sent_by_assistant(part: Part) -> Plain | None:
    refusal = part.extra.get("refusal")
    if part.type == "refusal" and isinstance(refusal, str) and refusal.strip():
        return {"type": "refusal", "refusal": refusal}
    return _text(_media.as_text(part))


def _sent(part: Part, said: Message) -> Plain | None:
    """The part of a user message as the provider takes it."""
    match part:
        case BlobPart():
            return _sent_blob(part)
        case UriPart(modality="image") if _media.is_web(part.uri):
            return {"type": "image_url", "image_url": {"url": part.uri, **_detail(part)}}
        case UriPart() if part.uri.startswith("data:"):
            blob = _media.blob_of(part.uri, part.modality, {})
            return _sent_blob(blob) if isinstance(blob, BlobPart) else _text(_media.as_text(part))
        case FilePart() if said.origin in (ORIGIN, None):
            return {"type": "file", "file": {"file_id": part.file_id}}
        case _:
            return _text(_media.as_text(part))


def _sent_blob(part: BlobPart) -> Plain | None:
    blob = _media.checked(part)
    if blob and blob.mime_type in _media.IMAGES:
        return {"type": "image_url", "image_url": {"url": _media.data_url(blob), **_detail(part)}}
    if blob and blob.mime_type in _AUDIO:
        audio = {"data": blob.content, "format": _AUDIO[blob.mime_type]}
        return {"type": "input_audio", "input_audio": audio}
    if blob and blob.mime_type == "application/pdf":
        name = part.extra.get("filename")
        filename = name if isinstance(name, str) and name else "document.pdf"
        return {"type": "file", "file": {"file_data": _media.data_url(blob), "filename": filename}}
    return _text(_media.text_of(blob) if blob and blob.mime_type == "text/plain" else _media.as_text(part))


def _detail(part: Part) -> Plain:
    detail = part.extra.get("detail")
    return {"detail": detail} if detail in ("auto", "low", "high") else {}


def _text(text: str) -> Plain | None:
    return {"type": "text", "text": text} if text.strip() else None


def _alternating(wire: Sequence[Plain]) -> list[Plain]:
    """A user first, and neighbours of one role as one message, but results, which stand one by one."""
    joined = [] if wire and wire[0]["role"] == "user" else [_start()]
    for one in wire:
        if joined and joined[-1]["role"] == one["role"] != "tool":
            joined[-1] = _joined(joined[-1], one)
        else:
            joined.append(one)
    return joined


def _joined(first: Plain, second: Plain) -> Plain:
    """Only the last of several assistant messages in a row has calls: results are in between otherwise."""
    contents = [one["content"] for one in (first, second) if one["content"]]
    if len(contents) == 2 and all(isinstance(content, str) for content in contents):
        content: Any = "\n\n".join(contents)
    else:
        blocks = [[{"type": "text", "text": one}] if isinstance(one, str) else one for one in contents]
        content = _content([block for some in blocks for block in some])
    return {**first, **second, "content": content}
