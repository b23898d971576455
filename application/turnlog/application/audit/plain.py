"""Results as plain data, for JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from typing import Any, cast

from turnlog.domain.log import SessionEvent
from turnlog.domain.messages import Message


class Plainly:
    """A frozen result that can be told as JSON."""

    def to_dict(self) -> dict[str, Any]:
        """The result as plain data; times are ISO texts in UTC."""
        return cast("dict[str, Any]", plain(self))


def plain(value: object) -> object:
    """The value as plain data."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Message):
        return value.to_dict()
    if isinstance(value, SessionEvent):
        return _event(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value) if field.repr}
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in cast("Mapping[object, object]", value).items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in cast("list[object]", value)]
    return value


def _event(event: SessionEvent) -> dict[str, Any]:
    data: dict[str, Any] = {
        "id": event.id,
        "version": event.version,
        "type": str(event.type),
        "time": event.timestamp.isoformat(),
        "branch": event.branch,
        "synthetic": event.synthetic,
    }
    if event.message:
        data["message"] = event.message.to_dict()
    return data
