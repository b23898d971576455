"""A model that says what a script says: the fake of the ports `ChatModel` and `AsyncChatModel`."""

from __future__ import annotations

import json
import warnings
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from inspect import isawaitable
from typing import Any, TypeAlias

from turnlog.application.chat import (
    ChatDelta,
    ChatReply,
    ChatRequest,
    FinishReason,
    ReasoningDelta,
    RenderedRequest,
    TextDelta,
    ToolCallDelta,
    Usage,
)
from turnlog.application.chat.model import OnSend, ignore
from turnlog.domain import Message, ReasoningPart, SessionEvent, TextPart, ToolCallPart, event_text
from turnlog.infrastructure.formats import PrefillWarning, openai_chat

Line: TypeAlias = "str | ChatReply | Exception | Stream | Adapted | Callable[[ChatRequest], Any]"
"""A text, an answer, something that is raised, a stream, or a function of the request that gives one."""


@dataclass(frozen=True)
class Stream:
    """An answer in pieces; `fails` is raised behind them."""

    pieces: Iterable[str]
    fails: Exception | None = None


@dataclass(frozen=True)
class Adapted:
    """A line in front of which a body is sent that differs from the one rendered."""

    body: bytes
    line: Any


def calls(*named: str, text: str = "", usage: Usage | None = None) -> ChatReply:
    """An answer that asks for tools, written as `id name {"arguments": …}`."""
    parts: list[Any] = [TextPart(content=text)] if text else []
    for call in named:
        call_id, name, arguments = (*call.split(" ", 2), "{}")[:3]
        parts.append(ToolCallPart(id=call_id, name=name, arguments=arguments))
    return ChatReply(Message.assistant(parts), FinishReason.TOOL_CALL, "tool_calls", usage, "r1", "m-1")


def says(text: str, usage: Usage | None = None) -> ChatReply:
    """An answer."""
    return ChatReply(Message.assistant(text), FinishReason.STOP, "stop", usage, "r1", "m-1")


@dataclass
class Script:
    """Answers line by line and keeps what it was asked. Behind the end it repeats the last line."""

    lines: Sequence[Line]
    model: str = "m"
    provider: str = "scripted"
    asked: list[ChatRequest] = field(default_factory=list[ChatRequest])
    closed: int = 0
    """Streams that were closed."""
    on_render: Callable[[], object] | None = None
    """Done while a request is rendered, before anything of it is stored."""

    def render(self, request: ChatRequest, *, stream: bool = False) -> RenderedRequest:
        """The request in the form of Chat Completions."""
        if self.on_render is not None:
            self.on_render()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PrefillWarning)
            body = openai_chat.request(
                request.conversation,
                model=self.model,
                branch=_branch(request),
                tools=[{"name": tool.name, "parameters": tool.parameters} for tool in request.tools],
            )
        text = json.dumps(body, ensure_ascii=False).encode()
        return RenderedRequest(text, "openai.chat/1", self.model, request, is_stream=stream)

    @property
    def told(self) -> list[list[str]]:
        """What was sent, request by request, in one line for each message."""
        return [[event_text(one) for one in request.conversation] for request in self.asked]

    def _next(self, rendered: RenderedRequest, on_send: OnSend) -> Any:
        line = self.lines[min(len(self.asked), len(self.lines) - 1)]
        self.asked.append(rendered.request)
        if isinstance(line, Adapted):
            on_send(replace(rendered, body=line.body))
            line = line.line
        if callable(line):
            line = line(rendered.request)
        if isinstance(line, Exception):
            raise line
        return says(line) if isinstance(line, str) else line


class ScriptedModel(Script):
    """The script behind the port `ChatModel`."""

    def complete(self, rendered: RenderedRequest, *, on_send: OnSend = ignore) -> ChatReply:
        """The next answer."""
        return _whole(self._next(rendered, on_send))

    @contextmanager
    def stream(self, rendered: RenderedRequest, *, on_send: OnSend = ignore) -> Generator[ScriptedStream]:
        """The next answer, in pieces."""
        try:
            yield ScriptedStream(self._next(rendered, on_send))
        finally:
            self.closed += 1


class AsyncScriptedModel(Script):
    """The script behind the port `AsyncChatModel`; a line may be a function that has to be awaited."""

    async def complete(self, rendered: RenderedRequest, *, on_send: OnSend = ignore) -> ChatReply:
        """The next answer."""
        return _whole(await _awaited(self._next(rendered, on_send)))

    @asynccontextmanager
    async def stream(
        self, rendered: RenderedRequest, *, on_send: OnSend = ignore
    ) -> AsyncGenerator[AsyncScriptedStream]:
        """The next answer, in pieces."""
        try:
            yield AsyncScriptedStream(await _awaited(self._next(rendered, on_send)))
        finally:
            self.closed += 1


async def _awaited(line: Any) -> Any:
    line = await line if isawaitable(line) else line
    return says(line) if isinstance(line, str) else line


class ScriptedStream:
    """An answer in pieces, each told before it counts as having come."""

    def __init__(self, line: Any) -> None:
        self._line = line
        self._came: list[str] = []
        self._is_over = False

    def __iter__(self) -> Iterator[ChatDelta]:
        for delta in self._pieces():
            if isinstance(delta, TextDelta):
                self._came.append(delta.text)
            yield delta
        if isinstance(self._line, Stream) and self._line.fails is not None:
            raise self._line.fails
        self._is_over = True

    @property
    def reply(self) -> ChatReply:
        """What came so far."""
        if self._is_over:
            return _whole(self._line)
        text = "".join(self._came)
        return ChatReply(Message.assistant(text or None), FinishReason.CANCELLED)

    def _pieces(self) -> Iterator[ChatDelta]:
        if isinstance(self._line, Stream):
            yield from (TextDelta(piece) for piece in self._line.pieces)
            return
        for place, part in enumerate(self._line.message.parts):
            match part:
                case TextPart():
                    yield from (TextDelta(word) for word in part.content.split(" "))
                case ReasoningPart():
                    yield ReasoningDelta(part.content or "")
                case ToolCallPart():
                    yield ToolCallDelta(place, part.id, part.name, part.arguments)
                case _:
                    pass


class AsyncScriptedStream(ScriptedStream):
    """The same for asyncio."""

    async def __aiter__(self) -> AsyncIterator[ChatDelta]:
        for delta in self:
            yield delta


def _whole(line: Any) -> ChatReply:
    if isinstance(line, Stream):
        if line.fails is not None:
            raise line.fails
        return says("".join(line.pieces))
    assert isinstance(line, ChatReply)
    return line


def _branch(request: ChatRequest) -> str | None:
    """The branch that is told the conversation."""
    branches = [one.branch for one in request.conversation if isinstance(one, SessionEvent)]
    return max(filter(None, branches), key=len, default=None)
