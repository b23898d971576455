"""Compacting with a summarizer that is awaited."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest
from tests.faults.conversation import SID, say, service
from tests.laws.machine import CountedCharacters
from tests.support.summary_models import AsyncScriptedModel

from turnlog.application import AsyncChatModelSummarizer, AsyncSessionService
from turnlog.application.chat import ModelTimeoutError
from turnlog.domain.archive import RecursiveSummarizationCompactionStrategy
from turnlog.domain.compaction import CompactionReason, CompactionResult, CompactionStrategy, SummaryRequest
from turnlog.domain.errors import InvalidSettingError
from turnlog.domain.guarding import GuardedCompactionStrategy
from turnlog.domain.messages import Message
from turnlog.domain.triggers import TurnCountTrigger
from turnlog.domain.window import CompactionWindow, WindowCompactionStrategy

NEWEST = CompactionWindow.last_turns(1)
SUMMARIZER = AsyncChatModelSummarizer(AsyncScriptedModel("recap"))


def compacted(strategy: CompactionStrategy, turns: int = 1) -> CompactionResult:
    """A pass over a session of three turns."""

    async def main() -> CompactionResult:
        async with AsyncSessionService(token_estimator=CountedCharacters()) as sessions:
            await sessions.create(SID)
            for text in ("one", "two", "three"):
                await sessions.append_message(SID, Message.user(text * 30))
            return await sessions.compact(SID, TurnCountTrigger(turns), strategy)

    return asyncio.run(main())


@pytest.mark.parametrize(
    "strategy",
    [
        WindowCompactionStrategy(NEWEST, SUMMARIZER),
        RecursiveSummarizationCompactionStrategy(SUMMARIZER, 1),
        GuardedCompactionStrategy(WindowCompactionStrategy(NEWEST, SUMMARIZER)),
        WindowCompactionStrategy(NEWEST),
    ],
    ids=["window", "recursive", "guarded", "no summarizer"],
)
def test_every_strategy_can_have_a_summarizer_that_is_awaited(strategy: CompactionStrategy) -> None:
    result = compacted(strategy)
    assert result.reason is CompactionReason.COMPACTED
    assert len(result.covered_events) == 2


def test_a_trigger_that_does_not_fire_asks_nobody() -> None:
    model = AsyncScriptedModel("recap")
    result = compacted(WindowCompactionStrategy(NEWEST, AsyncChatModelSummarizer(model)), turns=9)
    assert (result.reason, model.requests) == (CompactionReason.TRIGGER_DID_NOT_FIRE, [])


class OnLoop:
    """Notes on which thread it runs."""

    def __init__(self) -> None:
        self.threads: list[threading.Thread] = []

    async def summarize(self, request: SummaryRequest) -> Sequence[Message]:
        """A recap."""
        assert request.covered
        self.threads.append(threading.current_thread())
        return [Message.assistant("recap")]


def test_it_runs_on_the_loop_and_no_thread_waits_for_it() -> None:
    summarizer = OnLoop()
    compacted(WindowCompactionStrategy(NEWEST, summarizer))
    assert summarizer.threads == [threading.main_thread()]


def test_what_it_raises_reaches_the_caller_and_is_a_failure_to_the_guard() -> None:
    failing = AsyncChatModelSummarizer(AsyncScriptedModel(ModelTimeoutError("down")))
    strategy = GuardedCompactionStrategy(WindowCompactionStrategy(NEWEST, failing), max_failures=1)
    with pytest.raises(ModelTimeoutError):
        compacted(strategy)
    assert compacted(strategy).reason is CompactionReason.COOLING_DOWN


def test_the_service_that_blocks_says_which_one_awaits() -> None:
    sessions = service()
    say(sessions, "u1 a1 u2")
    with pytest.raises(InvalidSettingError, match="AsyncSessionService"):
        sessions.compact(SID, None, WindowCompactionStrategy(NEWEST, SUMMARIZER))
