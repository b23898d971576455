"""Requests to the OpenAI Responses API. The session is the state: nothing is kept by the provider."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from turnlog.domain.errors import InvalidSettingError
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
    UriPart,
)
from turnlog.domain.view import View
from turnlog.infrastructure.formats import _media, _plain
from turnlog.infrastructure.formats._calls import (
    EMPTY_RESULT,
    START,
    Call,
    Said,
    WireIds,
    arguments_text,
    paired,
    response_parts,
    wire_name,
)
from turnlog.infrastructure.formats._families import is_of_family
from turnlog.infrastructure.formats._plain import Plain, PrefillWarning
from turnlog.infrastructure.formats._responses_format import (
    CUSTOM,
    ORIGIN,
    SERVER_CALLS,
    Piece,
    item_of,
    pieces,
    reasoning_item,
    result_item,
    result_type,
)
from turnlog.infrastructure.formats._told import instructions_first, told

ENCRYPTED_REASONING = "reasoning.encrypted_content"
"""What `include` asks for, so that reasoning can be sent back."""

_FITTING_ID = re.compile(r"[!-~]{1,64}")
_MAX_NAME = 64
_FILES_OF = (ORIGIN, "openai.chat", None)
"""Origins of messages whose file ids this provider knows."""
_SENT_BACK = frozenset(("mcp_list_tools", "tool_search_call", "tool_search_output", "additional_tools"))
"""Items of answers that are kept as generic parts and go back beside the calls of the provider's own."""
_STATE: Mapping[str, tuple[Any, ...]] = {
    "store": (False,),
    "truncation": ("disabled",),
    "background": (False,),
    "previous_response_id": (),
    "conversation": (),
}
"""Options that would let the provider keep or cut what the model is told, with the values that do not."""


def request(
    view: View | Iterable[SessionEvent | Message],
    *,
    model: str,
    tools: Sequence[Mapping[str, Any]] | None = None,
    max_tokens: int | None = None,
    branch: str | None = None,
    system: str | None = None,
    prefill: bool = False,
    send_reasoning: bool = True,
    system_in_place: bool = False,
    provider: str | None = None,
    **options: Any,
) -> Plain:
    """The keyword arguments of `client.responses.create`, such that the provider accepts them.

    All instructions and summaries with the role system become `instructions`; a given `system` is sent in
    place of the stored instructions. Results stand behind their calls in the order of the calls; a call
    without a result gets one that says so, a result without its call is left out. What the format cannot
    carry becomes a text in brackets that names it; what another provider ran or thought itself is left out.

    Nothing is stored (`store` is false), and encrypted reasoning is asked for. Reasoning that came encrypted
    in this format from this family of models goes back as it came, directly before the item that it led to,
    which then keeps its id; where either cannot be sent, the reasoning is left out and the item has no id.

    `provider` is the name under which answers of this server are stored: reasoning of others is left out.
    `branch` is the branch whose model is told. `max_tokens` is sent as `max_output_tokens`. Tools are given
    in the provider's form or as `name`, `description` and `parameters`. Without `send_reasoning` none is sent
    and none asked for. `system_in_place` leaves the system messages behind the first other message where they
    stand. Further options are passed on; `InvalidSettingError` is raised for those with which
    the provider would keep the conversation or cut it.
    A request that ends with an assistant message gives a `PrefillWarning` unless `prefill`.
    """
    _refuse_state(options)
    given = instructions_first(told(view, branch, system, system_in_place))
    wire = _Answers(model, provider, send_reasoning).conversation(paired(given.conversation)) or [_start()]
    if wire[-1].get("role") == "assistant" and not prefill:
        warnings.warn(PrefillWarning.MESSAGE, PrefillWarning, stacklevel=2)
    body: Plain = {"model": model}
    if instructions := _instructions(given.system):
        body["instructions"] = instructions
    body |= {"input": wire, "store": False}
    include = [*options.pop("include", ()), *([ENCRYPTED_REASONING] if send_reasoning else [])]
    if include:
        body["include"] = list(dict.fromkeys(include))
    if tools:
        body["tools"] = [_tool(tool) for tool in tools]
    if max_tokens is not None:
        body["max_output_tokens"] = max_tokens
    return cast("Plain", _plain.sendable({**body, **options}))


def _refuse_state(options: Mapping[str, Any]) -> None:
    for name, allowed in _STATE.items():
        if options.get(name) is not None and options[name] not in allowed:
            raise InvalidSettingError(
                f"{name}={options[name]!r} would let the provider keep or cut the conversation, and the log "
                "could not say what the model was told. Leave it out: the session is the state."
            )


def _start() -> Plain:
    return {"role": "user", "content": START}


