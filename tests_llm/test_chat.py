"""Whole conversations with a real model. What is asserted is protocol and log, never wording."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnlog.application import ChatModelSummarizer, PromptRecorder, SessionAudit, SessionChat, SessionService
from turnlog.application.chat import Compacted, FinishReason, TextDelta
from turnlog.domain import (
    CompactionReason,
    CompactionWindow,
    FallbackSummarizer,
    Role,
    TokenCountTrigger,
    WindowCompactionStrategy,
)
from turnlog.domain.extractive import ExtractiveSummarizer
from turnlog.infrastructure.models import HttpChatModel

from .conftest import OPTIONS, WINDOW

SID = "talk"


@pytest.fixture
def sessions(tmp_path: Path) -> SessionService:
    env = {"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": str(tmp_path / "talk.db")}
    return SessionService(env=env)


def _summarizer(model: HttpChatModel) -> FallbackSummarizer:
    asked = ChatModelSummarizer(
        model=model, context_window=WINDOW, options=OPTIONS, max_output_tokens=64, max_summary_tokens=120
    )
    return FallbackSummarizer(asked, ExtractiveSummarizer(120))


def test_thirty_turns_fit_a_small_window_and_every_request_comes_back(
    model: HttpChatModel, sessions: SessionService
) -> None:
    chat = SessionChat(
        sessions,
        model,
        trigger=TokenCountTrigger(900),
        strategy=WindowCompactionStrategy(CompactionWindow.token_budget(400), _summarizer(model)),
        max_output_tokens=24,
        options=OPTIONS,
        recorder=PromptRecorder(sessions),
    )
    passes = []
    for number in range(30):
        turn = chat.send(SID, f"Parcel {number} weighs {number + 2} kilograms and goes to Lund. " * 3)
        assert turn.finish_reason in (FinishReason.STOP, FinishReason.LENGTH)
        assert turn.usage is not None
        assert (turn.usage.input_tokens or 0) <= WINDOW
        passes += [turn.compaction] if turn.compaction else []

    assert any(result.reason is CompactionReason.COMPACTED for result in passes)
    users = [e for e in sessions.get_events(SID) if e.role is Role.USER and not e.synthetic]
    assert len(users) == 30
    audit = SessionAudit(sessions)
    calls = [entry.id for entry in audit.timeline(SID).entries if entry.call]
    assert len(calls) == 30
    assert all(audit.told(SID, call).body for call in calls)
    assert audit.verify(SID).is_whole


def test_an_overflow_compacts_once_and_asks_again(model: HttpChatModel, sessions: SessionService) -> None:
    strategy = WindowCompactionStrategy(CompactionWindow.last_turns(1), ExtractiveSummarizer(120))
    chat = SessionChat(sessions, model, strategy=strategy, max_output_tokens=16, options=OPTIONS)
    sentence = "A parcel of many kilograms goes from Lund to Bergen by ship and by rail. "
    turn = chat.send(SID, sentence * 20)
    for _ in range(9):
        turn = chat.send(SID, sentence * 20)
        if turn.compaction:
            break

    assert turn.compaction is not None
    assert turn.compaction.reason is CompactionReason.COMPACTED
    assert turn.finish_reason in (FinishReason.STOP, FinishReason.LENGTH)


def test_a_stream_that_is_left_stores_what_came(model: HttpChatModel, sessions: SessionService) -> None:
    chat = SessionChat(sessions, model, max_output_tokens=64, options=OPTIONS)
    with chat.stream(SID, "Count the ships in the harbour of Lund, one by one.") as turn:
        for event in turn:
            if isinstance(event, TextDelta):
                break

    assert turn.turn.finish_reason is FinishReason.CANCELLED
    assert [message.role for message in sessions.view(SID).told()] == [Role.USER, Role.ASSISTANT]
    assert chat.send(SID, "And now?").finish_reason is not FinishReason.CANCELLED


def test_a_streamed_turn_tells_of_its_compaction(model: HttpChatModel, sessions: SessionService) -> None:
    chat = SessionChat(
        sessions,
        model,
        trigger=TokenCountTrigger(200),
        strategy=WindowCompactionStrategy(CompactionWindow.last_turns(1), _summarizer(model)),
        max_output_tokens=16,
        options=OPTIONS,
    )
    seen: list[Compacted] = []
    for number in range(6):
        with chat.stream(SID, f"Parcel {number} goes to Lund by ship and then by rail. " * 4) as turn:
            seen += [event for event in turn if isinstance(event, Compacted)]

    assert seen
