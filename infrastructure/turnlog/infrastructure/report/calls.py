"""Recorded calls of a model, as plain JSON data: what was sent of the view, and what besides."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias, cast

from turnlog.domain.errors import TurnlogError
from turnlog.domain.log import SessionEvent
from turnlog.domain.messages import Message
from turnlog.domain.state import parse_ranges
from turnlog.infrastructure.report.content import Data, parts_data

PROMPT: Final = "PROMPT_RENDERED"
REPLY: Final = "MODEL_REPLIED"
CONTENT: Final = "PROMPT_CONTENT"

Payload: TypeAlias = Mapping[str, Any]

_CONTENT_ID: Final = "content-"
"""Stands in front of the hash in the id of an event that holds what prompts share."""


class Contents:
    """What the prompts of a session share, by hash: instructions and tools."""

    def __init__(self) -> None:
        self._held: dict[str, Any] = {}

    def keep(self, event: SessionEvent) -> None:
        """Remember it when the event is one of these."""
        if event.type == CONTENT and event.id.startswith(_CONTENT_ID):
            self._held[event.id.removeprefix(_CONTENT_ID)] = (event.payload or {}).get("content")

    def get(self, name: object) -> Any:
        """The content of this hash, None when the log in front does not hold it."""
        return self._held.get(str(name))


def call_data(payload: Payload, contents: Contents) -> Data:
    """What a prompt says of its call.

    `told` are places in what the view at version `view` tells the branch, as runs. It is missing where a
    filter picked among them, and where the application made the body itself (`made_elsewhere`). `also` is
    what was sent and stands in no log.
    """
    data = {
        name: payload[name]
        for name in ("call", "attempt", "view", "model", "renderer", "bytes")
        if name in payload
    }
    also = _system(payload, contents)
    if "told" in payload and not payload.get("picked"):
        runs, unstored = _conversation(payload["told"], contents)
        data["told"] = runs
        also += unstored
    elif not payload.get("picked"):
        data["made_elsewhere"] = True
    if payload.get("filter"):
        data["filter"] = _json(payload["filter"])
    if payload.get("settings"):
        data["settings"] = _json(payload["settings"])
    tools = contents.get(payload.get("tools"))
    if isinstance(tools, Sequence):
        data["tools"] = [str(tool.get("name")) for tool in cast("Sequence[Payload]", tools)]
    return {**data, "also": also}


def reply_data(payload: Payload) -> Data:
    """What the answer to a call says of it."""
    usage: Payload = payload.get("usage") or {}
    cost: Payload = payload.get("cost") or {}
    found = {
        "call": payload.get("call"),
        "attempt": payload.get("attempt"),
        "finish": payload.get("finish_reason"),
        "latency": payload.get("latency_ms"),
        "input": usage.get("input_tokens"),
        "output": usage.get("output_tokens"),
        "cost": f"{cost.get('amount')} {cost.get('currency')}" if cost else None,
    }
    return {name: value for name, value in found.items() if value is not None}


def _system(payload: Payload, contents: Contents) -> list[Data]:
    if "system" not in payload:
        return []
    text = contents.get(payload["system"])
    return [{"what": "System text of this call", "parts": [{"is": "text", "text": str(text)}]}]


def _conversation(items: Sequence[Any], contents: Contents) -> tuple[list[list[int]], list[Data]]:
    """The runs of places, and the messages that are given by value."""
    runs: list[list[int]] = []
    also: list[Data] = []
    for item in items:
        if isinstance(item, str):
            runs += ([first, last] for first, last in parse_ranges(item))
            continue
        kept = cast("Payload", item)
        place = kept.get("of")
        message = _message(contents.get(kept["content"]) if "content" in kept else kept.get("message"))
        if place is not None:
            runs.append([place, place])
            also.append({"what": "Sent in another form", "place": place, **message})
        else:
            also.append({"what": "Sent and not stored", **message})
    return runs, also


def _message(kept: object) -> Data:
    try:
        message = Message.model_validate(kept)
    except TurnlogError:
        return {"parts": [{"is": "text", "text": _json(kept)}]}
    return {"role": message.role.value, "parts": parts_data(message.parts)}


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2, default=str)
