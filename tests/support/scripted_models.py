"""Chat models that answer as they are told: the port's fake, for tests of who calls it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import TypeAlias

from turnlog.application.chat.model import (
    AsyncChatStream,
    ChatReply,
    ChatRequest,
    ChatStream,
    FinishReason,
    OnSend,
    RenderedRequest,
    ignore,
)
from turnlog.application.chat.usage import Usage
from turnlog.domain.messages import Message
from turnlog.domain.rendering import event_text

Scripted: TypeAlias = str | ChatReply | Exception | Callable[[ChatRequest], "Scripted"]
"""What a model answers: a text, a reply, what it raises, or a function of the request."""


def reply(
    content: str | Message, finish: FinishReason = FinishReason.STOP, usage: Usage | None = None
) -> ChatReply:
    """A reply with this text or message."""
    message = Message.assistant(content) if isinstance(content, str) else content
    return ChatReply(message, finish, usage=usage, model="scripted-1")


class _Script:
    """The answers in order; the last one is given again."""

    provider = "scripted"

    def __init__(self, *answers: Scripted, model: str = "scripted") -> None:
        self.model = model
        self.requests: list[ChatRequest] = []
        self._answers: Iterable[Scripted] = iter(answers)
        self._last: Scripted = "a recap"

    @property
    def prompts(self) -> list[str]:
        """The user text of each request."""
        return [event_text(request.conversation[0]).removeprefix("User: ") for request in self.requests]

    def render(self, request: ChatRequest, *, stream: bool = False) -> RenderedRequest:
        """The request as JSON."""
        texts = [event_text(one) for one in request.conversation]
        body = json.dumps({"system": request.system, "said": texts}).encode()
        return RenderedRequest(body, "scripted/1", self.model, request, stream)

    def _next(self, rendered: RenderedRequest) -> ChatReply:
        self.requests.append(rendered.request)
        answer = self._last = next(iter(self._answers), self._last)
        while callable(answer):
            answer = answer(rendered.request)
        if isinstance(answer, Exception):
            raise answer
        return reply(answer) if isinstance(answer, str) else answer


class ScriptedModel(_Script):
    """A `ChatModel`."""

    def complete(self, rendered: RenderedRequest, *, on_send: OnSend = ignore) -> ChatReply:
        """The next answer, sent as it was rendered."""
        del on_send
        return self._next(rendered)

    def stream(
        self, rendered: RenderedRequest, *, on_send: OnSend = ignore
    ) -> AbstractContextManager[ChatStream]:
        """Not scripted."""
        raise NotImplementedError


class AsyncScriptedModel(_Script):
    """An `AsyncChatModel`."""

    async def complete(self, rendered: RenderedRequest, *, on_send: OnSend = ignore) -> ChatReply:
        """The next answer, sent as it was rendered."""
        del on_send
        return self._next(rendered)

    def stream(
        self, rendered: RenderedRequest, *, on_send: OnSend = ignore
    ) -> AbstractAsyncContextManager[AsyncChatStream]:
        """Not scripted."""
        raise NotImplementedError
