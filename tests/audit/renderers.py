"""Renderers for tests: requests in the two forms that have exporters, as compact JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from turnlog.application.audit import RendererRegistry
from turnlog.application.chat.model import ChatRequest, RenderedRequest
from turnlog.domain.json_text import to_json_text
from turnlog.infrastructure.formats import anthropic_messages, openai_chat


def openai(
    request: ChatRequest,
    model: str,
    *,
    stream: bool,
    adaptations: frozenset[str],
    profile: Mapping[str, str],
) -> bytes:
    """Chat Completions."""
    body = openai_chat.request(
        request.conversation,
        model=model,
        tools=_tools(request),
        max_tokens=request.max_output_tokens,
        system=request.system,
        prefill=True,
        alternate="alternate" in adaptations,
        **request.options,
    )
    return _bytes({**body, **({"stream": True} if stream else {}), **profile})


def anthropic(
    request: ChatRequest,
    model: str,
    *,
    stream: bool,
    adaptations: frozenset[str],
    profile: Mapping[str, str],
) -> bytes:
    """Messages."""
    body = anthropic_messages.request(
        request.conversation,
        model=model,
        tools=_tools(request),
        max_tokens=request.max_output_tokens or 100,
        system=request.system,
        prefill=True,
        **request.options,
    )
    return _bytes({**body, **({"stream": True} if stream else {}), **profile})


RENDERERS: RendererRegistry = {"test.openai/1": openai, "test.anthropic/1": anthropic}


def rendered(
    request: ChatRequest,
    renderer: str = "test.openai/1",
    *,
    model: str = "m-1",
    stream: bool = False,
    adaptations: Sequence[str] = (),
    profile: Mapping[str, str] | None = None,
) -> RenderedRequest:
    """The request as a model of this form would send it."""
    body = RENDERERS[renderer](
        request, model, stream=stream, adaptations=frozenset(adaptations), profile=profile or {}
    )
    return RenderedRequest(body, renderer, model, request, stream, tuple(adaptations), profile or {})


def _tools(request: ChatRequest) -> list[Mapping[str, Any]]:
    return [
        {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
        for tool in request.tools
    ]


def _bytes(body: Mapping[str, Any]) -> bytes:
    return to_json_text(dict(body)).encode()
