"""Whether a request body has the types that the official SDKs declare for it."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, cast

from anthropic.types.beta.message_create_params import MessageCreateParamsNonStreaming
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming
from pydantic import TypeAdapter
from pydantic_core import CoreConfig, SchemaValidator, ValidationError

_OTHER_SERVERS = ("reasoning_content", "reasoning")
"""Fields of assistant messages that servers other than OpenAI's document; the SDK does not declare them."""


def openai_type_faults(body: Mapping[str, Any]) -> list[str]:
    """What is wrong with the arguments of `client.chat.completions.create`, by place."""
    body = {**body, "messages": [_declared(one) for one in body.get("messages", ())]}
    return _faults(CompletionCreateParamsNonStreaming, body)


def anthropic_type_faults(body: Mapping[str, Any]) -> list[str]:
    """What is wrong with the arguments of `client.beta.messages.create`, by place."""
    return _faults(MessageCreateParamsNonStreaming, body)


def _declared(message: Any) -> Any:
    if not isinstance(message, dict):
        return message
    fields = cast("dict[str, Any]", message)
    is_text = fields.get("role") == "assistant" and all(
        isinstance(fields.get(f, ""), str) for f in _OTHER_SERVERS
    )
    return {name: value for name, value in fields.items() if not (is_text and name in _OTHER_SERVERS)}


def _faults(params: type, body: Mapping[str, Any]) -> list[str]:
    try:
        plain = json.loads(json.dumps(body, allow_nan=False))
    except (TypeError, ValueError) as error:
        return [f"not JSON: {error}"]
    try:
        _validator(params).validate_python(plain)
    except ValidationError as error:
        return [f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()]
    return []


@cache
def _validator(params: type) -> SchemaValidator:
    schema = copy.deepcopy(TypeAdapter(params).core_schema)
    return SchemaValidator(_strict(schema), CoreConfig(strict=True))


def _strict(schema: object) -> Any:
    """The schema without its holes.

    Those are lists that are only checked when read, keys that are dropped, and the types of responses, which
    requests may hold as objects but not as plain data.
    """
    if isinstance(schema, (list, tuple)):
        items = map(_strict, cast("Sequence[object]", schema))
        return list(items) if isinstance(schema, list) else tuple(items)
    if not isinstance(schema, dict):
        return schema
    fields = {name: _strict(item) for name, item in cast("dict[str, Any]", schema).items()}
    if fields.get("type") == "generator":
        fields["type"] = "list"
    if fields.get("type") == "typed-dict":
        fields["extra_behavior"] = "forbid"
        fields.pop("extras_schema", None)
    if fields.get("type") == "model":
        fields = {name: fields[name] for name in ("ref", "cls") if name in fields} | {"type": "is-instance"}
    return fields
