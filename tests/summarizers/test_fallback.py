"""`FallbackSummarizer`: the next one is asked when one declines or raises."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.faults.conversation import SID, Unasked, say, service
from tests.summarizers.test_extractive import PAD, request_of
from tests.support.summary_models import AsyncScriptedModel, ScriptedModel

from turnlog.application.chat import AsyncChatModelSummarizer, ChatModelSummarizer, ModelTimeoutError
from turnlog.domain.compaction import CompactionReason
from turnlog.domain.errors import InvalidSettingError
from turnlog.domain.extractive import ExtractiveSummarizer
from turnlog.domain.fallback import AsyncFallbackSummarizer, FallbackSummarizer
from turnlog.domain.messages import Message
from turnlog.domain.window import CompactionWindow, WindowCompactionStrategy

REQUEST = request_of(Message.user("Where is it?"), PAD)
DOWN = ModelTimeoutError("down")


def asks(*answers: Any) -> ChatModelSummarizer:
    """A summarizer whose model answers so."""
    return ChatModelSummarizer(ScriptedModel(*answers))


def test_the_first_that_answers_is_the_last_that_is_asked() -> None:
    summary = FallbackSummarizer(asks("short"), Unasked()).summarize(REQUEST)
    assert (summary.messages[1].text, summary.summarizer, summary.detail) == (
        "short",
        "ChatModelSummarizer",
        "",
    )


@pytest.mark.parametrize(("answer", "why"), [(DOWN, "ModelTimeoutError"), (" ", "summary was blank")])
def test_the_next_one_is_asked_when_one_raises_or_declines(answer: Any, why: str) -> None:
    told: list[tuple[str, object]] = []
    chain = FallbackSummarizer(
        asks(answer),
        ExtractiveSummarizer(),
        on_fallback=lambda summarizer, reason: told.append((type(summarizer).__name__, reason)),
    )
    summary = chain.summarize(REQUEST)
    assert summary.summarizer == "ExtractiveSummarizer"
    assert summary.detail == f"ChatModelSummarizer: {why}"
    expected = answer if answer is DOWN else CompactionReason.SUMMARY_BLANK
    assert told == [("ChatModelSummarizer", expected)]


def test_the_word_of_the_last_one_counts() -> None:
    declined = FallbackSummarizer(asks(DOWN), asks("")).summarize(REQUEST)
    assert declined.declined is CompactionReason.SUMMARY_BLANK
    with pytest.raises(ModelTimeoutError):
        FallbackSummarizer(asks(""), asks(DOWN)).summarize(REQUEST)


def test_who_answered_is_kept_with_the_summary() -> None:
    sessions = service()
    say(sessions, "u1 a1 u2", cost=400)
    chain = FallbackSummarizer(asks(DOWN), ExtractiveSummarizer())
    strategy = WindowCompactionStrategy(CompactionWindow.last_turns(1), chain)
    result = sessions.compact(SID, None, strategy)
    assert result.summary[-1].metadata == {"summarizer": {"name": "ExtractiveSummarizer"}}
    assert "ModelTimeoutError" in result.detail


def test_an_awaited_chain_may_end_in_one_that_blocks() -> None:
    chain = AsyncFallbackSummarizer(
        AsyncChatModelSummarizer(AsyncScriptedModel(DOWN)), ExtractiveSummarizer()
    )
    summary = asyncio.run(chain.summarize(REQUEST))
    assert summary.summarizer == "ExtractiveSummarizer"


def test_a_chain_of_none_is_refused() -> None:
    with pytest.raises(InvalidSettingError):
        FallbackSummarizer()
