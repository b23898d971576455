"""The scenarios of concurrency in which somebody else acts, with that somebody in a process of its own.

`T` is a run in `tests/conformance`, with threads where there are several callers; `P` a run with several
operating-system processes, here or in `test_together.py`: `together` and `killed` are its two tests. In
memory there is one process. `plain` is the framework's own recorder.

| scenario                                    | memory | SQLite | plain | Postgres | plain | P where        |
|---------------------------------------------|--------|--------|-------|----------|-------|----------------|
| 1-4, 6, 7, 9-12, 14-16 one caller           | T      | T      |       | T        |       |                |
| 5 many writers at once                      | T      | T P    | P     | T P      | P     | here           |
| 8 a reader never sees half a batch          | T      | T P    | P     | T P      | P     | here, together |
| 13 a retry after a lost answer              | T      | T P    | P     | T P      | P     | killed         |
| 17 an append while the summarizer runs      | T      | T P    | P     | T P      | P     | here           |
| 18 the append first, then the compaction    | T      | T P    | P     | T P      | P     | here           |
| 19 two passes at once                       | T      | T P    | P     | T P      | P     | here           |
| 20-23, 25 one caller                        | T      | T      |       | T        |       |                |
| 24 the session is deleted while a pass runs | T      | T P    | P     | T P      | P     | here           |
| 26-34, 37, 38, 41-48 one caller             | T      | T      |       | T        |       |                |
| 35 extended while being swept               | T      | T P    | P     | T P      | P     | here           |
| 36 two sweeps at once                       | T      | T P    | P     | T P      | P     | here           |
| 40 two first calls at once                  | T      | T P    | P     | T P      | P     | here           |
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from datetime import UTC, datetime, timedelta

import pytest
from tests.processes.other import OtherProcess
from tests.support.conformance_stores import NoTokens
from tests.support.log_checker import check, project
from tests.support.stored_rows import read_database

from turnlog.application.service import SessionService
from turnlog.domain.errors import SessionNotFoundError
from turnlog.domain.log import SessionEvent
from turnlog.domain.messages import Message

SID = "conversation"


@pytest.fixture(scope="module")
def both() -> Generator[tuple[OtherProcess, OtherProcess]]:
    """Two other processes."""
    with OtherProcess() as one, OtherProcess() as another:
        yield one, another


@pytest.fixture(scope="module")
def other(both: tuple[OtherProcess, OtherProcess]) -> OtherProcess:
    """One of them."""
    return both[0]


@pytest.fixture
def sessions(env: Mapping[str, str]) -> Generator[SessionService]:
    """A service of this process, with a session of five turns."""
    with SessionService(env=dict(env), token_estimator=NoTokens()) as service:
        service.create(SID)
        for number in range(5):
            service.append_message(SID, Message.user(f"question {number}"), event_id=f"q{number}")
        yield service


@pytest.fixture(autouse=True)
def lawful(env: Mapping[str, str]) -> Generator[None]:
    """Behind every scenario the rows keep the laws."""
    yield
    assert check(read_database(env)) == []


def boundaries(sessions: SessionService) -> list[SessionEvent]:
    """Those of the log."""
    return [event for event in sessions.get_events(SID) if event.boundary is not None]


def test_scenario_05_writers_in_several_processes_lose_nothing(
    env: Mapping[str, str], sessions: SessionService, both: tuple[OtherProcess, OtherProcess]
) -> None:
    for number, process in enumerate(both):
        process.tell(env, "append", SID, f"p{number}", 25)
    for number in range(25):
        sessions.append_message(SID, Message.user("here"), event_id=f"here-{number}")
    told = [process.hear() for process in both]
    ids = [event.id for event in sessions.get_events(SID)]
    assert len(ids) == 80
    for prefix in ("p0", "p1", "here"):
        assert [name for name in ids if name.startswith(f"{prefix}-")] == [f"{prefix}-{n}" for n in range(25)]
    assert [[ids.index(f"p{n}-{at}") + 1 for at in range(25)] for n in range(2)] == told


def test_scenario_08_a_reader_of_another_process_never_sees_half_a_batch(
    env: Mapping[str, str], sessions: SessionService, other: OtherProcess
) -> None:
    other.tell(env, "compact often", SID, 12)
    while len(boundaries(sessions)) < 12:
        events = sessions.get_events(SID)
        for place, event in enumerate(events):
            if event.boundary is not None:
                assert [one.id for one in events[place + 1 : place + 3]] == list(event.boundary.summary)
        view = sessions.view(SID)
        assert all(event.message is not None for event in view.events)
    assert other.hear() == 12


def test_scenario_17_an_append_while_the_summarizer_of_another_process_runs(
    env: Mapping[str, str], sessions: SessionService, other: OtherProcess
) -> None:
    other.tell(env, "compact", SID, 2)
    assert other.hear() == "asked"
    appended = sessions.append_message(SID, Message.user("meanwhile"))
    other.answer()
    assert other.hear() == ["race_lost", 0]
    assert boundaries(sessions) == []
    assert sessions.view(SID).ids[-1] == appended.id


def test_scenario_17_with_rebase_the_summary_is_not_thrown_away(
    env: Mapping[str, str], sessions: SessionService, other: OtherProcess
) -> None:
    other.tell(env, "compact", SID, 2, "rebase")
    assert other.hear() == "asked"
    appended = sessions.append_message(SID, Message.user("meanwhile"))
    other.answer()
    assert other.hear() == ["compacted", 3]
    (boundary,) = boundaries(sessions)
    assert boundary.boundary is not None
    assert boundary.boundary.preserved == ("q3", "q4", appended.id)


def test_scenario_18_a_later_pass_sees_what_came_and_succeeds(
    env: Mapping[str, str], sessions: SessionService, other: OtherProcess
) -> None:
    other.tell(env, "compact", SID, 2)
    assert other.hear() == "asked"
    sessions.append_message(SID, Message.user("meanwhile"))
    other.answer()
    assert other.hear() == ["race_lost", 0]
    other.tell(env, "compact", SID, 2)
    assert other.hear() == "asked"
    other.answer()
    assert other.hear() == ["compacted", 4]


def test_scenario_19_of_two_passes_at_once_exactly_one_is_recorded(
    env: Mapping[str, str], sessions: SessionService, both: tuple[OtherProcess, OtherProcess]
) -> None:
    for process in both:
        process.tell(env, "compact", SID, 2)
    assert [process.hear() for process in both] == ["asked"] * 2
    for process in both:
        process.answer()
    assert sorted(process.hear() for process in both) == [["compacted", 3], ["race_lost", 0]]
    assert len(boundaries(sessions)) == 1
    assert sessions.view(SID).ids[-2:] == ("q3", "q4")


def test_scenario_24_a_session_that_is_deleted_while_a_pass_runs_stays_deleted(
    env: Mapping[str, str], sessions: SessionService, other: OtherProcess
) -> None:
    other.tell(env, "compact", SID, 2)
    assert other.hear() == "asked"
    sessions.delete(SID)
    other.answer()
    assert other.hear() == "SessionNotFoundError"
    assert sessions.find(SID) is None


def test_scenario_35_a_session_that_was_extended_is_not_swept_by_another_process(
    env: Mapping[str, str], sessions: SessionService, other: OtherProcess
) -> None:
    names = [f"{SID}-{number}" for number in range(12)]
    for name in names:
        sessions.create(name, time_to_live=timedelta(0))
        sessions.append_message(name, Message.user("hello"))
    other.tell(env, "sweep")
    extended = 0
    for name in reversed(names):
        try:
            sessions.extend(name, datetime.now(UTC) + timedelta(hours=1))
        except SessionNotFoundError:
            assert sessions.get_events(name) == ()
            continue
        extended += 1
        assert len(sessions.get_events(name)) == 1
    assert other.hear() == len(names) - extended


def test_scenario_36_two_processes_that_sweep_delete_each_session_once(
    env: Mapping[str, str], sessions: SessionService, both: tuple[OtherProcess, OtherProcess]
) -> None:
    names = [f"{SID}-{number}" for number in range(10)]
    for name in names:
        sessions.create(name, time_to_live=timedelta(0))
    for process in both:
        process.tell(env, "sweep")
    assert sum(process.hear() for process in both) == 10
    assert [sessions.find(name) for name in names] == [None] * 10


def test_scenario_40_two_processes_begin_the_same_session_and_lose_no_event(
    env: Mapping[str, str], sessions: SessionService, both: tuple[OtherProcess, OtherProcess]
) -> None:
    for number in range(5):
        for place, process in enumerate(both):
            process.tell(env, "begin", f"new {number}", f"p{place}")
        assert sorted(process.hear() for process in both) == [[1], [2]]
        assert {event.id for event in sessions.get_events(f"new {number}")} == {"p0-0", "p1-0"}


def test_the_view_of_a_process_is_what_another_one_left(
    env: Mapping[str, str], sessions: SessionService, other: OtherProcess
) -> None:
    sessions.view(SID)  # remembered here
    other.tell(env, "compact often", SID, 2)
    assert other.hear() == 2
    rows = next(rows for rows in read_database(env).streams.values() if rows[0].get("session_id") == SID)
    assert list(sessions.view(SID).ids) == project(rows)
