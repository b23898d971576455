"""Requests to Ollama's own chat API."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from turnlog.application.chat import ChatRequest
from turnlog.domain.log import SessionEvent
from turnlog.domain.messages import BlobPart, Message, Part, ReasoningPart, Role, UriPart
from turnlog.infrastructure.formats import _media
from turnlog.infrastructure.formats._calls import (
    EMPTY_RESULT,
    START,
    Call,
    Said,
    arguments_object,
    paired,
    response_parts,
    wire_name,
)
from turnlog.infrastructure.formats._plain import Plain
from turnlog.infrastructure.formats._told import deepest_branch, told
from turnlog.infrastructure.tokens.counting import count
from turnlog.infrastructure.tokens.vocabulary import O200K_BASE, PACKAGED

_MAX_NAME = 64
_IMAGE_TOKENS = 1_600
_MESSAGE_TOKENS = 4
_SMALLEST = 4_096
"""What Ollama takes when it is told nothing: a smaller window would only make it load the model anew."""
_ANSWER = 2_048
"""Tokens kept for an answer of which nobody said how long it may be."""


@dataclass(frozen=True)
class Size:
    """Estimated tokens: of the texts of the messages alone, and of everything that has to fit."""

    texts: int
    window: int


def messages(
    conversation: Iterable[SessionEvent | Message], system: str | None, in_place: bool
) -> list[Plain]:
    """The messages of a request, results behind their calls in the order of the calls."""
    entries = list(conversation)
    given = told(entries, deepest_branch(entries), system, in_place)
    texts = [_texts(one.parts) for one in given.system]
    text = "\n\n".join(one for one in texts if one)
    wire: list[Plain] = [{"role": "system", "content": text}] if text else []
    for said in paired(given.conversation):
        wire += _one(said)
    return (
        wire if any(one["role"] != "system" for one in wire) else [*wire, {"role": "user", "content": START}]
    )


def size(wire: Iterable[Mapping[str, Any]], tools: object, request: ChatRequest) -> Size:
    """How large a request of these messages is, with room for other vocabularies and for the answer."""
    texts = sum(_tokens(one["content"]) for one in wire)
    further = sum(
        _MESSAGE_TOKENS
        + _tokens(one.get("thinking", ""))
        + _tokens(json.dumps(one["tool_calls"], ensure_ascii=False) if "tool_calls" in one else "")
        + _IMAGE_TOKENS * len(one.get("images", ()))
        for one in wire
    )
    answer = request.max_output_tokens or _positive(request.options.get("num_predict")) or _ANSWER
    prompt = texts + further + _tokens(json.dumps(tools, ensure_ascii=False) if tools else "")
    needed = prompt + prompt // 4 + answer
    return Size(texts, max(_SMALLEST, 1 << (needed - 1).bit_length()))


def tool(name: str, description: str, parameters: Mapping[str, Any]) -> Plain:
    """The definition of a tool."""
    about = {"description": description} if description else {}
    function = {"name": wire_name(name, _MAX_NAME), **about, "parameters": parameters}
    return {"type": "function", "function": function}


def _tokens(text: str) -> int:
    return count(text, PACKAGED.encoding(O200K_BASE))


def _positive(value: object) -> int | None:
    return value if isinstance(value, int) and value > 0 else None


def _one(said: Said) -> list[Plain]:
    role = said.message.role
    if role is Role.ASSISTANT:
        return _assistant(said)
    parts = [part for part in said.parts if not isinstance(part, Call)]
    images = [image for image in map(_image, parts) if image] if role is Role.USER else []
    text = _texts(part for part in parts if not (images and _image(part)))
    if not text and not images:
        return []
    return [{"role": role.value, "content": text, **({"images": images} if images else {})}]


def _assistant(said: Said) -> list[Plain]:
    thoughts = [part.content for part in said.parts if isinstance(part, ReasoningPart) and part.content]
    calls = [part for part in said.parts if isinstance(part, Call)]
    text = _texts(part for part in said.parts if not isinstance(part, Call))
    if not text and not calls:
        return []
    fields: Plain = {"role": "assistant", "content": text}
    if thoughts:
        fields["thinking"] = "".join(thoughts)
    if calls:
        fields["tool_calls"] = [_call(call) for call in calls]
    return [fields, *map(_result, calls)]


def _call(call: Call) -> Plain:
    arguments = arguments_object(call.part.arguments)
    return {"function": {"name": wire_name(call.part.name, _MAX_NAME), "arguments": arguments}}


def _result(call: Call) -> Plain:
    if call.response is None:
        text = call.placeholder
    else:
        text = _texts(response_parts(call.response)) or EMPTY_RESULT
    return {"role": "tool", "content": text, "tool_name": wire_name(call.part.name, _MAX_NAME)}


def _image(part: Part) -> str | None:
    """The base64 of an image."""
    if isinstance(part, UriPart) and part.uri.startswith("data:"):
        found = _media.blob_of(part.uri, part.modality, {})
        part = found if isinstance(found, BlobPart) else part
    blob = _media.checked(part) if isinstance(part, BlobPart) else None
    return blob.content if blob and blob.mime_type in _media.IMAGES else None


def _texts(parts: Iterable[Part]) -> str:
    texts = (_readable(part) for part in parts)
    return "\n".join(text for text in texts if text.strip())


def _readable(part: Part) -> str:
    blob = _media.checked(part) if isinstance(part, BlobPart) else None
    return _media.text_of(blob) if blob and blob.mime_type == "text/plain" else _media.as_text(part)
