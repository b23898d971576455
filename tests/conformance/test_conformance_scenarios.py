"""Scenarios 1 to 25 of `cases/concurrency_cases.md`, on every store."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from threading import Barrier, Event
from typing import Any

import pytest
from eventsourcing.persistence import IntegrityError, OperationalError
from tests.support.conformance_stores import STORES, Store

from turnlog.application.service import SessionService
from turnlog.domain.compaction import (
    CompactionReason,
    CompactionRequest,
    CompactionResult,
    CompactionStrategy,
    SummaryRequest,
)
from turnlog.domain.errors import SessionNotFoundError, StorageError, VersionConflictError
from turnlog.domain.log import NewEvent, SessionEvent
from turnlog.domain.messages import Message, ToolCallPart
from turnlog.domain.view import project
from turnlog.domain.window import CompactionWindow, WindowCompactionStrategy

SID = "conversation"
PATIENCE = 60.0
"""Seconds after which a scenario counts as stuck."""


@pytest.fixture
def sessions(store: Store) -> SessionService:
    """A service on the store, with one session that is empty."""
    service = store.service()
    service.create(SID)
    return service


def user(text: str, event_id: str | None = None) -> NewEvent:
    return NewEvent(message=Message.user(text), id=event_id)


def texts(events: Sequence[SessionEvent]) -> list[str | None]:
    return [event.text for event in events]


def last_turns(count: int, summarizer: Any = None) -> WindowCompactionStrategy:
    return WindowCompactionStrategy(CompactionWindow.last_turns(count), summarizer)


def recap(_: SummaryRequest) -> list[Message]:
    return [Message.user("What was said?"), Message.assistant("A question.")]


@dataclass
class Summarizer:
    """A summarizer made of a function; it can be held up while others write."""

    write: Callable[[SummaryRequest], Sequence[Message]] = recap
    started: Event = field(default_factory=Event)
    answer: Event = field(default_factory=Event)
    calls: int = 0

    @classmethod
    def prompt(cls, write: Callable[[SummaryRequest], Sequence[Message]] = recap) -> Summarizer:
        """One that is not held up."""
        summarizer = cls(write)
        summarizer.answer.set()
        return summarizer

    def summarize(self, request: SummaryRequest) -> Sequence[Message]:
        self.calls += 1
        self.started.set()
        assert self.answer.wait(PATIENCE)
        return self.write(request)


@dataclass
class Between:
    """A strategy that does something else between its decision and the write of the pass."""

    strategy: CompactionStrategy
    action: Callable[[], object]
    runs: int = 0

    def compact(self, request: CompactionRequest) -> CompactionResult:
        self.runs += 1
        result = self.strategy.compact(request)
        self.action()
        return result


class Thread:
    """One call in a thread of its own, while the block runs."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self._pool = ThreadPoolExecutor(1)

    def __enter__(self) -> Future[Any]:
        return self._pool.submit(self._call)

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()


# --- versions and appends


def test_conformance_scenario_01_a_new_session_starts_at_version_0(sessions: SessionService) -> None:
    assert (sessions.version(SID), sessions.get_events(SID)) == (0, ())


def test_conformance_scenario_02_other_metadata_keep_the_log(sessions: SessionService) -> None:
    event = sessions.append_message(SID, Message.user("hello"))
    sessions.update_metadata(SID, {"title": "Greetings"})
    found = sessions.find(SID)
    assert found is not None
    assert found.metadata == {"title": "Greetings"}
    assert sessions.get_events(SID) == (event,)
    assert sessions.version(SID) == 2


def test_conformance_scenario_03_reading_a_session_that_does_not_exist(sessions: SessionService) -> None:
    assert (sessions.version("nobody"), sessions.get_events("nobody")) == (0, ())


def test_conformance_scenario_04_appending_after_a_deletion(sessions: SessionService, store: Store) -> None:
    sessions.append_message(SID, Message.user("hello"))
    other = store.service()
    other.append_message(SID, Message.user("hello too"))
    sessions.delete(SID)
    for service in (sessions, other):
        with pytest.raises(SessionNotFoundError):
            service.append_message(SID, Message.user("anybody there?"))
        assert service.get_events(SID) == ()


WRITERS, EACH = 8, 25


def append_all(sessions: SessionService, writer: int) -> None:
    for number in range(EACH):
        event = user(f"{number}", f"w{writer}-e{number}")
        sessions.append_events(SID, [event])


def assert_every_event_is_there_once(sessions: SessionService) -> None:
    log = sessions.get_events(SID)
    assert sessions.version(SID) == WRITERS * EACH == len(log)
    assert len({event.id for event in log}) == len(log)
    for writer in range(WRITERS):
        mine = [event.text for event in log if event.id.startswith(f"w{writer}-")]
        assert mine == [str(number) for number in range(EACH)]


