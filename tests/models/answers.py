"""Answers of OpenAI Chat, whole and in pieces."""

from __future__ import annotations

from typing import Any

from tests.support.scripted_server import Answer, json_answer, sse_answer

from turnlog.application.chat import ChatRequest
from turnlog.domain.messages import Message

ASKED = ChatRequest((Message.system("Be brief."), Message.user("Where is my parcel?")))
USAGE: dict[str, Any] = {"prompt_tokens": 20, "completion_tokens": 3, "total_tokens": 23}


def whole(text: str | None = "In Lund.", reason: str = "stop", **fields: Any) -> Answer:
    """A whole answer; further fields are the message's."""
    return json_answer(body({"role": "assistant", "content": text, **fields}, reason))


def body(message: dict[str, Any], reason: str = "stop") -> dict[str, Any]:
    """The body of a whole answer."""
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_760_000_000,
        "model": "a-model",
        "choices": [choice],
        "usage": USAGE,
    }


def chunk(delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
    """An event of a streamed answer."""
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1_760_000_000,
        "model": "a-model",
        "choices": [{"index": 0, "delta": delta, "finish_reason": reason}],
    }


LAST: dict[str, Any] = {**chunk({}), "choices": [], "usage": USAGE}


def chunks(*deltas: dict[str, Any], reason: str = "stop") -> list[dict[str, Any]]:
    """All events of a streamed answer but the last marker."""
    return [chunk({"role": "assistant", "content": ""}), *map(chunk, deltas), chunk({}, reason), LAST]


def streamed(*deltas: dict[str, Any], reason: str = "stop") -> Answer:
    """A streamed answer."""
    return sse_answer(*chunks(*deltas, reason=reason))


IN_LUND = ({"content": "In "}, {"content": "Lund."})
