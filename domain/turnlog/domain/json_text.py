"""JSON as the log keeps it: strict, compact, and lossless for any text."""

from __future__ import annotations

import json
import math
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any, TypeAlias, cast

from pydantic_core import PydanticSerializationError, from_json, to_json

from turnlog.domain.errors import NotJsonError

JsonValue: TypeAlias = "str | int | float | bool | list[JsonValue] | dict[str, JsonValue] | None"

_MAX_BITS = 14_000
"""Larger integers are refused, because Python's own reader refuses more than 4,300 digits."""

_MAX_DEPTH = 200
"""Deeper nesting is refused, because readers of JSON give up on it at depths of their own."""


def to_json_text(value: object, path: str = "value") -> str:
    """The value as compact JSON that can always be stored as UTF-8.

    A text that holds a lone surrogate has no UTF-8 form; then the whole is escaped to ASCII, so that it
    comes back as it was. Where that would make one character of two surrogates that stand side by side, it is
    `~` and the base64 of the JSON instead. Raises `NotJsonError` that names the place of what JSON cannot
    hold.
    """
    try:
        text = _encode(value)
        text.encode()
    except UnicodeEncodeError:
        text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
        if json.loads(text) != value:
            text = "~" + b64encode(_encode(value).encode("utf-8", "surrogatepass")).decode()
    except (TypeError, ValueError, RecursionError):
        check_json(value, path)
        raise
    return text


def plain_json_text(value: object) -> str:
    """`to_json_text`, the same text in less time, for texts, booleans, and lists and objects of these."""
    try:
        return to_json(value).decode()
    except PydanticSerializationError:  # a lone surrogate
        return to_json_text(value)


def checked_json_text(value: object, path: str = "value") -> str:
    """`to_json_text` for what comes from a caller: checked before it is encoded.

    `json` itself turns number keys into text and tuples into lists without a word; here only what comes back
    as it was is let through.
    """
    check_json(value, path)
    return to_json_text(value, path)


def copied(value: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a JSON object that shares nothing with it that can be changed."""
    return {name: _copied(one) for name, one in value.items()}


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return copied(cast("dict[str, Any]", value))
    if isinstance(value, list):
        return [_copied(one) for one in value]  # pyright: ignore[reportUnknownVariableType] # JSON
    return value


def sorted_json_text(value: object) -> str:
    """The value as ASCII JSON with sorted keys: equal values have equal texts."""
    return json.dumps(value, ensure_ascii=True, allow_nan=False, sort_keys=True, separators=(",", ":"))


def from_json_text(text: str) -> JsonValue:
    """The value that `to_json_text` wrote."""
    if text.startswith("{") and text.endswith("}"):
        try:
            found: JsonValue = from_json(text)  # half of what `json` costs
            return found
        except ValueError:  # it refuses lone surrogates, which are text here; and what is no JSON
            pass
    if text.startswith("~"):
        text = b64decode(text[1:]).decode("utf-8", "surrogatepass")
    value, end = _decode(text)  # half of what `json.loads` costs
    if end != len(text):
        raise json.JSONDecodeError("Extra data", text, end)
    return cast("JsonValue", value)


def check_json(value: object, path: str = "value", depth: int = 0) -> None:
    """Raise `NotJsonError` unless the value comes back from JSON as it was."""
    if value is None or isinstance(value, (str, bool)):
        return
    if isinstance(value, int):
        if value.bit_length() > _MAX_BITS:
            raise NotJsonError(path, "an integer of thousands of digits")
        return
    if isinstance(value, float):
        if not math.isfinite(value):
            raise NotJsonError(path, f"the number {value}")
        return
    if depth >= _MAX_DEPTH:
        raise NotJsonError(path, f"more than {_MAX_DEPTH} levels of nesting")
    if isinstance(value, dict):
        for key, item in cast("dict[object, object]", value).items():
            if not isinstance(key, str):
                raise NotJsonError(path, f"a key of type {type(key).__name__}")
            check_json(item, f"{path}.{key}", depth + 1)
    elif isinstance(value, list):
        for index, item in enumerate(cast("list[object]", value)):
            check_json(item, f"{path}[{index}]", depth + 1)
    else:
        raise NotJsonError(path, f"a value of type {type(value).__name__}")


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_decode = json.JSONDecoder().raw_decode
