"""Answers of models: what is stored with them, and how pieces of answers are put together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from turnlog.application.chat import (
    ChatDelta,
    ChatReply,
    FinishReason,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    Usage,
)
from turnlog.domain.messages import Message, ReasoningPart, TextPart, ToolCallPart
from turnlog.infrastructure.formats.json_source import fields


def answer(
    message: Message,
    *,
    provider: str,
    finish_reason: FinishReason,
    provider_finish_reason: str | None = None,
    model: str | None = None,
    response_id: str | None = None,
    usage: Usage | None = None,
) -> ChatReply:
    """The reply, and in the metadata of its message the same facts under names that all providers share."""
    facts: dict[str, Any] = {
        "provider": provider,
        "model": model,
        "response_id": response_id,
        "finish_reason": finish_reason.value,
        "provider_finish_reason": provider_finish_reason,
        "usage": usage.to_dict() if usage else None,
    }
    said = {name: value for name, value in facts.items() if value is not None}
    return ChatReply(
        message=message.model_copy(update={"metadata": {**(message.metadata or {}), **said}}),
        finish_reason=finish_reason,
        provider_finish_reason=provider_finish_reason,
        usage=usage,
        response_id=response_id,
        model=model,
    )


def broken_off(reply: ChatReply, reason: FinishReason) -> ChatReply:
    """The reply as one that ended for this reason, which is not the provider's."""
    metadata = {**(reply.message.metadata or {}), "finish_reason": reason.value}
    metadata.pop("provider_finish_reason", None)
    message = reply.message.model_copy(update={"metadata": metadata})
    return replace(reply, message=message, finish_reason=reason, provider_finish_reason=None)


def joined(first: ChatReply | None, second: ChatReply) -> ChatReply:
    """One answer of two, the second being what a continued turn brought. Usage is the sum of both calls."""
    if first is None:
        return second
    usage = _sum(first.usage, second.usage)
    shape = {name: value for name, value in (second.message.shape or {}).items() if name != "original"}
    metadata = {**(second.message.metadata or {}), "continued": _times(first) + 1}
    if usage:
        metadata["usage"] = usage.to_dict()
    parts = (*first.message.parts, *second.message.parts)
    update = {"parts": parts, "shape": shape or None, "metadata": metadata}
    return replace(second, message=second.message.model_copy(update=update), usage=usage)


def _times(reply: ChatReply) -> int:
    return int((reply.message.metadata or {}).get("continued", 0))


def _sum(first: Usage | None, second: Usage | None) -> Usage | None:
    if first is None or second is None:
        return second or first
    names = [name for name in Usage.__dataclass_fields__ if name != "provider"]
    said = {name: (getattr(first, name), getattr(second, name)) for name in names}
    sums = {name: sum(one or 0 for one in both) for name, both in said.items() if both != (None, None)}
    return Usage(**sums, provider=second.provider)


def deltas(message: Message) -> Iterator[ChatDelta]:
    """A whole answer as pieces, for servers that do not stream."""
    calls = 0
    for part in message.parts:
        if isinstance(part, ReasoningPart) and part.content:
            yield ReasoningDelta(part.content)
        elif isinstance(part, TextPart) and part.content:
            yield TextDelta(part.content)
        elif isinstance(part, ToolCallPart):
            yield ToolCallDelta(calls, part.id, part.name, part.arguments)
            calls += 1


def count(usage: Mapping[str, Any], *path: str) -> int | None:
    """A number of tokens somewhere in a provider's usage object, None where it is not said."""
    found: Any = usage
    for name in path:
        found = fields(found).get(name)
    return found if isinstance(found, int) and not isinstance(found, bool) and found >= 0 else None
