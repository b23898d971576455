"""Pins keep events verbatim; a summary that covers less lets the other turns stay."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.branches.random_logs import Summarizer, conversations, service_on, window_of, windows
from tests.branches.test_races import same_log
from tests.faults.conversation import SID, say, service, shown
from tests.laws.oracle import Unit
from tests.laws.profiles import effort

from turnlog.application.service import SessionService
from turnlog.domain.archive import RecursiveSummarizationCompactionStrategy
from turnlog.domain.compaction import CompactionReason, CompactionStrategy, Summary, SummaryRequest
from turnlog.domain.errors import InvalidSettingError
from turnlog.domain.log import NewEvent
from turnlog.domain.messages import Message
from turnlog.domain.turns import call_pairs
from turnlog.domain.view import project
from turnlog.domain.window import CompactionWindow, WindowCompactionStrategy

NEWEST = CompactionWindow.last_turns(1)


def pinning(sessions: SessionService, *pins: str, summarizer: Summarizer | None = None) -> str:
    """The view after a pass that keeps the newest turn and these events."""
    sessions.compact(SID, None, WindowCompactionStrategy(NEWEST, summarizer, pins))
    return shown(sessions)


def test_a_pinned_message_stays_when_its_turn_leaves() -> None:
    sessions = service()
    say(sessions, "s1 u1 a1 u2 a2 u3")
    assert pinning(sessions, "a1") == "s1 a1 u3"


def test_pinned_messages_stand_in_front_of_the_summary() -> None:
    sessions = service()
    say(sessions, "u1 a1 u2 a2 u3")
    first, second, *_, last = pinning(sessions, "u2", "a1", summarizer=Summarizer()).split()
    assert (first, second, last) == ("a1", "u2", "u3")


def test_a_pinned_result_draws_its_call_and_the_whole_batch_along() -> None:
    sessions = service()
    say(sessions, "u1 k1:c1,c2 t1:c1 t2:c2 a1 u2")
    assert pinning(sessions, "t1") == "k1 t1 t2 u2"


def test_pins_hold_over_passes() -> None:
    sessions = service()
    say(sessions, "u1 a1 u2 a2 u3 a3")
    for turn in (4, 5, 6):
        pinning(sessions, "u2", summarizer=Summarizer())
        say(sessions, f"u{turn}")
    view = pinning(sessions, "u2", summarizer=Summarizer()).split()
    assert (view[0], view[-1], len(view)) == ("u2", "u6", 4)


def test_a_pin_in_a_turn_that_stays_keeps_its_place() -> None:
    sessions = service()
    say(sessions, "u1 a1 u2 a2")
    assert pinning(sessions, "a2") == "u2 a2"


def test_pinned_messages_come_off_a_token_budget_once() -> None:
    sessions = service()
    say(sessions, "u1 a1 u2 a2 u3 a3", cost=10)
    window = CompactionWindow.token_budget(50)
    sessions.compact(SID, None, WindowCompactionStrategy(window, pins=["u1"]))
    assert shown(sessions) == "u1 u2 a2 u3 a3"


def test_a_pinned_message_within_the_window_costs_once() -> None:
    sessions = service()
    say(sessions, "u1 a1 u2 a2 u3 a3", cost=10)
    window = CompactionWindow.token_budget(60)
    result = sessions.compact(SID, None, WindowCompactionStrategy(window, pins=["a3"]))
    assert result.reason is CompactionReason.NOTHING_TO_COVER


def test_when_all_that_would_leave_is_pinned_nothing_happens() -> None:
    sessions = service()
    say(sessions, "u1 a1 u2")
    result = sessions.compact(SID, None, WindowCompactionStrategy(NEWEST, pins=["u1", "a1"]))
    assert result.reason is CompactionReason.NOTHING_TO_COVER


def test_a_pinned_message_is_not_summarized() -> None:
    given: list[SummaryRequest] = []

    class Noting(Summarizer):
        def summarize(self, request: SummaryRequest) -> Sequence[Message]:
            given.append(request)
            return super().summarize(request)

    sessions = service()
    say(sessions, "u1 a1 u2")
    pinning(sessions, "a1", summarizer=Noting())
    assert [event.id for event in given[0].covered] == ["u1"]


def test_pins_are_ids_and_no_text() -> None:
    with pytest.raises(InvalidSettingError):
        WindowCompactionStrategy(NEWEST, pins="u1")


class Covering:
    """A summarizer that has seen only the first stops."""

    def __init__(self, stop: int) -> None:
        self._stop = stop
        self.requests: list[SummaryRequest] = []

    def summarize(self, request: SummaryRequest) -> Summary:
        """A summary of the first turns."""
        self.requests.append(request)
        stop = request.stops[min(self._stop, len(request.stops) - 1)]
        return Summary((Message.assistant("recap"),), covers=stop)


def by_window(summarizer: Covering) -> CompactionStrategy:
    """The window strategy."""
    return WindowCompactionStrategy(NEWEST, summarizer)


def by_recursion(summarizer: Covering) -> CompactionStrategy:
    """The recursive strategy of the archive design."""
    return RecursiveSummarizationCompactionStrategy(summarizer, 1)


@pytest.mark.parametrize("strategy", [by_window, by_recursion])
def test_turns_that_the_summary_does_not_cover_stay(
    strategy: Callable[[Covering], CompactionStrategy],
) -> None:
    sessions = service()
    say(sessions, "u1 a1 u2 a2 u3 a3 u4")
    result = sessions.compact(SID, None, strategy(Covering(1)))
    assert [event.id for event in result.covered_events] == ["u1", "a1", "u2", "a2"]
    assert shown(sessions).split()[1:] == ["u3", "a3", "u4"]


@pytest.mark.parametrize("strategy", [by_window, by_recursion])
def test_a_summary_may_not_end_between_a_call_and_its_late_result(
    strategy: Callable[[Covering], CompactionStrategy],
) -> None:
    sessions = service()
    say(sessions, "u1 k1:c1 u2 t1:c1 u3 a3 u4")
    summarizer = Covering(0)
    sessions.compact(SID, None, strategy(summarizer))
    assert summarizer.requests[0].stops == (4, 6)
    assert shown(sessions).split()[1:] == ["u3", "a3", "u4"]


def test_a_summary_that_ends_within_a_turn_is_refused_and_nothing_is_written() -> None:
    class Within(Covering):
        def summarize(self, request: SummaryRequest) -> Summary:
            assert request.stops == (2,)
            return Summary((Message.assistant("recap"),), covers=1)

    sessions = service()
    say(sessions, "u1 a1 u2")
    before = sessions.get_events(SID)
    with pytest.raises(InvalidSettingError):
        sessions.compact(SID, None, by_window(Within(0)))
    assert sessions.get_events(SID) == before


@pytest.mark.parametrize("strategy", [by_window, by_recursion])
@pytest.mark.parametrize("number", [2.0, True, "2"])
def test_a_number_of_covered_events_that_is_no_whole_number_is_refused(
    strategy: Callable[[Covering], CompactionStrategy], number: object
) -> None:
    class Odd(Covering):
        def summarize(self, request: SummaryRequest) -> Summary:
            return replace(super().summarize(request), covers=number)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]

    sessions = service()
    say(sessions, "u1 a1 u2")
    with pytest.raises(InvalidSettingError, match="whole turns"):
        sessions.compact(SID, None, strategy(Odd(0)))


@effort(150, 5000)
@given(
    said=conversations(18),
    window=windows,
    stop=st.integers(0, 4),
    pinned=st.sets(st.integers(0, 30), max_size=4),
    recursive=st.booleans(),
)
def test_whatever_is_pinned_and_covered_no_call_is_parted_and_the_conversation_begins_with_a_turn(
    said: list[NewEvent], window: tuple[Unit, int], stop: int, pinned: set[int], recursive: bool
) -> None:
    pins = {f"m{place}" for place in pinned}
    strategy: CompactionStrategy = WindowCompactionStrategy(window_of(*window), Covering(stop), pins)
    if recursive:
        strategy = by_recursion(Covering(stop))
    with service_on("memory") as sessions:
        (sid,) = same_log(sessions, said, 1)
        for _ in range(2):
            before = [event for event in sessions.view(sid).events if not event.synthetic]
            result = sessions.compact(sid, None, strategy)
            view = sessions.view(sid)
            assert view.events == project(sessions.get_events(sid)).events
            told = set(view.ids)
            for call, answer in call_pairs(before):
                assert (before[call].id in told) == (before[answer].id in told)
            if not recursive:
                spoken = {e.id for e in before if not e.is_stored_system}
                assert pins & spoken <= told
            if result.is_unchanged:
                break


def test_pins_that_the_view_does_not_hold_are_named_in_the_result() -> None:
    sessions = service()
    say(sessions, "u1 a1 u2 a2 u3")
    result = sessions.compact(SID, None, WindowCompactionStrategy(NEWEST, pins=["a1", "rulee"]))
    assert (result.is_unchanged, result.pins_not_found) == (False, ("rulee",))
    assert "'rulee'" in result.detail
    assert shown(sessions) == "a1 u3"


def test_pins_are_named_too_when_nothing_leaves() -> None:
    sessions = service()
    say(sessions, "u1 a1")
    result = sessions.compact(SID, None, WindowCompactionStrategy(NEWEST, pins=["rulee"]))
    assert (result.reason, result.pins_not_found) == (CompactionReason.NOTHING_TO_COVER, ("rulee",))


def test_a_pass_whose_pins_are_all_there_names_none() -> None:
    sessions = service()
    say(sessions, "u1 a1 u2 a2 u3")
    result = sessions.compact(SID, None, WindowCompactionStrategy(NEWEST, pins=["a1"]))
    assert (result.pins_not_found, result.detail) == ((), "")
