"""Items of the OpenAI Responses API, read and written.

The items of one answer are one assistant message. Reasoning and calls are parts of their own; the shape says
which parts were the content of which output message, and what was beside it (id, status, phase).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from turnlog.domain.log import SessionEvent
from turnlog.domain.messages import (
    BlobPart,
    CompactionPart,
    FilePart,
    GenericPart,
    Message,
    Part,
    ReasoningPart,
    Role,
    ServerToolCallPart,
    TextPart,
    ToolCallPart,
    ToolCallResponsePart,
    UriPart,
)
from turnlog.infrastructure.formats import _media, _plain, _system_runs
from turnlog.infrastructure.formats._calls import arguments_object
from turnlog.infrastructure.formats._plain import MalformedMessageError, Plain

ORIGIN = "openai.responses"
"""The `origin` of messages that came in this format."""

CUSTOM = "custom"
"""The `call_type` of calls of custom tools, as in Chat Completions."""
SERVER_CALLS = frozenset(
    ("web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "mcp_call")
)
"""Types of items that are calls which the provider ran itself, each with its result."""
_OWN_CALLS = {
    "computer_call": ("action", "actions"),
    "local_shell_call": ("action",),
    "shell_call": ("action",),
    "apply_patch_call": ("operation",),
}
"""Types of calls of built-in tools that the client runs, and the fields that say what to do."""
_OUTPUT = "_output"
_RESULTS = frozenset(
    ("function_call_output", "custom_tool_call_output", *(f"{c}_output" for c in _OWN_CALLS))
)
_ROLES = {"developer": Role.SYSTEM}
_INPUT_ROLES = ("user", "system", "developer")
_ABOUT = (
    "id",
    "model",
    "status",
    "created_at",
    "completed_at",
    "usage",
    "incomplete_details",
    "service_tier",
)
"""What of a response is kept as metadata; the rest repeats the request."""


def message(given: object) -> Message:
    """The message of a response, such as that of `client.responses.create`, or of one item.

    Both are dicts or objects of the SDK.
    What a response says about itself (id, model, usage, status) becomes the message's metadata.
    Raises `MalformedMessageError`, `InvalidMessageError` or `NotJsonError` for what is no such message.
    """
    fields = _plain.plain(given)
    return _answer_of(fields) if is_response(fields) else _read_item(fields)


def messages(given: object) -> tuple[Message, ...]:
    """The messages of one item or response, or of several in order; dicts or SDK objects.

    Items in a row that are the model's become one message, a response is one. System and developer messages
    in a row become one message, because of the stored system messages only the latest is sent.
    """
    return _system_runs.joined(_read([_plain.plain(one) for one in _plain.each(given)]))


def is_response(fields: Mapping[str, Any]) -> bool:
    """Whether this is a response, and not an item."""
    return isinstance(fields.get("output"), list) and "call_id" not in fields and "role" not in fields


def _read(given: Sequence[Plain]) -> Iterator[Message]:
    answer: list[Plain] = []
    for fields in given:
        if not is_response(fields) and _is_models(fields):
            answer.append(fields)
            continue
        if answer:
            yield _answer(answer)
            answer = []
        yield message(fields)
    if answer:
        yield _answer(answer)


def _is_models(item: Mapping[str, Any]) -> bool:
    """Whether the item is part of an answer, not of what the model was told."""
    kind = item.get("type", "message")
    if kind == "message":
        return item.get("role") == "assistant"
    return kind not in _RESULTS


def _read_item(item: Plain) -> Message:
    if _is_models(item):
        return _answer([item])
    if item.get("type", "message") == "message":
        return _told(item)
    read = _plain.message(Role.TOOL, [_result(item)], {"origin": ORIGIN}, {})
    return _faithful(read, [item])


def _told(item: Plain) -> Message:
    rest = dict(item)
    shape: Plain = {}
    name = rest.pop("role", None)
    if name not in _INPUT_ROLES:
        raise MalformedMessageError(
            f"An item has no role {str(name)[:40]!r}. Roles are system, developer, user and assistant."
        )
    role = _ROLES.get(name) or Role(name)
    if role != name:
        shape["role"] = name
    parts = _plain.content_parts(rest, shape, _block)
    read = _plain.message(role, parts, {"origin": ORIGIN, "shape": shape or None}, rest)
    return _faithful(read, [item])


def _answer_of(response: Plain) -> Message:
    read = _answer([_plain.plain(item) for item in response["output"]])
    metadata = {name: response[name] for name in _ABOUT if response.get(name) is not None}
    return read.model_copy(update={"metadata": metadata or None})


def _answer(items: Sequence[Plain]) -> Message:
    parts: list[Part] = []
    spans: list[Plain] = []
    for item in items:
        if item.get("type", "message") != "message":
            parts.append(_part(item))
            continue
        rest = {name: value for name, value in item.items() if name != "role"}
        span: Plain = {"at": len(parts)}
        content = _plain.content_parts(rest, span, _block)
        parts += content
        spans.append({**span, "parts": len(content), "fields": rest})
    shape = {"messages": spans} if spans else None
    read = _plain.message(Role.ASSISTANT, parts, {"origin": ORIGIN, "shape": shape}, {})
    return _faithful(read, items)


def _faithful(read: Message, items: Sequence[Plain]) -> Message:
    return _plain.faithful(read, {"items": list(items)}, {"items": _exported(read)})


# Items of an answer


def _part(item: Plain) -> Part:
    rest = dict(item)
    kind = rest.pop("type", None)
    match kind:
        case "reasoning":
            return _reasoning(rest)
        case "function_call" if isinstance(rest.get("name"), str):
            return _call(rest, rest.pop("name"), rest.pop("arguments", ""), {})
        case "custom_tool_call" if isinstance(rest.get("name"), str):
            return _call(rest, rest.pop("name"), rest.pop("input", ""), {"call_type": CUSTOM})
        case str() if kind in _OWN_CALLS:
            return _own_call(kind, rest) or _plain.generic(item)
        case str() if kind in SERVER_CALLS and isinstance(rest.get("id"), str):
            return _plain.part(ServerToolCallPart, {"id": rest.pop("id"), **_name(rest), "block": kind}, rest)
        case "compaction":
            return _plain.part(CompactionPart, {}, rest)
        case _:
            return _plain.generic(item)


def _reasoning(rest: Plain) -> Part:
    """The summary, or what was thought, as content; what is more than one text stays flat beside it."""
    texts = _texts(rest.get("summary"), "summary_text")
    thoughts = _texts(rest.get("content"), "reasoning_text")
    if texts == [] or (texts and len(texts) == 1 and not thoughts):
        del rest["summary"]
    if thoughts is not None:
        rest["thoughts"] = rest.pop("content")
    content = "\n\n".join(texts or thoughts or ()) if texts or thoughts else None
    return _plain.part(ReasoningPart, {"content": content}, rest)


def _texts(blocks: object, kind: str) -> list[str] | None:
    """The texts of a list of such blocks, None for anything else."""
    if not isinstance(blocks, list):
        return None
    found: list[str] = []
    for block in cast("list[object]", blocks):
        fields = cast("Plain", block) if isinstance(block, dict) else {}
        if set(fields) != {"type", "text"} or fields["type"] != kind or not isinstance(fields["text"], str):
            return None
        found.append(fields["text"])
    return found


def _call(rest: Plain, name: str, arguments: object, further: Plain) -> Part:
    own = {
        **_call_id(rest),
        "name": name,
        "arguments": arguments if isinstance(arguments, str) else _plain.compact(arguments),
        **further,
        **_item_id(rest),
    }
    return _plain.part(ToolCallPart, own, rest)


def _own_call(kind: str, rest: Plain) -> Part | None:
    field = next((name for name in _OWN_CALLS[kind] if name in rest), None)
    if field is None:
        return None
    name = kind.removesuffix("_call")
    arguments = _plain.compact(rest.pop(field))
    return _call(rest, name, arguments, {"call_type": kind, "field": field})


def _call_id(rest: Plain) -> Plain:
    return {"id": rest.pop("call_id")} if isinstance(rest.get("call_id"), str) else {}


def _name(rest: Plain) -> Plain:
    return {"name": rest.pop("name")} if isinstance(rest.get("name"), str) else {}


def _item_id(rest: Plain) -> Plain:
    """The item's own id, which is not that of the call."""
    return {"item_id": rest.pop("id")} if "id" in rest else {}


