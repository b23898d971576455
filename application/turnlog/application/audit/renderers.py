"""The port to renderers: who makes the bytes of a request again, years after it was sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeAlias

from turnlog.application.chat.model import ChatRequest


class Renderer(Protocol):
    """One released version of one form of request. It is a storage format: it never gives other bytes."""

    def __call__(
        self,
        request: ChatRequest,
        model: str,
        *,
        stream: bool,
        adaptations: frozenset[str],
        profile: Mapping[str, str],
    ) -> bytes:
        """The body of the request, as it was sent; `profile` is what else decided its bytes."""
        ...


RendererRegistry: TypeAlias = Mapping[str, Renderer]
"""Renderers by name and version, as in `openai.chat/1`."""

NO_RENDERERS: RendererRegistry = {}
