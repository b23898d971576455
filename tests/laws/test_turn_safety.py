"""Law 4 on calls and results that meet across preamble and turns."""

from __future__ import annotations

import pytest
from tests.laws.machine import CountedCharacters
from tests.laws.oracle import awaiting, pairs, starts_turn

from turnlog.application.service import SessionService
from turnlog.domain.archive import (
    RecursiveSummarizationCompactionStrategy,
    SlidingWindowCompactionStrategy,
    TokenCountCompactionStrategy,
    TurnWindowCompactionStrategy,
)
from turnlog.domain.compaction import CompactionStrategy
from turnlog.domain.log import NewEvent
from turnlog.domain.messages import Message, ToolCallPart, ToolCallResponsePart
from turnlog.domain.window import CompactionWindow, WindowCompactionStrategy


def _asks(*ids: str, awaiting: bool = False) -> Message:
    return Message.assistant([ToolCallPart(id=name, name="f", awaiting=awaiting) for name in ids])


def _answers(*ids: str) -> Message:
    return Message.tool([ToolCallResponsePart(id=name, response="ok") for name in ids])


def _user(text: str) -> Message:
    return Message.user(text)


CONVERSATIONS: dict[str, tuple[list[Message], set[int]]] = {
    "a result in the next turn": ([_user("1"), _asks("a"), _user("2"), _answers("a"), _user("3")], {4}),
    "a result in the newest turn": ([_user("1"), _asks("a"), _user("2"), _answers("a")], {0, 1, 2, 3}),
    "a result of a preamble's call": ([_asks("a"), _user("1"), _answers("a"), _user("2")], {0, 2, 3}),
    "one message answers a preamble's call and a turn's": (
        [_asks("a"), _user("1"), _asks("b"), _answers("a", "b"), _user("2")],
        {0, 2, 3, 4},
    ),
    "a parallel batch over two turns": (
        [_user("1"), _asks("a", "b"), _answers("a"), _user("2"), _answers("b"), _user("3")],
        {5},
    ),
    "a call that was never answered": ([_user("1"), _asks("a"), _user("2")], {2}),
    "a call that is awaited": ([_user("1"), _asks("a", awaiting=True), _user("2")], {0, 1, 2}),
    "an awaited call that was answered": (
        [_user("1"), _asks("a", awaiting=True), _answers("a"), _user("2")],
        {3},
    ),
    "two awaited calls of one id, one answered": (
        [_user("1"), _asks("a", "a", awaiting=True), _answers("a"), _user("2")],
        {0, 1, 2, 3},
    ),
    "an id that was used again": (
        [_user("1"), _asks("a"), _answers("a"), _user("2"), _asks("a"), _answers("a"), _user("3")],
        {6},
    ),
}
"""A conversation, and the messages that the view still holds when its newest turn is to be kept."""


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_calls_and_results_stay_on_one_side_of_the_cut(name: str) -> None:
    messages, kept = CONVERSATIONS[name]
    sessions = SessionService(token_estimator=CountedCharacters())
    sessions.create("s")
    sessions.append_events(
        "s", [NewEvent(message=message, id=str(place)) for place, message in enumerate(messages)]
    )
    window = WindowCompactionStrategy(CompactionWindow.last_turns(1))
    result = sessions.compact("s", None, window)
    assert set(sessions.view("s").ids) == set(map(str, kept))
    assert result.is_unchanged == (len(kept) == len(messages))


ARCHIVE: dict[str, CompactionStrategy] = {
    "sliding": SlidingWindowCompactionStrategy(1),
    "turns": TurnWindowCompactionStrategy(1),
    "tokens": TokenCountCompactionStrategy(1),
    "recursive": RecursiveSummarizationCompactionStrategy(
        lambda _: "So far.", max_events_to_keep=1, overlap_size=0
    ),
}


@pytest.mark.parametrize("strategy", ARCHIVE)
@pytest.mark.parametrize("name", CONVERSATIONS)
def test_the_strategies_of_the_archive_design_part_no_call_from_its_result(name: str, strategy: str) -> None:
    messages, _ = CONVERSATIONS[name]
    sessions = SessionService(token_estimator=CountedCharacters())
    sessions.create("s")
    sessions.append_events("s", [NewEvent(message=message, id=str(i)) for i, message in enumerate(messages)])
    before = sessions.view("s").events
    sessions.compact("s", None, ARCHIVE[strategy])
    kept = set(sessions.view("s").ids)
    assert all((call in kept) == (result in kept) for call, result in pairs(before))
    assert awaiting(before) <= kept
    newest = max(i for i, event in enumerate(before) if starts_turn(event))
    assert {event.id for event in before[newest:]} <= kept
