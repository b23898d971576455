"""The bytes of JSON bodies: in which form they were written, so that they can be written again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from turnlog.domain.json_text import sorted_json_text

CANONICAL: Final = "canonical"
"""Of a body that was given as a mapping: ASCII JSON with sorted keys, whatever was sent."""

_FORMS: Final[Mapping[str, Any]] = {
    "compact": partial(json.dumps, ensure_ascii=False, separators=(",", ":")),
    "compact ascii": partial(json.dumps, ensure_ascii=True, separators=(",", ":")),
    "spaced": partial(json.dumps, ensure_ascii=False),
    "spaced ascii": partial(json.dumps, ensure_ascii=True),
    CANONICAL: sorted_json_text,
}
"""The forms in which libraries write JSON. A storage format: forms are only added."""


def read(body: bytes | Mapping[str, Any]) -> tuple[bytes, str | None, Any]:
    """The bytes of a body, the form that they have, and its value; no form for what is written otherwise."""
    if isinstance(body, Mapping):
        text = sorted_json_text(dict(body))
        return text.encode(), CANONICAL, json.loads(text)
    try:
        value = json.loads(body)
    except ValueError:
        return body, None, None
    for form in _FORMS:
        if form != CANONICAL and _is_written(value, form, body):
            return body, form, value
    return body, None, None


def reference(made: bytes, form: str) -> Any:
    """The value of a body that a renderer made, with its keys in the order of the form."""
    value = json.loads(made)
    return json.loads(sorted_json_text(value)) if form == CANONICAL else value


def written(value: object, form: str) -> bytes:
    """The value in this form."""
    return str(_FORMS[form](value)).encode()


def _is_written(value: object, form: str, body: bytes) -> bool:
    try:
        return written(value, form) == body
    except ValueError:  # lone surrogates have no UTF-8 form
        return False
