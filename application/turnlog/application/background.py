"""Compaction in the background: nobody waits for a summary, and a session never has two passes at once."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from threading import Lock
from types import TracebackType
from typing import Generic, Self, TypeVar

from turnlog.application.async_service import AnySessionService, async_service, sync_service
from turnlog.application.compacting import OnRace
from turnlog.application.context import merged_context
from turnlog.domain.compaction import (
    CompactionResult,
    CompactionStrategy,
    CompactionTrigger,
    require_positive,
)
from turnlog.domain.errors import TurnlogError
from turnlog.domain.guards import require_callable, require_methods

_log = logging.getLogger("turnlog")

F = TypeVar("F")


class BackgroundClosedError(TurnlogError):
    """The background compaction was closed and takes no more passes."""

    def __init__(self) -> None:
        super().__init__("This background compaction is closed: make another one.")


@dataclass(frozen=True)
class _Job(Generic[F]):
    """A pass that was asked for, and where its result is put."""

    session_id: str
    branch: str | None
    context: Mapping[str, str]
    future: F


@dataclass
class _Lanes(Generic[F]):
    """The passes that wait, by session: those of one session run one by one.

    A second request for a pass that has not begun is answered by the one that waits; while a pass runs,
    another one waits behind it, since the first may not have seen what came last.
    """

    waiting: dict[str, deque[_Job[F]]] = field(default_factory=dict[str, "deque[_Job[F]]"])

    def add(self, job: _Job[F]) -> tuple[_Job[F], bool]:
        """The job that stands for this one, and whether its lane is to be started."""
        lane = self.waiting.get(job.session_id)
        if lane is None:
            self.waiting[job.session_id] = deque((job,))
            return job, True
        for known in lane:
            if known.branch == job.branch:
                return known, False
        lane.append(job)
        return job, False

    def next_of(self, session_id: str) -> _Job[F] | None:
        """The next job of the lane, which is closed when there is none."""
        lane = self.waiting[session_id]
        if lane:
            return lane.popleft()
        del self.waiting[session_id]
        return None

    def take_all(self) -> list[_Job[F]]:
        """All jobs that have not begun; they are no longer waiting."""
        jobs = [job for lane in self.waiting.values() for job in lane]
        for lane in self.waiting.values():
            lane.clear()
        return jobs


class BackgroundCompaction:
    """Compacts sessions on threads, at most one pass per session at a time.

    A lost race is rebased by default, since a person types on while the summary is written. A pass that
    fails is logged and its error is in the future; nothing of it is written. Leaving the block waits for all
    passes that were submitted.
    """

    def __init__(
        self,
        sessions: AnySessionService,
        trigger: CompactionTrigger | None,
        strategy: CompactionStrategy,
        *,
        on_race: OnRace = OnRace.REBASE,
        max_workers: int = 2,
    ) -> None:
        require_positive("`max_workers`", max_workers)
        _check_pass(trigger, strategy)
        self._sessions = sync_service(sessions)
        self._trigger = trigger
        self._strategy = strategy
        self._on_race = on_race
        self._threads = ThreadPoolExecutor(max_workers, thread_name_prefix="turnlog-compaction")
        self._lock = Lock()
        self._lanes: _Lanes[Future[CompactionResult]] = _Lanes()
        self._closed = False

    def submit(
        self, session_id: str, *, branch: str | None = None, context: Mapping[str, str] | None = None
    ) -> Future[CompactionResult]:
        """Ask for a pass; the future has its result. Raises `BackgroundClosedError`.

        A pass of this session and branch that waits already stands for this one too.
        """
        job = _Job(session_id, branch, merged_context(context), Future[CompactionResult]())
        with self._lock:
            if self._closed:
                raise BackgroundClosedError
            job, starts = self._lanes.add(job)
            if starts:
                self._threads.submit(copy_context().run, self._drain, session_id)
        return job.future

    def close(self, *, wait: bool = True) -> None:
        """Take no more passes. Waits for all of them, or cancels those that have not begun."""
        with self._lock:
            self._closed = True
            cancelled = [] if wait else self._lanes.take_all()
        for job in cancelled:
            job.future.cancel()
        self._threads.shutdown(wait=wait)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _drain(self, session_id: str) -> None:
        while True:
            with self._lock:
                job = self._lanes.next_of(session_id)
            if job is None:
                return
            if job.future.set_running_or_notify_cancel():
                self._run(job)

    def _run(self, job: _Job[Future[CompactionResult]]) -> None:
        try:
            result = self._sessions.compact(
                job.session_id,
                self._trigger,
                self._strategy,
                branch=job.branch,
                on_race=self._on_race,
                context=job.context,
            )
        except BaseException as error:  # the future is what tells of it
            _log_failure(job.session_id, error)
            job.future.set_exception(error)
        else:
            job.future.set_result(result)


class AsyncBackgroundCompaction:
    """`BackgroundCompaction` for asyncio: passes are tasks of the running loop."""

    def __init__(
        self,
        sessions: AnySessionService,
        trigger: CompactionTrigger | None,
        strategy: CompactionStrategy,
        *,
        on_race: OnRace = OnRace.REBASE,
        max_running: int = 2,
    ) -> None:
        require_positive("`max_running`", max_running)
        _check_pass(trigger, strategy)
        self._sessions = async_service(sessions)
        self._trigger = trigger
        self._strategy = strategy
        self._on_race = on_race
        self._room = asyncio.Semaphore(max_running)
        self._lanes: _Lanes[asyncio.Future[CompactionResult]] = _Lanes()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def submit(
        self, session_id: str, *, branch: str | None = None, context: Mapping[str, str] | None = None
    ) -> asyncio.Future[CompactionResult]:
        """Ask for a pass; the future has its result. Raises `BackgroundClosedError`."""
        if self._closed:
            raise BackgroundClosedError
        future: asyncio.Future[CompactionResult] = asyncio.get_running_loop().create_future()
        future.add_done_callback(_retrieved)
        job, starts = self._lanes.add(_Job(session_id, branch, merged_context(context), future))
        if starts:
            task = asyncio.get_running_loop().create_task(self._drain(session_id))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return job.future

    async def close(self, *, wait: bool = True) -> None:
        """Take no more passes. Waits for all of them, or cancels them.

        A pass that is cancelled writes nothing, unless its write has begun.
        """
        self._closed = True
        if not wait:
            for job in self._lanes.take_all():
                job.future.cancel()
            for task in self._tasks:
                task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def _drain(self, session_id: str) -> None:
        while (job := self._lanes.next_of(session_id)) is not None:
            try:
                async with self._room:
                    await self._run(job)
            except asyncio.CancelledError:
                job.future.cancel()
                raise

    async def _run(self, job: _Job[asyncio.Future[CompactionResult]]) -> None:
        if job.future.cancelled():
            return
        try:
            result = await self._sessions.compact(
                job.session_id,
                self._trigger,
                self._strategy,
                branch=job.branch,
                on_race=self._on_race,
                context=job.context,
            )
        except Exception as error:
            _log_failure(job.session_id, error)
            if not job.future.done():
                job.future.set_exception(error)
        else:
            if not job.future.done():
                job.future.set_result(result)


def _check_pass(trigger: object, strategy: object) -> None:
    if trigger is not None:
        require_callable("A trigger", trigger, "a function of the request, or None for always")
    require_methods("A strategy", strategy, ("compact",), "an object with a method `compact`")


def _retrieved(future: asyncio.Future[CompactionResult]) -> None:
    """An error that nobody asks for was logged: the loop needs not tell of it again."""
    if not future.cancelled():
        future.exception()


def _log_failure(session_id: str, error: BaseException) -> None:
    _log.warning("A background compaction of session %r failed: %s", session_id, type(error).__name__)
