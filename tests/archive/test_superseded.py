"""What the strategies of the archive design keep and archive around their cut."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.laws.machine import CountedCharacters

from turnlog.application.service import SessionService
from turnlog.domain.archive import (
    RecursiveSummarizationCompactionStrategy,
    SlidingWindowCompactionStrategy,
    TokenCountCompactionStrategy,
    TurnWindowCompactionStrategy,
)
from turnlog.domain.compaction import CompactionReason, CompactionStrategy
from turnlog.domain.log import NewEvent
from turnlog.domain.messages import Message, ToolCallPart, ToolCallResponsePart

SID = "s"

ROOMY: dict[str, Callable[[], CompactionStrategy]] = {
    "sliding": lambda: SlidingWindowCompactionStrategy(100),
    "turns": lambda: TurnWindowCompactionStrategy(100),
    "tokens": lambda: TokenCountCompactionStrategy(10_000),
    "recursive": lambda: RecursiveSummarizationCompactionStrategy(_not_asked, 100),
}
"""Strategies that hold more than there is."""


def _not_asked(_: object) -> str:
    raise AssertionError("the model is asked only when something is cut")


def _blank(_: object) -> str:
    return " \n"


@pytest.fixture
def sessions() -> SessionService:
    """A session with two turns, and two system messages of the root and of a branch."""
    service = SessionService(token_estimator=CountedCharacters())
    service.create(SID)
    for event_id, message, branch in (
        ("s1", Message.system("old"), None),
        ("b1", Message.system("old"), "orch"),
        ("u1", Message.user("one"), None),
        ("s2", Message.system("new"), None),
        ("b2", Message.system("new"), "orch"),
        ("u2", Message.user("two"), None),
    ):
        service.append_message(SID, message, event_id=event_id, branch=branch)
    return service


@pytest.mark.parametrize("name", sorted(ROOMY))
def test_superseded_system_messages_leave_though_nothing_is_cut(sessions: SessionService, name: str) -> None:
    result = sessions.compact(SID, None, ROOMY[name]())
    assert result.reason is CompactionReason.COMPACTED
    assert sessions.view(SID).ids == ("u1", "s2", "b2", "u2")


def test_superseded_system_messages_leave_though_the_summary_is_blank(sessions: SessionService) -> None:
    failures: list[Exception | None] = []
    sessions.compact(
        SID,
        None,
        RecursiveSummarizationCompactionStrategy(_blank, 1, overlap_size=0, on_failure=failures.append),
    )
    assert sessions.view(SID).ids == ("u1", "s2", "b2", "u2")
    assert failures == [None]


def test_a_pass_of_a_branch_leaves_the_superseded_messages_of_others(sessions: SessionService) -> None:
    sessions.compact(SID, None, SlidingWindowCompactionStrategy(100), branch="orch")
    assert sessions.view(SID).ids == ("s1", "u1", "s2", "b2", "u2")


@pytest.mark.parametrize("name", sorted(ROOMY))
def test_a_second_pass_over_the_same_view_writes_nothing(sessions: SessionService, name: str) -> None:
    sessions.compact(SID, None, ROOMY[name]())
    version = sessions.version(SID)
    result = sessions.compact(SID, None, ROOMY[name]())
    assert (result.reason, sessions.version(SID)) == (CompactionReason.NOTHING_TO_COVER, version)


def test_the_turn_window_keeps_the_late_result_of_a_call_in_the_preamble() -> None:
    sessions = SessionService(token_estimator=CountedCharacters())
    sessions.create(SID)
    call = Message.assistant([ToolCallPart(id="c1", name="f")])
    result = Message.tool([ToolCallResponsePart(id="c1", response="ok")])
    said = {
        "k1": call,
        "u1": Message.user("1"),
        "t1": result,
        "u2": Message.user("2"),
        "u3": Message.user("3"),
    }
    sessions.append_events(SID, [NewEvent(message=message, id=name) for name, message in said.items()])
    sessions.compact(SID, None, TurnWindowCompactionStrategy(1))
    assert sessions.view(SID).ids == ("k1", "t1", "u3")
