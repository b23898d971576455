"""A chain of summarizers: the next one is asked when one declines or raises."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from inspect import iscoroutinefunction
from typing import Any, TypeAlias, cast

from turnlog.domain.compaction import CompactionReason, CompactionSummarizer, Summary, SummaryRequest
from turnlog.domain.errors import InvalidSettingError
from turnlog.domain.guards import require_methods
from turnlog.domain.steps import AnySummarizer, summary_of

FallbackCallback: TypeAlias = Callable[[AnySummarizer, Exception | CompactionReason], None]
"""Told which summarizer gave no summary: with what it raised, or why it declined."""

_ChainSteps: TypeAlias = Generator[AnySummarizer, Summary, Summary]


@dataclass(frozen=True, init=False)
class _Chain:
    summarizers: tuple[AnySummarizer, ...]
    on_fallback: FallbackCallback | None = None

    def _init(self, summarizers: tuple[AnySummarizer, ...], on_fallback: FallbackCallback | None) -> None:
        if not summarizers:
            raise InvalidSettingError("A chain of summarizers needs at least one.")
        for summarizer in summarizers:
            require_methods("A summarizer", summarizer, ("summarize",), "an object with a method `summarize`")
        object.__setattr__(self, "summarizers", summarizers)
        object.__setattr__(self, "on_fallback", on_fallback)

    def _steps(self) -> _ChainSteps:
        """Yield whom to ask, be sent the summary, and return the one that counts."""
        *others, last = self.summarizers
        passed_over: list[str] = []
        for summarizer in others:
            try:
                summary = yield summarizer
            except Exception as error:
                self._fell_back(summarizer, error)
                passed_over.append(f"{type(summarizer).__name__}: {type(error).__name__}")
            else:
                if summary.messages:
                    return _reported(summary, summarizer, passed_over)
                self._fell_back(summarizer, summary.declined)
                passed_over.append(f"{type(summarizer).__name__}: {summary.declined}")
        summary = yield last
        return _reported(summary, last, passed_over)

    def _fell_back(self, summarizer: AnySummarizer, why: Exception | CompactionReason) -> None:
        if self.on_fallback:
            self.on_fallback(summarizer, why)


@dataclass(frozen=True, init=False)
class FallbackSummarizer(_Chain):
    """Asks its summarizers in order until one answers; the last one's word counts, also when it raises.

    The summary names the summarizer that answered, and its `detail` those that did not and why. Put an
    `ExtractiveSummarizer` last: it needs no model.
    """

    def __init__(
        self, *summarizers: CompactionSummarizer, on_fallback: FallbackCallback | None = None
    ) -> None:
        self._init(summarizers, on_fallback)

    def summarize(self, request: SummaryRequest) -> Summary:
        """The first summary that one of them gives."""
        steps = self._steps()
        try:
            asked = next(steps)
            while True:
                try:
                    answer = summary_of(asked.summarize(request))
                except Exception as error:
                    asked = steps.throw(error)
                else:
                    asked = steps.send(answer)
        except StopIteration as done:
            return cast("Summary", done.value)


@dataclass(frozen=True, init=False)
class AsyncFallbackSummarizer(_Chain):
    """`FallbackSummarizer` for asyncio. Its summarizers may block too: these are asked in a thread."""

    def __init__(self, *summarizers: AnySummarizer, on_fallback: FallbackCallback | None = None) -> None:
        self._init(summarizers, on_fallback)

    async def summarize(self, request: SummaryRequest) -> Summary:
        """The first summary that one of them gives."""
        steps = self._steps()
        try:
            asked = next(steps)
            while True:
                try:
                    answer = summary_of(await _asked(asked, request))
                except Exception as error:
                    asked = steps.throw(error)
                else:
                    asked = steps.send(answer)
        except StopIteration as done:
            return cast("Summary", done.value)


async def _asked(summarizer: AnySummarizer, request: SummaryRequest) -> Any:
    if iscoroutinefunction(summarizer.summarize):
        return await summarizer.summarize(request)
    return await asyncio.to_thread(summarizer.summarize, request)


def _reported(summary: Summary, summarizer: AnySummarizer, passed_over: list[str]) -> Summary:
    """The summary with who wrote it, and who did not."""
    details = [*passed_over, *([summary.detail] if summary.detail else [])]
    name = summary.summarizer or type(summarizer).__name__
    return replace(summary, summarizer=name, detail="; ".join(details))
