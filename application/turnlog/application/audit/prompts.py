"""How a prompt is kept in the log: the payload of PROMPT_RENDERED, and what is made of it again.

This is a storage format: names are only added. `told` is the conversation of the request as a list: a text
such as `0-17,20` are places in what the view at version `view` tells the branch; an object is what stands in
no log, by value (`message`) or by the hash of its content (`content`), or an event of the view with another
message (`of`). With `picked` the places count what `filter` leaves of the view in front of the turn.
A body that no renderer made is a patch (`patch`) over what `renderer` makes of the view, or stands by value
(`literal`). `digest` is SHA-256 over the salt, LF, and the bytes of the body.
"""

from __future__ import annotations

import secrets
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from hashlib import sha256
from re import compile as compiled
from typing import Any, Final, TypeAlias, cast

from turnlog.application.chat.model import ChatRequest, ToolDefinition
from turnlog.domain.filters import EventFilter
from turnlog.domain.json_text import to_json_text
from turnlog.domain.log import EventType, OwnEvent, SessionEvent
from turnlog.domain.messages import Message, Role
from turnlog.domain.state import parse_ranges, ranges_text

NO_TIME = datetime.min.replace(tzinfo=UTC)
"""The time of what was never recorded."""

Payload: TypeAlias = Mapping[str, Any]
Told: TypeAlias = tuple[SessionEvent | Message, ...]
"""The conversation of a request."""

UNPROVEN: Final = "unproven"
"""Marks a prompt that told what was redacted before it was recorded: it has placeholders and no proof."""

_INLINE: Final = 200
"""Characters of JSON that stand in the prompt itself; what is longer and likely to come again does not."""


# --- contents that are stored once


@dataclass
class Contents:
    """Texts and schemas that prompts share. Each becomes an event of its own, named after its hash."""

    events: dict[str, OwnEvent] = field(default_factory=dict[str, OwnEvent])

    def keep(self, value: object) -> str:
        """The hash under which the value can be found again."""
        text = to_json_text(value, "prompt")
        name = sha256(text.encode()).hexdigest()
        payload = {"content": value}
        self.events[name] = OwnEvent(type=EventType.PROMPT_CONTENT, payload=payload, id=content_id(name))
        return name


def content_id(name: str) -> str:
    """The id of the event that holds the content of this hash."""
    return f"content-{name}"


# --- the salted hash


def sealed(body: bytes) -> dict[str, Any]:
    """What proves the bytes of a body without telling them."""
    salt = secrets.token_hex(16)
    return {"bytes": len(body), "salt": salt, "digest": _digest(salt, body)}


def is_sealed(payload: Payload, body: bytes) -> bool:
    """Whether these are the bytes that were sent."""
    return _digest(str(payload.get("salt")), body) == payload.get("digest")


def _digest(salt: str, body: bytes) -> str:
    return sha256(salt.encode() + b"\n" + body).hexdigest()


def literal(body: bytes) -> dict[str, str]:
    """A body by value: as text where it is UTF-8."""
    try:
        return {"text": body.decode()}
    except UnicodeDecodeError:
        return {"base64": b64encode(body).decode()}


def of_literal(kept: Mapping[str, str]) -> bytes:
    """The body that `literal` was given."""
    return kept["text"].encode() if "text" in kept else b64decode(kept["base64"])


# --- the conversation


def base_of(
    told: Sequence[SessionEvent], chosen: EventFilter | None, turn_from: int | None
) -> list[SessionEvent]:
    """What a filter leaves of the view: it looks at what stands in front of the turn, and instructions use no
    place of `last_n` or of a page. It never changes, because places in prompts count on it."""
    if chosen is None:
        return list(told)
    before = [e for e in told if turn_from is None or e.synthetic or e.version < turn_from]
    uncut = replace(chosen, last_n=None, page=None, page_size=None)
    kept = {e.id for e in chosen.apply(event for event in before if event.role is not Role.SYSTEM)}
    kept |= {event.id for event in before if event.role is Role.SYSTEM and uncut.matches(event)}
    seen = {event.id for event in before}
    return [event for event in told if event.id not in seen or event.id in kept]


