"""Chat models over HTTP."""

from turnlog.infrastructure.models.exchange import Limits
from turnlog.infrastructure.models.http_model import (
    AsyncHttpChatModel,
    AsyncHttpChatStream,
    HttpChatModel,
    HttpChatStream,
)
from turnlog.infrastructure.models.providers import (
    AnthropicChatModel,
    AsyncAnthropicChatModel,
    AsyncOllamaChatModel,
    AsyncOpenAIChatModel,
    AsyncOpenAIResponsesModel,
    OllamaChatModel,
    OpenAIChatModel,
    OpenAIResponsesModel,
)
from turnlog.infrastructure.models.retrying import RetryPolicy

__all__ = [
    "AnthropicChatModel",
    "AsyncAnthropicChatModel",
    "AsyncHttpChatModel",
    "AsyncHttpChatStream",
    "AsyncOllamaChatModel",
    "AsyncOpenAIChatModel",
    "AsyncOpenAIResponsesModel",
    "HttpChatModel",
    "HttpChatStream",
    "Limits",
    "OllamaChatModel",
    "OpenAIChatModel",
    "OpenAIResponsesModel",
    "RetryPolicy",
]
