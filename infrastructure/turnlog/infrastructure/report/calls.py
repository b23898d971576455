"""Recorded calls of a model, as plain JSON data: what was sent of the view, and what besides."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias, cast

from turnlog.application.audit.prompts import base_of, filter_of
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


def call_data(payload: Payload, contents: Contents, told: Sequence[SessionEvent] | None = None) -> Data:
    """What a prompt says of its call; `told` is what the view that it names tells its branch, where known.

    The data's `told` are places in that, as runs. They are missing where a filter picked among messages that
    are not known, and where the application made the body itself (`made_elsewhere`). `also` is what was sent
    and stands in no log.
    """
    data = {
        name: payload[name]
        for name in ("call", "attempt", "view", "model", "renderer", "bytes")
        if name in payload
    }
    also = _system(payload, contents)
    if "told" in payload and (not payload.get("picked") or told is not None):
        runs, unstored = _conversation(payload["told"], contents, _places(payload, told))
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


def _places(payload: Payload, told: Sequence[SessionEvent] | None) -> list[int] | None:
    """By place in what a filter left the place in what is told; None where no filter picked."""
    if not payload.get("picked") or told is None:
        return None
    base = base_of(told, filter_of(payload.get("filter") or {}), payload.get("turn_from"))
    place_of = {event.version: place for place, event in enumerate(told)}
    return [place_of[event.version] for event in base]


def _conversation(
    items: Sequence[Any], contents: Contents, places: Sequence[int] | None
) -> tuple[list[list[int]], list[Data]]:
    """The runs of places, and the messages that are given by value."""
    runs: list[list[int]] = []
    also: list[Data] = []
    for item in items:
        if isinstance(item, str):
            for first, last in parse_ranges(item):
                runs += (
                    [[first, last]] if places is None else [[one, one] for one in places[first : last + 1]]
                )
            continue
        kept = cast("Payload", item)
        place: int | None = kept.get("of")
        if place is not None and places is not None:
            place = places[place]
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