def test_conformance_scenario_05_many_writers_at_once_on_one_service(sessions: SessionService) -> None:
    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(append_all, [sessions] * WRITERS, range(WRITERS)))
    assert_every_event_is_there_once(sessions)


def test_conformance_scenario_05_many_writers_at_once_on_services_of_their_own(
    sessions: SessionService, store: Store
) -> None:
    services = [store.service() for _ in range(WRITERS)]
    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(append_all, services, range(WRITERS)))
    assert_every_event_is_there_once(sessions)


PROCESS = """
import json, sys
from concurrent.futures import ThreadPoolExecutor
from turnlog.application import SessionService
from turnlog.domain import Message
env, session_id, writers, each = json.loads(sys.argv[1])
def append_all(writer):
    for number in range(each):
        sessions.append_message(session_id, Message.user(str(number)), event_id=f"w{writer}-e{number}")
with SessionService(env=env) as sessions:
    sys.stdout.write("ready"); sys.stdout.flush(); sys.stdin.read(1)
    with ThreadPoolExecutor() as pool:
        list(pool.map(append_all, writers))
"""


@pytest.mark.parametrize("store", [name for name in sorted(STORES) if name != "memory"], indirect=True)
def test_conformance_scenario_05_many_writers_at_once_in_several_processes(
    sessions: SessionService, store: Store
) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROCESS, json.dumps([store.env, SID, [first, first + 1], EACH])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for first in range(0, WRITERS, 2)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.read(5) == b"ready"
    for process in processes:
        process.communicate(b"!", timeout=PATIENCE)
    assert [process.returncode for process in processes] == [0] * len(processes)
    assert_every_event_is_there_once(sessions)


@pytest.mark.parametrize(("scenario", "expected"), [("06_a_stale", 3), ("07_a_future", 5)])
def test_conformance_scenario_06_07_a_batch_with_another_version_is_refused(
    sessions: SessionService, scenario: str, expected: int
) -> None:
    before = sessions.append_events(SID, [user(f"{number}") for number in range(4)])
    with pytest.raises(VersionConflictError) as raised:
        sessions.append_events(SID, [user("late"), user("later")], expected_version=expected)
    assert (raised.value.expected, raised.value.actual) == (expected, 4)
    assert str(expected) in str(raised.value)
    assert "4" in str(raised.value)
    assert (sessions.version(SID), sessions.get_events(SID)) == (4, before)


def test_conformance_scenario_08_a_reader_never_sees_half_a_batch(
    sessions: SessionService, store: Store
) -> None:
    done = Event()
    reader = store.service()
    sessions.append_message(SID, Message.user("first"))

    def read() -> int:
        reads = 0
        while not done.is_set() or not reads:
            log = reader.get_events(SID)
            ids = {event.id for event in log}
            for event in log:
                if event.boundary:
                    assert ids.issuperset(event.boundary.summary)
            assert project(log).events
            assert len(reader.view(SID).events) >= 1
            reads += 1
        return reads

    with ThreadPoolExecutor(3) as pool:
        readers = [pool.submit(read) for _ in range(3)]
        try:
            for number in range(30):
                sessions.append_message(SID, Message.user(f"{number}"))
                result = sessions.compact(SID, None, last_turns(1, Summarizer.prompt()))
                assert len(result.summary_events) == 2
        finally:
            done.set()
        assert all(reader.result(PATIENCE) for reader in readers)


# --- idempotent appends


def test_conformance_scenario_09_the_same_id_with_other_events_between(sessions: SessionService) -> None:
    before = sessions.append_events(SID, [user("one", "e1"), user("two", "e2"), user("three", "e3")])
    (again,) = sessions.append_events(SID, [user("one", "e1")])
    assert (again.is_repeat, again.differs, again) == (True, False, before[0])
    assert (sessions.version(SID), sessions.get_events(SID)) == (3, before)


def test_conformance_scenario_10_the_same_id_with_other_content(sessions: SessionService) -> None:
    before = sessions.append_events(SID, [user("one", "e1")])
    (again,) = sessions.append_events(SID, [user("another", "e1")])
    assert (again.is_repeat, again.differs, again.text) == (True, True, "one")
    assert (sessions.version(SID), sessions.get_events(SID)) == (1, before)


def test_conformance_scenario_11_other_ids_with_the_same_content(sessions: SessionService) -> None:
    sessions.append_events(SID, [user("same", "e1"), user("same", "e2")])
    assert texts(sessions.get_events(SID)) == ["same", "same"]


