"""A call of a model without input and output: what to send, what to read, when to wait, and what it means.

An exchange is a generator of steps. Whoever drives it (sync or async) does what a step says and sends in what
came of it, or throws `Lost` when the connection failed.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar, cast

from turnlog.application.chat import (
    ChatDelta,
    ChatReply,
    ChatRequest,
    FinishReason,
    InvalidReplyError,
    ModelError,
    ModelTimeoutError,
    ModelUnavailableError,
    RenderedRequest,
    StreamInterruptedError,
)
from turnlog.domain.errors import TurnlogError
from turnlog.domain.guards import require_number
from turnlog.domain.messages import Message
from turnlog.infrastructure.models import framing
from turnlog.infrastructure.models.answers import answer, broken_off, deltas, joined
from turnlog.infrastructure.models.codec import Codec, StreamDecoder
from turnlog.infrastructure.models.demands import Demands
from turnlog.infrastructure.models.events import json_value
from turnlog.infrastructure.models.failures import ErrorInReplyError
from turnlog.infrastructure.models.families import ASKED, family
from turnlog.infrastructure.models.masking import Secrets, excerpt
from turnlog.infrastructure.models.retrying import RetryPolicy, is_temporary, retry_after

T = TypeVar("T")

_MALFORMED = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
_MAX_CONTINUATIONS = 10
_GRACE = 2.0
"""Seconds that a stream may stay open behind the end of its answer."""
_GRACE_AFTER_DONE = 0.5
_DONE = "[DONE]"
_HEAD = 4_000
"""Bytes of a stream that are kept to show what came when it was no answer."""


@dataclass(frozen=True)
class Limits:
    """Bounds of one call. Times are seconds, `response_bytes` bounds one response.

    `connect` is for opening a connection and for sending, `read` for the silence between two pieces, `total`
    for the whole call with its repetitions; the time that the caller takes with the pieces does not count.
    """

    connect: float = 10.0
    read: float = 120.0
    total: float = 600.0
    response_bytes: int = 64 * 1024 * 1024

    def __post_init__(self) -> None:
        for name in ("connect", "read", "total", "response_bytes"):
            require_number(f"`{name}` of Limits", getattr(self, name), above=True)


@dataclass(frozen=True)
class Send:
    """Send the body; the answer is the `Head` of the response."""

    body: bytes
    deadline: float


@dataclass(frozen=True)
class Head:
    """Status and headers of a response; names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]


@dataclass(frozen=True)
class Read:
    """Read on; the answer are the next bytes, none at the end."""

    deadline: float


@dataclass(frozen=True)
class Wait:
    """Close the response and wait."""

    seconds: float


@dataclass(frozen=True)
class Tell:
    """Tell the caller that another body than the one given is about to be sent."""

    rendered: RenderedRequest


@dataclass(frozen=True)
class Hand:
    """Hand out a piece of the answer."""

    delta: ChatDelta


Step: TypeAlias = Send | Read | Wait | Tell | Hand
Steps: TypeAlias = Generator[Step, Any, None]


class Lost(Exception):  # noqa: N818 - it is what happened to a connection, not an error that callers see
    """The connection failed; with `is_timeout` because a time limit was reached."""

    def __init__(self, reason: str, *, is_timeout: bool = False) -> None:
        super().__init__(reason)
        self.is_timeout = is_timeout


class _Refused(Exception):  # noqa: N818 - becomes a typed error, or a request in another form
    """The response has another status than 200."""

    def __init__(self, head: Head, body: Mapping[str, Any] | None, error: ModelError) -> None:
        super().__init__(head.status)
        self.head = head
        self.body = body
        self.error = error


@dataclass(frozen=True)
class Setting:
    """What all calls of one model share."""

    codec: Codec
    url: str
    secrets: Secrets
    limits: Limits
    policy: RetryPolicy
    demands: Demands
    render: Callable[[ChatRequest, bool, frozenset[str]], RenderedRequest]
    clock: Callable[[], float] = time.monotonic
    chance: Callable[[], float] = random.random


