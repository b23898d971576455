"""Chat models over HTTP."""

from turnlog.infrastructure.models.exchange import Limits
from turnlog.infrastructure.models.http_model import AsyncHttpChatModel, HttpChatModel
from turnlog.infrastructure.models.providers import (
    AsyncOllamaChatModel,
    AsyncOpenAIChatModel,
    OllamaChatModel,
    OpenAIChatModel,
)
from turnlog.infrastructure.models.retrying import RetryPolicy

__all__ = [
    "AsyncHttpChatModel",
    "AsyncOllamaChatModel",
    "AsyncOpenAIChatModel",
    "HttpChatModel",
    "Limits",
    "OllamaChatModel",
    "OpenAIChatModel",
    "RetryPolicy",
]
