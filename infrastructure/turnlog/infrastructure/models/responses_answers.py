"""Responses of the OpenAI Responses API as replies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from turnlog.application.chat import ChatReply, FinishReason, InvalidReplyError, ModelError, Usage
from turnlog.domain.errors import TurnlogError
from turnlog.domain.messages import Message, TextPart
from turnlog.infrastructure.formats import openai_responses
from turnlog.infrastructure.models.answers import answer, count
from turnlog.infrastructure.models.failures import error_in_reply

_CUT = {"max_output_tokens": FinishReason.LENGTH, "content_filter": FinishReason.CONTENT_FILTER}


def whole(response: Mapping[str, Any], provider: str) -> ChatReply:
    """The reply of a response that ended. Raises what its error says, or `InvalidReplyError`."""
    if error := failure(response):
        raise error
    if not isinstance(response.get("output"), list):
        raise InvalidReplyError(
            "What the server answered is no response of the Responses API. Check the base URL."
        )
    message = _message(response)
    reason, said = _ending(response, message)
    return _reply(response, message, provider, reason, said)


def broken_off(response: Mapping[str, Any], provider: str) -> ChatReply:
    """The reply of a response that did not end."""
    return _reply(response, _message(response), provider, FinishReason.CANCELLED, None)


def failure(response: Mapping[str, Any]) -> ModelError | None:
    """What a failed response or an error object says; None for an answer."""
    if error := error_in_reply(response):
        return error
    status = response.get("status")
    if status in ("failed", "cancelled"):
        return InvalidReplyError(f"The server ended the answer with status {status} and does not say why.")
    return None


def usage_of(given: object) -> Usage | None:
    """What a call used; the provider counts the prompt with what it found in its cache."""
    if not isinstance(given, Mapping):
        return None
    usage = cast("Mapping[str, Any]", given)
    return Usage(
        input_tokens=count(usage, "input_tokens"),
        output_tokens=count(usage, "output_tokens"),
        cache_read_input_tokens=count(usage, "input_tokens_details", "cached_tokens"),
        cache_creation_input_tokens=count(usage, "input_tokens_details", "cache_write_tokens"),
        reasoning_output_tokens=count(usage, "output_tokens_details", "reasoning_tokens"),
        provider=dict(usage),
    )


def _message(response: Mapping[str, Any]) -> Message:
    try:
        return openai_responses.message(dict(response))
    except TurnlogError as error:
        raise InvalidReplyError(f"The server's answer cannot be read: {error}") from error


def _ending(response: Mapping[str, Any], message: Message) -> tuple[FinishReason, str | None]:
    """Why the answer ended, and the provider's word for it. A refusal ends as the work of a filter."""
    details = response.get("incomplete_details")
    cut = cast("Mapping[str, Any]", details).get("reason") if isinstance(details, Mapping) else None
    status = _text(response.get("status"))
    if isinstance(cut, str):
        return _CUT.get(cut, FinishReason.LENGTH), cut
    if status == "incomplete":
        return FinishReason.LENGTH, status
    if message.tool_calls:
        return FinishReason.TOOL_CALL, status
    has_text = any(isinstance(part, TextPart) and part.content.strip() for part in message.parts)
    if not has_text and any(part.type == "refusal" for part in message.parts):
        return FinishReason.CONTENT_FILTER, "refusal"
    return FinishReason.STOP, status


def _reply(
    response: Mapping[str, Any],
    message: Message,
    provider: str,
    reason: FinishReason,
    provider_reason: str | None,
) -> ChatReply:
    return answer(
        message,
        provider=provider,
        finish_reason=reason,
        provider_finish_reason=provider_reason,
        model=_text(response.get("model")),
        response_id=_text(response.get("id")),
        usage=usage_of(response.get("usage")),
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
