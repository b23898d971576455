"""The Anthropic Messages API (`/v1/messages`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, cast

from turnlog.application.chat import ChatReply, ChatRequest, InvalidReplyError, ModelError, ToolDefinition
from turnlog.infrastructure.formats import anthropic_messages
from turnlog.infrastructure.formats._anthropic_request import mark_newest
from turnlog.infrastructure.formats._plain import Plain, sendable
from turnlog.infrastructure.formats._told import deepest_branch
from turnlog.infrastructure.models import addresses, anthropic_answers
from turnlog.infrastructure.models.answers import count
from turnlog.infrastructure.models.anthropic_stream import AnthropicMessagesDecoder
from turnlog.infrastructure.models.failures import error_in_reply, http_error
from turnlog.infrastructure.models.families import without_others_reasoning
from turnlog.infrastructure.models.overflow import error_message

DEFAULT_MAX_TOKENS = 4096
"""`max_tokens` where the request names no limit, because this API demands one. A thinking budget among the
options comes on top of it."""

BASE_URL = "https://api.anthropic.com"
API_VERSION = "2023-06-01"
CACHE_IN_BLOCKS = "cache_in_blocks"
"""The adaptation for servers that know marks for the cache on blocks only."""

_REFUSED = ("deprecated", "not supported", "not permitted", "not allowed", "may only be")
_OMITTED = {"no_temperature": "temperature", "no_top_p": "top_p", "no_top_k": "top_k"}
"""Adaptations that leave out a parameter which the model does not take."""


class AnthropicMessagesCodec:
    """The Messages API of the server at a base URL; only Anthropic's own demands a key.

    `provider` names the provider in what is stored where it is another one. `betas` are sent in the header
    `anthropic-beta`, for options and parts that need it.
    """

    renderer = "anthropic.messages/1"
    framing: Literal["sse", "ndjson"] = "sse"
    key_variable: str | None = "ANTHROPIC_API_KEY"

    def __init__(
        self, base_url: str = BASE_URL, provider: str = "anthropic", *, betas: tuple[str, ...] = ()
    ) -> None:
        self.provider = provider
        self.needs_key = addresses.is_at(base_url, BASE_URL)
        self._betas = betas

    def url(self, base_url: str) -> str:
        """The address that requests are sent to."""
        return addresses.endpoint(base_url, "/messages")

    def headers(self, key: str | None) -> Mapping[str, str]:
        """Headers of a request, those with the key included."""
        headers = {"anthropic-version": API_VERSION}
        if key:
            headers["x-api-key"] = key
        if self._betas:
            headers["anthropic-beta"] = ",".join(self._betas)
        return headers

    def encode(
        self, request: ChatRequest, model: str, *, stream: bool, adaptations: frozenset[str]
    ) -> dict[str, Any]:
        """The body as plain data. Tools among the options are told behind those of the request."""
        options = {
            name: value
            for name, value in request.options.items()
            if not any(name == omitted for key, omitted in _OMITTED.items() if key in adaptations)
        }
        tools = [*map(_tool, request.tools), *options.pop("tools", ())]
        max_tokens = _max_tokens(request, options)
        body = anthropic_messages.request(
            without_others_reasoning(request.conversation, anthropic_messages.ORIGIN, self.provider, model),
            model=model,
            tools=tools or None,
            max_tokens=max_tokens,
            branch=deepest_branch(request.conversation),
            system=request.system,
            prefill=True,
            cache=request.cache,
            system_in_place=request.system_in_place,
        )
        body |= sendable(options)
        if CACHE_IN_BLOCKS in adaptations:
            mark_newest(body)
        return {**body, "stream": True} if stream else body

    def decode(self, body: Mapping[str, Any]) -> ChatReply:
        """The answer in a body with status 200. Raises `InvalidReplyError`, or what an error object says."""
        if error := error_in_reply(body):
            raise error
        if body.get("type") != "message" or not isinstance(body.get("content"), list):
            raise InvalidReplyError(
                "What the server answered is no message of the Messages API. Check the base URL."
            )
        return anthropic_answers.whole(body, self.provider)

    def decoder(self) -> AnthropicMessagesDecoder:
        """A reader for one streamed answer."""
        return AnthropicMessagesDecoder(self.provider)

    def error(self, status: int, body: Mapping[str, Any] | None, text: str) -> ModelError:
        """What a failed response means."""
        return http_error(status, body, text)

    def adaptation(self, status: int, body: Mapping[str, Any] | None) -> str | None:
        """The name of the change that the server demands, None when there is none."""
        said = error_message(body)
        if status not in (400, 422) or not said:
            return None
        if "`temperature` and `top_p` cannot both be specified" in said:
            return "no_top_p"
        if not any(word in said for word in _REFUSED):
            return None
        if said.startswith("cache_control"):
            return CACHE_IN_BLOCKS
        return next((name for name, parameter in _OMITTED.items() if parameter in said), None)

    def continued(self, request: ChatRequest, reply: ChatReply) -> ChatRequest | None:
        """The request that goes on where the provider paused its turn, None when it did not."""
        if reply.provider_finish_reason != anthropic_answers.PAUSED:
            return None
        return replace(request, conversation=(*request.conversation, reply.message))


def _tool(tool: ToolDefinition) -> Plain:
    described = {"description": tool.description} if tool.description else {}
    return {"name": tool.name, **described, "parameters": tool.parameters}


def _max_tokens(request: ChatRequest, options: Plain) -> int:
    """The limit that the request names, or its options, of which it is taken out."""
    among_options = options.pop("max_tokens", None)
    if request.max_output_tokens is not None:
        return request.max_output_tokens
    if among_options is not None:
        return cast("int", among_options)
    thinking = options.get("thinking")
    budget = count(cast("Plain", thinking), "budget_tokens") if isinstance(thinking, Mapping) else None
    return DEFAULT_MAX_TOKENS + (budget or 0)
