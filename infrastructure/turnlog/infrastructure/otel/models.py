"""Chat models with a span and metrics for each call."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from opentelemetry.trace import SpanKind

from turnlog.application.chat import (
    AsyncChatModel,
    AsyncChatStream,
    ChatDelta,
    ChatModel,
    ChatReply,
    ChatRequest,
    ChatStream,
    RenderedRequest,
)
from turnlog.application.chat.model import OnSend, Rendering, ignore
from turnlog.domain.log import SessionEvent
from turnlog.domain.messages import Message, Role
from turnlog.infrastructure.otel.telemetry import (
    COMPACTED,
    FINISH_REASONS,
    OPERATION,
    PROVIDER,
    REQUEST_MODEL,
    Attributes,
    Telemetry,
    messages_text,
    usage_attributes,
)

ModelT = TypeVar("ModelT", bound=Rendering)

_PARAMETERS = ("temperature", "top_p", "top_k", "frequency_penalty", "presence_penalty", "seed")
"""Parameters of a request that are numbers and have the same name in the conventions."""


class _Traced(Generic[ModelT]):
    """What sync and async models share: everything but the calls is that of the model beneath."""

    def __init__(self, model: ModelT, telemetry: Telemetry | None = None) -> None:
        self._beneath = model
        self._telemetry = telemetry or Telemetry()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._beneath, name)

    @property
    def provider(self) -> str:
        """The provider's name."""
        return self._beneath.provider

    @property
    def model(self) -> str:
        """The model that is asked."""
        return self._beneath.model

    def render(self, request: ChatRequest, *, stream: bool = False) -> RenderedRequest:
        """The bytes that would be sent now."""
        return self._beneath.render(request, stream=stream)


class TracedModel(_Traced[ChatModel]):
    """A `ChatModel` whose calls are spans `chat`, with the metrics of the conventions."""

    def complete(self, rendered: RenderedRequest, *, on_send: OnSend = ignore) -> ChatReply:
        """Send and wait for the whole answer."""
        with _Call(self._telemetry, self._beneath, rendered) as call, call.watched.active():
            reply = self._beneath.complete(rendered, on_send=on_send)
            call.replied(reply)
            return reply

    @contextmanager
    def stream(self, rendered: RenderedRequest, *, on_send: OnSend = ignore) -> Generator[ChatStream]:
        """Send and read the answer as it comes; the span ends with the block."""
        with _Call(self._telemetry, self._beneath, rendered) as call, ExitStack() as stack:
            with call.watched.active():
                beneath = stack.enter_context(self._beneath.stream(rendered, on_send=on_send))
            try:
                yield _Stream(beneath, call)
            finally:
                call.replied(beneath.reply)


class AsyncTracedModel(_Traced[AsyncChatModel]):
    """`TracedModel` for asyncio."""

    async def complete(self, rendered: RenderedRequest, *, on_send: OnSend = ignore) -> ChatReply:
        """Send and wait for the whole answer."""
        with _Call(self._telemetry, self._beneath, rendered) as call, call.watched.active():
            reply = await self._beneath.complete(rendered, on_send=on_send)
            call.replied(reply)
            return reply

    @asynccontextmanager
    async def stream(
        self, rendered: RenderedRequest, *, on_send: OnSend = ignore
    ) -> AsyncGenerator[AsyncChatStream]:
        """Send and read the answer as it comes; the span ends with the block."""
        with _Call(self._telemetry, self._beneath, rendered) as call:
            async with AsyncExitStack() as stack:
                with call.watched.active():
                    beneath = await stack.enter_async_context(self._beneath.stream(rendered, on_send=on_send))
                try:
                    yield _AsyncStream(beneath, call)
                finally:
                    call.replied(beneath.reply)


class _Call:
    """One call: its span, and its figures when it is over."""

    def __init__(self, telemetry: Telemetry, model: Rendering, rendered: RenderedRequest) -> None:
        self._telemetry = telemetry
        self._metric: dict[str, str] = {
            OPERATION: "chat",
            PROVIDER: model.provider,
            REQUEST_MODEL: rendered.model,
        }
        self._reply: ChatReply | None = None
        self._has_chunk = False
        self.watched = telemetry.start(
            f"chat {rendered.model}", SpanKind.CLIENT, {**self._metric, **_asked(rendered)}
        )
        if telemetry.captures_content:
            self.watched.say(_content(rendered.request))

    def came(self) -> None:
        """A piece of a streamed answer is there."""
        if not self._has_chunk:
            self._has_chunk = True
            self.watched.say({"gen_ai.response.time_to_first_chunk": self.watched.seconds})

    def replied(self, reply: ChatReply) -> None:
        """The answer, or what came of it."""
        self._reply = reply
        self.watched.say(usage_attributes(reply.usage))
        self.watched.say({FINISH_REASONS: [reply.finish_reason.value]})
        for name, value in (("id", reply.response_id), ("model", reply.model)):
            if value is not None:
                self.watched.say({f"gen_ai.response.{name}": value})
        if self._telemetry.captures_content:
            text = messages_text([reply.message], finish_reason=reply.finish_reason.value)
            self.watched.say({"gen_ai.output.messages": text})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.watched.__exit__(error_type, error, traceback)
        attributes = dict(self._metric)
        if self._reply is not None and self._reply.model is not None:
            attributes["gen_ai.response.model"] = self._reply.model
        if self.watched.error is not None:
            attributes["error.type"] = self.watched.error
        self._telemetry.record(self.watched.seconds, self._reply.usage if self._reply else None, attributes)


class _Stream:
    def __init__(self, beneath: ChatStream, call: _Call) -> None:
        self._beneath = beneath
        self._call = call

    def __iter__(self) -> Iterator[ChatDelta]:
        for delta in self._beneath:
            self._call.came()
            yield delta

    @property
    def reply(self) -> ChatReply:
        return self._beneath.reply


class _AsyncStream:
    def __init__(self, beneath: AsyncChatStream, call: _Call) -> None:
        self._beneath = beneath
        self._call = call

    async def __aiter__(self) -> AsyncIterator[ChatDelta]:
        async for delta in self._beneath:
            self._call.came()
            yield delta

    @property
    def reply(self) -> ChatReply:
        return self._beneath.reply


def _asked(rendered: RenderedRequest) -> Attributes:
    """What is told of a request without telling what it says."""
    request = rendered.request
    asked: dict[str, str | bool | int | float | list[str]] = {}
    if rendered.is_stream:
        asked["gen_ai.request.stream"] = True
    if request.max_output_tokens is not None:
        asked["gen_ai.request.max_tokens"] = request.max_output_tokens
    for name in _PARAMETERS:
        value = request.options.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            asked[f"gen_ai.request.{name}"] = value
    stored = [one for one in request.conversation if isinstance(one, SessionEvent) and one.version >= 0]
    if any(event.synthetic for event in stored):
        asked[COMPACTED] = True
    return asked


def _content(request: ChatRequest) -> Attributes:
    told = [one.message if isinstance(one, SessionEvent) else one for one in request.conversation]
    said = [one for one in told if one is not None and one.role is not Role.SYSTEM]
    system = [one for one in told if one is not None and one.role is Role.SYSTEM]
    if request.system is not None:
        system = [Message.system(request.system)]
    content = {"gen_ai.input.messages": messages_text(said)}
    return {**content, "gen_ai.system_instructions": messages_text(system)} if system else content
