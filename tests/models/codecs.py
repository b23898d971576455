"""What the tests of all codecs share."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from turnlog.application.chat import (
    ChatDelta,
    ChatReply,
    ChatRequest,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolDefinition,
)
from turnlog.domain.log import SessionEvent
from turnlog.domain.messages import Message
from turnlog.infrastructure.models.codec import Codec, StreamDecoder

FIND = ToolDefinition(
    "find", "Where a parcel is.", {"type": "object", "properties": {"no": {"type": "string"}}}
)
U = Message.user("Where is it?")


def encoded(
    codec: Codec, *conversation: Message | SessionEvent, model: str = "a-model", **fields: Any
) -> Any:
    """The body of a request that does not stream."""
    return codec.encode(ChatRequest(conversation, **fields), model, stream=False, adaptations=frozenset())


def fed(decoder: StreamDecoder, events: Iterable[dict[str, Any]]) -> list[ChatDelta]:
    """The pieces that the events say."""
    return [delta for event in events for delta in decoder.feed(event["type"], json.dumps(event))]


def streamed(codec: Codec, events: Iterable[dict[str, Any]]) -> ChatReply:
    """The reply of a stream."""
    decoder = codec.decoder()
    fed(decoder, events)
    return decoder.reply()


def text_of(deltas: Iterable[ChatDelta]) -> str:
    """The text that was handed out."""
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


def thought_of(deltas: Iterable[ChatDelta]) -> str:
    """The reasoning that was handed out."""
    return "".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta))


def calls_of(deltas: Iterable[ChatDelta]) -> list[tuple[str | None, str | None, str]]:
    """Id, name and arguments of the calls that were handed out."""
    calls: dict[int, tuple[str | None, str | None, str]] = {}
    for delta in deltas:
        if isinstance(delta, ToolCallDelta):
            name, tool, arguments = calls.get(delta.index, (None, None, ""))
            calls[delta.index] = (name or delta.id, tool or delta.name, arguments + delta.arguments)
    return [calls[index] for index in sorted(calls)]
