"""Conversations with models: the port to a model, and what is asked and answered through it."""

from turnlog.application.chat.errors import (
    ContextOverflowError,
    InvalidReplyError,
    MissingKeyError,
    ModelError,
    ModelRejectedError,
    ModelTimeoutError,
    ModelUnavailableError,
    StreamInterruptedError,
)
from turnlog.application.chat.model import (
    AsyncChatModel,
    AsyncChatStream,
    ChatDelta,
    ChatModel,
    ChatReply,
    ChatRequest,
    ChatStream,
    FinishReason,
    ReasoningDelta,
    RenderedRequest,
    TextDelta,
    ToolCallDelta,
    ToolDefinition,
)
from turnlog.application.chat.summarizer import AsyncChatModelSummarizer, ChatModelSummarizer
from turnlog.application.chat.usage import Usage

__all__ = [
    "AsyncChatModel",
    "AsyncChatModelSummarizer",
    "AsyncChatStream",
    "ChatDelta",
    "ChatModel",
    "ChatModelSummarizer",
    "ChatReply",
    "ChatRequest",
    "ChatStream",
    "ContextOverflowError",
    "FinishReason",
    "InvalidReplyError",
    "MissingKeyError",
    "ModelError",
    "ModelRejectedError",
    "ModelTimeoutError",
    "ModelUnavailableError",
    "ReasoningDelta",
    "RenderedRequest",
    "StreamInterruptedError",
    "TextDelta",
    "ToolCallDelta",
    "ToolDefinition",
    "Usage",
]
