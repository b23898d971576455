"""Chat models over HTTP, whatever the API: a codec says what is particular to it."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from types import TracebackType
from typing import NoReturn, Self

from turnlog.application.chat import (
    ChatDelta,
    ChatReply,
    ChatRequest,
    MissingKeyError,
    RenderedRequest,
)
from turnlog.application.chat.model import OnSend, ignore
from turnlog.domain.errors import InvalidSettingError
from turnlog.domain.guards import require_kind
from turnlog.domain.json_text import to_json_text
from turnlog.infrastructure.formats._plain import sendable
from turnlog.infrastructure.models import addresses
from turnlog.infrastructure.models.codec import Codec
from turnlog.infrastructure.models.demands import DEMANDS
from turnlog.infrastructure.models.exchange import Exchange, Limits, Setting
from turnlog.infrastructure.models.masking import Secrets
from turnlog.infrastructure.models.retrying import RetryPolicy
from turnlog.infrastructure.models.transport import (
    AsyncHttpClient,
    AsyncTransport,
    HttpClient,
    Target,
    Transport,
)


def environment(name: str) -> str | None:
    """The value of an environment variable, None when it is not set or blank."""
    return (os.environ.get(name) or "").strip() or None


class _Model:
    """What sync and async models share."""

    def __init__(
        self,
        codec: Codec,
        model: str,
        *,
        base_url: str,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        retry: RetryPolicy | None = None,
    ) -> None:
        if not isinstance(model, str) or not model.strip():  # pyright: ignore[reportUnnecessaryIsInstance] # callers may be untyped
            raise InvalidSettingError("A chat model needs the name of the model that is asked.")
        self._codec = codec
        self._model = model
        key = api_key or (environment(codec.key_variable) if codec.key_variable else None)
        self._secrets = Secrets(key, headers)
        self._base_url = addresses.base(base_url)
        limits = limits or Limits()
        retry = retry or RetryPolicy()
        require_kind("`limits`", limits, Limits, "as in Limits(read=30)")
        require_kind("`retry`", retry, RetryPolicy, "as in RetryPolicy(retries=1)")
        self._target = Target(codec.url(self._base_url), self._headers, limits)
        self._setting = Setting(
            codec, self._target.url, self._secrets, limits, retry, DEMANDS, self._rendered
        )

    @property
    def provider(self) -> str:
        """The provider's name in the OpenTelemetry GenAI conventions."""
        return self._codec.provider

    @property
    def model(self) -> str:
        """The model that is asked."""
        return self._model

    def render(self, request: ChatRequest, *, stream: bool = False) -> RenderedRequest:
        """The bytes that would be sent now: compact JSON in UTF-8, as the server is known to demand it."""
        return self._rendered(request, stream, self._demanded(request))

    def _demanded(self, request: ChatRequest) -> frozenset[str]:  # noqa: ARG002 - some APIs look at it
        return DEMANDS.known(self._target.url, self._model)

    def _rendered(self, request: ChatRequest, stream: bool, adaptations: frozenset[str]) -> RenderedRequest:
        body = self._codec.encode(request, self._model, stream=stream, adaptations=adaptations)
        return RenderedRequest(
            body=to_json_text(sendable(body), "request").encode(),
            renderer=self._codec.renderer,
            model=self._model,
            request=request,
            is_stream=stream,
            adaptations=tuple(sorted(adaptations)),
            profile=self._codec.profile,
        )

    def require_key(self) -> None:
        """Find out before anything is asked or stored: raises `MissingKeyError` where a key is needed."""
        if self._codec.needs_key and not self._secrets.key:
            raise MissingKeyError(
                f"Model {self._model!r} at {addresses.shown(self._base_url)} needs a key: set "
                f"{self._codec.key_variable}, or give `api_key`."
            )

    def _headers(self) -> Mapping[str, str]:
        self.require_key()
        return {**self._codec.headers(self._secrets.key), **self._secrets.headers}

    def _exchange(self, rendered: RenderedRequest, stream: bool) -> Exchange:
        if rendered.is_stream is not stream:
            asked = "stream" if stream else "complete"
            raise InvalidSettingError(
                f"The request was rendered for the other way of asking: `{asked}` takes one that was "
                f"rendered with `stream={stream}`."
            )
        return Exchange(self._setting, rendered)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._model!r}, base_url={addresses.shown(self._base_url)!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{self!r} holds a key and is not pickled: build it anew where it is needed.")


class HttpChatModel(_Model):
    """A `ChatModel` behind an HTTP API; threads may share it.

    `base_url` is given with or without `/v1`. Without `api_key` the key is that of the codec's environment
    variable. `headers` are sent with every request. A `client` (an `httpx.Client`) brings proxies,
    certificates and the like; it stays the caller's to close, and its own times and redirects do not count.
    """

    def __init__(
        self,
        codec: Codec,
        model: str,
        *,
        base_url: str,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        retry: RetryPolicy | None = None,
        client: HttpClient | None = None,
    ) -> None:
        super().__init__(
            codec, model, base_url=base_url, api_key=api_key, headers=headers, limits=limits, retry=retry
        )
        self._transport = Transport(self._target, client)

    def complete(self, rendered: RenderedRequest, *, on_send: OnSend = ignore) -> ChatReply:
        """Send and wait for the whole answer. Raises `ModelError`."""
        exchange = self._exchange(rendered, stream=False)
        for _ in self._transport.deltas(exchange.steps(), on_send):
            continue
        return exchange.reply

    @contextmanager
    def stream(
        self, rendered: RenderedRequest, *, on_send: OnSend = ignore
    ) -> Generator[HttpChatStream, None, None]:
        """Read the answer as it comes: the request is sent when the iteration begins.

        Leaving the block closes the connection.
        """
        exchange = self._exchange(rendered, stream=True)
        deltas = self._transport.deltas(exchange.steps(), on_send)
        try:
            yield HttpChatStream(exchange, deltas)
        finally:
            deltas.close()

    def close(self) -> None:
        """Close the connections that are kept open. The model can be used again."""
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class HttpChatStream:
    """An answer as it arrives."""

    def __init__(self, exchange: Exchange, deltas: Iterator[ChatDelta]) -> None:
        self._exchange = exchange
        self._deltas = deltas

    def __iter__(self) -> Iterator[ChatDelta]:
        """The pieces, as they come. Raises `StreamInterruptedError` when the answer breaks off behind one."""
        return self._deltas

    @property
    def reply(self) -> ChatReply:
        """What came so far; whole when the iteration is over."""
        return self._exchange.reply


class AsyncHttpChatModel(_Model):
    """An `AsyncChatModel` behind an HTTP API, for asyncio; see `HttpChatModel`. `on_send` may be async."""

    def __init__(
        self,
        codec: Codec,
        model: str,
        *,
        base_url: str,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        retry: RetryPolicy | None = None,
        client: AsyncHttpClient | None = None,
    ) -> None:
        super().__init__(
            codec, model, base_url=base_url, api_key=api_key, headers=headers, limits=limits, retry=retry
        )
        self._transport = AsyncTransport(self._target, client)

    async def complete(self, rendered: RenderedRequest, *, on_send: OnSend = ignore) -> ChatReply:
        """Send and wait for the whole answer. Raises `ModelError`."""
        exchange = self._exchange(rendered, stream=False)
        async for _ in self._transport.deltas(exchange.steps(), on_send):
            continue
        return exchange.reply

    @asynccontextmanager
    async def stream(
        self, rendered: RenderedRequest, *, on_send: OnSend = ignore
    ) -> AsyncGenerator[AsyncHttpChatStream, None]:
        """Read the answer as it comes: the request is sent when the iteration begins.

        Leaving the block closes the connection.
        """
        exchange = self._exchange(rendered, stream=True)
        deltas = self._transport.deltas(exchange.steps(), on_send)
        try:
            yield AsyncHttpChatStream(exchange, deltas)
        finally:
            await deltas.aclose()

    async def close(self) -> None:
        """Close the connections of the running event loop. The model can be used again."""
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class AsyncHttpChatStream:
    """An answer as it arrives."""

    def __init__(self, exchange: Exchange, deltas: AsyncIterator[ChatDelta]) -> None:
        self._exchange = exchange
        self._deltas = deltas

    def __aiter__(self) -> AsyncIterator[ChatDelta]:
        """The pieces, as they come."""
        return self._deltas

    @property
    def reply(self) -> ChatReply:
        """What came so far; whole when the iteration is over."""
        return self._exchange.reply
