"""The turn runner: a chat with a model over sessions."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from types import TracebackType
from typing import Any, Self

from turnlog.application.chat.base import AnyTool, ChatBase, acting, denial, result_message
from turnlog.application.chat.engine import TurnEngine
from turnlog.application.chat.errors import TurnUnfinishedError
from turnlog.application.chat.keeping import MarkKeeper
from turnlog.application.chat.model import ChatModel, RenderedRequest, ToolCallDelta
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
from turnlog.application.chat.workers import ToolThreads
from turnlog.application.service import SessionService
from turnlog.domain.filters import EventFilter
from turnlog.domain.messages import Message


class SessionChat(ChatBase[ChatModel]):
    """Conversations with a model. One `send` is one turn; the session is the state, the chat keeps none.

    It reads the view, stores the user's message, asks the model, runs its tools, stores every message as it
    happens, and compacts behind the answer. No lock and no transaction is held while a model or a tool runs.

    - `tools` are functions, or what `Tool.of` made of them. `max_rounds` bounds how often one turn may ask
      for tools, `tool_time_limit` (seconds) how long a call may take.
    - `trigger` and `strategy` say when and how to compact; the trigger is also asked before each request.
      `on_race` says what becomes of a pass when somebody wrote meanwhile.
    - `filter` chooses what of the view is sent; `store` what is stored at all.
    - `instructions` are sent with each request and not stored. `system` says where system messages stand:
      `first`, or `in_place` for models that take it. Of the stored ones the latest is sent.
    - `default_principal` owns the sessions that are made for a call which names nobody.
    - `max_message_tokens` bounds one message, `max_request_tokens` one request: of a turn that grows beyond,
      results older than those of the newest `keep_tool_results` rounds are sent as placeholders.
    - `max_output_tokens`, `options` and `cache` go to the model as they are.
    - `lease` is how long the mark of a running turn holds without being renewed.
    - `recorder` adds events that record each request and each answer.
    """

    def send(
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
        """Say something and run the turn to its end. The session is made on first use.

        With a `principal` the session must be theirs. With an `idempotency_key` a second call continues what
        the first one stored, or returns it, and asks no model again for what is stored. `tools` take the
        place of the chat's; `filter` is merged with the chat's; `system` is sent and not stored. `branch` is
        that of a sub-agent. While another turn runs on the branch the call waits for `wait` seconds.

        Raises `TurnInProgressError`, `MessageTooLargeError`, `TooManyRoundsError`, `TurnTakenOverError`, what
        the model raises (`ModelError`), and what the session service raises.
        """
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
        return self._run(opening, tools)

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
    ) -> TurnStream:
        """`send` as it happens: `with chat.stream(…) as turn:` and iterate over `turn`.

        The turn begins with the first step. Leaving the block early cancels it: the connection is closed and
        what came is stored.
        """
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

    def resume(
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
        """Go on where a turn broke off, as when the model failed: with the newest message of a user on the
        branch, which is not said again. Results that are stored are kept, calls without one are made.

        When that question has its answer, a broken off one too, the turn `is_repeat` and no model is asked.
        A turn that was begun with an idempotency key goes on by `send` with the same key instead. Raises
        `NothingToResumeError`, `SessionNotFoundError`, and what `send` raises.
        """
        opening = self._resuming(
            session_id, principal=principal, filter=filter, system=system, branch=branch, wait=wait
        )
        return self._run(opening, tools)

    def answer(
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
        """Give an awaited call its result, and go on with its turn when it was the last one open.

        `by` says who gave it: it is the `actor` in the context of all that is recorded here.

        Raises `UnknownEventError`, `CallNotAwaitedError`, and what `send` raises.
        """
        message = result_message(call_id, result)
        opening = self._settling(
            session_id, event_id, call_id, result=message, principal=principal, wait=wait
        )
        with acting(by):
            return self._run(opening)

    def deny(
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
        """Refuse an awaited call: the model is told that it was denied, and why, and the turn goes on as with
        `answer`. `by` is who denied it.

        Raises what `answer` raises.
        """
        message = denial(call_id, reason)
        opening = self._settling(
            session_id, event_id, call_id, result=message, principal=principal, wait=wait
        )
        with acting(by):
            return self._run(opening)

    def approve(
        self,
        session_id: str,
        event_id: str,
        call_id: str,
        *,
        by: str | None = None,
        principal: str | None = None,
        wait: float | None = None,
    ) -> Turn:
        """Make an awaited call now and go on with its result, as `answer` does."""
        opening = self._settling(session_id, event_id, call_id, runs=True, principal=principal, wait=wait)
        with acting(by):
            return self._run(opening)

    def abandon(
        self,
        session_id: str,
        event_id: str,
        call_id: str,
        *,
        by: str | None = None,
        principal: str | None = None,
        wait: float | None = None,
    ) -> Turn:
        """Give up waiting for the result of a call, and go on as `answer` does; the model is told of none."""
        opening = self._settling(session_id, event_id, call_id, principal=principal, wait=wait)
        with acting(by):
            return self._run(opening)

    def _run(self, opening: Opening, tools: Sequence[AnyTool] | None = None) -> Turn:
        sessions, engine = self._engine(opening, tools, stream=False)
        run = _Run(sessions, self._model, engine, self._keeper, is_silent=True)
        for _ in run.events():
            raise AssertionError("a silent run tells nothing")
        assert run.turn is not None  # noqa: S101 - it ended
        return run.turn

    def _stream(self, opening: Opening, tools: Sequence[AnyTool] | None) -> TurnStream:
        sessions, engine = self._engine(opening, tools, stream=True)
        return TurnStream(_Run(sessions, self._model, engine, self._keeper, is_silent=False))


class TurnStream:
    """A turn as it happens. Iterate over it inside its `with` block."""

    def __init__(self, run: _Run) -> None:
        self._run = run
        self._events = run.events()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.cancel()

    def __iter__(self) -> Iterator[TurnEvent]:
        return self._events

    def cancel(self) -> None:
        """End the turn here and store what came; nothing when it is over."""
        self._events.close()

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
        model: ChatModel,
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
        self._tools: ToolThreads | None = None
        self.turn: Turn | None = None

    def events(self) -> Generator[TurnEvent]:
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
                    if isinstance(step, Ask) and not self._is_silent:
                        result = yield from self._streamed(step)
                    elif isinstance(step, Tell):
                        if not self._is_silent:
                            yield step.event
                    else:
                        result = self._done(step)
                except Exception as raised:
                    error = raised
                except TurnCutError as cut:
                    left, error, self._is_silent = cut.__cause__, cut, True
                except BaseException as raised:
                    left, error, self._is_silent = raised, TurnCutError(), True
        if left is not None and not isinstance(left, GeneratorExit):
            raise left

    def _done(self, step: Step) -> Any:
        match step:
            case Do():
                return step.use(self._sessions)
            case Compact():
                return self._sessions.compact(
                    step.session_id,
                    step.trigger,
                    step.strategy,
                    branch=step.branch,
                    on_race=step.on_race,
                )
            case Ask():
                asked = time.perf_counter()
                reply = self._model.complete(step.rendered, on_send=lambda sent: self._resend(step, sent))
                return Answered(reply, time.perf_counter() - asked)
            case StartTools():
                self._tools = ToolThreads(step.jobs)
            case NextTool():
                assert self._tools is not None  # noqa: S101 - they were started
                return self._tools.next()
            case Pause():
                time.sleep(step.seconds)
            case Tell():
                pass
        return None

    def _streamed(self, step: Ask) -> Generator[TurnEvent, None, Answered]:
        """Hand on the pieces of the answer; what came so far goes with the error when they are left."""
        asked = time.perf_counter()
        with self._model.stream(step.rendered, on_send=lambda sent: self._resend(step, sent)) as stream:
            try:
                for delta in stream:
                    if not isinstance(delta, ToolCallDelta):
                        yield delta
            except Exception:
                raise
            except BaseException as left:
                raise TurnCutError(stream.reply) from left
            return Answered(stream.reply, time.perf_counter() - asked)

    def _resend(self, step: Ask, rendered: RenderedRequest) -> None:
        write = step.on_send(rendered)
        if write is not None:
            write.use(self._sessions)
