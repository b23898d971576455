"""The one-line rendering of an event, as transcripts and prompts show it."""

from __future__ import annotations

from turnlog.domain.log import SessionEvent
from turnlog.domain.messages import Message, Part, Role, TextPart, ToolCallResponsePart


def message_text(message: Message) -> str:
    """`User: text`, `Assistant: text [tool calls: name(arguments)]`, `Tool [responses: name -> data]`.

    Texts are taken as they are, without escaping and with their line breaks.
    """
    if message.role is Role.TOOL:
        return f"Tool [responses: {', '.join(map(_response, message.tool_responses))}]"
    label = message.role.value.capitalize()
    text = message.text
    calls = ", ".join(f"{call.name}({call.arguments})" for call in message.tool_calls)
    if not calls:
        return f"{label}: {'[no text content]' if text is None else text}"
    if text is None or not text.strip():
        return f"{label} [tool calls: {calls}]"
    return f"{label}: {text} [tool calls: {calls}]"


def _response(part: ToolCallResponsePart) -> str:
    return f"{part.name or part.id or ''} -> {response_text(part)}"


def response_text(part: ToolCallResponsePart) -> str:
    """The result as text; parts of it that are no text are named by their type."""
    if isinstance(part.response, str):
        return part.response
    return "\n".join(map(_part_text, part.response))


def _part_text(part: Part) -> str:
    return part.content if isinstance(part, TextPart) else f"[{part.type}]"


def event_text(event: SessionEvent | Message) -> str:
    """The one-line rendering of a message event or a message; other events show their type."""
    message = event if isinstance(event, Message) else event.message
    return message_text(message) if message else f"[{event.type}]" if isinstance(event, SessionEvent) else ""
