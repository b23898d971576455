"""Events of streams as objects."""

from __future__ import annotations

import json
import math
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, cast

from turnlog.application.chat import InvalidReplyError
from turnlog.infrastructure.models.masking import excerpt


def json_value(text: str) -> Any:
    """What the JSON text says. A number that JSON cannot say (`NaN`, `Infinity`, `1e999`) says nothing.

    Some servers write such numbers, as in log probabilities. Raises `ValueError` and `RecursionError`.
    """
    return json.loads(text, parse_constant=lambda _: None, parse_float=_finite)


def _finite(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None


def event_object(data: str) -> dict[str, Any]:
    """The JSON object that an event's data is. Raises `InvalidReplyError`."""
    try:
        found: object = json_value(data)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InvalidReplyError(f"The stream holds an event that is no JSON object: {excerpt(data)}")
    return cast("dict[str, Any]", found)


@contextmanager
def reading(kind: object) -> Generator[None]:
    """Whatever is missing or of another type in an event makes it an `InvalidReplyError`."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        raise InvalidReplyError(f"The stream holds a malformed event: {excerpt(str(kind))}") from error
