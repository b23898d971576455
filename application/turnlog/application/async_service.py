"""The session service for asyncio: the same methods, each awaited, and the loop is never blocked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from copy import copy
from datetime import datetime
from functools import wraps
from itertools import islice
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeAlias, TypeVar, cast
from uuid import UUID

from eventsourcing.application import Application

from turnlog.application.awaiting import await_steps, awaited_summarizer
from turnlog.application.compacting import OnRace
from turnlog.application.core import Capabilities
from turnlog.application.service import SessionService
from turnlog.application.writing import Also
from turnlog.domain.compaction import CompactionResult, CompactionStrategy, CompactionTrigger
from turnlog.domain.errors import InvalidSettingError, shown
from turnlog.domain.estimation import TokenEstimator
from turnlog.domain.log import SessionEvent
from turnlog.domain.steps import SteppedStrategy

P = ParamSpec("P")
T = TypeVar("T")

_PAGE = 500


def _in_thread(
    method: Callable[Concatenate[SessionService, P], T],
) -> Callable[Concatenate[AsyncSessionService, P], Coroutine[Any, Any, T]]:
    """The method as a coroutine that runs it in a thread, with the caller's context variables."""

    @wraps(method)
    async def call(self: AsyncSessionService, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.to_thread(method, self.sync, *args, **kwargs)

    return call


class AsyncSessionService:
    """`SessionService` for asyncio users. Each call runs in a thread of the loop's default executor.

    Arguments and errors are those of `SessionService`. A call that is cancelled goes on in its thread: what
    it writes is written as a whole or not at all, as ever.
    """

    def __init__(
        self,
        app: Application[UUID] | None = None,
        *,
        env: Mapping[str, str] | None = None,
        token_estimator: TokenEstimator | None = None,
        clock: Callable[[], datetime] | None = None,
        namespace: str = "",
        keep_passes: bool = False,
    ) -> None:
        self.sync = SessionService(
            app,
            env=env,
            token_estimator=token_estimator,
            clock=clock,
            namespace=namespace,
            keep_passes=keep_passes,
        )
        """The service that does the work, for code that may block."""

    def scoped_to(self, principal: str) -> Self:
        """This service for one principal, as `SessionService.scoped_to`."""
        scoped = copy(self)
        scoped.sync = self.sync.scoped_to(principal)
        return scoped

    @property
    def app(self) -> Application[UUID]:
        """The framework application that holds the sessions."""
        return self.sync.app

    @property
    def capabilities(self) -> Capabilities:
        """What holds on the store beneath."""
        return self.sync.capabilities

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def compact(
        self,
        session_id: str,
        trigger: CompactionTrigger | None,
        strategy: CompactionStrategy,
        *,
        branch: str | None = None,
        on_race: OnRace = OnRace.SKIP,
        context: Mapping[str, str] | None = None,
        also: Also = (),
    ) -> CompactionResult:
        """One pass, as `SessionService.compact`. A summarizer that is a coroutine is awaited on the loop.

        While it is, the pass holds no thread. Any other strategy runs in a thread as a whole.
        """
        awaited = awaited_summarizer(strategy)
        if awaited is None:
            return await asyncio.to_thread(
                self.sync.compact,
                session_id,
                trigger,
                strategy,
                branch=branch,
                on_race=on_race,
                context=context,
                also=also,
            )
        opened = await self.open_pass(
            session_id, trigger, strategy, branch=branch, on_race=on_race, context=context
        )
        result: CompactionResult | None = None
        if opened.fires:
            steps = cast("SteppedStrategy", strategy).steps(opened.request)
            try:
                result = await await_steps(steps, awaited)
            except Exception as error:
                await self.fail_pass(opened, error)
                raise
        return await self.close_pass(opened, result, also=also)

    async def iter_events(self, session_id: str) -> AsyncIterator[SessionEvent]:
        """The whole log, read page by page, as `SessionService.iter_events`."""
        events = self.sync.iter_events(session_id)
        while page := await asyncio.to_thread(lambda: list(islice(events, _PAGE))):
            for event in page:
                yield event

    close = _in_thread(SessionService.close)
    create = _in_thread(SessionService.create)
    find = _in_thread(SessionService.find)
    find_or_create = _in_thread(SessionService.find_or_create)
    list_sessions = _in_thread(SessionService.list_sessions)
    find_by_metadata = _in_thread(SessionService.find_by_metadata)
    sessions_with_prefix = _in_thread(SessionService.sessions_with_prefix)
    update_metadata = _in_thread(SessionService.update_metadata)
    extend = _in_thread(SessionService.extend)
    delete = _in_thread(SessionService.delete)
    delete_expired = _in_thread(SessionService.delete_expired)
    hold = _in_thread(SessionService.hold)
    holds = _in_thread(SessionService.holds)
    release = _in_thread(SessionService.release)
    redact = _in_thread(SessionService.redact)
    sweep = _in_thread(SessionService.sweep)
    backup = _in_thread(SessionService.backup)
    erasures = _in_thread(SessionService.erasures)
    append_message = _in_thread(SessionService.append_message)
    append_event = _in_thread(SessionService.append_event)
    append_events = _in_thread(SessionService.append_events)
    abandon = _in_thread(SessionService.abandon)
    restore_boundary = _in_thread(SessionService.restore_boundary)
    get_events = _in_thread(SessionService.get_events)
    get_messages = _in_thread(SessionService.get_messages)
    get_event = _in_thread(SessionService.get_event)
    search_events = _in_thread(SessionService.search_events)
    search_all = _in_thread(SessionService.search_all)
    version = _in_thread(SessionService.version)
    view = _in_thread(SessionService.view)
    usage = _in_thread(SessionService.usage)
    open_pass = _in_thread(SessionService.open_pass)
    fail_pass = _in_thread(SessionService.fail_pass)
    close_pass = _in_thread(SessionService.close_pass)
    apply_plan = _in_thread(SessionService.apply_plan)
    record_turn = _in_thread(SessionService.record_turn)
    view_for_turn = _in_thread(SessionService.view_for_turn)
    count_tokens = _in_thread(SessionService.count_tokens)
    awaits = _in_thread(SessionService.awaits)
    awaited_calls = _in_thread(SessionService.awaited_calls)
    events_by_id = _in_thread(SessionService.events_by_id)
    rest_of_turn = _in_thread(SessionService.rest_of_turn)

    @property
    def namespace(self) -> str:
        """The namespace of the service's sessions."""
        return self.sync.namespace

    @property
    def principal(self) -> str | None:
        """Whom this scope belongs to, None for the service itself."""
        return self.sync.principal


AnySessionService: TypeAlias = SessionService | AsyncSessionService
"""A service that blocks, or one for asyncio."""


def async_service(given: AnySessionService) -> AsyncSessionService:
    """The service itself, or one for asyncio over a service that blocks, with all that it holds.

    Raises `InvalidSettingError` for what is none.
    """
    if isinstance(given, AsyncSessionService):
        return given
    made = AsyncSessionService.__new__(AsyncSessionService)
    made.sync = sync_service(given)
    return made


def sync_service(given: AnySessionService) -> SessionService:
    """The service itself, or the one that does the work of a service for asyncio.

    Raises `InvalidSettingError` for what is none.
    """
    service = given.sync if isinstance(given, AsyncSessionService) else given
    if not isinstance(service, SessionService):  # pyright: ignore[reportUnnecessaryIsInstance] # callers may be untyped
        raise InvalidSettingError(
            f"A SessionService or an AsyncSessionService is needed, not {shown(given)}."
        )
    return service
