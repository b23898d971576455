"""What is left of a message whose content was removed: who spoke, and which calls its results belong to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from turnlog.domain.messages import Message, Part, Role, TextPart, ToolCallPart, ToolCallResponsePart

REDACTED_NAME: Final = "redacted"
"""Stands for the name of a tool, which is content."""


def form_of(message: Message) -> list[dict[str, Any]]:
    """The parts of a message without what they say: texts, calls and results, these with their ids."""
    parts = [form for part in message.parts if (form := _form(part))]
    texts = [form for form in parts if form["type"] == "text"][1:]
    return [form for form in parts if not any(form is text for text in texts)]


def placeholder(role: str, parts: Sequence[Mapping[str, Any]], reason: str | None) -> dict[str, Any]:
    """The content of the message that is shown and sent instead."""
    text = redacted_text(reason)
    shown = [_shown(part, text) for part in parts]
    if not shown and role != Role.TOOL:
        shown = [{"type": "text", "content": text}]
    return {"parts": shown}


def redacted_text(reason: str | None) -> str:
    """What a placeholder says.

    >>> redacted_text("asked by the customer")
    '[redacted: asked by the customer]'
    """
    return f"[redacted: {reason}]" if reason else "[redacted]"


def _form(part: Part) -> dict[str, Any] | None:
    match part:
        case TextPart():
            return {"type": part.type}
        case ToolCallPart():
            return _with_id(part, {"awaiting": True} if part.awaiting else {})
        case ToolCallResponsePart():
            return _with_id(part, {"provisional": True} if part.provisional else {})
        case _:
            return None


def _with_id(part: ToolCallPart | ToolCallResponsePart, further: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": part.type, **({} if part.id is None else {"id": part.id}), **further}


def _shown(part: Mapping[str, Any], text: str) -> dict[str, Any]:
    match part["type"]:
        case "tool_call":
            return {**part, "name": REDACTED_NAME, "arguments": "{}"}
        case "tool_call_response":
            return {**part, "response": text}
        case _:
            return {"type": "text", "content": text}
