"""Plain data of a provider's format: in from dicts and SDK objects, out as what a provider can read."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar, cast

from turnlog.domain.errors import TurnlogError
from turnlog.domain.json_text import check_json
from turnlog.domain.log import SessionEvent
from turnlog.domain.messages import GenericPart, Message, Part, Role, TextPart

Plain: TypeAlias = dict[str, Any]
P = TypeVar("P", bound=Part)

_DOMAIN_TYPES = frozenset(
    str(cls.model_fields["type"].default) for cls in Part.__subclasses__() if cls is not GenericPart
)


class MalformedMessageError(TurnlogError):
    """What was given is no message of this format."""


class PrefillWarning(UserWarning):
    """A request ends with an assistant message, which newer models refuse."""

    MESSAGE = (
        "The request ends with an assistant message, which newer models refuse. "
        "Add a user message, or say `prefill=True` if the model shall continue its text."
    )


def plain(given: object) -> Plain:
    """The dict, or the SDK object as a dict with the fields that the provider sent, checked to be JSON."""
    dump = getattr(given, "model_dump", None)
    if callable(dump):
        given = dump(mode="json", by_alias=True, exclude_unset=True, warnings=False)
    if not isinstance(given, Mapping):
        raise MalformedMessageError(
            f"A message is a dict or an object of the provider's SDK, this is a {type(given).__name__}."
        )
    fields = dict(cast("Mapping[str, Any]", given))
    check_json(fields, "message")
    return fields


def each(given: object) -> list[object]:
    """What was given as one message or as several, as a list."""
    is_one = isinstance(given, (Mapping, str, bytes)) or hasattr(given, "model_dump")
    if not is_one and isinstance(given, Iterable):
        return list(cast("Iterable[object]", given))
    return [given]


def said_in(entry: Message | SessionEvent) -> Message | None:
    """The message itself, or that of an event; None for events that are none."""
    return entry.message if isinstance(entry, SessionEvent) else entry


def without(fields: Mapping[str, Any], model: type[Part] | type[Message]) -> Plain:
    """The fields that can be kept flat on the model because it declares none of these names."""
    return {name: value for name, value in fields.items() if name not in model.model_fields}


def part(model: type[P], own: Plain, further: Mapping[str, Any]) -> P:
    """The part with its own fields, and the further ones flat beside them."""
    return model.model_validate({**without(further, model), **own})


def message(role: Role, parts: Iterable[Part], own: Plain, further: Mapping[str, Any]) -> Message:
    """The message with its own fields, and the further ones flat beside them."""
    return Message.model_validate({**without(further, Message), "role": role, "parts": tuple(parts), **own})


def generic(block: object) -> GenericPart:
    """A block of a type that the neutral form does not know, flat where its own fields allow that."""
    if isinstance(block, Mapping):
        fields = cast("Mapping[str, Any]", block)
        kind = fields.get("type")
        if isinstance(kind, str) and kind and kind not in _DOMAIN_TYPES and kind != _WRAPPED:
            return part(GenericPart, {"type": kind}, fields)
    return part(GenericPart, {"type": _WRAPPED, "block": block}, {})


def ungeneric(known: Part) -> Any:
    """The block that `generic` was given."""
    return known.extra.get("block") if known.type == _WRAPPED else {"type": known.type, **known.extra}


_WRAPPED = "other"


def faithful(read: Message, given: Plain, exported: Plain) -> Message:
    """The message, with the original in its shape where the export would not give it back exactly."""
    if _canonical(exported) == _canonical(given):
        return read
    return read.model_copy(update={"shape": {**(read.shape or {}), "original": given}})


def with_parts(said: Message, parts: Iterable[Part]) -> Message:
    """The message with these parts in place of its own, so without the original of the whole."""
    shape = {name: value for name, value in (said.shape or {}).items() if name != "original"}
    return said.model_copy(update={"parts": tuple(parts), "shape": shape or None})


def shape_of(said: Message, origin: str) -> Plain:
    """What the message says about its form, if it came from this format."""
    return (said.shape or {}) if said.origin == origin else {}


def content_parts(fields: Plain, shape: Plain, read: Callable[[Any], Part]) -> tuple[Part, ...]:
    """Take the content out of the fields, as parts; the shape says what form it had when it was no text."""
    content = fields.pop("content", _ABSENT)
    if isinstance(content, str):
        return (TextPart(content=content),)
    if isinstance(content, (list, tuple)):
        shape["content"] = "list"
        return tuple(read(block) for block in cast("list[Any]", content))
    if content is not None and content is not _ABSENT:
        raise MalformedMessageError(
            f"The content of a message is text, a list or null, this is a {type(content).__name__}."
        )
    shape["content"] = "null" if content is None else "absent"
    return ()


def content_field(parts: Sequence[Part], shape: Plain, block: Callable[[Part], Any]) -> Plain:
    """The field that `content_parts` took; parts of other origins become text or a list."""
    form = shape.get("content")
    if form == "absent" and not parts:
        return {}
    if form != "list" and not parts:
        return {"content": None}
    if form is None and len(parts) == 1:
        only = parts[0]
        if isinstance(only, TextPart) and not only.extra:
            return {"content": only.content}
    return {"content": [block(one) for one in parts]}


_ABSENT = object()


def original(said: Message, origin: str) -> Plain | None:
    """A copy of what was imported, when the shape had to keep it whole."""
    return copy.deepcopy(shape_of(said, origin).get("original"))


def compact(value: object) -> str:
    """The value as compact JSON in the characters it has."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True)


def sendable(value: object) -> Any:
    """A copy of the value as every provider can read it: valid UTF-8, no NaN and no infinity.

    Lone surrogates become the replacement character, numbers that JSON cannot say become null.
    """
    if isinstance(value, str):
        return valid_text(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, object]", value)
        return {sendable(name): sendable(item) for name, item in fields.items()}
    if isinstance(value, (list, tuple)):
        return [sendable(item) for item in cast("list[object]", value)]
    return value


def valid_text(text: str) -> str:
    """The text with surrogate pairs joined and lone surrogates replaced."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
