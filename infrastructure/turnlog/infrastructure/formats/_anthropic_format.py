"""Messages of the Anthropic Messages API, read and written."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, cast

from turnlog.domain.log import SessionEvent
from turnlog.domain.messages import (
    BlobPart,
    CompactionPart,
    FilePart,
    Message,
    Part,
    ReasoningPart,
    Role,
    ServerToolCallPart,
    ServerToolCallResponsePart,
    TextPart,
    ToolCallPart,
    ToolCallResponsePart,
    UriPart,
)
from turnlog.infrastructure.formats import _plain, _system_runs
from turnlog.infrastructure.formats._calls import arguments_object
from turnlog.infrastructure.formats._plain import MalformedMessageError, Plain

ORIGIN = "anthropic.messages"
"""The `origin` of messages that came in this format."""

RESULT = "tool_result"
SERVER_CALLS = frozenset(("server_tool_use", "mcp_tool_use"))
"""Types of calls that the provider ran itself."""
_SERVER_RESULT = "_tool_result"
"""How the types of the results of such calls end."""


def message(given: object) -> Message:
    """The message of a dict or an SDK object, such as the response of `client.messages.create`.

    What a response says about itself (id, model, usage, stop reason) becomes the message's metadata.
    Raises `MalformedMessageError`, `InvalidMessageError` or `NotJsonError` for what is no such message,
    also for a user message that mixes results with other content: `messages` takes it apart.
    """
    first, *more = _read(_plain.plain(given))
    if more:
        raise MalformedMessageError(
            "This user message holds results of tools beside other content. Read it with `messages`, which "
            "gives a tool message and a user message."
        )
    return first


def messages(given: object) -> tuple[Message, ...]:
    """The messages of one dict or SDK object, or of several in order.

    A user message that mixes results of tools with other content becomes a tool message and a user message;
    `export` joins them again. System messages in a row become one message, because of the stored system
    messages only the latest is sent; `export` takes it apart again.
    """
    return _system_runs.joined(read for one in _plain.each(given) for read in _read(_plain.plain(one)))


def system(value: object) -> Message:
    """The system message of a request's `system`: text, or a list of blocks."""
    return message({"role": "system", "content": value})


def _read(fields: Plain) -> tuple[Message, ...]:
    rest = dict(fields)
    shape: Plain = {}
    role = rest.pop("role", None)
    if role not in ("user", "assistant", "system"):
        raise MalformedMessageError(
            f"A message has no role {str(role)[:40]!r}. Roles are user, assistant and system."
        )
    parts = _plain.content_parts(rest, shape, _part)
    own: Plain = {"origin": ORIGIN, "shape": shape}
    if rest.get("type") == "message":
        shape["response"] = list(rest)
        own["metadata"], rest = rest, {}
    results = [part for part in parts if isinstance(part, ToolCallResponsePart)]
    others = [part for part in parts if not isinstance(part, ToolCallResponsePart)]
    if role != "user" or not results:
        read = [_plain.message(Role(role), parts, {**own, "shape": shape or None}, rest)]
    elif not others:
        read = [_plain.message(Role.TOOL, results, own, rest)]
    else:
        read = [
            _plain.message(Role.TOOL, results, {**own, "shape": {**shape, "joined": "first"}}, rest),
            _plain.message(Role.USER, others, {**own, "shape": {**shape, "joined": "second"}}, {}),
        ]
    return _plain.faithful(read[0], fields, export(read)[0]), *read[1:]


def _part(block: object) -> Part:
    if not isinstance(block, Mapping):
        return _plain.generic(block)
    rest = dict(cast("Mapping[str, Any]", block))
    kind = rest.pop("type", None)
    match kind:
        case "text" if isinstance(rest.get("text"), str):
            return _plain.part(TextPart, {"content": rest.pop("text")}, rest)
        case "thinking" if isinstance(rest.get("thinking"), str):
            return _plain.part(ReasoningPart, {"content": rest.pop("thinking")}, rest)
        case "redacted_thinking" if isinstance(rest.get("data"), str):
            return _plain.part(ReasoningPart, {"encrypted_content": rest.pop("data")}, rest)
        case "tool_use" if isinstance(rest.get("id"), str) and isinstance(rest.get("name"), str):
            own = {"id": rest["id"], "name": rest["name"], "arguments": _plain.compact(rest.pop("input", {}))}
            return _plain.part(ToolCallPart, own, rest)
        case "tool_result" if isinstance(rest.get("tool_use_id"), str):
            return _result(rest)
        case "image" | "document" if isinstance(rest.get("source"), Mapping):
            return _sourced(kind, rest) or _plain.generic(cast("object", block))
        case "compaction":
            return _plain.part(CompactionPart, {}, rest)
        case str() if kind in SERVER_CALLS and isinstance(rest.get("id"), str):
            return _plain.part(
                ServerToolCallPart, {"id": rest["id"], "name": rest.get("name"), "block": kind}, rest
            )
        case str() if kind.endswith(_SERVER_RESULT) and isinstance(rest.get("tool_use_id"), str):
            return _plain.part(
                ServerToolCallResponsePart, {"id": rest.pop("tool_use_id"), "block": kind}, rest
            )
        case _:
            return _plain.generic(cast("object", block))


