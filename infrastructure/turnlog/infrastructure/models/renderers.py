"""The renderers of this installation, by name: what makes the bytes of recorded requests again.

A released version is never changed or removed. A fix is a new version beside it, under a new name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from turnlog.application.audit import Renderer, RendererRegistry
from turnlog.application.chat import ChatRequest
from turnlog.domain.json_text import to_json_text
from turnlog.infrastructure.formats._plain import sendable
from turnlog.infrastructure.models.codec import Codec


def renderer_of(codec_of: Callable[[Mapping[str, str]], Codec]) -> Renderer:
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


RENDERERS: RendererRegistry = {}
