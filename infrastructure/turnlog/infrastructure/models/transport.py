"""HTTP: does the steps of an exchange, sync and async. The only module that knows httpx."""

from __future__ import annotations

import asyncio
import inspect
import socket
import ssl
import time
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator, Mapping
from functools import cache
from importlib.metadata import version
from threading import Lock, Timer
from typing import Any, TypeAlias

import httpx

from turnlog.application.chat import ChatDelta
from turnlog.application.chat.model import OnSend
from turnlog.domain.errors import InvalidSettingError
from turnlog.infrastructure.models import addresses
from turnlog.infrastructure.models.exchange import (
    Hand,
    Head,
    Limits,
    Lost,
    Read,
    Send,
    Step,
    Steps,
    Tell,
    Wait,
)

HttpClient: TypeAlias = httpx.Client
AsyncHttpClient: TypeAlias = httpx.AsyncClient


class Target:
    """Where requests go: the address, their headers, and the limits of their times."""

    def __init__(self, url: str, headers: Callable[[], Mapping[str, str]], limits: Limits) -> None:
        try:
            httpx.URL(url)
        except httpx.InvalidURL as error:
            raise InvalidSettingError(f"The base URL is no address of a server: {error}.") from None
        self.url = url
        self.limits = limits
        self._headers = headers

    def request(self, client: httpx.Client | httpx.AsyncClient, step: Send) -> httpx.Request:
        """The request; its times are bounded by what is left until the deadline."""
        left = step.deadline - time.monotonic()
        if left <= 0:
            raise self.late()
        limits = self.limits
        timeout = httpx.Timeout(
            connect=min(limits.connect, left),
            write=min(limits.read, left),
            pool=left,
            read=min(limits.read, left),
        )
        headers = {
            "accept-encoding": "identity",
            "content-type": "application/json",
            "user-agent": _user_agent(),
            **self._headers(),
        }
        return client.build_request("POST", self.url, content=step.body, headers=headers, timeout=timeout)

    def late(self) -> Lost:
        """The time of the whole call is over."""
        return Lost(
            f"The call was not over after {self.limits.total:g} seconds. Raise `total` in the limits of the "
            "model, or ask for a shorter answer.",
            is_timeout=True,
        )

    def lost(self, error: httpx.HTTPError | httpx.StreamError | OSError) -> Lost:
        """What an error of httpx means. The error itself is not kept: it holds the headers."""
        server = addresses.shown(self.url)
        if isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout)):
            why = "it did not accept the connection in time" if _is_timeout(error) else str(error)
            return Lost(
                f"The server at {server} cannot be reached ({why}). Check the base URL, and that the server "
                "runs."
            )
        if _is_timeout(error):
            return Lost(
                f"The server at {server} said nothing for {self.limits.read:g} seconds. Raise `read` in the "
                "limits of the model if it is only slow.",
                is_timeout=True,
            )
        return Lost(f"The connection to the server at {server} was lost ({type(error).__name__}). Try again.")


def _is_timeout(error: Exception) -> bool:
    return isinstance(error, httpx.TimeoutException)


@cache
def _user_agent() -> str:
    return f"turnlog/{version('turnlog')}"


@cache
def _ssl_context() -> ssl.SSLContext:
    """Made once: it takes longer than everything else that a client needs."""
    return httpx.create_ssl_context()


_FAILURES = (httpx.HTTPError, httpx.StreamError, OSError)


class Transport:
    """Does steps with blocking calls. A client that was given stays the caller's to close."""

    def __init__(self, target: Target, client: httpx.Client | None) -> None:
        self._target = target
        self._given = client
        self._own: httpx.Client | None = None
        self._lock = Lock()

    def deltas(self, steps: Steps, on_send: OnSend) -> Generator[ChatDelta, None, None]:
        """Do the steps, yield the pieces that they hand out. Closing it closes the connection."""
        line = _Line(self._target, self._client(), on_send)
        came: Any = None
        failure: Lost | None = None
        try:
            while True:
                try:
                    step = steps.throw(failure) if failure else steps.send(came)
                except StopIteration:
                    return
                came = failure = None
                if isinstance(step, Hand):
                    yield step.delta
                    continue
                try:
                    came = line.do(step)
                except Lost as lost:
                    failure = lost
        finally:
            line.close()
            steps.close()

    def _client(self) -> httpx.Client:
        if self._given:
            return self._given
        with self._lock:
            if self._own is None:
                self._own = httpx.Client(verify=_ssl_context())
                weakref.finalize(self, self._own.close)
            return self._own

    def close(self) -> None:
        """Close the connections that are kept open; the next call opens new ones."""
        with self._lock:
            own, self._own = self._own, None
        if own:
            own.close()


