"""The OpenAI Responses API, always stateless: items in and out, and requests.

An answer of several items is one message. `export` gives the items back as they came.
"""

from turnlog.infrastructure.formats._responses_format import ORIGIN, export, message, messages
from turnlog.infrastructure.formats._responses_request import request

__all__ = ["ORIGIN", "export", "message", "messages", "request"]