def conversation_items(
    conversation: Sequence[SessionEvent | Message], base: Sequence[SessionEvent], contents: Contents
) -> list[Any]:
    """The conversation as it is kept, over the events of the base."""
    places = {event.version: place for place, event in enumerate(base)}
    items: list[Any] = []
    runs: list[tuple[int, int]] = []

    def close() -> None:
        if runs:
            items.append(ranges_text(tuple(runs)))
            runs.clear()

    for entry in conversation:
        place = places.get(entry.version) if isinstance(entry, SessionEvent) else None
        known = None if place is None else base[place]
        if place is None or known is None:
            close()
            items.append(_value(entry, contents))
        elif isinstance(entry, SessionEvent) and entry.message is not known.message != entry.message:
            close()
            items.append({"of": place, "message": entry.message.to_dict() if entry.message else {}})
        elif runs and runs[-1][1] == place - 1:
            runs[-1] = (runs[-1][0], place)
        else:
            runs.append((place, place))
    close()
    return items


def conversation_of(
    items: Sequence[Any], base: Sequence[SessionEvent], content: Callable[[str], Any]
) -> Told:
    """The conversation that `conversation_items` was given."""
    told: list[SessionEvent | Message] = []
    for item in items:
        if isinstance(item, str):
            told += (base[place] for first, last in parse_ranges(item) for place in range(first, last + 1))
            continue
        kept: Mapping[str, Any] = item
        message = Message.model_validate(
            content(kept["content"]) if "content" in kept else dict(kept["message"])
        )
        if "of" in kept:
            place: int = kept["of"]
            told.append(replace(base[place], message=message))
        elif kept.get("plain"):
            told.append(message)
        else:
            told.append(
                SessionEvent(
                    id=kept.get("id", ""),
                    type=EventType.MESSAGE,
                    version=-1,
                    timestamp=NO_TIME,
                    branch=kept.get("branch"),
                    synthetic=bool(kept.get("synthetic")),
                    message=message,
                )
            )
    return tuple(told)


def _value(entry: SessionEvent | Message, contents: Contents) -> dict[str, Any]:
    """What stands in no log: system texts by their hash, since they come with every call."""
    message = entry if isinstance(entry, Message) else entry.message or Message.system(None)
    data = message.to_dict()
    kept: dict[str, Any] = (
        {"content": contents.keep(data)} if message.role is Role.SYSTEM else {"message": data}
    )
    if isinstance(entry, Message):
        return {**kept, "plain": True}
    if entry.id:
        kept["id"] = entry.id
    if entry.branch is not None:
        kept["branch"] = entry.branch
    if entry.synthetic:
        kept["synthetic"] = True
    return kept


# --- what goes with the conversation


