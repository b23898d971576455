"""A pass in steps: a strategy says what it wants summarized, and somebody else asks the summarizer.

So one strategy serves summarizers that block and summarizers that are awaited.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator, Sequence
from dataclasses import replace
from typing import Protocol, TypeAlias, cast

from turnlog.domain.compaction import (
    AsyncCompactionSummarizer,
    CompactionReason,
    CompactionRequest,
    CompactionResult,
    CompactionSummarizer,
    Summary,
    SummaryRequest,
    as_data,
)
from turnlog.domain.errors import InvalidSettingError, shown
from turnlog.domain.messages import Message, Role

PassSteps: TypeAlias = Generator[SummaryRequest, Summary, CompactionResult]
"""Yields what is to be summarized, is sent the summary, and returns the result of the pass.

What the summarizer raises is thrown into it.
"""

AnySummarizer: TypeAlias = CompactionSummarizer | AsyncCompactionSummarizer
"""A summarizer that blocks, or one that is awaited."""


class SteppedStrategy(Protocol):
    """A strategy that can be run in steps, so that its summarizer may be awaited."""

    @property
    def asked(self) -> AnySummarizer | None:
        """The summarizer that answers the steps; None when there will be no question."""
        ...

    def steps(self, request: CompactionRequest) -> PassSteps:
        """One pass over the view of the request, in steps."""
        ...


def run_steps(steps: PassSteps, summarizer: AnySummarizer | None) -> CompactionResult:
    """The result of a pass whose summarizer blocks."""
    try:
        question = next(steps)
        while True:
            assert summarizer is not None  # noqa: S101 - a strategy without one asks nothing
            try:
                answer = summary_of(summarizer.summarize(question))
            except Exception as error:
                question = steps.throw(error)
            else:
                question = steps.send(answer)
    except StopIteration as done:
        return cast("CompactionResult", done.value)


def summary_of(answer: object) -> Summary:
    """What a summarizer returned, as a summary; declined when it is blank or asks for tools.

    Raises `InvalidSettingError` for what is no answer of a summarizer.
    """
    summary = answer if isinstance(answer, Summary) else Summary(_messages(answer))
    if any(message.tool_calls or message.tool_responses for message in summary.messages):
        return Summary(declined=CompactionReason.SUMMARY_CALLS_TOOLS)
    summary = replace(summary, messages=tuple(map(as_data, summary.messages)))
    said = [one for one in summary.messages if one.role is not Role.USER] or summary.messages
    if summary.messages and all(map(_is_blank, said)):
        return Summary(declined=CompactionReason.SUMMARY_BLANK)
    return summary


def _messages(answer: object) -> tuple[Message, ...]:
    """The messages that a summarizer returned, none for None, or a word about what else it did."""
    if answer is None:
        return ()
    if isinstance(answer, Coroutine):
        answer.close()
        raise InvalidSettingError(
            "The summarizer is asynchronous: compact with an AsyncSessionService, which awaits it."
        )
    if isinstance(answer, (list, tuple)):
        listed = cast("Sequence[object]", answer)
        messages = tuple(one for one in listed if isinstance(one, Message))
        if len(messages) == len(listed):
            return messages
        answer = next(one for one in listed if not isinstance(one, Message))
    raise InvalidSettingError(f"A summarizer returns a list of messages or a `Summary`, not {shown(answer)}.")


def _is_blank(message: Message) -> bool:
    return not (message.text or "").strip()
