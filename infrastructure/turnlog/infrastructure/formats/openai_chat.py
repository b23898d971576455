"""OpenAI Chat Completions, which many other servers speak too: messages in and out, and requests.

Of the stored system messages of a branch only the latest is sent. `messages` makes one message of system and
developer messages in a row; one further down the conversation replaces those before it.
"""

from turnlog.infrastructure.formats._openai_format import ORIGIN, export, message, messages
from turnlog.infrastructure.formats._openai_request import request

__all__ = ["ORIGIN", "export", "message", "messages", "request"]