def _result(item: Plain) -> Part:
    rest = dict(item)
    kind = str(rest.pop("type"))
    own: Plain = {**_call_id(rest), **_name(rest), **_item_id(rest)}
    if kind != "function_call_output":
        own["call_type"] = CUSTOM if kind == "custom_tool_call_output" else kind.removesuffix(_OUTPUT)
    output: object = rest.pop("output", None) if rest.get("output") is not None else None
    if isinstance(output, str):
        response: object = output
    elif isinstance(output, list):
        response = tuple(_block(block) for block in cast("list[object]", output))
    else:
        response = () if output is None else (_plain.generic(output),)
        own["output_form"] = "object"
    return _plain.part(ToolCallResponsePart, {**own, "response": response}, rest)


# Blocks of content


def _block(block: object) -> Part:
    if not isinstance(block, Mapping):
        return _plain.generic(block)
    rest = dict(cast("Mapping[str, Any]", block))
    kind = rest.pop("type", None)
    match kind:
        case "input_text" | "output_text" if isinstance(rest.get("text"), str):
            return _plain.part(TextPart, {"content": rest.pop("text")}, rest)
        case "input_image" if isinstance(rest.get("image_url"), str):
            return _media.blob_of(rest.pop("image_url"), "image", rest)
        case "input_image" | "input_file" if isinstance(rest.get("file_id"), str):
            modality = "image" if kind == "input_image" else "document"
            return _plain.part(FilePart, {"modality": modality, "file_id": rest.pop("file_id")}, rest)
        case "input_file" if isinstance(rest.get("file_data"), str):
            return _media.blob_of(rest.pop("file_data"), "document", rest)
        case "input_file" if isinstance(rest.get("file_url"), str):
            return _plain.part(
                UriPart, {"modality": "document", "uri": rest.pop("file_url")}, {**rest, "by": "url"}
            )
        case _:
            return _plain.generic(cast("object", block))


