"""The OpenAI Responses API (`/v1/responses`), always stateless: the session is the state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from turnlog.application.chat import ChatReply, ChatRequest, ModelError, ToolDefinition
from turnlog.infrastructure.formats import openai_responses
from turnlog.infrastructure.formats._plain import Plain
from turnlog.infrastructure.formats._told import deepest_branch
from turnlog.infrastructure.models import addresses, responses_answers
from turnlog.infrastructure.models.failures import code_of, http_error
from turnlog.infrastructure.models.openai_chat import BASE_URL, OpenAIChatCodec
from turnlog.infrastructure.models.overflow import error_message, error_object
from turnlog.infrastructure.models.responses_stream import OpenAIResponsesDecoder

NO_REASONING = "no_reasoning"
"""The adaptation for models that do not reason, and for reasoning that the server cannot read."""

_OMITTED = {"no_temperature": "temperature", "no_top_p": "top_p", "no_max_output_tokens": "max_output_tokens"}
"""Adaptations that leave out a parameter which the model does not take."""


class OpenAIResponsesCodec:
    """The Responses API of the server at a base URL, which decides the provider's name and the header."""

    renderer = "openai.responses/1"
    framing: Literal["sse", "ndjson"] = "sse"
    key_variable: str | None = "OPENAI_API_KEY"

    def __init__(self, base_url: str = BASE_URL, provider: str | None = None) -> None:
        self._server = OpenAIChatCodec(base_url, provider)
        self.provider = self._server.provider
        self.needs_key = self._server.needs_key

    def url(self, base_url: str) -> str:
        """The address that requests are sent to."""
        return addresses.endpoint(base_url, "/responses")

    def headers(self, key: str | None) -> Mapping[str, str]:
        """The header with the key."""
        return self._server.headers(key)

    def encode(
        self, request: ChatRequest, model: str, *, stream: bool, adaptations: frozenset[str]
    ) -> dict[str, Any]:
        """The body as plain data. Tools among the options are told behind those of the request.

        Raises `InvalidSettingError` for options that would let the provider keep or cut the conversation.
        """
        options = dict(request.options)
        tools = [*map(_tool, request.tools), *options.pop("tools", ())]
        body = openai_responses.request(
            request.conversation,
            model=model,
            tools=tools or None,
            max_tokens=request.max_output_tokens,
            branch=deepest_branch(request.conversation),
            system=request.system,
            prefill=True,
            send_reasoning=NO_REASONING not in adaptations,
            system_in_place=request.system_in_place,
            provider=self.provider,
            **options,
        )
        omitted = [parameter for name, parameter in _OMITTED.items() if name in adaptations]
        body = {name: value for name, value in body.items() if name not in omitted}
        return {**body, "stream": True} if stream else body

    def decode(self, body: Mapping[str, Any]) -> ChatReply:
        """The answer in a body with status 200. Raises `InvalidReplyError`, or what an error object says."""
        return responses_answers.whole(body, self.provider)

    def decoder(self) -> OpenAIResponsesDecoder:
        """A reader for one streamed answer."""
        return OpenAIResponsesDecoder(self.provider)

    def error(self, status: int, body: Mapping[str, Any] | None, text: str) -> ModelError:
        """What a failed response means."""
        return http_error(status, body, text)

    def adaptation(self, status: int, body: Mapping[str, Any] | None) -> str | None:
        """The name of the change that the server demands, None when there is none."""
        if status not in (400, 422):
            return None
        error = error_object(body)
        said = error_message(body)
        if code_of(error) == "invalid_encrypted_content" or "Encrypted content is not supported" in said:
            return NO_REASONING
        if not any(word in said for word in ("nsupported", "not supported", "nrecognized", "nknown")):
            return None
        refused = (name for name, parameter in _OMITTED.items() if _names(error, parameter))
        return next(refused, None)

    def continued(self, request: ChatRequest, reply: ChatReply) -> ChatRequest | None:  # noqa: ARG002 - the port
        """None: this provider does not pause."""
        return None


def _names(error: Mapping[str, Any], parameter: str) -> bool:
    """Whether the error is about this parameter."""
    return error.get("param") == parameter or f"'{parameter}'" in error_message(error)


def _tool(tool: ToolDefinition) -> Plain:
    described = {"description": tool.description} if tool.description else {}
    return {"name": tool.name, **described, "parameters": tool.parameters}
