"""The Anthropic Messages API: messages in and out, and requests."""

from turnlog.infrastructure.formats._anthropic_format import ORIGIN, export, message, messages, system
from turnlog.infrastructure.formats._anthropic_request import DEFAULT_MAX_TOKENS, request

__all__ = ["DEFAULT_MAX_TOKENS", "ORIGIN", "export", "message", "messages", "request", "system"]
