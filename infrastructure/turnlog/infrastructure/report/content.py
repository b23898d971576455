"""What a message holds, as plain JSON data that the page shows."""

from __future__ import annotations

import binascii
import json
import re
from base64 import b64decode
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from turnlog.domain.messages import (
    BlobPart,
    FilePart,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolCallResponsePart,
    UriPart,
)

Data: TypeAlias = dict[str, Any]

MAX_IMAGE: Final = 1_500_000
"""Bytes of the largest image that is shown; a larger one is named."""

_IMAGES: Final[Mapping[str, tuple[bytes, ...]]] = {
    "image/png": (b"\x89PNG\r\n\x1a\n",),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF87a", b"GIF89a"),
    "image/webp": (b"RIFF",),
}
"""How the images begin that are shown."""

_PIECES = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
"""The pieces of a JSON text, each as it is written."""

_DATA_URI = re.compile(r"data:([a-z]+/[a-z0-9.+-]+);base64,", re.ASCII | re.IGNORECASE)


def parts_data(parts: Iterable[Part]) -> list[Data]:
    """The parts in order, each with its kind in `is`."""
    return [_part(part) for part in parts]


def _part(part: Part) -> Data:
    match part:
        case TextPart():
            return {"is": "text", "text": part.content}
        case ReasoningPart():
            return _reasoning(part)
        case ToolCallPart():
            call: Data = {"is": "call", "id": part.id, "name": part.name, "text": _indented(part.arguments)}
            return {**call, "awaiting": True} if part.awaiting else call
        case ToolCallResponsePart():
            return _response(part)
        case BlobPart():
            return _media(part.mime_type or part.modality, part.content)
        case UriPart():
            return _address(part)
        case FilePart():
            return {"is": "media", "what": part.mime_type or part.modality, "why": f"file {part.file_id}"}
        case _:
            return {"is": "data", "name": part.type, "text": _json(_without(part.to_dict(), "type"))}


def _reasoning(part: ReasoningPart) -> Data:
    if part.content:
        return {"is": "reasoning", "text": part.content}
    return {"is": "reasoning", "text": "", "hidden": True}


def _response(part: ToolCallResponsePart) -> Data:
    data: Data = {"is": "result", "id": part.id, "name": part.name}
    if part.extra.get("is_error") is True:
        data["error"] = True
    if part.provisional:
        data["provisional"] = True
    if isinstance(part.response, str):
        return {**data, "parts": [{"is": "text", "text": _indented(part.response)}]}
    return {**data, "parts": parts_data(part.response)}


def _address(part: UriPart) -> Data:
    embedded = _DATA_URI.match(part.uri)
    if embedded:
        return _media(embedded[1].lower(), part.uri[embedded.end() :])
    what = part.mime_type or part.modality
    return {"is": "address", "what": what, "uri": part.uri, "link": is_web_address(part.uri)}


def _media(what: str, base64: str) -> Data:
    """The image itself if it is one that may be shown, else what there is."""
    size = len(base64) * 3 // 4
    if what not in _IMAGES:
        return {"is": "media", "what": what, "size": size, "why": "not shown"}
    if size > MAX_IMAGE:
        return {"is": "media", "what": what, "size": size, "why": "too large to be shown"}
    try:
        content = b64decode(base64, validate=True)
    except (binascii.Error, ValueError):
        return {"is": "media", "what": what, "size": size, "why": "damaged"}
    if not content.startswith(_IMAGES[what]):
        return {"is": "media", "what": what, "size": size, "why": "not what it says it is"}
    return {"is": "image", "what": what, "size": len(content), "src": f"data:{what};base64,{base64}"}


def is_web_address(uri: str) -> bool:
    """Whether it is an http or https address without anything that hides in it."""
    if not re.fullmatch(r"https?://[!-~]+", uri, re.IGNORECASE):
        return False
    try:
        return bool(urlsplit(uri).hostname)
    except ValueError:
        return False


def _indented(text: str) -> str:
    """JSON with one value a line, every value written as it was; a text that is none as it is."""
    if not text.lstrip().startswith(("{", "[")) or "\n" in text.strip():
        return text
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return text
    lines, depth = [""], 0
    for piece in _PIECES.findall(text):
        if piece in "]}":
            depth -= 1
            if lines[-1].strip():
                lines.append("  " * depth)
            else:  # it was empty
                del lines[-1]
        lines[-1] += ": " if piece == ":" else piece
        depth += piece in "[{"
        if piece in "[{,":
            lines.append("  " * depth)
    return "\n".join(lines)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)


def _without(data: Mapping[str, Any], *names: str) -> Data:
    return {name: value for name, value in data.items() if name not in names}
