"""OpenAI Chat Completions, which many other servers speak too: messages in and out, and requests."""

from turnlog.infrastructure.formats._openai_format import ORIGIN, export, message, messages
from turnlog.infrastructure.formats._openai_request import request

__all__ = ["ORIGIN", "export", "message", "messages", "request"]