def _tool(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    inner = tool.get("function")
    if tool.get("type") == "function" and isinstance(inner, Mapping):
        return _tool(cast("Mapping[str, Any]", inner))
    if "type" in tool:
        return tool
    schema: Any = tool.get("parameters") or {"type": "object", "properties": {}}
    fields = {"strict": False, **tool, "parameters": schema, "name": wire_name(tool["name"], _MAX_NAME)}
    return {"type": "function", **fields}


def _instructions(messages: Iterable[Message]) -> str:
    texts = [_media.as_text(part) for one in messages for part in one.parts]
    return "\n\n".join(text for text in texts if text.strip())


class _Answers:
    """Makes the items of a conversation.

    Reasoning waits until the item that it led to is made, and goes with it or not at all.
    """

    def __init__(self, model: str, provider: str | None, send_reasoning: bool) -> None:
        self._model = model
        self._provider = provider
        self._send_reasoning = send_reasoning
        self._ids = WireIds(_FITTING_ID)
        self._waiting: list[Plain] = []
        self._used: set[str] = set()

    def conversation(self, said: Iterable[Said]) -> list[Plain]:
        wire: list[Plain] = []
        for one in said:
            if one.message.role is Role.ASSISTANT:
                wire += self._answer(one)
            else:
                self._waiting = []
                wire += _input(one)
        return wire

    def _answer(self, said: Said) -> list[Plain]:
        is_own_format = said.message.origin == ORIGIN
        is_ours = is_own_format and is_of_family(said.message, self._model, self._provider)
        items: list[Plain] = []
        results: list[Plain] = []
        is_led_to, is_whole = bool(self._waiting), is_ours
        for piece in pieces(said.message, said.parts):
            if isinstance(piece.part, ReasoningPart):
                item = self._once(_sent_reasoning(piece.part)) if is_ours and self._send_reasoning else None
                is_whole = is_whole and item is not None
                self._waiting += [item] if item else []
                is_led_to = is_led_to or item is not None
                continue
            made, made_results = self._made(piece, is_whole, is_whole and is_led_to)
            items += [*self._waiting, *made] if made else []
            results += made_results
            self._waiting = []
        return items + results

    def _made(self, piece: Piece, is_whole: bool, is_led_to: bool) -> tuple[list[Plain], list[Plain]]:
        """The item of a piece and the result that belongs to it.

        `is_whole` says that no reasoning of the answer is left out, `is_led_to` that some is sent.
        """
        if isinstance(piece.part, Call):
            return self._sent_call(piece.part, is_whole, is_led_to)
        if piece.part is None:
            return _sent_message(piece, self._item_id(piece.fields.get("id"), is_led_to)), []
        item = self._once(_sent_back(piece.part)) if is_whole else None
        return [item] if item else _sent_text(piece.part), []

    def _once(self, item: Plain | None) -> Plain | None:
        """The item, unless one with its id was sent before: the provider refuses the second."""
        return item if item and (item.get("id") is None or self._item_id(item["id"])) else None

    def _item_id(self, name: object, is_wanted: bool = True) -> str | None:
        """The id under which an item is sent: its own, when it may have one and nothing else had it."""
        if not is_wanted or not isinstance(name, str) or not name or name in self._used:
            return None
        self._used.add(name)
        return name

    def _sent_call(self, call: Call, is_whole: bool, is_led_to: bool) -> tuple[list[Plain], list[Plain]]:
        part, name = call.part, self._ids.take(call.part.id)
        kind = part.extra.get("call_type")
        if kind not in (None, CUSTOM) and is_whole and _is_answered_in_kind(call):
            return [{**_sendable_item(item_of(part)), "call_id": name}], [_result_in_kind(call, name)]
        item: Plain = {"type": "custom_tool_call" if kind == CUSTOM else "function_call", "call_id": name}
        if own_id := self._item_id(part.extra.get("item_id"), is_led_to and kind in (None, CUSTOM)):
            item["id"] = own_id
        item["name"] = wire_name(part.name, _MAX_NAME)
        if isinstance(part.extra.get("namespace"), str) and is_whole:
            item["namespace"] = part.extra["namespace"]
        item |= {"input": part.arguments} if kind == CUSTOM else {"arguments": arguments_text(part.arguments)}
        result = {"type": result_type(kind if kind == CUSTOM else None), "call_id": name}
        return [item], [{**result, "output": _sent_result(call)}]


def _is_answered_in_kind(call: Call) -> bool:
    """Whether a call of a built-in tool has a result of its own type; no text can stand in for it."""
    response = call.response
    return (
        response is not None
        and call.response_origin == ORIGIN
        and response.extra.get("call_type") == call.part.extra.get("call_type")
    )


def _result_in_kind(call: Call, name: str) -> Plain:
    assert call.response is not None  # noqa: S101 - asked before
    return {**_sendable_item(result_item(call.response)), "call_id": name}


def _sendable_item(item: Plain) -> Plain:
    """The item without the fields that responses have and requests do not."""
    return {
        name: value
        for name, value in item.items()
        if name != "created_by" and (name, value) != ("status", None)
    }


def _sent_reasoning(part: ReasoningPart) -> Plain | None:
    """The item as it came, or nothing: without its encrypted content the provider would look for its id."""
    item = reasoning_item(part)
    if not all(item.get(name) and isinstance(item[name], str) for name in ("id", "encrypted_content")):
        return None
    return {name: value for name, value in item.items() if value is not None}


def _sent_message(piece: Piece, name: str | None) -> list[Plain]:
    """The message that reasoning led to as it came, under its id; any other one as its text."""
    phase = piece.fields.get("phase")
    phased = {"phase": phase} if phase in ("commentary", "final_answer") else {}
    if name is not None:
        blocks = [block for part in piece.content if (block := _output_block(part))]
        status = piece.fields.get("status") or "completed"
        item = {"type": "message", "id": name, "role": "assistant", "status": status, "content": blocks}
        return [{**item, **phased}] if blocks else []
    texts = [text for part in piece.content if (text := _media.as_text(part)).strip()]
    return [{"role": "assistant", "content": "\n".join(texts), **phased}] if texts else []


def _output_block(part: Part) -> Plain | None:
    text = _media.as_text(part)
    if not text.strip():
        return None
    if part.type == "refusal":
        return {"type": "refusal", "refusal": text}
    annotations = part.extra.get("annotations")
    return {"type": "output_text", "text": text, "annotations": annotations or []}


def _sent_back(part: Part) -> Plain | None:
    """The item of a part that only this provider understands, None for any other part."""
    if isinstance(part, ServerToolCallPart):
        is_known = part.extra.get("block") in SERVER_CALLS
    elif isinstance(part, CompactionPart):
        is_known = isinstance(part.extra.get("encrypted_content"), str)
    else:
        is_known = part.type in _SENT_BACK
    return _sendable_item(item_of(part)) if is_known else None


def _sent_text(part: Part) -> list[Plain]:
    text = _media.as_text(part) if part.type not in _SENT_BACK else ""
    return [{"role": "assistant", "content": text}] if text.strip() else []


def _input(said: Said) -> list[Plain]:
    """The message of a user, or a system message."""
    blocks = [_sent(part, said.message.origin) for part in said.parts if not isinstance(part, Call)]
    content = _content([block for block in blocks if block])
    return [{"role": said.message.role.value, "content": content}] if content else []


def _content(blocks: list[Plain]) -> str | list[Plain] | None:
    if len(blocks) == 1 and blocks[0]["type"] == "input_text":
        return str(blocks[0]["text"])
    return blocks or None


def _sent_result(call: Call) -> str | list[Plain]:
    if call.response is None:
        return call.placeholder
    blocks = [_sent(part, call.response_origin) for part in response_parts(call.response)]
    return _content([block for block in blocks if block]) or EMPTY_RESULT


def _sent(part: Part, origin: str | None) -> Plain | None:
    """The part of a user message or a result as the provider takes it."""
    match part:
        case BlobPart():
            return _sent_blob(part)
        case UriPart(modality="image") if _media.is_web(part.uri):
            return {"type": "input_image", "image_url": part.uri, "detail": _detail(part)}
        case UriPart(modality="document") if _media.is_web(part.uri):
            return {"type": "input_file", "file_url": part.uri}
        case UriPart() if part.uri.startswith("data:"):
            blob = _media.blob_of(part.uri, part.modality, {})
            return _sent_blob(blob) if isinstance(blob, BlobPart) else _text(_media.as_text(part))
        case FilePart(modality="image") if origin in _FILES_OF:
            return {"type": "input_image", "file_id": part.file_id, "detail": _detail(part)}
        case FilePart(modality="document") if origin in _FILES_OF:
            return {"type": "input_file", "file_id": part.file_id}
        case _:
            return _text(_media.as_text(part))


def _sent_blob(part: BlobPart) -> Plain | None:
    blob = _media.checked(part)
    if blob and blob.mime_type in _media.IMAGES:
        return {"type": "input_image", "image_url": _media.data_url(blob), "detail": _detail(part)}
    if blob and blob.mime_type == "application/pdf":
        name = part.extra.get("filename")
        filename = name if isinstance(name, str) and name else "document.pdf"
        return {"type": "input_file", "file_data": _media.data_url(blob), "filename": filename}
    return _text(_media.text_of(blob) if blob and blob.mime_type == "text/plain" else _media.as_text(part))


def _detail(part: Part) -> str:
    detail = part.extra.get("detail")
    return detail if detail in ("low", "high", "original") else "auto"


def _text(text: str) -> Plain | None:
    return {"type": "input_text", "text": text} if text.strip() else None
