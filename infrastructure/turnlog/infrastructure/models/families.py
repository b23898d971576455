"""Whose reasoning goes back to whom: only to the provider and the model family that it came from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from turnlog.domain.log import SessionEvent
from turnlog.domain.messages import Message, Part, ReasoningPart
from turnlog.infrastructure.formats._families import ASKED, family
from turnlog.infrastructure.formats._plain import with_parts

__all__ = ["ASKED", "family", "is_own", "without_others_reasoning"]


def is_own(message: Message, origin: str, provider: str, model: str) -> bool:
    """Whether the message is an answer of this provider's API by a model of this family.

    A message that does not say which model it came from is nobody's.
    """
    metadata = message.metadata or {}
    if message.origin != origin or metadata.get("provider", provider) != provider:
        return False
    names = (metadata.get("model"), metadata.get(ASKED))
    return any(family(name) == family(model) for name in names if isinstance(name, str))


def without_others_reasoning(
    conversation: Iterable[SessionEvent | Message], origin: str, provider: str, model: str
) -> list[SessionEvent | Message]:
    """The conversation without the reasoning of other providers and other families of models."""
    return [_told(entry, origin, provider, model) for entry in conversation]


def _told(entry: SessionEvent | Message, origin: str, provider: str, model: str) -> SessionEvent | Message:
    message = entry.message if isinstance(entry, SessionEvent) else entry
    if message is None or not any(isinstance(part, ReasoningPart) for part in message.parts):
        return entry
    if is_own(message, origin, provider, model):
        return entry
    parts: list[Part] = [part for part in message.parts if not isinstance(part, ReasoningPart)]
    kept = with_parts(message, parts)
    return replace(entry, message=kept) if isinstance(entry, SessionEvent) else kept
