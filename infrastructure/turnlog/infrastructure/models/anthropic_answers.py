"""Messages of the Anthropic Messages API as replies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from turnlog.application.chat import ChatReply, ContextOverflowError, FinishReason, InvalidReplyError, Usage
from turnlog.domain.errors import TurnlogError
from turnlog.domain.messages import Message, Part, ToolCallPart
from turnlog.infrastructure.formats import anthropic_messages
from turnlog.infrastructure.formats._plain import with_parts
from turnlog.infrastructure.models.answers import answer, count

PAUSED = "pause_turn"
"""The stop reason of a turn that goes on when the answer is sent back."""

_OVERFLOWN = "model_context_window_exceeded"
_REASONS = {
    "end_turn": FinishReason.STOP,
    "stop_sequence": FinishReason.STOP,
    "compaction": FinishReason.STOP,
    PAUSED: FinishReason.STOP,
    "max_tokens": FinishReason.LENGTH,
    "tool_use": FinishReason.TOOL_CALL,
    "refusal": FinishReason.CONTENT_FILTER,
}


def whole(
    fields: Mapping[str, Any], provider: str, raw_arguments: Mapping[str, str] | None = None
) -> ChatReply:
    """The reply of a whole message; `raw_arguments`, by call id, are arguments that are no JSON.

    Raises `ContextOverflowError` for an answer that reached the end of the window.
    """
    said = fields.get("stop_reason")
    if said == _OVERFLOWN:
        usage = usage_of(fields.get("usage"))
        raise ContextOverflowError(
            sent=usage.input_tokens if usage else None,
            detail="the answer reached the end of the context window.",
        )
    return _reply(fields, provider, _REASONS.get(str(said), FinishReason.STOP), raw_arguments or {})


def broken_off(fields: Mapping[str, Any], provider: str) -> ChatReply:
    """The reply of a message that was not finished."""
    return _reply({**fields, "stop_reason": None}, provider, FinishReason.CANCELLED, {})


def usage_of(given: object) -> Usage | None:
    """What a call used; the provider counts the prompt without what it cached or found in the cache."""
    if not isinstance(given, Mapping):
        return None
    usage = cast("Mapping[str, Any]", given)
    read, created = (count(usage, f"cache_{kind}_input_tokens") for kind in ("read", "creation"))
    uncached = count(usage, "input_tokens")
    return Usage(
        input_tokens=None if uncached is None else uncached + (read or 0) + (created or 0),
        output_tokens=count(usage, "output_tokens"),
        cache_read_input_tokens=read,
        cache_creation_input_tokens=created,
        reasoning_output_tokens=count(usage, "output_tokens_details", "thinking_tokens"),
        provider=dict(usage),
    )


def _reply(
    fields: Mapping[str, Any], provider: str, reason: FinishReason, raw_arguments: Mapping[str, str]
) -> ChatReply:
    try:
        read = anthropic_messages.message(dict(fields))
    except TurnlogError as error:
        raise InvalidReplyError(f"The server's answer cannot be read: {error}") from error
    return answer(
        _with_raw_arguments(read, raw_arguments),
        provider=provider,
        finish_reason=reason,
        provider_finish_reason=_text(fields.get("stop_reason")),
        model=_text(fields.get("model")),
        response_id=_text(fields.get("id")),
        usage=usage_of(fields.get("usage")),
    )


def _with_raw_arguments(said: Message, raw: Mapping[str, str]) -> Message:
    if not raw:
        return said
    parts: Sequence[Part] = [
        part.model_copy(update={"arguments": raw[part.id]})
        if isinstance(part, ToolCallPart) and part.id is not None and part.id in raw
        else part
        for part in said.parts
    ]
    return with_parts(said, parts)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
