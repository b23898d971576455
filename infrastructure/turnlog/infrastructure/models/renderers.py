"""The renderers of this installation, by name: what makes the bytes of recorded requests again.

A released version is never changed or removed. A fix is a new version beside it, under a new name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from turnlog.application.audit import Renderer, RendererRegistry
from turnlog.application.chat import ChatRequest
from turnlog.domain.json_text import to_json_text
from turnlog.infrastructure.formats._plain import sendable
from turnlog.infrastructure.models.anthropic_messages import AnthropicMessagesCodec
from turnlog.infrastructure.models.ollama import OllamaCodec
from turnlog.infrastructure.models.openai_chat import OpenAIChatCodec
from turnlog.infrastructure.models.openai_responses import OpenAIResponsesCodec


class Encoder(Protocol):
    """What a renderer needs of a codec."""

    def encode(
        self, request: ChatRequest, model: str, *, stream: bool, adaptations: frozenset[str]
    ) -> dict[str, Any]:
        """The body as plain data."""
        ...


def renderer_of(codec_of: Callable[[Mapping[str, str]], Encoder]) -> Renderer:
    """The renderer that a codec is; it is made for the profile that was recorded with the request."""

    def render(
        request: ChatRequest,
        model: str,
        *,
        stream: bool,
        adaptations: frozenset[str],
        profile: Mapping[str, str],
    ) -> bytes:
        body = codec_of(profile).encode(request, model, stream=stream, adaptations=adaptations)
        return to_json_text(sendable(body), "request").encode()

    return render


RENDERERS: RendererRegistry = {
    "openai.chat/1": renderer_of(OpenAIChatCodec.of_profile),
    "openai.responses/1": renderer_of(lambda _: OpenAIResponsesCodec()),
    "anthropic.messages/1": renderer_of(lambda _: AnthropicMessagesCodec()),
    "ollama.chat/1": renderer_of(lambda _: OllamaCodec()),
}
