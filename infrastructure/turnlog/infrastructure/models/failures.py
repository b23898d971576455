"""What failed responses mean, as far as providers agree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turnlog.application.chat import (
    InvalidReplyError,
    ModelError,
    ModelRejectedError,
    ModelUnavailableError,
)
from turnlog.infrastructure.models.masking import excerpt
from turnlog.infrastructure.models.overflow import error_message, error_object, overflow
from turnlog.infrastructure.models.retrying import is_temporary

_EXHAUSTED = frozenset(("insufficient_quota", "billing_hard_limit_reached", "billing_not_active"))
"""Codes of status 429 that waiting does not help."""

_STATUS_OF = {
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "overloaded_error": 529,
    "api_error": 500,
    "server_error": 500,
    "internal_server_error": 500,
    "internal_error": 500,
    "timeout_error": 504,
    "authentication_error": 401,
    "invalid_api_key": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "model_not_found": 404,
    "invalid_request_error": 400,
    "billing_error": 402,
}
"""The status that an error object without one would have had."""

_HINTS = {
    401: "Check the key.",
    402: "Check the account's balance.",
    403: "The key may not use this model, or the model is not served here.",
    404: "Check the name of the model and the base URL.",
    405: "Check the base URL.",
    413: "Compact the session, or send less.",
}


class ErrorInReplyError(InvalidReplyError):
    """An error of a kind that is not known, with status 200."""


def http_error(
    status: int, body: Mapping[str, Any] | None, text: str, *, hints: Mapping[int, str] | None = None
) -> ModelError:
    """The error of a failed response. `ModelUnavailableError` where the same request may succeed later."""
    if found := overflow(status, body, text):
        return found
    error = error_object(body)
    code = code_of(error)
    said = excerpt(error_message(body) or text) or "(nothing)"
    if is_temporary(status) and code not in _EXHAUSTED:
        return ModelUnavailableError(
            f"The server cannot answer now (status {status}). It says: {said} Try again later."
        )
    if 300 <= status < 400:
        hint = "It redirects: give the address that it redirects to as base URL."
    else:
        hint = {**_HINTS, **(hints or {})}.get(status, "")
    message = f"The server refused the request (status {status}). It says: {said} {hint}"
    return ModelRejectedError(message.rstrip(), status=status, code=code)


def error_in_reply(body: Mapping[str, Any]) -> ModelError | None:
    """The error that a body with status 200, or an event of a stream, holds instead of an answer.

    An error whose kind is known means what a response with its status means; any other is no answer.
    """
    error = body.get("error")
    if not error and body.get("object") != "error":
        return None
    fields = error_object(body)
    status = status_of(fields)
    if found := overflow(status or 200, body, ""):
        return found
    if status is not None:
        return http_error(status, body, "")
    said = excerpt(error_message(body) or str(error)) or "(nothing)"
    return ErrorInReplyError(f"The server answered with an error in place of an answer. It says: {said}")


def status_of(error: Mapping[str, Any]) -> int | None:
    """The status that an error object names or implies, None when it does neither."""
    for name in ("status", "status_code", "code"):
        value = error.get(name)
        if isinstance(value, int) and 400 <= value < 600:
            return value
    for name in ("code", "type"):
        value = error.get(name)
        if isinstance(value, str) and value in _STATUS_OF:
            return _STATUS_OF[value]
    return None


def code_of(error: Mapping[str, Any]) -> str | None:
    """The provider's own name of an error: its code where that is a word, else its type."""
    for name in ("code", "type"):
        value = error.get(name)
        if isinstance(value, str) and value:
            return excerpt(value)
    return None
