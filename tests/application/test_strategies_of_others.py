"""What a strategy of the application's own returns is checked before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

import pytest

from turnlog.application import SessionService
from turnlog.domain import (
    CompactionReason,
    CompactionRequest,
    CompactionResult,
    CompactionWindow,
    InvalidBoundaryError,
    InvalidSettingError,
    Message,
    SessionEvent,
    ToolCallPart,
    WindowCompactionStrategy,
    project,
)


@dataclass
class Says:
    """A strategy that returns what it is told to."""

    answer: Any

    def compact(self, request: CompactionRequest) -> CompactionResult:
        """The answer for the view of the request."""
        return cast("CompactionResult", self.answer(request.events))


def _result(covered: Any = (), pinned: Any = (), preserved: Any = ()) -> CompactionResult:
    return CompactionResult(
        CompactionReason.COMPACTED,
        covered_events=tuple(covered),
        pinned_events=tuple(pinned),
        preserved_events=tuple(preserved),
        tokens_estimated_saved=-5,
    )


def _sessions() -> SessionService:
    """Three turns of a question and an answer each, behind a greeting."""
    sessions = SessionService()
    sessions.create("s")
    sessions.append_message("s", Message.assistant("Hello."))
    for number in range(3):
        sessions.append_message("s", Message.user(f"question {number}"))
        sessions.append_message("s", Message.assistant(f"answer {number}"))
    return sessions


Answer = Callable[[tuple[SessionEvent, ...]], CompactionResult]

UNSOUND: dict[str, Answer] = {
    "names nothing": lambda _: _result(),
    "leaves some out": lambda events: _result(covered=events[:3]),
    "names one twice": lambda events: _result(covered=events[:3], preserved=events[2:]),
    "covers all": lambda events: _result(covered=events),
    "covers the newest turn": lambda events: _result(events[5:], (), events[:5]),
    "cuts inside a turn": lambda events: _result(events[:4], (), events[4:]),
    "turns the order round": lambda events: _result(events[:3], (), events[:2:-1]),
    "renames messages": lambda events: _result(
        events[:3], (), [replace(event, id=f"x{event.id}") for event in events[3:]]
    ),
}


@pytest.mark.parametrize("answer", UNSOUND.values(), ids=UNSOUND.keys())
def test_a_result_that_no_boundary_may_say_is_refused_and_nothing_is_written(answer: Answer) -> None:
    with _sessions() as sessions:
        before = sessions.get_events("s")
        with pytest.raises(InvalidBoundaryError):
            sessions.compact("s", None, Says(answer))
        assert sessions.get_events("s") == before


def _sound(events: tuple[SessionEvent, ...]) -> CompactionResult:
    return _result(events[1:3], events[:1], events[3:])


@pytest.mark.parametrize("saved", [2.5, True])
def test_a_saving_that_is_no_whole_number_is_refused_and_nothing_is_written(saved: Any) -> None:
    sessions = _sessions()
    before = sessions.get_events("s")

    def answer(events: tuple[SessionEvent, ...]) -> CompactionResult:
        return replace(_result(events[:3], (), events[3:]), tokens_estimated_saved=saved)

    with pytest.raises(InvalidBoundaryError, match="whole number"):
        sessions.compact("s", None, Says(answer))
    assert sessions.get_events("s") == before


def test_a_sound_result_is_recorded_and_its_saving_is_never_negative() -> None:
    with _sessions() as sessions:
        result = sessions.compact("s", None, Says(_sound))
        assert (result.tokens_estimated_saved, len(sessions.view("s").events)) == (0, 5)
        assert project(sessions.get_events("s")) == sessions.view("s")


def test_what_is_no_result_is_refused() -> None:
    with _sessions() as sessions, pytest.raises(InvalidSettingError, match="CompactionResult"):
        sessions.compact("s", None, Says(len))


class Declines:
    """A summarizer that returns nothing at all."""

    def summarize(self, request: object) -> Any:  # noqa: ARG002 - the port's argument
        """None."""
        return


def test_a_summarizer_that_returns_none_declines() -> None:
    with _sessions() as sessions:
        result = sessions.compact(
            "s", None, WindowCompactionStrategy(CompactionWindow.last_turns(1), Declines())
        )
        assert result.reason is CompactionReason.SUMMARIZER_DECLINED


def test_an_awaited_call_in_front_of_the_first_turn_keeps_the_turns_behind_it() -> None:
    with SessionService() as sessions:
        sessions.create("s")
        asked = Message.assistant([ToolCallPart(id="c", name="approve", awaiting=True)])
        sessions.append_events("s", [asked, Message.user("1"), Message.user("2")])
        strategy = WindowCompactionStrategy(CompactionWindow.last_turns(1))
        assert sessions.compact("s", None, strategy).reason is CompactionReason.AWAITED_CALL
        sessions.append_message("s", Message.tool("yes", id="c"))
        assert sessions.compact("s", None, strategy).reason is CompactionReason.COMPACTED
