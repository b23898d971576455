"""How servers say that a request is larger than the context window, and the figures that they give."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from turnlog.application.chat import ContextOverflowError
from turnlog.infrastructure.formats.json_source import fields
from turnlog.infrastructure.models.masking import excerpt

_CODES = frozenset(
    (
        "context_length_exceeded",
        "exceed_context_size_error",
        "model_context_window_exceeded",
        "request_too_large",
        "string_above_max_length",
    )
)

_N = r"(\d[\d,_]*)"
_ASKED = r"resulted in|requested(?: about)?|contains|passed|sent"
_FIGURES = (
    # limit, sent
    rf"maximum (?:context|prompt) length is {_N}(?: tokens)?(?:.*?(?:{_ASKED}) {_N})?",
    rf"context (?:length|window|size)(?: is)?(?: only)?(?: of)?(?: only)? {_N} tokens.*?(?:{_ASKED}) {_N}",
    rf"maximum number of tokens allowed \(?{_N}",
    rf"cannot exceed {_N}",
    rf"must be <= {_N}\. Given: {_N}",
    rf"Limit {_N}, Requested {_N}",
    rf"exceeds? (?:the )?(?:model's )?(?:maximum )?context (?:window|length)(?: of)? {_N}",
)
_REVERSED = (
    # sent, limit
    rf"prompt is too long: {_N} tokens > {_N}",
    rf"context limit: {_N}(?: \+ [\d,]+)? > {_N}",
    rf"request \({_N} tokens\) exceeds the available context size \({_N}",
    rf"Requested tokens \({_N}\) exceed context window of {_N}",
    rf"length {_N}\) is longer than the maximum model length of {_N}",
    rf"Prompt contains {_N} tokens.*?too large for model with {_N}",
    rf"passed {_N} input tokens.*?context length is only {_N}",
    rf"token count \(?{_N}\)? exceeds the maximum number of tokens allowed \(?{_N}",
    rf"keep the first {_N} tokens.*?context length of only {_N}",
    rf"total tokens? {_N}.*?exceeds? .*?{_N}",
)
_WORDS = re.compile(
    r"maximum (?:context|prompt|model) length|context[ _](?:length|window|size) (?:exceeded|(?:is|of) only)"
    r"|exceeds? (?:the |this )?(?:model's |available |maximum |max )*(?:context|input)"
    r"[ _](?:window|length|size|limit)"
    r"|exceeds? the context|exceed context (?:window|limit)|larger than (?:the )?(?:model's )?context"
    r"|greater than the context length|context size has been exceeded|prompt (?:is )?too long"
    r"|(?:request|input) (?:is )?too (?:large|long)\b|too many tokens|too large for model"
    r"|exceeds the maximum number of tokens|reduce the length of the (?:messages|prompt|input)",
    re.IGNORECASE,
)


def overflow(status: int, body: Mapping[str, Any] | None, text: str) -> ContextOverflowError | None:
    """The overflow that a failed response, an error object or an error event speaks of, None if of none.

    Status 413 is always one: the request is too large for the server. A rate limit in tokens is none
    unless the one request is larger than it.
    """
    error = error_object(body)
    message = error_message(body) or text
    is_named = any(str(error.get(name)) in _CODES for name in ("code", "type"))
    is_said = status not in (401, 403, 404, 429) and _WORDS.search(message) is not None
    if not (is_named or is_said or status == 413):
        return None
    limit, sent = _figures(error, message)
    return ContextOverflowError(limit, sent, detail=excerpt(message))


def error_object(body: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The error inside a body; the body itself where it says what went wrong, empty for neither."""
    if body is None:
        return {}
    error: object = body.get("error")
    if found := fields(error):
        return found
    return {"message": error} if isinstance(error, str) else body


def error_message(body: Mapping[str, Any] | None) -> str:
    """What the error says in words, empty when it says nothing."""
    error = error_object(body)
    found = error.get("message") or error.get("detail")
    return found if isinstance(found, str) else ""


def _figures(error: Mapping[str, Any], message: str) -> tuple[int | None, int | None]:
    limit, sent = error.get("n_ctx"), error.get("n_prompt_tokens")
    if isinstance(limit, int) and isinstance(sent, int):
        return limit, sent
    for patterns, is_reversed in ((_REVERSED, True), (_FIGURES, False)):
        for pattern in patterns:
            if found := re.search(pattern, message, re.IGNORECASE | re.DOTALL):
                figures = [int(re.sub("[,_]", "", one)) if one else None for one in found.groups()]
                first, second = (*figures, None)[:2]
                return (second, first) if is_reversed else (first, second)
    return None, None
