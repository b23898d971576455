"""Formats of providers and tools, in both directions."""

from turnlog.infrastructure.formats import anthropic_messages, openai_chat
from turnlog.infrastructure.formats._plain import MalformedMessageError, PrefillWarning

__all__ = ["MalformedMessageError", "PrefillWarning", "anthropic_messages", "openai_chat"]