def input_block(part: Part) -> Any:
    """The block of a user message or of a result."""
    extra = dict(part.extra)
    match part:
        case TextPart():
            return {"type": "input_text", "text": part.content, **extra}
        case BlobPart(modality="image") | UriPart(modality="image"):
            url = _media.data_url(part) if isinstance(part, BlobPart) else part.uri
            return {"type": "input_image", "image_url": url, **extra}
        case BlobPart():
            return {"type": "input_file", "file_data": _media.data_url(part), **extra}
        case UriPart():
            field = "file_url" if extra.pop("by", None) else "file_data"
            return {"type": "input_file", field: part.uri, **extra}
        case FilePart():
            kind = "input_image" if part.modality == "image" else "input_file"
            return {"type": kind, "file_id": part.file_id, **extra}
        case GenericPart():
            return _plain.ungeneric(part)
        case _:
            return {"type": "input_text", "text": _media.as_text(part)}


def _output_block(part: Part) -> Any:
    block = input_block(part)
    if isinstance(part, TextPart):
        return {**block, "type": "output_text"}
    return block


# Export


def export(entries: Iterable[Message | SessionEvent]) -> list[Plain]:
    """The items in this format; those that came in it exactly as they came.

    This is a record, not a request: nothing is repaired. Events that are no messages are left out.
    """
    said = filter(None, map(_plain.said_in, entries))
    return [item for one in said for each in _system_runs.apart(one, ORIGIN) for item in _exported(each)]


def _exported(said: Message) -> list[Plain]:
    kept = _plain.original(said, ORIGIN)
    if kept is not None:
        return list(kept["items"])
    if said.role is Role.TOOL:
        return [result_item(part) for part in said.tool_responses]
    if said.role is Role.ASSISTANT:
        return [_item(piece) for piece in pieces(said, said.parts)]
    shape = _plain.shape_of(said, ORIGIN)
    extra: Mapping[str, Any] = said.extra if said.origin == ORIGIN else {}
    role = shape.get("role", said.role.value)
    return [{"role": role, **_plain.content_field(said.parts, shape, input_block), **extra}]


@dataclass(frozen=True)
class Piece:
    """What is one item of an answer: the content of a message, or a part that is an item by itself.

    `span` is what the shape says of the message, None where it says nothing.
    """

    content: tuple[Any, ...] = ()
    part: Any = None
    span: Plain | None = None

    @property
    def fields(self) -> Plain:
        """What stood beside the content: id, status, phase."""
        return cast("Plain", (self.span or {}).get("fields", {}))


