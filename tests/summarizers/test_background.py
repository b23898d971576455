"""Compaction in the background: one pass per session at a time, and its result can be seen."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import CancelledError, Future

import pytest
from tests.faults.conversation import SID, say, service, shown
from tests.laws.machine import CountedCharacters

from turnlog.application import (
    AsyncBackgroundCompaction,
    AsyncSessionService,
    BackgroundClosedError,
    BackgroundCompaction,
)
from turnlog.application.service import SessionService
from turnlog.domain.compaction import CompactionReason, CompactionResult, SummaryRequest
from turnlog.domain.messages import Message
from turnlog.domain.triggers import TurnCountTrigger
from turnlog.domain.window import CompactionWindow, WindowCompactionStrategy

NEWEST = CompactionWindow.last_turns(1)


class Gate:
    """A summarizer that says when it is asked, answers when it may, and notes how many are asked at once."""

    def __init__(self) -> None:
        self.asked = threading.Semaphore(0)
        self.may_answer = threading.Semaphore(0)
        self.running: dict[str, int] = {}
        self.most = 0
        self._lock = threading.Lock()

    def summarize(self, request: SummaryRequest) -> Sequence[Message]:
        """A recap, once it may."""
        with self._lock:
            self.running[request.session_id] = self.running.get(request.session_id, 0) + 1
            self.most = max(self.most, *self.running.values())
        self.asked.release()
        assert self.may_answer.acquire(timeout=60)
        with self._lock:
            self.running[request.session_id] -= 1
        return [Message.assistant("recap")]


def with_turns(*sids: str) -> SessionService:
    """Sessions of two turns."""
    sessions = service()
    for sid in sids:
        sessions.create(sid)
    for sid in (SID, *sids):
        for text in ("one", "two"):
            sessions.append_message(sid, Message.user(text))
    return sessions


def background(sessions: SessionService, gate: Gate) -> BackgroundCompaction:
    """Compaction to the newest turn whose summarizer waits at the gate."""
    return BackgroundCompaction(sessions, TurnCountTrigger(1), WindowCompactionStrategy(NEWEST, gate))


def result_of(future: Future[CompactionResult]) -> CompactionResult:
    """The result, or an error when it takes too long."""
    return future.result(timeout=60)


def test_the_caller_does_not_wait_and_sees_the_result_later() -> None:
    sessions, gate = with_turns(), Gate()
    with background(sessions, gate) as compaction:
        future = compaction.submit(SID)
        assert gate.asked.acquire(timeout=60)
        assert not future.done()
        gate.may_answer.release()
        assert result_of(future).reason is CompactionReason.COMPACTED


def test_what_is_said_meanwhile_is_preserved() -> None:
    sessions, gate = with_turns(), Gate()
    with background(sessions, gate) as compaction:
        future = compaction.submit(SID)
        assert gate.asked.acquire(timeout=60)
        say(sessions, "u3")
        gate.may_answer.release()
        assert result_of(future).reason is CompactionReason.COMPACTED
    assert shown(sessions).endswith("u3")


def test_a_session_never_has_two_passes_at_once() -> None:
    sessions, gate = with_turns(), Gate()
    with background(sessions, gate) as compaction:
        first = compaction.submit(SID)
        assert gate.asked.acquire(timeout=60)
        second = compaction.submit(SID)
        assert compaction.submit(SID) is second, "one pass that waits is enough"
        assert first is not second
        say(sessions, "u3")
        gate.may_answer.release(2)
        assert result_of(first).reason is CompactionReason.COMPACTED
        assert result_of(second).reason is CompactionReason.COMPACTED
    assert gate.most == 1


def test_sessions_do_not_wait_for_each_other() -> None:
    sessions, gate = with_turns("other"), Gate()
    with background(sessions, gate) as compaction:
        futures = [compaction.submit(SID), compaction.submit("other")]
        assert gate.asked.acquire(timeout=60)
        assert gate.asked.acquire(timeout=60)
        gate.may_answer.release(2)
        assert [result_of(future).is_unchanged for future in futures] == [False, False]


def test_a_pass_that_fails_is_in_its_future_and_the_next_one_runs() -> None:
    sessions, gate = with_turns(), Gate()
    with background(sessions, gate) as compaction:
        gate.may_answer.release(1)
        with pytest.raises(Exception, match="was not found"):
            result_of(compaction.submit("nobody"))
        assert not result_of(compaction.submit(SID)).is_unchanged


def test_closing_waits_for_all_passes() -> None:
    sessions, gate = with_turns(), Gate()
    compaction = background(sessions, gate)
    future = compaction.submit(SID)
    gate.may_answer.release()
    compaction.close()
    assert future.done()
    with pytest.raises(BackgroundClosedError):
        compaction.submit(SID)


def test_closing_without_waiting_cancels_what_has_not_begun() -> None:
    sessions, gate = with_turns(), Gate()
    compaction = background(sessions, gate)
    running = compaction.submit(SID)
    assert gate.asked.acquire(timeout=60)
    waiting = compaction.submit(SID)
    compaction.close(wait=False)
    with pytest.raises(CancelledError):
        result_of(waiting)
    gate.may_answer.release()
    assert not result_of(running).is_unchanged


class AsyncGate:
    """`Gate` for asyncio."""

    def __init__(self) -> None:
        self.asked = asyncio.Semaphore(0)
        self.may_answer = asyncio.Semaphore(0)
        self.running = 0
        self.most = 0

    async def summarize(self, request: SummaryRequest) -> Sequence[Message]:
        """A recap, once it may."""
        assert request.covered
        self.running += 1
        self.most = max(self.most, self.running)
        self.asked.release()
        await self.may_answer.acquire()
        self.running -= 1
        return [Message.assistant("recap")]


async def with_async_turns() -> AsyncSessionService:
    """A session of two turns."""
    sessions = AsyncSessionService(token_estimator=CountedCharacters())
    await sessions.create(SID)
    for text in ("one", "two"):
        await sessions.append_message(SID, Message.user(text))
    return sessions


def async_background(sessions: AsyncSessionService, gate: AsyncGate) -> AsyncBackgroundCompaction:
    """Compaction to the newest turn whose summarizer waits at the gate."""
    return AsyncBackgroundCompaction(sessions, TurnCountTrigger(1), WindowCompactionStrategy(NEWEST, gate))


def test_tasks_of_one_session_run_one_by_one() -> None:
    async def main() -> None:
        sessions, gate = await with_async_turns(), AsyncGate()
        async with async_background(sessions, gate) as compaction:
            first = compaction.submit(SID)
            await gate.asked.acquire()
            second = compaction.submit(SID)
            assert compaction.submit(SID) is second
            await sessions.append_message(SID, Message.user("three"))
            gate.may_answer.release()
            assert (await first).reason is CompactionReason.COMPACTED
            await gate.asked.acquire()
            gate.may_answer.release()
            assert (await second).reason is CompactionReason.COMPACTED
        assert gate.most == 1

    asyncio.run(main())


def test_closing_without_waiting_cancels_tasks_and_nothing_is_written() -> None:
    async def main() -> None:
        sessions, gate = await with_async_turns(), AsyncGate()
        compaction = async_background(sessions, gate)
        running = compaction.submit(SID)
        await gate.asked.acquire()
        waiting = compaction.submit(SID)
        await compaction.close(wait=False)
        assert (running.cancelled(), waiting.cancelled()) == (True, True)
        assert len(await sessions.get_events(SID)) == 2
        with pytest.raises(BackgroundClosedError):
            compaction.submit(SID)

    asyncio.run(main())


def test_an_error_of_a_task_is_in_its_future() -> None:
    async def main() -> None:
        sessions = await with_async_turns()
        async with async_background(sessions, AsyncGate()) as compaction:
            with pytest.raises(Exception, match="was not found"):
                await compaction.submit("nobody")

    asyncio.run(main())
