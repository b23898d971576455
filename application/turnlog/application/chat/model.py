"""The port to a chat model. Adapters implement it; the chat and the summarizer call it.

A call has two steps, so that what is sent can be recorded before it leaves: `render` is pure and makes the
exact bytes of the request, `complete` or `stream` sends them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, TypeAlias

from turnlog.application.chat.usage import Usage
from turnlog.domain.log import SessionEvent
from turnlog.domain.messages import Message


class FinishReason(StrEnum):
    """Why an answer ended, in the words of the OpenTelemetry GenAI conventions.

    `CANCELLED` is the caller's doing, `ERROR` that of the connection or the provider.
    """

    STOP = "stop"
    LENGTH = "length"
    CONTENT_FILTER = "content_filter"
    TOOL_CALL = "tool_call"
    ERROR = "error"
    CANCELLED = "cancelled"


@dataclass(frozen=True)
class ToolDefinition:
    """A tool as a model is told it; `parameters` is the JSON schema of its arguments."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})


@dataclass(frozen=True)
class ChatRequest:
    """What a model is asked, before it has the form of a provider.

    `conversation` are events and unstored messages in order, system messages among them; of the stored system
    messages the latest counts. `system` is sent in place of the stored instructions. `max_output_tokens` is
    left to the provider when None. `options` are parameters of the provider's (`temperature`, `stop`,
    `num_ctx` …), sent as they are. `cache` asks for prompt caching where it has to be asked for.
    `system_in_place` leaves system messages where they stand, for models that take it.
    """

    conversation: tuple[SessionEvent | Message, ...]
    tools: tuple[ToolDefinition, ...] = ()
    system: str | None = None
    max_output_tokens: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    cache: bool = False
    system_in_place: bool = False


@dataclass(frozen=True)
class RenderedRequest:
    """A request in the form of a provider: the exact bytes of the body.

    `renderer` names what made it and its version, as in `anthropic.messages/1`: a storage format, the same
    request gives the same bytes for ever. `adaptations` are the changes that the server is known to demand,
    `profile` is what else of the model's settings decides the bytes, no key among it.
    """

    body: bytes
    renderer: str
    model: str
    request: ChatRequest
    is_stream: bool = False
    adaptations: tuple[str, ...] = ()
    profile: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class ChatReply:
    """One answer. `provider_finish_reason` is the provider's own word for `finish_reason`.

    An answer cut at its length, an empty one, a refusal and calls of tools are replies as well.
    """

    message: Message
    finish_reason: FinishReason
    provider_finish_reason: str | None = None
    usage: Usage | None = None
    response_id: str | None = None
    model: str | None = None


@dataclass(frozen=True)
class TextDelta:
    """More text of the answer."""

    text: str


@dataclass(frozen=True)
class ReasoningDelta:
    """More of what the model thinks."""

    text: str


@dataclass(frozen=True)
class ToolCallDelta:
    """A call begins, or its arguments go on; `index` tells parallel calls apart."""

    index: int
    id: str | None = None
    name: str | None = None
    arguments: str = ""


ChatDelta: TypeAlias = TextDelta | ReasoningDelta | ToolCallDelta

OnSend: TypeAlias = Callable[[RenderedRequest], object]
"""Told before a body is sent that differs from the one given: adapted to the server, or a continued turn."""


def ignore(rendered: RenderedRequest) -> None:
    """The `OnSend` of callers who record nothing."""


class ChatStream(Protocol):
    """An answer as it arrives. Iterate to the end, then `reply` is whole."""

    def __iter__(self) -> Iterator[ChatDelta]:
        """The pieces, as they come. Raises `StreamInterruptedError` when the answer breaks off behind one."""
        ...

    @property
    def reply(self) -> ChatReply:
        """What came so far, calls that are not complete left out; `CANCELLED` before the end."""
        ...


class AsyncChatStream(Protocol):
    """`ChatStream` for asyncio."""

    def __aiter__(self) -> AsyncIterator[ChatDelta]:
        """The pieces, as they come."""
        ...

    @property
    def reply(self) -> ChatReply:
        """What came so far."""
        ...


class Rendering(Protocol):
    """What sync and async models share: names, and the pure step from a request to bytes."""

    @property
    def provider(self) -> str:
        """The provider's name in the OpenTelemetry GenAI conventions, as in `anthropic`."""
        ...

    @property
    def model(self) -> str:
        """The model that is asked."""
        ...

    def render(self, request: ChatRequest, *, stream: bool = False) -> RenderedRequest:
        """The bytes that would be sent now. Pure but for what is known of the server's demands."""
        ...


class ChatModel(Rendering, Protocol):
    """A model behind a provider's API. It is called while no lock and no transaction is held.

    Raises `ModelError`: `ModelUnavailableError`, `ModelTimeoutError`, `ModelRejectedError`,
    `ContextOverflowError`, `InvalidReplyError`, `MissingKeyError`.
    """

    def complete(self, rendered: RenderedRequest, *, on_send: OnSend = ignore) -> ChatReply:
        """Send and wait for the whole answer."""
        ...

    def stream(
        self, rendered: RenderedRequest, *, on_send: OnSend = ignore
    ) -> AbstractContextManager[ChatStream]:
        """Send and read the answer as it comes. Leaving the block closes the connection.

        Nothing is retried once a piece was handed out.
        """
        ...


class AsyncChatModel(Rendering, Protocol):
    """`ChatModel` for asyncio."""

    async def complete(self, rendered: RenderedRequest, *, on_send: OnSend = ignore) -> ChatReply:
        """Send and wait for the whole answer."""
        ...

    def stream(
        self, rendered: RenderedRequest, *, on_send: OnSend = ignore
    ) -> AbstractAsyncContextManager[AsyncChatStream]:
        """Send and read the answer as it comes."""
        ...