def settings_of(request: ChatRequest, contents: Contents) -> dict[str, Any]:
    """All of a request but its conversation, as it is kept."""
    kept: dict[str, Any] = {}
    if request.max_output_tokens is not None:
        kept["max_output_tokens"] = request.max_output_tokens
    if request.options:
        kept["options"] = dict(request.options)
    if request.cache:
        kept["cache"] = True
    if request.system_in_place:
        kept["system_in_place"] = True
    settings: dict[str, Any] = {"settings": kept} if kept else {}
    if request.system is not None:
        settings["system"] = contents.keep(request.system)
    if request.tools:
        settings["tools"] = contents.keep(
            [
                {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
                for tool in request.tools
            ]
        )
    return settings


def request_of(payload: Payload, told: Told, content: Callable[[str], Any]) -> ChatRequest:
    """The request that a prompt keeps."""
    kept: Payload = payload.get("settings", {})
    return ChatRequest(
        conversation=told,
        tools=tuple(ToolDefinition(**tool) for tool in content(payload["tools"]))
        if "tools" in payload
        else (),
        system=content(payload["system"]) if "system" in payload else None,
        max_output_tokens=kept.get("max_output_tokens"),
        options=kept.get("options", {}),
        cache=bool(kept.get("cache")),
        system_in_place=bool(kept.get("system_in_place")),
    )


# --- filters


def filter_data(chosen: EventFilter) -> dict[str, Any]:
    """The criteria that are set, as plain data."""
    data = {name: value for name, value in vars(chosen).items() if value not in (None, False, ())}
    for name, value in data.items():
        if isinstance(value, datetime):
            data[name] = value.isoformat()
        elif isinstance(value, (frozenset, set)):
            data[name] = sorted(str(one) for one in cast("frozenset[object]", value))
        elif isinstance(value, tuple):
            data[name] = [str(one) for one in cast("tuple[object, ...]", value)]
        elif name == "pattern":
            data[name] = {"regex": value.pattern, "flags": int(value.flags)}
    return data


def filter_of(data: Payload) -> EventFilter:
    """The filter that `filter_data` was given."""
    values = dict(data)
    for name in ("since", "until"):
        if name in values:
            values[name] = datetime.fromisoformat(values[name])
    if "pattern" in values:
        values["pattern"] = compiled(values["pattern"]["regex"], values["pattern"]["flags"])
    return EventFilter(**values)


# --- bodies that applications made


def patch_of(value: object, reference: object, contents: Contents, *, is_top: bool = True) -> Any:
    """How a body differs from a reference: `["="]`, `["v", value]`, `["h", hash]`, an object or a list."""
    whole = value
    if _text(value) == _text(reference):
        return ["="]
    if isinstance(value, dict) and is_top:
        known = cast("dict[str, object]", reference) if isinstance(reference, dict) else {}
        fields = cast("dict[str, object]", value)
        return [
            "o",
            [
                [name, patch_of(item, known.get(name), contents, is_top=False)]
                for name, item in fields.items()
            ],
        ]
    if isinstance(value, list) and value:
        known_items = cast("list[object]", reference) if isinstance(reference, list) else []
        return ["l", _list_patch(cast("list[object]", value), known_items, contents)]
    return _leaf(whole, contents, repeats=isinstance(value, (dict, str)))


def patched(patch: Any, reference: Any, content: Callable[[str], Any]) -> Any:
    """The body of which `patch_of` told the difference."""
    kind = patch[0]
    if kind == "=":
        return reference
    if kind == "v":
        return patch[1]
    if kind == "h":
        return content(patch[1])
    if kind == "o":
        known = cast("dict[str, Any]", reference) if isinstance(reference, dict) else {}
        return {name: patched(item, known.get(name), content) for name, item in patch[1]}
    items: list[Any] = []
    for item in patch[1]:
        if isinstance(item, str):
            items += (
                reference[place] for first, last in parse_ranges(item) for place in range(first, last + 1)
            )
        else:
            items.append(patched(item, None, content))
    return items


def _list_patch(items: list[object], reference: list[object], contents: Contents) -> list[Any]:
    places: dict[str, int] = {}
    for place, item in reversed(list(enumerate(reference))):
        places[_text(item)] = place
    found: list[Any] = []
    runs: list[tuple[int, int]] = []
    for item in items:
        text = _text(item)
        following = runs[-1][1] + 1 if runs else -1
        if 0 <= following < len(reference) and _text(reference[following]) == text:
            runs[-1] = (runs[-1][0], following)
        elif text in places:
            runs.append((places[text], places[text]))
        else:
            if runs:
                found.append(ranges_text(tuple(runs)))
                runs = []
            found.append(_leaf(item, contents, repeats=_comes_again(item)))
    if runs:
        found.append(ranges_text(tuple(runs)))
    return found


def _comes_again(item: object) -> bool:
    """Whether an item of a list is likely to be sent with every call: a tool, or instructions."""
    if not isinstance(item, dict):
        return False
    role = cast("dict[str, object]", item).get("role")
    return role is None or role in ("system", "developer")


def _leaf(value: object, contents: Contents, *, repeats: bool) -> list[Any]:
    if repeats and len(_text(value)) > _INLINE:
        return ["h", contents.keep(value)]
    return ["v", value]


def _text(value: object) -> str:
    return to_json_text(value)
