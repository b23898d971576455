"""Events of streams as objects."""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, cast

from turnlog.application.chat import InvalidReplyError
from turnlog.infrastructure.models.masking import excerpt


def event_object(data: str) -> dict[str, Any]:
    """The JSON object that an event's data is. Raises `InvalidReplyError`."""
    try:
        found: object = json.loads(data)
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
