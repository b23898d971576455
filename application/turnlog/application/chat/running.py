"""Running tools: calls are prepared and judged here; threads or tasks make them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from turnlog.application.chat.errors import MalformedArgumentsError
from turnlog.application.chat.tools import Awaiting, ResultContent, ToolContext, ToolSet, result_content
from turnlog.domain.errors import NotJsonError
from turnlog.domain.messages import ToolCallPart, ToolCallResponsePart

_logger = logging.getLogger("turnlog")


@dataclass(frozen=True)
class ToolOutcome:
    """What became of the call at this place of its batch."""

    place: int
    content: ResultContent = ""
    is_error: bool = False
    awaiting: Awaiting | None = None

    def response(self, call: ToolCallPart) -> ToolCallResponsePart:
        """The result as a message holds it; of a call that waits, what is told in the meantime."""
        content = self.awaiting.note if self.awaiting else self.content
        further = {"is_error": True} if self.is_error else {}
        return ToolCallResponsePart.model_validate(
            {
                "id": call.id,
                "name": call.name,
                "response": content,
                "provisional": self.awaiting is not None,
                **further,
            }
        )


@dataclass(frozen=True)
class ToolJob:
    """A call that is ready to be made. `run` may return something to be awaited."""

    place: int
    name: str
    run: Callable[[], object]
    awaits: bool
    is_async: bool
    time_limit: float | None

    def outcome(self, value: object) -> ToolOutcome:
        """What the model is told of what the tool returned."""
        if isinstance(value, Awaiting):
            if self.awaits:
                return ToolOutcome(self.place, awaiting=value)
            _logger.warning("Tool %r returned Awaiting without saying awaits=True.", self.name)
            return self.error("it has not finished and will not")
        try:
            return ToolOutcome(self.place, result_content(value))
        except NotJsonError as error:
            _logger.warning("Tool %r returned what JSON cannot say: %s.", self.name, error.found)
            return self.error(f"its result cannot be told: {error}")

    def failure(self, error: BaseException) -> ToolOutcome:
        """What the model is told of what the tool raised."""
        _logger.warning("Tool %r raised %s.", self.name, type(error).__name__)
        try:
            said = str(error)
        except Exception:
            said = "(its message cannot be read)"
        return self.error(f"{type(error).__name__}: {said}")

    def late(self) -> ToolOutcome:
        """What the model is told of a tool that took too long."""
        _logger.warning("Tool %r took longer than %s seconds.", self.name, self.time_limit)
        return self.error(f"it took longer than {self.time_limit:g} seconds and was given up")

    def error(self, reason: str) -> ToolOutcome:
        """A result that says why there is none."""
        return ToolOutcome(self.place, f"The tool failed: {reason}", is_error=True)


def prepared(
    tools: ToolSet, place: int, call: ToolCallPart, context: ToolContext, time_limit: float | None
) -> ToolJob | ToolOutcome:
    """The call, ready to be made, or a result that says why it cannot be."""
    tool = tools.find(call.name)
    if tool is None:
        _logger.warning("The model asked for the unknown tool %r.", call.name[:80])
        known = f"There is no tool {call.name!r}. Tools are: {tools.names}."
        return ToolOutcome(place, known, is_error=True)
    try:
        run = tool.bind(call.arguments, context)
    except MalformedArgumentsError as error:
        return ToolOutcome(place, str(error), is_error=True)
    limit = tool.time_limit if tool.time_limit is not None else time_limit
    return ToolJob(place, tool.name, run, tool.awaits, tool.is_async, limit)
