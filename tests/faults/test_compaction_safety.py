"""What other systems lose when they compact, as it must be kept here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
from eventsourcing.persistence import OperationalError, StoredEvent
from eventsourcing.sqlite import SQLiteCursor
from tests.branches.random_logs import Summarizer
from tests.contracts.stores import in_file
from tests.faults.conversation import SID, STRATEGIES, Unasked, every_strategy, say, service, shown, unasked

from turnlog.application.service import SessionService
from turnlog.domain.compaction import CompactionReason, CompactionRequest, CompactionResult, SummaryRequest
from turnlog.domain.errors import InvalidBoundaryError, StorageError
from turnlog.domain.messages import Message
from turnlog.domain.triggers import TurnCountTrigger
from turnlog.domain.window import CompactionWindow, WindowCompactionStrategy
from turnlog.infrastructure.sqlite import SqliteSessionRecorder

NEWEST_TURN = WindowCompactionStrategy(CompactionWindow.last_turns(1))
SUMMARIZED = WindowCompactionStrategy(CompactionWindow.last_turns(1), Summarizer())
TURN = "u1 k1:c1 t1:c1 k2:c2 t2:c2 a1"


@pytest.mark.parametrize("budget", range(1, 13))
def test_fault_004_a_turn_stays_or_leaves_as_a_whole_whatever_the_budget(budget: int) -> None:
    sessions = service()
    say(sessions, f"u0 {TURN}", cost=3)
    sessions.compact(SID, None, WindowCompactionStrategy(CompactionWindow.token_budget(budget)))
    assert shown(sessions) == "u1 k1 t1 k2 t2 a1"


class Parting:
    """A strategy that keeps a result and covers its call."""

    def compact(self, request: CompactionRequest) -> CompactionResult:
        """Covers the first two events."""
        return CompactionResult(
            CompactionReason.COMPACTED,
            covered_events=request.events[:2],
            preserved_events=request.events[2:],
        )


def test_fault_004_a_pass_that_would_part_a_call_from_its_result_is_refused() -> None:
    sessions = service()
    say(sessions, TURN)
    before = sessions.get_events(SID)
    with pytest.raises(InvalidBoundaryError):
        sessions.compact(SID, None, Parting())
    assert (sessions.get_events(SID), sessions.view(SID).events) == (before, before)


class FailingRecorder(SqliteSessionRecorder):
    """Loses its connection behind this many rows of the write that follows."""

    fails_behind: ClassVar[int | None] = None

    def _insert_events(
        self, c: SQLiteCursor, stored_events: Sequence[StoredEvent], *args: Any, **kwargs: Any
    ) -> Sequence[int] | None:
        if FailingRecorder.fails_behind is None:
            return super()._insert_events(c, stored_events, *args, **kwargs)
        super()._insert_events(c, stored_events[: FailingRecorder.fails_behind], *args, **kwargs)
        FailingRecorder.fails_behind = None
        raise OperationalError("disk I/O error")


@pytest.mark.parametrize("rows", range(4))
def test_fault_032_a_write_that_fails_halfway_leaves_the_log_and_the_view(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    env = {"APPLICATION_RECORDER_TOPIC": f"{__name__}:FailingRecorder"}
    sessions = in_file(env=env)(tmp_path).service()
    sessions.create(SID)
    say(sessions, "u1 a1 u2")
    before = sessions.get_events(SID), sessions.view(SID), sessions.version(SID)
    monkeypatch.setattr(FailingRecorder, "fails_behind", rows)
    with pytest.raises(StorageError):
        sessions.compact(SID, None, SUMMARIZED)
    assert (sessions.get_events(SID), sessions.view(SID), sessions.version(SID)) == before
    assert not sessions.compact(SID, None, SUMMARIZED).is_unchanged


@pytest.mark.parametrize("name", STRATEGIES)
def test_fault_034_a_summary_is_carried_forward_when_no_turn_came(name: str) -> None:
    sessions = service()
    say(sessions, "x1 x2 u1 a1")
    result = sessions.compact(SID, None, every_strategy(Unasked(), unasked)[name])
    assert result.reason is CompactionReason.NOTHING_TO_COVER
    assert shown(sessions) == "x1 x2 u1 a1"


@pytest.mark.parametrize("name", STRATEGIES)
def test_fault_042_calls_and_results_without_a_question_are_not_summarized(name: str) -> None:
    sessions = service()
    say(sessions, "k1:c1 t1:c1 k2:c2 t2:c2")
    result = sessions.compact(SID, None, every_strategy(Unasked(), unasked)[name])
    assert result.reason is CompactionReason.NOTHING_TO_COVER
    assert shown(sessions) == "k1 t1 k2 t2"


def test_fault_042_what_is_summarized_begins_at_a_turn() -> None:
    given: list[SummaryRequest] = []

    class Noting(Summarizer):
        def summarize(self, request: SummaryRequest) -> Sequence[Message]:
            given.append(request)
            return super().summarize(request)

    sessions = service()
    say(sessions, f"k0:c0 t0:c0 {TURN} u2")
    sessions.compact(SID, None, WindowCompactionStrategy(CompactionWindow.last_turns(1), Noting()))
    (request,) = given
    assert [event.id for event in request.covered] == ["u1", "k1", "t1", "k2", "t2", "a1"]


class ModelDownError(Exception):
    """What a summarizer raises."""


class Answering:
    """A summarizer that answers as it is told."""

    def __init__(self, *messages: Message, error: Exception | None = None) -> None:
        self._messages = messages
        self._error = error

    def summarize(self, request: SummaryRequest) -> Sequence[Message]:  # noqa: ARG002 - the port's argument
        """The messages, or the error."""
        if self._error is not None:
            raise self._error
        return self._messages


REASONS: dict[str, tuple[int, Answering | None, CompactionReason]] = {
    "the trigger does not fire": (9, Answering(), CompactionReason.TRIGGER_DID_NOT_FIRE),
    "the summarizer declines": (1, Answering(), CompactionReason.SUMMARIZER_DECLINED),
    "the summary is blank": (1, Answering(Message.assistant(" ")), CompactionReason.SUMMARY_BLANK),
}


def _asked(sessions: SessionService, turns: int, summarizer: Any) -> CompactionResult:
    window = CompactionWindow.last_turns(1)
    return sessions.compact(SID, TurnCountTrigger(turns), WindowCompactionStrategy(window, summarizer))


@pytest.mark.parametrize("name", sorted(REASONS))
def test_fault_116_a_pass_that_does_nothing_says_so_and_why(name: str) -> None:
    turns, summarizer, reason = REASONS[name]
    sessions = service()
    say(sessions, "u1 a1 u2 a2")
    before = sessions.get_events(SID)
    result = _asked(sessions, turns, summarizer)
    assert (result.reason, result.is_unchanged) == (reason, True)
    assert result.tokens_before == result.tokens_after == 12
    assert sessions.get_events(SID) == before


def test_fault_116_a_summarizer_that_fails_is_an_error_and_nothing_is_written() -> None:
    sessions = service()
    say(sessions, "u1 a1 u2 a2")
    before = sessions.get_events(SID)
    with pytest.raises(ModelDownError):
        _asked(sessions, 1, Answering(error=ModelDownError()))
    assert sessions.get_events(SID) == before


def test_fault_116_a_pass_that_was_done_says_what_the_view_cost_before_and_after() -> None:
    sessions = service()
    say(sessions, "u1 a1 u2 a2", cost=30)
    result = _asked(sessions, 1, Answering(Message.assistant("so far")))
    assert (result.reason, result.tokens_before, result.tokens_after) == (CompactionReason.COMPACTED, 120, 67)


def test_fault_116_the_last_answer_is_not_the_summary() -> None:
    sessions = service()
    say(sessions, "u1 a1 u2 a2")
    result = _asked(sessions, 1, Answering(Message.assistant("so far")))
    assert [event.text for event in result.summary_events] == ["so far"]
    assert shown(sessions) == f"{result.summary_events[0].id} u2 a2"
