"""Asking a chat model in the sync and in the async way, with one result for both."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from turnlog.application.chat import (
    ChatDelta,
    ChatReply,
    ChatRequest,
    ModelError,
    ReasoningDelta,
    RenderedRequest,
    TextDelta,
)
from turnlog.infrastructure import models


@dataclass
class Asked:
    """What came of a call: the pieces, the reply, the error that was raised, and what `on_send` was told."""

    pieces: list[ChatDelta] = field(default_factory=list[ChatDelta])
    reply: ChatReply | None = None
    error: ModelError | None = None
    told: list[RenderedRequest] = field(default_factory=list[RenderedRequest])

    @property
    def answer(self) -> ChatReply:
        """The reply of a call that did not fail."""
        assert self.error is None, self.error
        assert self.reply is not None
        return self.reply

    @property
    def text(self) -> str:
        """The text of the pieces."""
        return "".join(piece.text for piece in self.pieces if isinstance(piece, TextDelta))

    @property
    def thoughts(self) -> str:
        """The reasoning of the pieces."""
        return "".join(piece.text for piece in self.pieces if isinstance(piece, ReasoningDelta))


Ask = Callable[..., Asked]
"""`ask(kind, request, stream=False, take=None, **settings)`; `take` leaves after so many pieces."""


def ask_sync(
    kind: str, request: ChatRequest, *, stream: bool = False, take: int | None = None, **settings: Any
) -> Asked:
    """Ask a model of this kind, as in `OpenAIChat`, with blocking calls."""
    asked = Asked()
    with getattr(models, f"{kind}Model")("a-model", **settings) as model:
        rendered = model.render(request, stream=stream)
        try:
            if not stream:
                asked.reply = model.complete(rendered, on_send=asked.told.append)
                return asked
            with model.stream(rendered, on_send=asked.told.append) as pieces:
                for piece in pieces:
                    asked.pieces.append(piece)
                    if take == len(asked.pieces):
                        break
            asked.reply = pieces.reply
        except ModelError as error:
            asked.error = error
    return asked


def ask_async(
    kind: str, request: ChatRequest, *, stream: bool = False, take: int | None = None, **settings: Any
) -> Asked:
    """Ask a model of this kind with asyncio."""
    return asyncio.run(_asked(kind, request, stream, take, settings))


async def _asked(
    kind: str, request: ChatRequest, stream: bool, take: int | None, settings: dict[str, Any]
) -> Asked:
    asked = Asked()

    async def told(rendered: RenderedRequest) -> None:
        asked.told.append(rendered)

    async with getattr(models, f"Async{kind}Model")("a-model", **settings) as model:
        rendered = model.render(request, stream=stream)
        try:
            if not stream:
                asked.reply = await model.complete(rendered, on_send=told)
                return asked
            async with model.stream(rendered, on_send=told) as pieces:
                async for piece in pieces:
                    asked.pieces.append(piece)
                    if take == len(asked.pieces):
                        break
            asked.reply = pieces.reply
        except ModelError as error:
            asked.error = error
    return asked
