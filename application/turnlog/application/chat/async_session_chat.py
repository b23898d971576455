"""The turn runner for asyncio."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from inspect import isawaitable
from types import TracebackType
from typing import Any, Self

from turnlog.application.async_service import async_service
from turnlog.application.chat.base import AnyTool, ChatBase, acting, denial, result_message
from turnlog.application.chat.engine import TurnEngine
from turnlog.application.chat.errors import TurnUnfinishedError
from turnlog.application.chat.keeping import MarkKeeper
from turnlog.application.chat.model import AsyncChatModel, RenderedRequest, ToolCallDelta
from turnlog.application.chat.progress import Opening
from turnlog.application.chat.steps import (
    Answered,
    Ask,
    Compact,
    Do,
    NextTool,
    Pause,
    StartTools,
    Step,
    Tell,
    TurnCutError,
)
from turnlog.application.chat.turn import Turn, TurnEvent
from turnlog.application.chat.workers import ToolTasks
from turnlog.application.service import SessionService
from turnlog.domain.errors import InvalidSettingError
from turnlog.domain.filters import EventFilter
from turnlog.domain.messages import Message


class AsyncSessionChat(ChatBase[AsyncChatModel]):
    """`SessionChat` for asyncio: the same settings and rules, and the loop is never blocked.

    Tools may be coroutine functions; others run in threads. A summarizer that is a coroutine is awaited. A
    task that is cancelled stores what came. Only what records a body that was changed while it was sent is
    written on the loop.
    """

    _IS_ASYNC = True

    async def send(
        self,
        session_id: str,
        text_or_message: str | Message,
        *,
        principal: str | None = None,
        idempotency_key: str | None = None,
        tools: Sequence[AnyTool] | None = None,
        filter: EventFilter | None = None,  # noqa: A002 - the vocabulary's word
        system: str | None = None,
        branch: str | None = None,
        wait: float | None = None,
    ) -> Turn:
        """Say something and run the turn to its end, as `SessionChat.send`."""
        opening = self._said(
            session_id,
            text_or_message,
            principal=principal,
            idempotency_key=idempotency_key,
            filter=filter,
            system=system,
            branch=branch,
            wait=wait,
        )
        return await self._run(opening, tools)

    def stream(
        self,
        session_id: str,
        text_or_message: str | Message,
        *,
        principal: str | None = None,
        idempotency_key: str | None = None,
        tools: Sequence[AnyTool] | None = None,
        filter: EventFilter | None = None,  # noqa: A002 - the vocabulary's word
        system: str | None = None,
        branch: str | None = None,
        wait: float | None = None,
    ) -> AsyncTurnStream:
        """`send` as it happens: `async with chat.stream(…) as turn:`, as `SessionChat.stream`."""
        opening = self._said(
            session_id,
            text_or_message,
            principal=principal,
            idempotency_key=idempotency_key,
            filter=filter,
            system=system,
            branch=branch,
            wait=wait,
        )
        return self._stream(opening, tools)

    async def resume(
        self,
        session_id: str,
        *,
        principal: str | None = None,
        tools: Sequence[AnyTool] | None = None,
        filter: EventFilter | None = None,  # noqa: A002 - the vocabulary's word
        system: str | None = None,
        branch: str | None = None,
        wait: float | None = None,
    ) -> Turn:
        """Go on with the newest question of the branch that got no answer, as `SessionChat.resume`."""
        opening = self._resuming(
            session_id, principal=principal, filter=filter, system=system, branch=branch, wait=wait
        )
        return await self._run(opening, tools)

    async def answer(
        self,
        session_id: str,
        event_id: str,
        call_id: str,
        result: object,
        *,
        by: str | None = None,
        principal: str | None = None,
        wait: float | None = None,
    ) -> Turn:
        """Give an awaited call its result, as `SessionChat.answer`."""
        message = result_message(call_id, result)
        opening = self._settling(
            session_id, event_id, call_id, result=message, principal=principal, wait=wait
        )
        with acting(by):
            return await self._run(opening)

    async def deny(
        self,
        session_id: str,
        event_id: str,
        call_id: str,
        reason: str = "",
        *,
        by: str | None = None,
        principal: str | None = None,
        wait: float | None = None,
    ) -> Turn:
        """Refuse an awaited call, as `SessionChat.deny`."""
        message = denial(call_id, reason)
        opening = self._settling(
            session_id, event_id, call_id, result=message, principal=principal, wait=wait
        )
        with acting(by):
            return await self._run(opening)

    async def approve(
        self,
        session_id: str,
        event_id: str,
        call_id: str,
        *,
        by: str | None = None,
        principal: str | None = None,
        wait: float | None = None,
    ) -> Turn:
        """Make an awaited call now, as `SessionChat.approve`."""
        opening = self._settling(session_id, event_id, call_id, runs=True, principal=principal, wait=wait)
        with acting(by):
            return await self._run(opening)

    async def abandon(
        self,
        session_id: str,
        event_id: str,
        call_id: str,
        *,
        by: str | None = None,
        principal: str | None = None,
        wait: float | None = None,
    ) -> Turn:
        """Give up waiting for the result of a call, as `SessionChat.abandon`."""
        opening = self._settling(session_id, event_id, call_id, principal=principal, wait=wait)
        with acting(by):
            return await self._run(opening)

    async def _run(self, opening: Opening, tools: Sequence[AnyTool] | None = None) -> Turn:
        sessions, engine = self._engine(opening, tools, stream=False)
        run = _Run(sessions, self._model, engine, self._keeper, is_silent=True)
        async for _ in run.events():
            raise AssertionError("a silent run tells nothing")
        assert run.turn is not None  # noqa: S101 - it ended
        return run.turn

    def _stream(self, opening: Opening, tools: Sequence[AnyTool] | None) -> AsyncTurnStream:
        sessions, engine = self._engine(opening, tools, stream=True)
        return AsyncTurnStream(_Run(sessions, self._model, engine, self._keeper, is_silent=False))


class AsyncTurnStream:
    """A turn as it happens. Iterate over it inside its `async with` block."""

    def __init__(self, run: _Run) -> None:
        self._run = run
        self._events = run.events()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.cancel()

    def __aiter__(self) -> AsyncIterator[TurnEvent]:
        return self._events

    async def cancel(self) -> None:
        """End the turn here and store what came; nothing when it is over."""
        await self._events.aclose()

    @property
    def turn(self) -> Turn:
        """What came of the turn, once it is over or was left. Raises `TurnUnfinishedError` before that."""
        if self._run.turn is None:
            raise TurnUnfinishedError
        return self._run.turn


class _Run:
    """Carries out the steps of one turn."""

    def __init__(
        self,
        sessions: SessionService,
        model: AsyncChatModel,
        engine: TurnEngine,
        keeper: MarkKeeper,
        *,
        is_silent: bool,
    ) -> None:
        self._sessions = sessions
        self._model = model
        self._engine = engine
        self._keeper = keeper
        self._is_silent = is_silent
        self._tools: ToolTasks | None = None
        self._cancelled: asyncio.CancelledError | None = None
        self.turn: Turn | None = None

    async def events(self) -> AsyncGenerator[TurnEvent]:
        """Run the turn and tell what happens."""
        steps = self._engine.run()
        left: BaseException | None = None
        result: Any = None
        error: BaseException | None = None
        with self._keeper.keeping(self._sessions, self._engine):
            while True:
                try:
                    step = steps.throw(error) if error else steps.send(result)
                except StopIteration as end:
                    self.turn = end.value
                    break
                except TurnCutError:  # left once more while it ended
                    break
                result = error = None
                try:
                    self._raise_if_cancelled()
                    if isinstance(step, Ask) and not self._is_silent:
                        asked = time.perf_counter()
                        async with self._model.stream(step.rendered, on_send=self._resend(step)) as stream:
                            try:
                                async for delta in stream:
                                    if not isinstance(delta, ToolCallDelta):
                                        yield delta
                            except Exception:
                                raise
                            except BaseException as leaving:
                                raise TurnCutError(stream.reply) from leaving
                            result = Answered(stream.reply, time.perf_counter() - asked)
                    elif isinstance(step, Tell):
                        if not self._is_silent:
                            yield step.event
                    else:
                        result = await self._done(step)
                except Exception as raised:
                    error = raised
                except TurnCutError as cut:
                    left, error = cut.__cause__, cut
                    self._leave()
                except BaseException as raised:
                    left, error = raised, TurnCutError()
                    self._leave()
        if left is not None and not isinstance(left, GeneratorExit):
            raise left

    def _raise_if_cancelled(self) -> None:
        """Raise a cancellation that came while the store was written to."""
        cancelled, self._cancelled = self._cancelled, None
        if cancelled is not None:
            raise cancelled

    async def _used(self, step: Do) -> Any:
        """What the service answers. A cancellation waits for it, so that it is known what was written."""
        using = asyncio.ensure_future(asyncio.to_thread(step.use, self._sessions))
        while not using.done():
            try:
                await asyncio.wait((using,))
            except asyncio.CancelledError as cancelled:
                self._cancelled = cancelled
        return using.result()

    def _leave(self) -> None:
        """Tell nothing from now on, and stop the tools that still run."""
        self._is_silent = True
        if self._tools is not None:
            self._tools.cancel()

    async def _done(self, step: Step) -> Any:
        match step:
            case Do():
                return await self._used(step)
            case Compact():
                return await async_service(self._sessions).compact(
                    step.session_id,
                    step.trigger,
                    step.strategy,
                    branch=step.branch,
                    on_race=step.on_race,
                )
            case Ask():
                asked = time.perf_counter()
                asking: object = self._model.complete(step.rendered, on_send=self._resend(step))
                if not isawaitable(asking):
                    raise InvalidSettingError(
                        f"{type(self._model).__name__} blocks the loop: give the chat an AsyncChatModel, or "
                        "use SessionChat."
                    )
                reply = await asking
                return Answered(reply, time.perf_counter() - asked)
            case StartTools():
                self._tools = ToolTasks(step.jobs)
            case NextTool():
                assert self._tools is not None  # noqa: S101 - they were started
                return await self._tools.next()
            case Pause():
                await asyncio.sleep(step.seconds)
            case Tell():
                pass
        return None

    def _resend(self, step: Ask) -> Any:
        def resend(rendered: RenderedRequest) -> None:
            write = step.on_send(rendered)
            if write is not None:
                write.use(self._sessions)

        return resend
