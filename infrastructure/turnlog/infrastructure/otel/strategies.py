"""A strategy with a span for each pass."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from opentelemetry.trace import SpanKind

from turnlog.domain.compaction import (
    CompactionRequest,
    CompactionResult,
    CompactionStrategy,
    name_of,
)
from turnlog.domain.steps import PassSteps
from turnlog.infrastructure.otel.telemetry import (
    COMPACTED,
    CONVERSATION,
    OPERATION,
    Attributes,
    Telemetry,
    Watched,
)

_Steps: TypeAlias = Callable[[CompactionRequest], PassSteps]


class TracedStrategy:
    """A strategy whose passes are spans `compact`: what it decided and how many messages left, never a text.

    A pass whose trigger does not fire is none. Everything else is as the strategy beneath has it.
    """

    def __init__(self, strategy: CompactionStrategy, telemetry: Telemetry | None = None) -> None:
        self._beneath = strategy
        self._telemetry = telemetry or Telemetry()

    def __str__(self) -> str:
        return name_of(self._beneath)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._beneath, name)
        return partial(self._steps, found) if name == "steps" else found

    def compact(self, request: CompactionRequest) -> CompactionResult:
        """The pass of the strategy."""
        with self._started(request) as watched, watched.active(request.session_id or None):
            result = self._beneath.compact(request)
            watched.say(_came(result))
            return result

    def _steps(self, steps: _Steps, request: CompactionRequest) -> PassSteps:
        """The pass in steps; who asks the summarizer in between does so in a context of its own."""
        with self._started(request) as watched:
            result = yield from steps(request)
            watched.say(_came(result))
            return result

    def _started(self, request: CompactionRequest) -> Watched:
        said = {OPERATION: "compact", "turnlog.compaction.strategy": str(self)}
        if request.session_id:
            said[CONVERSATION] = request.session_id
        return self._telemetry.start("compact", SpanKind.INTERNAL, said)


def _came(result: CompactionResult) -> Attributes:
    came: dict[str, str | bool | int | float | list[str]] = {"turnlog.compaction.reason": str(result.reason)}
    if not result.is_unchanged:
        came[COMPACTED] = True
        came["turnlog.compaction.covered"] = len(result.covered_events)
    return came
