"""What makes the calls of tools: daemon threads for a sync chat, tasks and daemon threads for asyncio.

A thread cannot be stopped from outside: a tool that hangs is given up and its thread left, as a daemon, so
that it never keeps the process from ending.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
import time
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, cast

from turnlog.application.chat.running import ToolJob, ToolOutcome


class ToolThreads:
    """Runs the calls of one batch side by side, each in a thread of its own."""

    def __init__(self, jobs: Sequence[ToolJob | ToolOutcome]) -> None:
        self._done: SimpleQueue[ToolOutcome] = SimpleQueue()
        self._deadlines: dict[int, tuple[float, ToolJob]] = {}
        self._left = {job.place for job in jobs}
        for job in jobs:
            if isinstance(job, ToolOutcome):
                self._done.put(job)
                continue
            if job.time_limit is not None:
                self._deadlines[job.place] = (time.monotonic() + job.time_limit, job)
            _thread(contextvars.copy_context().run, self._run, job)

    def next(self) -> ToolOutcome:
        """The next call that is over, in whichever order they end; blocks until there is one."""
        while True:
            due, late = min(self._deadlines.values(), key=lambda one: one[0], default=(None, None))
            try:
                outcome = self._done.get(timeout=None if due is None else max(0.0, due - time.monotonic()))
            except Empty:
                assert late is not None  # noqa: S101 - only a deadline ends the wait
                outcome = late.late()
            self._deadlines.pop(outcome.place, None)
            if outcome.place in self._left:  # not one that was given up
                self._left.discard(outcome.place)
                return outcome

    def _run(self, job: ToolJob) -> None:
        try:
            value = job.run()
            if inspect.isawaitable(value):
                value = asyncio.run(_awaited(cast("Awaitable[object]", value)))
            outcome = job.outcome(value)
        except BaseException as error:  # whatever it is, the model is waiting for a result
            outcome = job.failure(error)
        self._done.put(outcome)


class ToolTasks:
    """Runs the calls of one batch side by side on an event loop; what blocks runs in threads."""

    def __init__(self, jobs: Sequence[ToolJob | ToolOutcome]) -> None:
        self._done: asyncio.Queue[ToolOutcome] = asyncio.Queue()
        self._is_left = False
        self._tasks = [asyncio.create_task(self._run(job)) for job in jobs if isinstance(job, ToolJob)]
        for job in jobs:
            if isinstance(job, ToolOutcome):
                self._done.put_nowait(job)

    async def next(self) -> ToolOutcome:
        """The next call that is over, in whichever order they end."""
        return await self._done.get()

    def cancel(self) -> None:
        """Stop what still runs; threads are left."""
        self._is_left = True
        for task in self._tasks:
            task.cancel()

    async def _run(self, job: ToolJob) -> None:
        limit = asyncio.timeout(job.time_limit)
        try:
            async with limit:
                value = job.run() if job.is_async else await _in_thread(job)
                if inspect.isawaitable(value):
                    value = await value
            outcome = job.outcome(value)
        except BaseException as error:
            if self._is_left:
                raise
            outcome = (
                job.late() if isinstance(error, TimeoutError) and limit.expired() else job.failure(error)
            )
        self._done.put_nowait(outcome)


async def _awaited(value: Awaitable[object]) -> object:
    return await value


async def _in_thread(job: ToolJob) -> object:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[tuple[object, BaseException | None]] = loop.create_future()

    def settle(value: object, error: BaseException | None) -> None:
        if not future.done():
            future.set_result((value, error))

    def run() -> None:
        value, error = None, None
        try:
            value = job.run()
        except BaseException as raised:  # told to the model, whatever it is
            error = raised
        with suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(settle, value, error)

    _thread(contextvars.copy_context().run, run)
    value, error = await future
    if error is not None:
        raise error
    return value


def _thread(target: Any, *arguments: Any) -> None:
    threading.Thread(target=target, args=arguments, name="turnlog-tool", daemon=True).start()
