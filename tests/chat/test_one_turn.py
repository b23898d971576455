"""One turn at a time: on a session and its branches, between threads and between processes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.chat.processes import Process
from tests.support.chats import SID, lines, messages, service
from tests.support.scripted_chat import ScriptedModel, calls

from turnlog.application import SessionService
from turnlog.application.chat import ChatReply, SessionChat, Turn, TurnTakenOverError
from turnlog.application.turns import TurnMark, TurnStep
from turnlog.domain import Message, TurnInProgressError

PATIENCE = 60.0


class Held:
    """A line of a script that answers when it is let go."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.go = threading.Event()

    def __call__(self, _: object) -> str:
        self.asked.set()
        assert self.go.wait(PATIENCE)
        return "held"


class Clock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = datetime(2031, 5, 1, 8, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def move(self, seconds: float) -> None:
        """Let so much time pass."""
        self.now += timedelta(seconds=seconds)


@pytest.fixture
def held(pool: ThreadPoolExecutor) -> Iterator[Held]:  # the threads end after it was let go
    """A line that is let go in the end, whatever happens."""
    line = Held()
    yield line
    line.go.set()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    """Threads for turns that are under way."""
    with ThreadPoolExecutor(8) as threads:
        yield threads


@pytest.fixture
def clock() -> Clock:
    """A clock that is moved by hand."""
    return Clock()


@pytest.fixture
def timed(tmp_path: Path, clock: Clock) -> Iterator[SessionService]:
    """A service with that clock."""
    with service(tmp_path / "chat.db", clock=clock) as opened:
        yield opened


def test_a_second_turn_is_refused_while_one_runs(
    sessions: SessionService, held: Held, pool: ThreadPoolExecutor
) -> None:
    first = pool.submit(SessionChat(sessions, ScriptedModel([held])).send, SID, "first")
    assert held.asked.wait(PATIENCE)
    with pytest.raises(TurnInProgressError, match="wait=seconds"):
        SessionChat(sessions, ScriptedModel(["hi"])).send(SID, "second")
    held.go.set()
    assert first.result().text == "held"
    assert lines(sessions) == ["User: first", "Assistant: held"]


def test_a_second_turn_waits_if_it_is_told_to(
    sessions: SessionService, held: Held, pool: ThreadPoolExecutor
) -> None:
    first = pool.submit(SessionChat(sessions, ScriptedModel([held])).send, SID, "first")
    assert held.asked.wait(PATIENCE)
    model = ScriptedModel(["hi"])
    second = pool.submit(SessionChat(sessions, model).send, SID, "second", wait=PATIENCE)
    held.go.set()
    assert (first.result().text, second.result().text) == ("held", "hi")
    assert model.told == [["User: first", "Assistant: held", "User: second"]]


def test_a_wait_that_is_too_short_is_refused(
    sessions: SessionService, held: Held, pool: ThreadPoolExecutor
) -> None:
    pool.submit(SessionChat(sessions, ScriptedModel([held])).send, SID, "first")
    assert held.asked.wait(PATIENCE)
    with pytest.raises(TurnInProgressError):
        SessionChat(sessions, ScriptedModel(["hi"])).send(SID, "second", wait=0.03)


def test_turns_on_other_branches_and_sessions_run_at_the_same_time(
    sessions: SessionService, held: Held, pool: ThreadPoolExecutor
) -> None:
    pool.submit(SessionChat(sessions, ScriptedModel([held])).send, SID, "first")
    assert held.asked.wait(PATIENCE)
    chat = SessionChat(sessions, ScriptedModel(["hi"]))
    assert chat.send(SID, "task", branch="researcher").text == "hi"
    assert chat.send("other", "hello").text == "hi"


def test_the_session_can_be_written_to_while_a_model_is_asked(
    sessions: SessionService, held: Held, pool: ThreadPoolExecutor
) -> None:
    turn = pool.submit(SessionChat(sessions, ScriptedModel([held])).send, SID, "first")
    assert held.asked.wait(PATIENCE)
    sessions.append_message(SID, Message.user("me too"))
    sessions.update_metadata(SID, {"title": "Parcels"})
    held.go.set()
    assert turn.result().text == "held"
    assert lines(sessions) == ["User: first", "User: me too", "Assistant: held"]


@pytest.mark.parametrize("how", ["threads of one service", "services"])
def test_of_turns_that_begin_at_once_one_runs_at_a_time(
    tmp_path: Path, pool: ThreadPoolExecutor, how: str
) -> None:
    services = [service(tmp_path / "chat.db") for _ in range(1 if how.startswith("threads") else 6)]
    services[0].create(SID)
    running, most = 0, 0
    lock = threading.Lock()

    def answer(_: object) -> str:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        with lock:
            running -= 1
        return "hi"

    def send(number: int) -> str:
        chat = SessionChat(services[number % len(services)], ScriptedModel([answer]))
        return chat.send(SID, f"hello {number}", wait=PATIENCE).text

    assert list(pool.map(send, range(6))) == ["hi"] * 6
    assert most == 1
    said = lines(services[0])
    assert [line.split(":")[0] for line in said] == ["User", "Assistant"] * 6
    assert len(set(said)) == 7
    for one in services:
        one.close()


# --- marks


def test_a_mark_that_expired_blocks_nobody(timed: SessionService, clock: Clock) -> None:
    timed.create(SID)
    timed.record_turn(SID, [Message.user("first")], TurnMark("dead"), TurnStep.BEGIN)
    chat = SessionChat(timed, ScriptedModel(["hi"]))
    clock.move(59)
    with pytest.raises(TurnInProgressError):
        chat.send(SID, "second")
    clock.move(1)
    assert chat.send(SID, "second").text == "hi"


def test_each_write_of_a_turn_renews_its_mark(timed: SessionService, clock: Clock) -> None:
    other = SessionChat(timed, ScriptedModel(["hi"]))

    def work() -> str:
        clock.move(40)
        with pytest.raises(TurnInProgressError):
            other.send(SID, "me too")
        return "done"

    model = ScriptedModel([calls("c1 work"), calls("c2 work"), calls("c3 work"), "ok"])
    assert SessionChat(timed, model, tools=[work]).send(SID, "go").text == "ok"


def test_a_mark_is_renewed_while_a_model_takes_long(tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    with service(tmp_path / "chat.db") as sessions:
        lease = timedelta(seconds=0.3)

        def slow(_: object) -> str:
            until = _until(sessions)
            while _until(sessions) <= until + lease:
                threading.Event().wait(0.01)
            return "at last"

        chat = SessionChat(sessions, ScriptedModel([slow]), lease=lease)
        assert pool.submit(chat.send, SID, "go").result(PATIENCE).text == "at last"


def _until(sessions: SessionService) -> datetime:
    """Until when the turn is marked."""
    with pytest.raises(TurnInProgressError) as caught:
        sessions.view_for_turn(SID)
    return caught.value.until


def test_a_turn_that_was_taken_over_keeps_what_it_had_and_stops(timed: SessionService, clock: Clock) -> None:
    other = SessionChat(timed, ScriptedModel(["other"]))

    def sleep() -> str:
        clock.move(61)
        other.send(SID, "are you there?")
        return "good morning"

    chat = SessionChat(timed, ScriptedModel([calls("c1 sleep"), "ok"]), tools=[sleep])
    with pytest.raises(TurnTakenOverError):
        chat.send(SID, "go")
    assert "Tool [responses: sleep -> good morning]" in lines(timed)


def test_two_turns_of_one_key_do_not_mix_their_calls_and_results(
    timed: SessionService, clock: Clock, pool: ThreadPoolExecutor
) -> None:
    is_running, go = threading.Event(), threading.Event()

    def work() -> str:
        is_running.set()
        assert go.wait(PATIENCE)
        return "worked"

    def send(model: ScriptedModel) -> Turn:
        return SessionChat(timed, model, tools=[work]).send(SID, "go", idempotency_key="k")

    def late(_: object) -> ChatReply:
        clock.move(61)
        others.append(pool.submit(send, ScriptedModel([calls("c1 work"), "done"])))
        assert is_running.wait(PATIENCE)
        return calls("c9 unknown")

    others: list[Future[Turn]] = []
    try:
        with pytest.raises(TurnTakenOverError):
            send(ScriptedModel([late, "late"]))
    finally:
        go.set()
    assert others[0].result().text == "done"
    results = [event.message.tool_responses for event in messages(timed) if event.message]
    assert [part.id for parts in results for part in parts] == ["c1"]


def test_a_turn_whose_mark_expired_but_was_not_taken_goes_on(timed: SessionService, clock: Clock) -> None:
    def sleep() -> str:
        clock.move(1_000)
        return "good morning"

    chat = SessionChat(timed, ScriptedModel([calls("c1 sleep"), "ok"]), tools=[sleep])
    assert chat.send(SID, "go").text == "ok"


def test_marks_are_no_entries_of_the_log(sessions: SessionService) -> None:
    SessionChat(sessions, ScriptedModel(["hi"])).send(SID, "hello")
    assert len(sessions.get_events(SID)) == 2


def test_a_turn_costs_one_write_for_each_message(sessions: SessionService) -> None:
    def ping() -> str:
        return "pong"

    writes: list[int] = []
    save: Callable[..., Any] = sessions.app.save

    def counted(*objects: Any, **named: Any) -> Any:
        writes.append(1)
        return save(*objects, **named)

    sessions.create(SID)
    sessions.app.save = counted  # type: ignore[method-assign]
    chat = SessionChat(sessions, ScriptedModel([calls("c1 ping", "c2 ping"), "ok"]), tools=[ping])
    chat.send(SID, "go")
    assert len(writes) == len(messages(sessions)) == 5


# --- processes


def test_of_two_processes_that_begin_at_once_exactly_one_wins(tmp_path: Path) -> None:
    file = tmp_path / "chat.db"
    service(file).close()
    with Process(file) as one, Process(file) as other:
        for round_ in range(5):
            both = (one, other)
            for process in both:
                process.say(f"send s{round_} -")
            heard = [process.hear() for process in both]
            assert sorted(heard) == ["TurnInProgressError", "asked"]
            winner = both[heard.index("asked")]
            winner.say("hi")
            assert winner.hear() == "done"
    with service(file) as sessions:
        assert [lines(sessions, f"s{n}") for n in range(5)] == [["User: hello", "Assistant: hi"]] * 5


@pytest.mark.parametrize("where", ["asked", "working"])
def test_a_process_that_dies_in_a_turn_loses_nothing_and_blocks_nobody_for_long(
    tmp_path: Path, where: str
) -> None:
    file = tmp_path / "chat.db"
    service(file).close()
    with Process(file) as process:
        process.say(f"send {SID} -")
        assert process.hear() == "asked"
        if where == "working":
            process.say("call")
            assert process.hear() == "working"
        process.kill()
    with service(file) as sessions, pytest.raises(TurnInProgressError):
        SessionChat(sessions, ScriptedModel(["hi"])).send(SID, "and now?")
    later = datetime.now(UTC) + timedelta(minutes=2)
    with service(file, clock=lambda: later) as sessions:
        model = ScriptedModel(["hi"])
        assert SessionChat(sessions, model).send(SID, "and now?").text == "hi"
        assert model.told[0][0] == "User: hello"
        assert len(model.told[0]) == (2 if where == "asked" else 3)
