"""Messages of OpenAI Chat Completions, read and written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from turnlog.domain.log import SessionEvent
from turnlog.domain.messages import (
    BlobPart,
    FilePart,
    GenericPart,
    Message,
    Part,
    ReasoningPart,
    Role,
    TextPart,
    ToolCallPart,
    ToolCallResponsePart,
    UriPart,
)
from turnlog.infrastructure.formats import _media, _plain, _system_runs
from turnlog.infrastructure.formats._plain import MalformedMessageError, Plain

ORIGIN = "openai.chat"
"""The `origin` of messages that came in this format."""

_REASONING_FIELDS = ("reasoning_content", "reasoning")
"""Fields of other servers that speak this format; the first is the usual one."""
_ROLES = {"developer": Role.SYSTEM, "function": Role.TOOL}


def message(given: object) -> Message:
    """The message of a dict or an SDK object, such as `response.choices[0].message`.

    Raises `MalformedMessageError`, `InvalidMessageError` or `NotJsonError` for what is no such message.
    """
    fields = _plain.plain(given)
    rest = dict(fields)
    shape: Plain = {}
    role = _role(rest.pop("role", None), shape)
    parts = _result(rest, shape) if role is Role.TOOL else _said(rest, shape)
    read = _plain.message(role, parts, {"origin": ORIGIN, "shape": shape or None}, rest)
    return _plain.faithful(read, fields, _exported(read)[0])


def messages(given: object) -> tuple[Message, ...]:
    """The messages of one dict or SDK object, or of several in order.

    System and developer messages in a row become one message, because of the stored system messages only the
    latest is sent; `export` takes it apart again.
    """
    return _system_runs.joined(message(one) for one in _plain.each(given))


def _role(name: object, shape: Plain) -> Role:
    if not isinstance(name, str) or name not in (*Role, *_ROLES):
        raise MalformedMessageError(
            f"A message has no role {str(name)[:40]!r}. Roles are system, developer, user, assistant, "
            "tool and function."
        )
    role = _ROLES.get(name) or Role(name)
    if role != name:
        shape["role"] = name
    return role


def _result(rest: Plain, shape: Plain) -> tuple[Part, ...]:
    parts = _plain.content_parts(rest, shape, _part)
    is_text = "content" not in shape
    own: Plain = {"response": cast("TextPart", parts[0]).content if is_text else parts}
    for name, field in (("id", "tool_call_id"), ("name", "name")):
        if isinstance(rest.get(field), str):
            own[name] = rest.pop(field)
    return (_plain.part(ToolCallResponsePart, own, {}),)


def _said(rest: Plain, shape: Plain) -> tuple[Part, ...]:
    reasoning: tuple[Part, ...] = ()
    for name in _REASONING_FIELDS:
        if not reasoning and isinstance(rest.get(name), str):
            reasoning = (ReasoningPart(content=rest.pop(name)),)
            if name != _REASONING_FIELDS[0]:
                shape["reasoning"] = name
    parts = (*reasoning, *_plain.content_parts(rest, shape, _part))
    if isinstance(rest.get("refusal"), str):
        shape["refusal"] = True
        parts = (*parts, _plain.part(GenericPart, {"type": "refusal", "refusal": rest.pop("refusal")}, {}))
    if isinstance(rest.get("audio"), Mapping):
        shape["audio"] = True
        parts = (*parts, _plain.part(GenericPart, {"type": "audio"}, rest.pop("audio")))
    if isinstance(rest.get("function_call"), Mapping):
        shape["calls"] = "function_call"
        parts = (*parts, _call({"function": rest.pop("function_call")}))
    elif isinstance(rest.get("tool_calls"), list) and rest["tool_calls"]:
        parts = (*parts, *map(_call, rest.pop("tool_calls")))
    return parts


def _call(given: object) -> Part:
    if not isinstance(given, Mapping):
        raise MalformedMessageError("A member of `tool_calls` is an object with `id`, `type` and `function`.")
    rest = dict(cast("Mapping[str, Any]", given))
    kind = rest.pop("type", None)
    text = "input" if kind == "custom" else "arguments"
    function = rest.pop("custom" if kind == "custom" else "function", None)
    if not isinstance(function, Mapping):
        raise MalformedMessageError(f"A tool call of type {kind} needs an object `function` or `custom`.")
    inner = cast("Mapping[str, Any]", function)
    arguments = inner.get(text, "")
    own = {
        "id": rest.get("id"),
        "name": inner.get("name"),
        "arguments": arguments if isinstance(arguments, str) else _plain.compact(arguments),
        **({"call_type": kind} if kind == "custom" else {}),
    }
    return _plain.part(ToolCallPart, own, rest)


def _part(block: object) -> Part:
    if not isinstance(block, Mapping):
        return _plain.generic(block)
    rest = dict(cast("Mapping[str, Any]", block))
    kind = rest.pop("type", None)
    inner = rest.pop(kind, None) if isinstance(kind, str) else None
    if kind == "text" and isinstance(inner, str):
        return _plain.part(TextPart, {"content": inner}, rest)
    if not isinstance(inner, Mapping):
        return _plain.generic(cast("object", block))
    body = {**rest, **cast("Mapping[str, Any]", inner)}
    if kind == "image_url" and isinstance(body.get("url"), str):
        return _media.blob_of(body.pop("url"), "image", body)
    if kind == "input_audio" and isinstance(body.get("data"), str):
        own = {
            "modality": "audio",
            "mime_type": f"audio/{body.pop('format', '')}",
            "content": body.pop("data"),
        }
        return _plain.part(BlobPart, own, body)
    if kind == "file" and isinstance(body.get("file_id"), str):
        return _plain.part(FilePart, {"modality": "document", "file_id": body.pop("file_id")}, body)
    if kind == "file" and isinstance(body.get("file_data"), str):
        return _media.blob_of(body.pop("file_data"), "document", body)
    return _plain.generic(cast("object", block))


def export(entries: Iterable[Message | SessionEvent]) -> list[Plain]:
    """The messages in this format, one by one; those that came in it exactly as they came.

    This is a record, not a request: nothing is repaired. Events that are no messages are left out.
    """
    said = filter(None, map(_plain.said_in, entries))
    return [
        exported for one in said for each in _system_runs.apart(one, ORIGIN) for exported in _exported(each)
    ]


def _exported(said: Message) -> list[Plain]:
    kept = _plain.original(said, ORIGIN)
    if kept is not None:
        return [kept]
    shape = _plain.shape_of(said, ORIGIN)
    extra: Mapping[str, Any] = said.extra if said.origin == ORIGIN else {}
    role = shape.get("role", said.role.value)
    if said.role is Role.TOOL:
        return [{"role": role, **_response_fields(part, shape), **extra} for part in said.tool_responses]
    content: list[Part] = []
    fields: Plain = {"role": role, **extra}
    calls: list[Plain] = []
    for part in said.parts:
        if isinstance(part, ToolCallPart):
            calls.append(_call_block(part))
        elif isinstance(part, ReasoningPart):
            fields[reasoning_field(said)] = part.content
        elif part.type == "refusal" and "refusal" in shape:
            fields["refusal"] = part.extra.get("refusal")
        elif part.type == "audio" and "audio" in shape:
            fields["audio"] = dict(part.extra)
        else:
            content.append(part)
    fields.update(_plain.content_field(content, shape, block_of))
    if calls and shape.get("calls") == "function_call":
        fields["function_call"] = calls[0]["function"]
    elif calls:
        fields["tool_calls"] = calls
    return [fields]


def reasoning_field(said: Message) -> str:
    """The field that held the reasoning of the message."""
    return str(_plain.shape_of(said, ORIGIN).get("reasoning", _REASONING_FIELDS[0]))


def _response_fields(part: ToolCallResponsePart, shape: Plain) -> Plain:
    fields: Plain = {"tool_call_id": part.id, "name": part.name}
    fields = {name: value for name, value in fields.items() if value is not None}
    if isinstance(part.response, str):
        return {**fields, "content": part.response}
    return {**fields, **_plain.content_field(part.response, shape or {"content": "list"}, block_of)}


def _call_block(part: ToolCallPart) -> Plain:
    extra = dict(part.extra)
    if extra.pop("call_type", None) == "custom":
        body: Plain = {"type": "custom", "custom": {"name": part.name, "input": part.arguments}}
    else:
        body = {"type": "function", "function": {"name": part.name, "arguments": part.arguments}}
    return {**({"id": part.id} if part.id is not None else {}), **body, **extra}


def block_of(part: Part) -> Any:
    extra = dict(part.extra)
    match part:
        case TextPart():
            return {"type": "text", "text": part.content, **extra}
        case BlobPart(modality="audio"):
            kind = (part.mime_type or "").removeprefix("audio/")
            return {"type": "input_audio", "input_audio": {"data": part.content, "format": kind}, **extra}
        case BlobPart(modality="image") | UriPart(modality="image"):
            url = _media.data_url(part) if isinstance(part, BlobPart) else part.uri
            return {"type": "image_url", "image_url": {"url": url, **_taken(extra, "detail")}, **extra}
        case BlobPart() | UriPart():
            data = _media.data_url(part) if isinstance(part, BlobPart) else part.uri
            return {"type": "file", "file": {"file_data": data, **_taken(extra, "filename")}, **extra}
        case FilePart():
            return {"type": "file", "file": {"file_id": part.file_id, **_taken(extra, "filename")}, **extra}
        case GenericPart():
            return _plain.ungeneric(part)
        case _:
            return {"type": "text", "text": _media.as_text(part)}


def _taken(fields: Plain, name: str) -> Plain:
    return {name: fields.pop(name)} if name in fields else {}