class _Line:
    """The response that is being read in one call."""

    def __init__(self, target: Target, client: httpx.Client, on_send: OnSend) -> None:
        self._target = target
        self._client = client
        self._on_send = on_send
        self._response: httpx.Response | None = None
        self._chunks: Iterator[bytes] = iter(())

    def do(self, step: Step) -> Head | bytes | None:
        match step:
            case Send():
                return self._send(step)
            case Read():
                return self._read(step)
            case Wait():
                self.close()
                time.sleep(step.seconds)
            case Tell():
                self.close()
                self._on_send(step.rendered)
            case Hand():
                raise AssertionError("pieces are handed out by the driver")
        return None

    def _send(self, step: Send) -> Head:
        request = self._target.request(self._client, step)
        try:
            self._response = response = self._client.send(request, stream=True, follow_redirects=False)
        except _FAILURES as error:
            lost = self._lost(error, step.deadline)
        else:
            self._chunks = response.iter_bytes()
            return _head(response)
        raise lost  # outside of the handler: the error of httpx leads to the headers of the request

    def _read(self, step: Read) -> bytes:
        left = step.deadline - time.monotonic()
        if left <= 0:
            raise self._target.late()
        watch = _Watch(self._response, left) if left < self._target.limits.read else None
        try:
            return next(self._chunks, b"")
        except _FAILURES as error:
            lost = self._lost(error, step.deadline)
        finally:
            if watch:
                watch.cancel()
        raise lost

    def _lost(self, error: httpx.HTTPError | httpx.StreamError | OSError, deadline: float) -> Lost:
        return self._target.late() if time.monotonic() >= deadline else self._target.lost(error)

    def close(self) -> None:
        response, self._response = self._response, None
        if response:
            response.close()


class _Watch:
    """Ends a read that blocks when its time is over, by shutting down the socket."""

    def __init__(self, response: httpx.Response | None, seconds: float) -> None:
        stream = response.extensions.get("network_stream") if response else None
        self._socket: Any = stream.get_extra_info("socket") if stream else None
        self._timer = Timer(seconds, self._shut_down)
        self._timer.daemon = True
        self._timer.start()

    def _shut_down(self) -> None:
        if isinstance(self._socket, socket.socket):
            try:
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
            except OSError:
                return

    def cancel(self) -> None:
        self._timer.cancel()


class AsyncTransport:
    """Does steps with asyncio. Each event loop has its own connections."""

    def __init__(self, target: Target, client: httpx.AsyncClient | None) -> None:
        self._target = target
        self._given = client
        self._own: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, httpx.AsyncClient] = (
            weakref.WeakKeyDictionary()
        )

    async def deltas(self, steps: Steps, on_send: OnSend) -> AsyncGenerator[ChatDelta, None]:
        """Do the steps, yield the pieces that they hand out. Closing it closes the connection."""
        line = _AsyncLine(self._target, self._client(), on_send)
        came: Any = None
        failure: Lost | None = None
        try:
            while True:
                try:
                    step = steps.throw(failure) if failure else steps.send(came)
                except StopIteration:
                    return
                came = failure = None
                if isinstance(step, Hand):
                    yield step.delta
                    continue
                try:
                    came = await line.do(step)
                except Lost as lost:
                    failure = lost
        finally:
            steps.close()
            await line.close()

    def _client(self) -> httpx.AsyncClient:
        if self._given:
            return self._given
        loop = asyncio.get_running_loop()
        if loop not in self._own:
            self._own[loop] = httpx.AsyncClient(verify=_ssl_context())
        return self._own[loop]

    async def close(self) -> None:
        """Close the connections of the running event loop; the next call opens new ones."""
        own = self._own.pop(asyncio.get_running_loop(), None)
        if own:
            await own.aclose()


class _AsyncLine:
    """The response that is being read in one call."""

    def __init__(self, target: Target, client: httpx.AsyncClient, on_send: OnSend) -> None:
        self._target = target
        self._client = client
        self._on_send = on_send
        self._response: httpx.Response | None = None
        self._chunks: AsyncIterator[bytes] | None = None

    async def do(self, step: Step) -> Head | bytes | None:
        match step:
            case Send():
                return await self._send(step)
            case Read():
                return await self._read(step)
            case Wait():
                await self.close()
                await asyncio.sleep(step.seconds)
            case Tell():
                await self.close()
                told = self._on_send(step.rendered)
                if inspect.isawaitable(told):
                    await told
            case Hand():
                raise AssertionError("pieces are handed out by the driver")
        return None

    async def _send(self, step: Send) -> Head:
        request = self._target.request(self._client, step)
        try:
            async with asyncio.timeout(step.deadline - time.monotonic()):
                self._response = response = await self._client.send(
                    request, stream=True, follow_redirects=False
                )
        except TimeoutError:
            lost = self._target.late()
        except _FAILURES as error:
            lost = self._lost(error, step.deadline)
        else:
            self._chunks = response.aiter_bytes()
            return _head(response)
        raise lost  # outside of the handler, see `_Line`

    async def _read(self, step: Read) -> bytes:
        assert self._chunks is not None, "a response is read behind its head"  # noqa: S101
        try:
            async with asyncio.timeout(step.deadline - time.monotonic()):
                return await anext(self._chunks, b"")
        except TimeoutError:
            lost = self._target.late()
        except _FAILURES as error:
            lost = self._lost(error, step.deadline)
        raise lost

    def _lost(self, error: httpx.HTTPError | httpx.StreamError | OSError, deadline: float) -> Lost:
        return self._target.late() if time.monotonic() >= deadline else self._target.lost(error)

    async def close(self) -> None:
        response, self._response = self._response, None
        if response:
            await response.aclose()


def _head(response: httpx.Response) -> Head:
    return Head(response.status_code, {name.lower(): value for name, value in response.headers.items()})
