"""Whether what was given as a model is one, and of the kind that is needed."""

from __future__ import annotations

import inspect

from turnlog.application.chat.model import ChatReply
from turnlog.domain.errors import InvalidSettingError
from turnlog.domain.guards import require_methods

_BLOCKING_REPLY = (ChatReply, ChatReply.__name__)


def check_model(model: object, *, is_async: bool) -> None:
    """`InvalidSettingError` for what is no model, and for one of the other kind: awaited, or blocking."""
    kind, example = (
        ("AsyncChatModel", "AsyncOpenAIChatModel") if is_async else ("ChatModel", "OpenAIChatModel")
    )
    name = f"'{model}'" if isinstance(model, str) else "'gpt-5'"
    require_methods("A model", model, ("render", "complete"), f"an object, as {example}({name})")
    complete = getattr(model, "complete", None)
    awaited = inspect.iscoroutinefunction(complete)
    if awaited and not is_async:
        raise InvalidSettingError(
            f"{type(model).__name__} is for asyncio, and this blocks: give it a {kind}, as {example}, or use "
            "the class for asyncio."
        )
    if is_async and not awaited and _blocks(complete):
        raise InvalidSettingError(
            f"{type(model).__name__} would block the loop: give it an {kind}, as {example}, or use the class "
            "without `Async`."
        )


def _blocks(complete: object) -> bool:
    """Whether the method says that it returns the answer itself."""
    try:
        returned = inspect.signature(complete).return_annotation if callable(complete) else None
    except (TypeError, ValueError):
        return False
    return returned in _BLOCKING_REPLY