def pieces(said: Message, parts: Sequence[Any]) -> Iterator[Piece]:
    """The items that the parts of an answer are, in order. Neighbouring texts that nothing says are one."""
    spans = [
        s for s in _plain.shape_of(said, ORIGIN).get("messages", ()) if s["at"] + s["parts"] <= len(parts)
    ]
    place = 0
    while place < len(parts) or spans:
        if spans and spans[0]["at"] == place:
            span = spans.pop(0)
            end = place + span["parts"]
            yield Piece(content=tuple(parts[place:end]), span=span)
        elif place == len(parts):
            return
        elif _is_content(parts[place]):
            limit = spans[0]["at"] if spans else len(parts)
            end = next((i for i in range(place, limit) if not _is_content(parts[i])), limit)
            yield Piece(content=tuple(parts[place:end]))
        else:
            end = place + 1
            yield Piece(part=parts[place])
        place = end


def _is_content(part: Any) -> bool:
    return isinstance(part, (TextPart, BlobPart, UriPart, FilePart)) or (
        isinstance(part, Part) and part.type in ("refusal", "audio", "document", "search_result")
    )


def _item(piece: Piece) -> Plain:
    if piece.part is not None:
        return item_of(piece.part)
    content = _plain.content_field(piece.content, piece.span or {"content": "list"}, _output_block)
    return {
        "role": "assistant",
        **({"type": "message"} if piece.span is None else {}),
        **content,
        **piece.fields,
    }


def item_of(part: Part) -> Plain:
    """The item of a part that is one by itself."""
    extra = dict(part.extra)
    match part:
        case ReasoningPart():
            return reasoning_item(part)
        case ToolCallPart():
            return {**_call_fields(part, extra), **extra}
        case ServerToolCallPart():
            named = {"id": part.id, "name": part.name}
            kept = {name: value for name, value in named.items() if value is not None}
            return {"type": extra.pop("block", "server_tool_call"), **kept, **extra}
        case CompactionPart():
            return {"type": "compaction", **extra}
        case _:
            return cast("Plain", _plain.ungeneric(part))


def reasoning_item(part: ReasoningPart) -> Plain:
    """The item as it came: the summary is the content where nothing else is said."""
    extra = dict(part.extra)
    item: Plain = {"type": "reasoning"}
    if "thoughts" in extra:
        item["content"] = extra.pop("thoughts")
    if "summary" not in extra:
        text = part.content if not item.get("content") else None
        item["summary"] = [] if text is None else [{"type": "summary_text", "text": text}]
    return {**item, **extra}


def _call_fields(part: ToolCallPart, extra: Plain) -> Plain:
    kind, field = extra.pop("call_type", None), extra.pop("field", None)
    ids = {} if part.id is None else {"call_id": part.id}
    if "item_id" in extra:
        ids["id"] = extra.pop("item_id")
    if kind == CUSTOM:
        return {"type": "custom_tool_call", **ids, "name": part.name, "input": part.arguments}
    if isinstance(kind, str) and kind in _OWN_CALLS and isinstance(field, str):
        return {"type": kind, **ids, field: _what_to_do(part)}
    return {"type": "function_call", **ids, "name": part.name, "arguments": part.arguments}


def _what_to_do(part: ToolCallPart) -> Any:
    try:
        return json.loads(part.arguments)
    except (ValueError, RecursionError):
        return arguments_object(part.arguments)


def result_item(part: ToolCallResponsePart) -> Plain:
    extra = dict(part.extra)
    item: Plain = {"type": result_type(extra.pop("call_type", None))}
    if part.id is not None:
        item["call_id"] = part.id
    if part.name is not None:
        item["name"] = part.name
    if "item_id" in extra:
        item["id"] = extra.pop("item_id")
    if isinstance(part.response, str):
        item["output"] = part.response
    elif extra.pop("output_form", None):
        item |= {"output": _plain.ungeneric(part.response[0])} if part.response else {}
    else:
        item["output"] = [input_block(inner) for inner in part.response]
    return {**item, **extra}


def result_type(call_type: object) -> str:
    """The type of the item that answers a call of this type."""
    if call_type == CUSTOM:
        return "custom_tool_call_output"
    is_own = isinstance(call_type, str) and call_type in _OWN_CALLS
    return f"{call_type}{_OUTPUT}" if is_own else "function_call_output"