def test_conformance_scenario_12_a_repeat_after_a_covered_event(sessions: SessionService) -> None:
    sessions.append_events(SID, [user("one", "e1"), user("two", "e2")])
    sessions.compact(SID, None, last_turns(1))
    before = sessions.get_events(SID)
    (again,) = sessions.append_events(SID, [user("one", "e1")])
    assert again.is_repeat
    assert sessions.get_events(SID) == before
    assert sessions.view(SID).ids == ("e2",)


CONFLICT = IntegrityError("UNIQUE constraint failed")
LOCKED = OperationalError("database is locked")
CONNECTION = OperationalError("connection lost")


def lose_the_next_answer(
    sessions: SessionService, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    """Let the store commit the next write and fail all the same."""
    recorder = sessions.app.recorder
    insert = recorder.insert_events

    def commit_and_fail(*args: Any, **kwargs: Any) -> object:
        monkeypatch.setattr(recorder, "insert_events", insert)
        insert(*args, **kwargs)
        raise failure

    monkeypatch.setattr(recorder, "insert_events", commit_and_fail)


@pytest.mark.parametrize("failure", [CONFLICT, LOCKED, CONNECTION], ids=["conflict", "locked", "connection"])
def test_conformance_scenario_13_a_retry_after_a_lost_answer(
    sessions: SessionService, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    lose_the_next_answer(sessions, monkeypatch, failure)
    with suppress(StorageError):  # a lost answer that is no conflict reaches the writer
        sessions.append_events(SID, [user("one", "e1")])
    sessions.append_events(SID, [user("one", "e1")])
    assert [event.id for event in sessions.get_events(SID)] == ["e1"]
    assert sessions.version(SID) == 1


@pytest.mark.parametrize("failure", [CONFLICT, LOCKED], ids=["conflict", "locked"])
def test_conformance_scenario_13_a_write_of_its_own_is_no_conflict(
    sessions: SessionService, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    lose_the_next_answer(sessions, monkeypatch, failure)
    (event,) = sessions.append_events(SID, [user("one")])
    assert not event.is_repeat
    assert sessions.get_events(SID) == (event,)


def content_id(message: Message) -> str:
    """An id that an application makes of the session, the role and the text."""
    return sha256(f"{SID}\n{message.role}\n{message.text}".encode()).hexdigest()


def store_by_content(sessions: SessionService, *messages: Message) -> None:
    for message in messages:
        sessions.append_message(SID, message, event_id=content_id(message))


def test_conformance_scenario_14_ids_made_from_content_tell_contents_apart(sessions: SessionService) -> None:
    store_by_content(sessions, Message.user("one?"), Message.assistant("1"))
    store_by_content(sessions, Message.user("two?"), Message.assistant("2"))
    assert texts(sessions.get_events(SID)) == ["one?", "1", "two?", "2"]


def test_conformance_scenario_15_ids_made_from_tool_call_ids(sessions: SessionService) -> None:
    call = Message.assistant([ToolCallPart(id="call-7", name="find", arguments="{}")])
    for _ in range(2):
        sessions.append_message(SID, call, event_id=call.tool_calls[0].id)
    assert [event.id for event in sessions.get_events(SID)] == ["call-7"]


def test_conformance_scenario_16_ids_made_from_content_tell_roles_apart(sessions: SessionService) -> None:
    store_by_content(sessions, Message.user("yes"), Message.assistant("yes"))
    assert texts(sessions.get_events(SID)) == ["yes", "yes"]


# --- compaction against appends


def test_conformance_scenario_17_an_append_while_the_summarizer_runs(
    sessions: SessionService, store: Store
) -> None:
    sessions.append_events(SID, [user("one", "u1"), user("two", "u2")])
    summarizer = Summarizer()
    with Thread(lambda: sessions.compact(SID, None, last_turns(1, summarizer))) as passing:
        assert summarizer.started.wait(PATIENCE)
        store.service().append_events(SID, [user("three", "u3")])
        sessions.append_events(SID, [user("four", "u4")])
        assert not passing.done()
        summarizer.answer.set()
        result = passing.result(PATIENCE)
    assert (result.is_unchanged, result.reason) == (True, CompactionReason.RACE_LOST)
    everything = ["u1", "u2", "u3", "u4"]
    assert [event.id for event in sessions.get_events(SID)] == everything
    assert list(sessions.view(SID).ids) == everything


def test_conformance_scenario_18_the_append_first_then_the_compaction(sessions: SessionService) -> None:
    sessions.append_events(SID, [user("one", "u1"), user("two", "u2")])
    decided, appended = Event(), Event()

    def hold() -> None:
        decided.set()
        assert appended.wait(PATIENCE)

    with Thread(lambda: sessions.compact(SID, None, Between(last_turns(1), hold))) as passing:
        assert decided.wait(PATIENCE)
        sessions.append_events(SID, [user("three", "u3")])
        appended.set()
        result = passing.result(PATIENCE)
    assert result.is_unchanged
    assert [event.id for event in sessions.get_events(SID)] == ["u1", "u2", "u3"]
    later = sessions.compact(SID, None, last_turns(1))
    assert [event.id for event in later.covered_events] == ["u1", "u2"]


def test_conformance_scenario_19_two_passes_at_once(sessions: SessionService, store: Store) -> None:
    sessions.append_events(SID, [user(f"{number}", f"u{number}") for number in range(1, 6)])
    both = Barrier(2, timeout=PATIENCE)

    def compact(service: SessionService) -> CompactionResult:
        return service.compact(SID, None, Between(last_turns(2), both.wait))

    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(compact, [sessions, store.service()]))
    lost, won = sorted(results, key=lambda result: len(result.covered_events))
    assert (lost.is_unchanged, len(won.covered_events)) == (True, 3)
    assert sessions.view(SID).ids == ("u4", "u5")
    assert sum(event.boundary is not None for event in sessions.get_events(SID)) == 1


def test_conformance_scenario_20_a_pass_that_lost_does_not_try_again(sessions: SessionService) -> None:
    sessions.append_events(SID, [user("one"), user("two")])

    def append() -> None:
        with Thread(lambda: sessions.append_events(SID, [user("three")])) as appending:
            appending.result(PATIENCE)

    strategy = Between(last_turns(1), append)
    assert sessions.compact(SID, None, strategy).reason is CompactionReason.RACE_LOST
    assert strategy.runs == 1
    assert len(sessions.compact(SID, None, last_turns(1)).covered_events) == 2


def test_conformance_scenario_21_nothing_to_cover(sessions: SessionService) -> None:
    before = sessions.append_events(SID, [user("one"), user("two")])
    result = sessions.compact(SID, lambda _: True, last_turns(2))
    assert (result.is_unchanged, result.reason) == (True, CompactionReason.NOTHING_TO_COVER)
    assert (sessions.version(SID), sessions.get_events(SID)) == (2, before)


def test_conformance_scenario_22_one_write_per_pass(
    sessions: SessionService, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions.append_events(SID, [user("one"), user("two"), user("three")])
    writes: list[int] = []
    insert = sessions.app.recorder.insert_events

    def count(stored: Sequence[Any], **kwargs: Any) -> object:
        writes.append(len(stored))
        return insert(stored, **kwargs)

    monkeypatch.setattr(sessions.app.recorder, "insert_events", count)
    result = sessions.compact(SID, None, last_turns(1, Summarizer.prompt()))
    assert (writes, len(result.covered_events)) == ([3], 2)
    boundary, question, answer = sessions.get_events(SID)[-3:]
    assert boundary.boundary is not None
    assert boundary.boundary.summary == (question.id, answer.id)


def test_conformance_scenario_23_a_failing_pass_leaves_the_log_as_it_was(sessions: SessionService) -> None:
    before = sessions.append_events(SID, [user("one"), user("two")])

    def fail(_: SummaryRequest) -> Sequence[Message]:
        raise ConnectionError("the model is away")

    with pytest.raises(ConnectionError, match="the model is away"):
        sessions.compact(SID, None, last_turns(1, Summarizer.prompt(fail)))
    assert (sessions.version(SID), sessions.get_events(SID)) == (2, before)


def test_conformance_scenario_24_the_session_is_deleted_while_a_pass_runs(
    sessions: SessionService, store: Store
) -> None:
    sessions.append_events(SID, [user("one"), user("two")])
    summarizer = Summarizer()
    with Thread(lambda: sessions.compact(SID, None, last_turns(1, summarizer))) as passing:
        assert summarizer.started.wait(PATIENCE)
        store.service().delete(SID)
        summarizer.answer.set()
        with pytest.raises(SessionNotFoundError):
            passing.result(PATIENCE)
    assert (sessions.find(SID), sessions.get_events(SID)) == (None, ())


def test_conformance_scenario_25_existing_events_never_change(sessions: SessionService) -> None:
    sessions.append_events(SID, [user("one", "u1"), user("two", "u2")])
    for number in range(10):
        copy = sessions.get_events(SID)
        sessions.append_events(SID, [user(f"{number}"), user("one", "u1")])
        sessions.append_event(SID, "ACME.AUDIT", {"number": number})
        sessions.compact(SID, None, last_turns(1, Summarizer.prompt() if number % 2 else None))
        sessions.update_metadata(SID, {"number": number})
        assert sessions.get_events(SID)[: len(copy)] == copy