class Exchange:
    """One call: `steps` to do, and the `reply` as far as it came."""

    def __init__(self, setting: Setting, rendered: RenderedRequest) -> None:
        self._setting = setting
        self._codec = setting.codec
        self._rendered = rendered
        self._earlier: ChatReply | None = None
        self._reply: ChatReply | None = None
        self._decoder: StreamDecoder | None = None
        self._ended_by = FinishReason.CANCELLED
        self._deadline = setting.clock() + setting.limits.total
        self._failures = 0
        self._has_handed_out = False
        self._learned: frozenset[str] = frozenset()

    @property
    def reply(self) -> ChatReply:
        """The whole answer, or what came of it."""
        if self._reply:
            return self._reply
        if self._decoder:
            partial = self._decoder.reply()
        else:
            partial = answer(Message.assistant(), provider=self._codec.provider, finish_reason=self._ended_by)
        return broken_off(joined(self._earlier, self._stamped(partial)), self._ended_by)

    def steps(self) -> Steps:
        """Everything up to the end of the answer. Raises what a model raises, without any key in it."""
        try:
            for _ in range(_MAX_CONTINUATIONS + 1):
                answered = yield from self._answered()
                following = self._codec.continued(self._rendered.request, answered)
                self._earlier = joined(self._earlier, answered)
                self._decoder = None
                if following is None:
                    self._reply = self._earlier
                    return
                self._rendered = self._render(following, frozenset(self._rendered.adaptations))
                yield Tell(self._rendered)
            raise InvalidReplyError(
                f"The provider paused its turn {_MAX_CONTINUATIONS} times. Ask for less in one turn."
            )
        except ModelError as error:
            self._ended_by = FinishReason.ERROR
            raise self._setting.secrets.cleaned(error) from None

    def _answered(self) -> Generator[Step, Any, ChatReply]:
        """One response that is an answer, after as many attempts as it takes."""
        while True:
            attempt = self._streamed() if self._rendered.is_stream else self._whole()
            try:
                reply = yield from attempt
            except (Lost, _Refused, ModelError) as failure:
                yield from self._recover(failure)
            else:
                self._setting.demands.learn(self._setting.url, self._rendered.model, self._learned)
                return self._stamped(reply)

    def _whole(self) -> Generator[Step, Any, ChatReply]:
        yield from self._opened()
        return self._decoded((yield from self._body()))

    def _streamed(self) -> Generator[Step, Any, ChatReply]:
        yield from self._opened()
        start = yield from self._start()
        if self._codec.framing == "sse" and start.startswith(b"{"):
            reply = self._decoded((yield from self._body(start)))
            for delta in deltas(reply.message):
                yield from self._hand(delta)
            return reply
        self._decoder = decoder = self._codec.decoder()
        start = yield from self._read_stream(decoder, start)
        if not decoder.is_finished:
            raise InvalidReplyError(
                "The answer ended without its finish marker. Try again; if it stays so, check the base URL. "
                f"The server sent: {self._shown(start) or '(nothing)'}"
            )
        return self._checked(decoder.reply)

    def _start(self) -> Generator[Step, Any, bytes]:
        """The first bytes that are more than white space: servers that do not stream send an object."""
        size = 0
        while chunk := cast("bytes", (yield Read(self._deadline))):
            size = self._counted(size, chunk)
            if start := chunk.lstrip():
                return start
        return b""

    def _read_stream(self, decoder: StreamDecoder, chunk: bytes) -> Generator[Step, Any, bytes]:
        """Feed the stream to the decoder up to its end; its first bytes."""
        parser = framing.parser(self._codec.framing)
        start, size, grace_until = b"", 0, float("inf")
        while True:
            size = self._counted(size, chunk)
            start += chunk[: max(0, _HEAD - len(start))]
            for event, data in parser.feed(chunk) if chunk else parser.end():
                if data == _DONE:
                    grace_until = min(grace_until, self._setting.clock() + _GRACE_AFTER_DONE)
                    continue
                for delta in self._fed(decoder, event, data, is_rest=not chunk):
                    yield from self._hand(delta)
            if not chunk:
                return start
            if decoder.is_finished:
                grace_until = min(grace_until, self._setting.clock() + _GRACE)
            try:
                chunk = cast("bytes", (yield Read(min(self._deadline, grace_until))))
            except Lost:
                if decoder.is_finished:
                    return start
                raise

    def _fed(self, decoder: StreamDecoder, event: str | None, data: str, *, is_rest: bool) -> list[ChatDelta]:
        """What an event says, once the decoder has it. One that the end of the stream cut says nothing."""
        try:
            return self._checked(lambda: list(decoder.feed(event, data)))
        except InvalidReplyError:
            if is_rest:
                return []
            raise

    def _hand(self, delta: ChatDelta) -> Steps:
        """Hand out a piece; the time that the caller takes with it does not count."""
        self._has_handed_out = True
        before = self._setting.clock()
        yield Hand(delta)
        self._deadline += self._setting.clock() - before

    def _opened(self) -> Steps:
        """Begin a response with status 200."""
        head = cast("Head", (yield Send(self._rendered.body, self._deadline)))
        if head.status == 200:
            return
        text = self._setting.secrets.masked((yield from self._body(is_error=True)))
        body = _object(text)
        raise _Refused(head, body, self._codec.error(head.status, body, excerpt(text)))

    def _body(self, start: bytes = b"", *, is_error: bool = False) -> Generator[Step, Any, str]:
        """The text of the whole response; of an error as much as is worth reading."""
        chunks = [start]
        size = len(start)
        while chunk := cast("bytes", (yield Read(self._deadline))):
            chunks.append(chunk)
            if is_error and size > _LONGEST_ERROR:
                break
            size = self._counted(size, chunk)
        return b"".join(chunks).decode("utf-8", "replace")

    def _counted(self, size: int, chunk: bytes) -> int:
        size += len(chunk)
        if size > self._setting.limits.response_bytes:
            raise InvalidReplyError(
                f"The response is larger than {self._setting.limits.response_bytes:,} bytes. Check the base "
                "URL, or raise `response_bytes` in the limits of the model."
            )
        return size

    def _decoded(self, text: str) -> ChatReply:
        body = _object(text)
        if body is None:
            raise InvalidReplyError(
                "The server answered with what is no JSON object. Check the base URL. "
                f"It begins: {excerpt(self._setting.secrets.masked(text)) or '(nothing)'}"
            )
        return self._checked(lambda: self._codec.decode(body))

    def _checked(self, read: Callable[[], T]) -> T:
        """What is read, whatever a server may have sent in the place of what is expected."""
        try:
            return read()
        except ModelError:
            raise
        except TurnlogError as error:
            raise InvalidReplyError(f"The answer is malformed: {error}") from None
        except _MALFORMED as error:
            raise InvalidReplyError(f"The answer is malformed ({type(error).__name__}).") from None

    def _recover(self, failure: Lost | _Refused | ModelError) -> Steps:
        """Prepare the next attempt. Raises when there is none."""
        error = self._error_of(failure)
        if self._has_handed_out:
            self._ended_by = FinishReason.ERROR
            why = "What came next is no part of an answer." if _shows_text(error) else str(error)
            raise StreamInterruptedError(
                f"The answer broke off; what came of it is kept. {why}", self.reply
            ) from None
        if isinstance(failure, _Refused):
            name = self._codec.adaptation(failure.head.status, failure.body)
            if name and name not in self._rendered.adaptations:
                yield from self._adapt(name)
                return
        self._decoder = None
        yield Wait(self._pause(failure, error))

    def _adapt(self, name: str) -> Steps:
        self._learned |= {name}
        self._rendered = self._render(self._rendered.request, frozenset((*self._rendered.adaptations, name)))
        yield Tell(self._rendered)

    def _pause(self, failure: Lost | _Refused | ModelError, error: ModelError) -> float:
        """Seconds until the next attempt. Raises the error when there is none."""
        self._failures += 1
        if isinstance(failure, Lost):
            is_temporary_failure, asked = not failure.is_timeout, None
        elif isinstance(failure, _Refused):
            is_temporary_failure = is_temporary(failure.head.status) and isinstance(
                error, ModelUnavailableError
            )
            asked = retry_after(failure.head.headers)
            if isinstance(error, ModelUnavailableError):
                error.retry_after = asked
        else:
            is_temporary_failure, asked = isinstance(error, ModelUnavailableError), None
        pause = self._setting.policy.pause(self._failures, asked, self._setting.chance())
        if not is_temporary_failure or pause is None:
            raise error from None
        if self._setting.clock() + pause >= self._deadline:
            raise error from None
        return pause

    def _error_of(self, failure: Lost | _Refused | ModelError) -> ModelError:
        if isinstance(failure, _Refused):
            return failure.error
        if isinstance(failure, ModelError):
            return failure
        if failure.is_timeout:
            return ModelTimeoutError(str(failure))
        return ModelUnavailableError(str(failure))

    def _render(self, request: ChatRequest, adaptations: frozenset[str]) -> RenderedRequest:
        return self._setting.render(request, self._rendered.is_stream, adaptations)

    def _stamped(self, reply: ChatReply) -> ChatReply:
        """The reply; its message says which model was asked where the server names another one."""
        metadata = reply.message.metadata or {}
        answered, asked = metadata.get("model"), self._rendered.model
        if isinstance(answered, str) and family(answered) == family(asked):
            return reply
        message = reply.message.model_copy(update={"metadata": {**metadata, ASKED: asked}})
        return replace(reply, message=message)

    def _shown(self, start: bytes) -> str:
        return excerpt(self._setting.secrets.masked(start.decode("utf-8", "replace")))


_LONGEST_ERROR = 256 * 1024


def _shows_text(error: ModelError) -> bool:
    """Whether the message may hold a piece of the answer itself."""
    return isinstance(error, InvalidReplyError) and not isinstance(error, ErrorInReplyError)


def _object(text: str) -> dict[str, Any] | None:
    """The JSON object that the text is, None when it is none."""
    try:
        value = json_value(text)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None