def _result(rest: Plain) -> Part:
    response: object = rest.pop("content", "")
    if isinstance(response, list):
        response = tuple(_part(block) for block in cast("list[object]", response))
    elif not isinstance(response, str):
        response = ""
    return _plain.part(ToolCallResponsePart, {"id": rest.pop("tool_use_id"), "response": response}, rest)


def _sourced(modality: str, rest: Plain) -> Part | None:
    source = dict(cast("Mapping[str, Any]", rest.pop("source")))
    match source.get("type"):
        case "base64" if isinstance(source.get("data"), str):
            mime_type = source.get("media_type")
            own = {"modality": modality, "mime_type": mime_type, "content": source["data"]}
            return _plain.part(BlobPart, own, rest)
        case "url" if isinstance(source.get("url"), str):
            return _plain.part(UriPart, {"modality": modality, "uri": source["url"]}, rest)
        case "file" if isinstance(source.get("file_id"), str):
            return _plain.part(FilePart, {"modality": modality, "file_id": source["file_id"]}, rest)
        case _:
            return None


def export(entries: Iterable[Message | SessionEvent]) -> list[Plain]:
    """The messages in this format, one by one; those that came in it exactly as they came.

    This is a record, not a request: nothing is repaired. Events that are no messages are left out.
    """
    exported: list[Plain] = []
    last: Message | None = None
    for one in filter(None, map(_plain.said_in, entries)):
        if last and _joined(last) == "first" and _joined(one) == "second":
            if _plain.original(last, ORIGIN) is None:
                exported[-1]["content"] += _content(one)["content"]
        else:
            exported += map(_exported, _system_runs.apart(one, ORIGIN))
        last = one
    return exported


def _joined(said: Message) -> str | None:
    return cast("str | None", _plain.shape_of(said, ORIGIN).get("joined"))


def _exported(said: Message) -> Plain:
    kept = _plain.original(said, ORIGIN)
    if kept is not None:
        return kept
    role = "user" if said.role is Role.TOOL else said.role.value
    exported = {"role": role, **_content(said)}
    if said.origin == ORIGIN:
        metadata = said.metadata or {}
        names: list[str] = _plain.shape_of(said, ORIGIN).get("response", [])
        exported |= {
            **said.extra,
            **{name: _as_it_came(metadata[name]) for name in names if name in metadata},
        }
    return exported


def _as_it_came(value: Any) -> Any:
    """What a response said; of usage in the form that all providers share, the provider's own object."""
    return cast("Mapping[str, Any]", value).get("provider", value) if isinstance(value, Mapping) else value


def _content(said: Message) -> Plain:
    return _plain.content_field(said.parts, _plain.shape_of(said, ORIGIN), block_of)


def block_of(part: Part) -> Any:
    extra = dict(part.extra)
    match part:
        case TextPart():
            return {"type": "text", "text": part.content, **extra}
        case ReasoningPart(content=None):
            return {"type": "redacted_thinking", "data": extra.pop("encrypted_content", ""), **extra}
        case ReasoningPart():
            return {"type": "thinking", "thinking": part.content, **extra}
        case ToolCallPart():
            return {"type": "tool_use", "id": part.id, "name": part.name, "input": _input(part), **extra}
        case ToolCallResponsePart():
            return {"type": RESULT, "tool_use_id": part.id, "content": _response(part), **extra}
        case BlobPart():
            source = {"type": "base64", "media_type": part.mime_type, "data": part.content}
            return {"type": part.modality, "source": source, **extra}
        case UriPart():
            return {"type": part.modality, "source": {"type": "url", "url": part.uri}, **extra}
        case FilePart():
            return {"type": part.modality, "source": {"type": "file", "file_id": part.file_id}, **extra}
        case CompactionPart():
            return {"type": "compaction", **extra}
        case ServerToolCallPart():
            named = {"id": part.id} if part.name is None else {"id": part.id, "name": part.name}
            return {"type": extra.pop("block", "server_tool_use"), **named, **extra}
        case ServerToolCallResponsePart():
            return {"type": extra.pop("block", RESULT), "tool_use_id": part.id, **extra}
        case _:
            return _plain.ungeneric(part)


def _input(part: ToolCallPart) -> Any:
    try:
        return json.loads(part.arguments)
    except (ValueError, RecursionError):
        return arguments_object(part.arguments)


def _response(part: ToolCallResponsePart) -> str | list[Any]:
    return part.response if isinstance(part.response, str) else [block_of(inner) for inner in part.response]
