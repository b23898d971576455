"""`OnRace.REBASE`: a pass whose race was lost to appends is recorded behind them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.branches.random_logs import (
    BRANCHES,
    SCOPES,
    Summarizer,
    conversations,
    service_on,
    window_of,
    windows,
)
from tests.branches.test_races import Held, same_log
from tests.contracts.stores import WordCount, sqlite_env
from tests.faults.conversation import SID, say, service, shown
from tests.laws.oracle import Unit
from tests.laws.profiles import effort

from turnlog.application.compacting import MAX_REBASES, OnRace
from turnlog.application.service import SessionService
from turnlog.domain.compaction import CompactionReason, CompactionResult
from turnlog.domain.errors import InvalidSettingError
from turnlog.domain.log import NewEvent
from turnlog.domain.messages import Message, ToolCallPart
from turnlog.domain.turns import call_pairs
from turnlog.domain.view import project
from turnlog.domain.window import CompactionWindow, WindowCompactionStrategy

NEWEST = CompactionWindow.last_turns(1)
WORKER = Path(__file__).parents[1] / "contracts" / "worker.py"


def raced(sessions: SessionService, meanwhile: Callable[[], object], on_race: OnRace) -> CompactionResult:
    """A pass that keeps the newest turn, while something else happens."""
    strategy = WindowCompactionStrategy(NEWEST, Summarizer(meanwhile))
    return sessions.compact(SID, None, strategy, on_race=on_race)


def test_late_messages_are_preserved_behind_what_the_pass_kept() -> None:
    sessions = service()
    say(sessions, "u1 a1 u2 a2")
    result = raced(sessions, lambda: say(sessions, "u3 a3"), OnRace.REBASE)
    assert result.reason is CompactionReason.COMPACTED
    assert shown(sessions).split()[2:] == ["u2", "a2", "u3", "a3"]
    assert [event.id for event in result.preserved_events] == ["u2", "a2", "u3", "a3"]
    assert result.boundary is not None
    assert result.boundary.version == 7


def test_without_it_the_race_is_lost_as_ever() -> None:
    sessions = service()
    say(sessions, "u1 a1 u2 a2")
    assert raced(sessions, lambda: say(sessions, "u3"), OnRace.SKIP).reason is CompactionReason.RACE_LOST


def test_a_late_result_of_a_covered_call_wins_against_the_pass() -> None:
    sessions = service()
    say(sessions, "u1 k1:c1 u2 a2")
    before = sessions.view(SID).ids
    result = raced(sessions, lambda: say(sessions, "t1:c1"), OnRace.REBASE)
    assert result.reason is CompactionReason.RACE_LOST
    assert sessions.view(SID).ids == (*before, "t1")


def test_a_late_result_of_a_covered_call_wins_against_the_pass_of_a_branch() -> None:
    sessions = service()
    call = Message.assistant([ToolCallPart(id="c1", name="f")])
    for message in (Message.user("x"), call, Message.user("y")):
        sessions.append_message(SID, message, branch="scout")
    before = sessions.view(SID).ids

    def late() -> None:
        sessions.append_message(SID, Message.tool("ok", id="c1"), branch="scout", event_id="t1")

    strategy = WindowCompactionStrategy(NEWEST, Summarizer(late))
    result = sessions.compact(SID, None, strategy, branch="scout", on_race=OnRace.REBASE)
    assert result.reason is CompactionReason.RACE_LOST
    assert sessions.view(SID).ids == (*before, "t1")


def test_a_late_result_of_a_call_that_stays_is_no_hindrance() -> None:
    sessions = service()
    say(sessions, "u1 a1 u2 k2:c2")
    result = raced(sessions, lambda: say(sessions, "t2:c2"), OnRace.REBASE)
    assert result.reason is CompactionReason.COMPACTED
    assert shown(sessions).split()[2:] == ["u2", "k2", "t2"]


def test_a_late_answer_to_an_awaited_call_stays_with_it() -> None:
    sessions = service()
    say(sessions, "u1 a1")
    sessions.append_message(SID, Message.user("book"), event_id="u2")
    asked = Message.assistant([ToolCallPart(id="c2", name="book")]).awaiting()
    sessions.append_message(SID, asked, event_id="k2")
    say(sessions, "u3")
    result = raced(sessions, lambda: say(sessions, "t2:c2"), OnRace.REBASE)
    assert result.reason is CompactionReason.COMPACTED
    assert shown(sessions).split()[2:] == ["u2", "k2", "u3", "t2"]


def test_another_pass_meanwhile_wins() -> None:
    sessions = service()
    say(sessions, "u1 a1 u2 a2")
    other = WindowCompactionStrategy(NEWEST)
    result = raced(sessions, lambda: sessions.compact(SID, None, other), OnRace.REBASE)
    assert result.reason is CompactionReason.RACE_LOST
    assert shown(sessions) == "u2 a2"


def test_a_pass_of_a_branch_is_placed_behind_late_messages_of_its_own() -> None:
    sessions = service()
    for number in (1, 2):
        sessions.append_message(SID, Message.user("x"), event_id=f"b{number}", branch="scout")
    say(sessions, "u1")

    def late() -> None:
        sessions.append_message(SID, Message.user("x"), event_id="b3", branch="scout")

    strategy = WindowCompactionStrategy(NEWEST, Summarizer(late))
    result = sessions.compact(SID, None, strategy, branch="scout", on_race=OnRace.REBASE)
    assert result.reason is CompactionReason.COMPACTED
    assert [name for name in sessions.view(SID).ids if name[0] in "bu"] == ["b2", "u1", "b3"]


def test_a_wrong_choice_is_refused() -> None:
    with pytest.raises(InvalidSettingError):
        service().compact(SID, None, WindowCompactionStrategy(), on_race="later")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] # that is what is tested


@effort(250, 5000)
@given(
    whole=conversations(20),
    share=st.floats(0.2, 1),
    answered=st.sampled_from((None, None, *SCOPES)),
    window=windows,
    branch=st.sampled_from((None, None, None, *BRANCHES)),
    summarizes=st.booleans(),
)
def test_a_rebased_pass_covers_what_it_would_have_covered_in_quiet_and_parts_no_call(
    whole: list[NewEvent],
    share: float,
    answered: str | None,
    window: tuple[Unit, int],
    branch: str | None,
    summarizes: bool,
) -> None:
    said, late = _split(whole, share, answered)
    strategy = WindowCompactionStrategy(window_of(*window), Summarizer() if summarizes else None)
    with service_on("memory") as sessions:
        raced_sid, calm_sid = same_log(sessions, said, 2)
        held = Held(strategy, lambda: sessions.append_events(raced_sid, late))
        result = sessions.compact(raced_sid, None, held, branch=branch, on_race=OnRace.REBASE)
        log = sessions.get_events(raced_sid)
        view = sessions.view(raced_sid)
        told = set(view.ids)
        messages = [event for event in log if event.message]
        assert view.events == project(log).events
        for call, answer in call_pairs(messages):
            assert (messages[call].id in told) == (messages[answer].id in told)
        calm = sessions.compact(calm_sid, None, strategy, branch=branch)
        if result.reason is CompactionReason.COMPACTED:
            assert {new.id for new in late} <= told
            assert [e.id for e in calm.covered_events] == [e.id for e in result.covered_events]
        elif result.reason is CompactionReason.RACE_LOST:
            gone = {event.id for event in calm.covered_events}
            assert any(messages[call].id in gone for call, _ in call_pairs(messages))


def _split(
    whole: list[NewEvent], share: float, answered: str | None
) -> tuple[list[NewEvent], list[NewEvent]]:
    """What is said before the pass, and what comes late, at times with an answer to an awaited call."""
    cut = round(share * len(whole))
    late = [_named(new, f"late{place}") for place, new in enumerate(whole[cut:])]
    answer = Message.tool("ok", id="c4")
    return whole[:cut], [*late, NewEvent(message=answer, branch=answered, id="answer")]


def _named(new: NewEvent, name: str) -> NewEvent:
    return NewEvent(message=new.message, branch=new.branch, synthetic=new.synthetic, id=name)


def test_the_tries_are_bounded() -> None:
    sessions = service()
    say(sessions, "u1 a1 u2 a2")
    opened = sessions.open_pass(SID, None, WindowCompactionStrategy(NEWEST), on_race=OnRace.REBASE)
    result = WindowCompactionStrategy(NEWEST).compact(opened.request)
    tries: list[int] = []

    def interrupted() -> list[object]:
        tries.append(len(tries))
        SessionService(sessions.app, token_estimator=WordCount()).append_message(SID, Message.user("again"))
        return []

    lost = sessions.close_pass(opened, result, also=interrupted)
    assert lost.reason is CompactionReason.RACE_LOST
    assert len(tries) == 1 + MAX_REBASES


def test_a_summary_is_kept_while_another_process_appends_to_the_file(tmp_path: Path) -> None:
    file = tmp_path / "sessions.db"
    with SessionService(env=sqlite_env(file), token_estimator=WordCount()) as sessions:
        sessions.create(SID)
        sessions.append_events(SID, [Message.user(f"question {number}") for number in range(5)])

        def other_process() -> None:
            settings = json.dumps(sqlite_env(file))
            subprocess.run([sys.executable, WORKER, settings, SID, "late", "5"], check=True, timeout=60)

        result = raced(sessions, other_process, OnRace.REBASE)
        assert result.reason is CompactionReason.COMPACTED
        texts = [message.text for message in sessions.view(SID).messages]
        assert texts[2:] == ["question 4", *(f"late-{number}" for number in range(5))]


def test_passes_and_appends_of_many_threads_on_a_file_lose_no_message(tmp_path: Path) -> None:
    file = tmp_path / "sessions.db"
    with SessionService(env=sqlite_env(file), token_estimator=WordCount()) as sessions:
        sessions.create(SID)
        done = Event()

        def append() -> None:
            for number in range(40):
                sessions.append_message(SID, Message.user(f"{number}"))
            done.set()

        def compact() -> list[CompactionReason]:
            reasons: list[CompactionReason] = []
            while not done.is_set():
                reasons.append(raced(sessions, lambda: None, OnRace.REBASE).reason)
            return reasons

        with ThreadPoolExecutor(2) as pool:
            appending, compacting = pool.submit(append), pool.submit(compact)
            appending.result()
            reasons = compacting.result()
        said = [event.text for event in sessions.get_events(SID) if event.message and not event.synthetic]
        assert said == [f"{number}" for number in range(40)]
        assert CompactionReason.RACE_LOST not in reasons
        assert sessions.view(SID).events == project(sessions.get_events(SID)).events
