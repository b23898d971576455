"""Whether a request body has the types that the official SDKs declare for it."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, cast, get_args, get_type_hints

from anthropic.types.beta.message_create_params import MessageCreateParamsNonStreaming
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming
from openai.types.responses.easy_input_message_param import EasyInputMessageParam
from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming
from openai.types.responses.response_input_item_param import ResponseInputItemParam
from openai.types.responses.response_output_message_param import ResponseOutputMessageParam
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


def responses_type_faults(body: Mapping[str, Any]) -> list[str]:
    """What is wrong with the arguments of `client.responses.create`, by place."""
    items = cast("list[dict[str, Any]]", body.get("input", []))
    faults = [f"{place}: {fault}" for place, item in enumerate(items) for fault in _item_faults(item)]
    return [*_faults(ResponseCreateParamsNonStreaming, {**body, "input": []}), *faults]


def _item_faults(item: dict[str, Any]) -> list[str]:
    """What is wrong with an item, by the one type that it can have."""
    kind = item.get("type", "message")
    if kind == "message":
        return _faults(ResponseOutputMessageParam if "id" in item else EasyInputMessageParam, item)
    found = _item_types().get(kind)
    return _faults(found, item) if found else [f"there is no item of type {kind}"]


@cache
def _item_types() -> dict[str, type]:
    types: dict[str, type] = {}
    for member in cast("tuple[type, ...]", get_args(ResponseInputItemParam)):
        literal = get_type_hints(member)["type"]
        types |= dict.fromkeys((arg for arg in get_args(literal) if isinstance(arg, str)), member)
    return types


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
