"""Who and what caused an event: a flat map of texts that is stored with it and never told to a model."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from turnlog.domain.guards import require_kind

_CONTEXT: ContextVar[Mapping[str, str]] = ContextVar("turnlog_context")
_NOTHING: Mapping[str, str] = {}


@contextmanager
def event_context(**values: str) -> Generator[None]:
    """Give these values (`actor`, `correlation_id`, `causation_id` …) to every event recorded inside.

    >>> with event_context(actor="ada"):
    ...     merged_context({"correlation_id": "7"})
    {'actor': 'ada', 'correlation_id': '7'}
    """
    for name, value in values.items():
        require_kind(f"`{name}` of a context", value, str, "text")
    token = _CONTEXT.set({**_CONTEXT.get(_NOTHING), **values})
    try:
        yield
    finally:
        _CONTEXT.reset(token)


def merged_context(given: Mapping[str, str] | None) -> Mapping[str, str]:
    """What is set around the call, with what was given to the call itself in front."""
    around = _CONTEXT.get(_NOTHING)
    if given is not None:
        require_kind("`context`", given, Mapping, "a mapping of text to text, as in {'actor': 'ada'}")
    return {**around, **given} if given else around
