"""The framework's JSON of stored events, read by pydantic's parser."""

from __future__ import annotations

from typing import Any, cast

from eventsourcing.persistence import JSONTranscoder
from pydantic_core import from_json


class QuickJSONTranscoder(JSONTranscoder):
    """Writes and reads what the framework's `JSONTranscoder` does, and reads it in less time.

    What the quick parser refuses is left to the framework's: its value, or its error, is the answer.
    """

    def decode(self, data: bytes) -> Any:
        """The object that `encode` wrote."""
        try:
            found = from_json(data)
        except (ValueError, TypeError):
            return super().decode(data)
        return self._decoded(found)

    def _decoded(self, value: Any) -> Any:
        if type(value) is dict:
            found = cast("dict[str, Any]", value)
            for name, item in found.items():
                if type(item) is not str:
                    found[name] = self._decoded(item)
            return self._decode_obj(found)
        if type(value) is list:
            return [self._decoded(item) for item in value]  # pyright: ignore[reportUnknownVariableType] # JSON
        return value
