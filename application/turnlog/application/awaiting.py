"""Running the steps of a pass whose summarizer is awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import cast

from turnlog.domain.compaction import AsyncCompactionSummarizer, CompactionResult, SummaryRequest
from turnlog.domain.steps import PassSteps, summary_of


def awaited_summarizer(strategy: object) -> AsyncCompactionSummarizer | None:
    """The summarizer of the strategy if it is one to be awaited."""
    asked = getattr(strategy, "asked", None)
    is_awaited = iscoroutinefunction(getattr(asked, "summarize", None))
    return cast("AsyncCompactionSummarizer", asked) if is_awaited and hasattr(strategy, "steps") else None


async def await_steps(steps: PassSteps, summarizer: AsyncCompactionSummarizer) -> CompactionResult:
    """The result of the pass. Its own steps run in threads, the summarizer is awaited on the loop."""
    moved = await asyncio.to_thread(_moved, lambda: next(steps))
    while not isinstance(moved, CompactionResult):
        try:
            summary = summary_of(await summarizer.summarize(moved))
        except Exception as raised:
            error = raised
            moved = await asyncio.to_thread(_moved, lambda: steps.throw(error))  # noqa: B023 - run at once
        else:
            moved = await asyncio.to_thread(_moved, lambda: steps.send(summary))  # noqa: B023 - run at once
    return moved


def _moved(move: Callable[[], SummaryRequest]) -> SummaryRequest | CompactionResult:
    """The next question, or the result at the end."""
    try:
        return move()
    except StopIteration as done:
        return cast("CompactionResult", done.value)
