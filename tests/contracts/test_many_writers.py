"""Threads and processes that use one store together."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.contracts.passes import keep_turns
from tests.contracts.stores import Store, WordCount, sqlite_env
from tests.support.postgres import postgres_env

from turnlog.application.service import SessionService
from turnlog.domain.messages import Message

WORKER = Path(__file__).with_name("worker.py")


def _append(sessions: SessionService, writer: int, count: int) -> None:
    for number in range(count):
        name = f"{writer}-{number}"
        sessions.append_message("s", Message.user(name), event_id=name)


def _wait_for(appending: Iterable[Future[None]]) -> None:
    for one in appending:
        one.result()


def _assert_complete(sessions: SessionService, writers: int, count: int) -> None:
    """Nothing twice, nothing missing, and each writer's events in its order."""
    ids = [event.id for event in sessions.get_events("s")]
    for writer in range(writers):
        own = [name for name in ids if name.startswith(f"{writer}-")]
        assert own == [f"{writer}-{number}" for number in range(count)]
    assert sessions.version("s") == len(ids) == writers * count


def test_sixteen_threads_append_through_one_service(sessions: SessionService) -> None:
    sessions.create("s")
    with ThreadPoolExecutor(16) as pool:
        _wait_for([pool.submit(_append, sessions, writer, 6) for writer in range(16)])
    _assert_complete(sessions, 16, 6)


def test_eight_services_append_to_one_session(store: Store) -> None:
    services = [store.service() for _ in range(8)]
    services[0].create("s")
    with ThreadPoolExecutor(8) as pool:
        _wait_for([pool.submit(_append, services[writer], writer, 6) for writer in range(8)])
    _assert_complete(services[0], 8, 6)


def test_passes_and_appends_of_many_threads_lose_no_message(sessions: SessionService) -> None:
    sessions.create("s")

    def work(writer: int) -> None:
        _append(sessions, writer, 5)
        keep_turns(sessions, "s", 3)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert len(sessions.get_messages("s")) == 40
    keep_turns(sessions, "s", 3)
    assert len(sessions.view("s").ids) == 3


def test_a_service_is_used_from_other_threads_than_its_own(sessions: SessionService) -> None:
    sessions.create("s")

    async def append() -> None:
        await asyncio.to_thread(sessions.append_message, "s", Message.user("from a thread"))

    asyncio.run(append())
    assert len(sessions.get_events("s")) == 1


def test_sixteen_threads_share_a_database_in_memory() -> None:
    env = {"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": ":memory:"}
    with SessionService(env=env, token_estimator=WordCount()) as sessions:
        sessions.create("s")
        with ThreadPoolExecutor(16) as pool:
            _wait_for([pool.submit(_append, sessions, writer, 10) for writer in range(16)])
        _assert_complete(sessions, 16, 10)


@pytest.fixture(params=["sqlite", "postgres"])
def env(request: pytest.FixtureRequest, tmp_path: Path) -> Mapping[str, str]:
    """The settings of a store that processes share."""
    return postgres_env() if request.param == "postgres" else sqlite_env(tmp_path / "sessions.db")


def _run_processes(env: Mapping[str, str], session_of: Callable[[int], str], count: int) -> None:
    arguments: Sequence[Sequence[str]] = [
        (sys.executable, str(WORKER), json.dumps(dict(env)), session_of(writer), str(writer), str(count))
        for writer in range(8)
    ]
    running = [subprocess.Popen(one, stderr=subprocess.PIPE, text=True) for one in arguments]
    errors = [process.communicate(timeout=120)[1] for process in running]
    assert [process.returncode for process in running] == [0] * 8, errors


def test_eight_processes_append_to_sessions_of_their_own(env: Mapping[str, str]) -> None:
    _run_processes(env, lambda writer: f"session {writer}", 200)
    with SessionService(env=env) as sessions:
        versions = [sessions.version(f"session {writer}") for writer in range(8)]
    assert versions == [200] * 8


def test_eight_processes_append_to_one_session(env: Mapping[str, str]) -> None:
    _run_processes(env, lambda _: "s", 25)
    with SessionService(env=env) as sessions:
        _assert_complete(sessions, 8, 25)


@pytest.mark.parametrize("attempt", range(20))
def test_eight_threads_open_the_same_new_file(tmp_path: Path, attempt: int) -> None:
    file = tmp_path / f"new-{attempt}.db"

    def open_and_append(writer: int) -> None:
        with SessionService(env=sqlite_env(file)) as sessions:
            sessions.create(str(writer))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(open_and_append, range(8)))
    with SessionService(env=sqlite_env(file)) as sessions:
        assert len(sessions.list_sessions()) == 8
