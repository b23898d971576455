"""Chats with a span for each turn, and below it one for each call of a model, of a tool, and each pass."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

from opentelemetry.trace import SpanKind

from turnlog.application import SessionService
from turnlog.application.chat import (
    AsyncSessionChat,
    AsyncTurnStream,
    SessionChat,
    Tool,
    ToolContext,
    Turn,
    TurnEvent,
    TurnStream,
)
from turnlog.application.chat.base import AnyTool
from turnlog.application.chat.engine import TurnEngine
from turnlog.application.chat.model import Rendering
from turnlog.application.chat.progress import Opening
from turnlog.application.chat.settings import ChatSettings
from turnlog.application.chat.tools import ToolSet, result_content
from turnlog.domain.json_text import sorted_json_text
from turnlog.infrastructure.otel.models import AsyncTracedModel, TracedModel
from turnlog.infrastructure.otel.strategies import TracedStrategy
from turnlog.infrastructure.otel.telemetry import (
    COMPACTED,
    CONVERSATION,
    FINISH_REASONS,
    OPERATION,
    PROVIDER,
    REQUEST_MODEL,
    Telemetry,
    Watched,
    usage_attributes,
)


class TracedSessionChat(SessionChat):
    """A chat that does what the given one does, and tells OpenTelemetry of it.

    A turn is a span `invoke_agent`; below it are `chat` for each call of the model, `execute_tool` for each
    call of a tool, and `compact` for each pass.
    """

    def __init__(self, chat: SessionChat, telemetry: Telemetry | None = None) -> None:
        vars(self).update(vars(chat))
        self._telemetry = telemetry or Telemetry()
        self._model = TracedModel(self._model, self._telemetry)
        self._settings = _traced(self._settings, self._telemetry)

    def _engine(
        self, opening: Opening, tools: Sequence[AnyTool] | None, *, stream: bool
    ) -> tuple[SessionService, TurnEngine]:
        return super()._engine(opening, _traced_tools(tools, self._telemetry), stream=stream)

    def _run(self, opening: Opening, tools: Sequence[AnyTool] | None = None) -> Turn:
        with _started(self._telemetry, self._model, opening) as watched, watched.active(opening.session_id):
            turn = super()._run(opening, tools)
            _ended(watched, turn)
            return turn

    def _stream(self, opening: Opening, tools: Sequence[AnyTool] | None) -> TurnStream:
        return _TracedTurnStream(super()._stream(opening, tools), self._telemetry, self._model, opening)


class AsyncTracedSessionChat(AsyncSessionChat):
    """`TracedSessionChat` for asyncio."""

    def __init__(self, chat: AsyncSessionChat, telemetry: Telemetry | None = None) -> None:
        vars(self).update(vars(chat))
        self._telemetry = telemetry or Telemetry()
        self._model = AsyncTracedModel(self._model, self._telemetry)
        self._settings = _traced(self._settings, self._telemetry)

    def _engine(
        self, opening: Opening, tools: Sequence[AnyTool] | None, *, stream: bool
    ) -> tuple[SessionService, TurnEngine]:
        return super()._engine(opening, _traced_tools(tools, self._telemetry), stream=stream)

    async def _run(self, opening: Opening, tools: Sequence[AnyTool] | None = None) -> Turn:
        with _started(self._telemetry, self._model, opening) as watched, watched.active(opening.session_id):
            turn = await super()._run(opening, tools)
            _ended(watched, turn)
            return turn

    def _stream(self, opening: Opening, tools: Sequence[AnyTool] | None) -> AsyncTurnStream:
        return _AsyncTracedTurnStream(super()._stream(opening, tools), self._telemetry, self._model, opening)


class _TracedTurnStream(TurnStream):
    """The span is the current one while the turn works, not while its events are looked at."""

    def __init__(self, stream: TurnStream, telemetry: Telemetry, model: Rendering, opening: Opening) -> None:
        vars(self).update(vars(stream))
        self._events = self._watched(self._events, partial(_started, telemetry, model, opening), opening)

    def _watched(
        self, events: Generator[TurnEvent], start: Callable[[], Watched], opening: Opening
    ) -> Generator[TurnEvent]:
        with start() as watched:
            try:
                while True:
                    with watched.active(opening.session_id):
                        event = next(events, None)
                    if event is None:
                        return
                    yield event
            finally:
                with watched.active(opening.session_id):
                    events.close()
                if self._run.turn is not None:
                    _ended(watched, self._run.turn)


class _AsyncTracedTurnStream(AsyncTurnStream):
    """The span is the current one while the turn works, not while its events are looked at."""

    def __init__(
        self, stream: AsyncTurnStream, telemetry: Telemetry, model: Rendering, opening: Opening
    ) -> None:
        vars(self).update(vars(stream))
        self._events = self._watched(self._events, partial(_started, telemetry, model, opening), opening)

    async def _watched(
        self, events: AsyncGenerator[TurnEvent], start: Callable[[], Watched], opening: Opening
    ) -> AsyncGenerator[TurnEvent]:
        with start() as watched:
            try:
                while True:
                    with watched.active(opening.session_id):
                        event = await anext(events, None)
                    if event is None:
                        return
                    yield event
            finally:
                with watched.active(opening.session_id):
                    await events.aclose()
                if self._run.turn is not None:
                    _ended(watched, self._run.turn)


class _TracedToolSet(ToolSet):
    """The same tools, each call of which is a span."""

    def __init__(self, tools: ToolSet, telemetry: Telemetry) -> None:
        vars(self).update(vars(tools))
        self._telemetry = telemetry

    def find(self, name: str) -> Tool | None:
        """The tool of this name, traced."""
        tool = super().find(name)
        return None if tool is None else _traced_tool(tool, self._telemetry)


def _traced(settings: ChatSettings, telemetry: Telemetry) -> ChatSettings:
    strategy = settings.strategy
    return replace(
        settings,
        tools=_TracedToolSet(settings.tools, telemetry),
        strategy=None if strategy is None else TracedStrategy(strategy, telemetry),
    )


def _traced_tools(tools: Sequence[AnyTool] | None, telemetry: Telemetry) -> Sequence[AnyTool] | None:
    return None if tools is None else [_traced_tool(Tool.of(tool), telemetry) for tool in tools]


def _traced_tool(tool: Tool, telemetry: Telemetry) -> Tool:
    return replace(tool, bind=partial(_bound, tool, telemetry))


def _bound(tool: Tool, telemetry: Telemetry, arguments: str, where: ToolContext) -> Callable[[], object]:
    """The call, ready to be made in a span of its own."""
    return partial(_called, tool, telemetry, tool.bind(arguments, where), arguments, where)


def _called(
    tool: Tool, telemetry: Telemetry, run: Callable[[], object], arguments: str, where: ToolContext
) -> object:
    said = {OPERATION: "execute_tool", "gen_ai.tool.name": tool.name, "gen_ai.tool.type": "function"}
    if where.call_id is not None:
        said["gen_ai.tool.call.id"] = where.call_id
    if telemetry.captures_content:
        said["gen_ai.tool.call.arguments"] = arguments
    watched = telemetry.start(
        f"execute_tool {tool.name}", SpanKind.INTERNAL, {**said, CONVERSATION: where.session_id}
    )
    if tool.is_async:
        return _awaited(watched, telemetry, run)
    with watched, watched.active():
        value = run()
        if not inspect.isawaitable(value):
            _resulted(watched, telemetry, value)
            return value
    return value


async def _awaited(watched: Watched, telemetry: Telemetry, run: Callable[[], object]) -> object:
    with watched, watched.active():
        value = await cast("Awaitable[object]", run())
        _resulted(watched, telemetry, value)
        return value


def _resulted(watched: Watched, telemetry: Telemetry, value: object) -> None:
    """What the tool returned, where content is recorded."""
    if not telemetry.captures_content:
        return
    try:
        content = result_content(value)
    except Exception:  # the chat tells the model what is wrong with it
        return
    text = content if isinstance(content, str) else sorted_json_text([part.to_dict() for part in content])
    watched.say({"gen_ai.tool.call.result": text})


def _started(telemetry: Telemetry, model: Rendering, opening: Opening) -> Watched:
    said: dict[str, Any] = {
        OPERATION: "invoke_agent",
        PROVIDER: model.provider,
        REQUEST_MODEL: model.model,
        CONVERSATION: opening.session_id,
    }
    name = telemetry.agent_name
    if name is not None:
        said["gen_ai.agent.name"] = name
    if opening.branch is not None:
        said["turnlog.branch"] = opening.branch
    return telemetry.start(f"invoke_agent {name}" if name else "invoke_agent", SpanKind.INTERNAL, said)


def _ended(watched: Watched, turn: Turn) -> None:
    watched.say({"turnlog.turn.id": turn.turn_id, **usage_attributes(turn.usage)})
    if turn.finish_reason is not None:
        watched.say({FINISH_REASONS: [turn.finish_reason.value]})
    if turn.compaction is not None and not turn.compaction.is_unchanged:
        watched.say({COMPACTED: True})
