"""The framework's JSON of stored events, written and read by pydantic's compiled JSON."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from typing import Any, Final, TypeGuard, cast

from eventsourcing.persistence import JSONTranscoder
from pydantic_core import PydanticSerializationError, from_json, to_json

_TEXT: Final = frozenset((str,))
_FLAT: Final = frozenset((str, int, datetime))


class QuickJSONTranscoder(JSONTranscoder):
    """Writes the bytes and reads the values that the framework's `JSONTranscoder` does, in less time.

    What the quick writer or parser refuses is left to the framework's: its value, or its error, is the
    answer.
    """

    def encode(self, obj: Any) -> bytes:
        """The object as JSON in UTF-8; the quick way is that of dicts of texts, integers and times."""
        if _is_flat(obj):
            flat = dict(obj)
            for name, value in flat.items():
                if type(value) is datetime:
                    flat[name] = self._encode_obj(value)
            with suppress(PydanticSerializationError):  # lone surrogates
                return to_json(flat)
        return super().encode(obj)

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
            return self._decode_obj(found) if len(found) == 2 else found  # the size of what is marked
        if type(value) is list:
            return [self._decoded(item) for item in value]  # pyright: ignore[reportUnknownVariableType] # JSON
        return value


def _is_flat(obj: Any) -> TypeGuard[dict[str, object]]:
    if type(obj) is not dict:
        return False
    state = cast("dict[object, object]", obj)
    return _TEXT.issuperset(map(type, state)) and _FLAT.issuperset(map(type, state.values()))
