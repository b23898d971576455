"""Images, documents and other media on their way into a request."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

from turnlog.domain.messages import (
    BlobPart,
    CompactionPart,
    FilePart,
    Part,
    ReasoningPart,
    ServerToolCallPart,
    ServerToolCallResponsePart,
    TextPart,
    UriPart,
)
from turnlog.infrastructure.formats._plain import part

IMAGES = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))
"""The types of images that both providers take."""

_DATA_URL = re.compile(r"data:([^;,]*);base64,(.*)", re.DOTALL)


def data_url(blob: BlobPart) -> str:
    """The blob as a `data:` address."""
    return f"data:{blob.mime_type or ''};base64,{blob.content}"


def blob_of(url: str, modality: str, further: Mapping[str, Any]) -> BlobPart | UriPart:
    """The content of a `data:` address, or the address as it is; further fields are kept flat."""
    match = _DATA_URL.fullmatch(url)
    if not match:
        return part(UriPart, {"modality": modality, "uri": url}, further)
    mime_type, content = match.groups()
    return part(BlobPart, {"modality": modality, "mime_type": mime_type or None, "content": content}, further)


def checked(blob: BlobPart) -> BlobPart | None:
    """The blob with the type of its bytes, without line breaks; None for other than images, PDF, audio, text.

    Providers refuse an image whose declared type is not that of its bytes.
    """
    content = "".join(blob.content.split())
    try:
        decoded = base64.b64decode(content, validate=True)
    except (binascii.Error, ValueError):
        return None
    found = _type_of(decoded)
    if found is None and blob.mime_type == "text/plain" and _is_text(decoded):
        found = "text/plain"
    return blob.model_copy(update={"mime_type": found, "content": content}) if found else None


def _type_of(content: bytes) -> str | None:
    if content.startswith(b"RIFF"):
        return {b"WEBP": "image/webp", b"WAVE": "audio/wav"}.get(content[8:12])
    return next((kind for magic, kind in _MAGIC.items() if content.startswith(magic)), None)


_MAGIC = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
    b"%PDF-": "application/pdf",
    b"ID3": "audio/mpeg",
    b"\xff\xfb": "audio/mpeg",
    b"\xff\xf3": "audio/mpeg",
    b"\xff\xf2": "audio/mpeg",
}


def _is_text(content: bytes) -> bool:
    try:
        return bool(content.decode().strip())
    except UnicodeDecodeError:
        return False


def text_of(blob: BlobPart) -> str:
    """The text of a checked `text/plain` blob."""
    return base64.b64decode(blob.content).decode()


def is_web(uri: str) -> bool:
    """Whether a provider can fetch it."""
    return re.fullmatch(r"https?://[^\s/\x00-\x1f\x7f][^\s\x00-\x1f\x7f]*", uri) is not None


def as_text(given: Part) -> str:
    """What a provider is told of a part that it cannot take: its text, or in brackets what it was.

    What a provider did itself (reasoning, calls, compactions) is nobody else's: the text is empty.
    """
    match given:
        case TextPart():
            return given.content
        case ReasoningPart() | ServerToolCallPart() | ServerToolCallResponsePart() | CompactionPart():
            return ""
        case BlobPart():
            return _named(given.modality, given.extra.get("filename") or given.mime_type)
        case UriPart():
            return _named(given.modality, given.mime_type if given.uri.startswith("data:") else given.uri)
        case FilePart():
            return _named(given.modality, given.extra.get("filename") or given.file_id)
        case _:
            text = "\n".join(texts(given.extra)) if given.type in _READABLE else ""
            return text or _named(given.type, given.extra.get("title"))


_READABLE = frozenset(("refusal", "audio", "document", "search_result"))
"""Further types of blocks whose text is known to be meant for a reader."""


def texts(block: object) -> Iterator[str]:
    """The texts inside a block that is meant for a reader."""
    if isinstance(block, str):
        yield block
    elif isinstance(block, list):
        for item in cast("list[object]", block):
            yield from texts(item)
    elif isinstance(block, Mapping):
        fields = cast("Mapping[str, object]", block)
        names = ("refusal", "transcript", "text", "source", "content")
        data = ("data",) if fields.get("type") == "text" else ()
        for name in (*names, *data):
            yield from texts(fields.get(name))


def _named(kind: str, what: object) -> str:
    return f"[{kind} {what}]" if isinstance(what, str) and what else f"[{kind}]"
