"""Deletions against other writers, in threads and processes, and processes that die in the middle."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from threading import Barrier

import pytest
from psycopg import sql
from tests.support.conformance_stores import Store
from tests.support.postgres import connect

from turnlog.application.service import SessionService
from turnlog.domain.errors import SessionNotFoundError
from turnlog.domain.events import EventErased, SessionDeleted
from turnlog.domain.log import NewEvent
from turnlog.domain.messages import Message

SID = "parcel"
RARE = "a word that nobody else says"
PATIENCE = 60.0


def stored_kinds(sessions: SessionService) -> list[str]:
    """The names of the stored event classes of the session, in order."""
    stream = sessions._key(SID).aggregate_id  # pyright: ignore[reportPrivateUsage] # the id of its stream
    return [row.topic.rpartition(":")[2] for row in sessions.app.recorder.select_events(stream)]


@pytest.mark.parametrize("number", range(10))
def test_nothing_is_written_behind_a_tombstone(store: Store, number: int) -> None:
    sessions = store.service()
    sessions.create(SID)
    writers = [store.service() for _ in range(3)]
    barrier = Barrier(len(writers) + 1)

    def append(service: SessionService) -> None:
        barrier.wait(PATIENCE)
        with suppress(SessionNotFoundError):
            while True:
                service.append_message(SID, Message.user(RARE))
                time.sleep(0.001)

    with ThreadPoolExecutor(len(writers)) as pool:
        done = [pool.submit(append, service) for service in writers]
        barrier.wait(PATIENCE)
        sessions.delete(SID)
        for one in done:
            one.result(PATIENCE)
    *erased, last = stored_kinds(sessions)
    assert set(erased) == {EventErased.__name__}
    assert last == SessionDeleted.__name__


APPEND = """
import json, sys, time
from turnlog.application.service import SessionService
from turnlog.domain.errors import SessionNotFoundError
from turnlog.domain.messages import Message
env, sid, text = json.loads(sys.argv[1])
sessions = SessionService(env=env)
print("ready", flush=True)
while True:
    try:
        sessions.append_message(sid, Message.user(text))
        time.sleep(0.02)
    except SessionNotFoundError:
        break
"""

SWEEP = """
import json, sys
from datetime import datetime, UTC
from turnlog.application.service import SessionService
env, sid, text = json.loads(sys.argv[1])
sessions = SessionService(env=env)
print("ready", flush=True)
sys.stdin.read(1)
print(sessions.delete_expired(datetime.now(UTC)), flush=True)
"""


def started(program: str, store: Store) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-c", program, json.dumps([store.env, SID, RARE])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    if process.stdout.readline() != b"ready\n":
        process.communicate()
        raise AssertionError("The process did not start.")
    return process


def is_left(store: Store) -> bool:
    if store.path is None:
        return is_left_in_postgres(store)
    files = (store.path, store.path.with_name(store.path.name + "-wal"))
    return any(RARE.encode() in file.read_bytes() for file in files if file.exists())


def is_left_in_postgres(store: Store) -> bool:
    table = sql.Identifier(store.env["POSTGRES_SCHEMA"], "sessions_events")
    with connect() as connection:
        states = connection.execute(sql.SQL("SELECT state FROM {}").format(table)).fetchall()
    return any(RARE.encode() in bytes(state) for (state,) in states)


def test_writers_in_other_processes_write_nothing_behind_a_tombstone(shared_store: Store) -> None:
    sessions = shared_store.service()
    sessions.create(SID)
    writers = [started(APPEND, shared_store) for _ in range(2)]
    while sessions.version(SID) < 20:
        pass
    sessions.delete(SID)
    assert [writer.wait(PATIENCE) for writer in writers] == [0, 0]
    for writer in writers:
        writer.communicate()
    sessions.sweep()
    assert stored_kinds(sessions)[-1] == SessionDeleted.__name__
    assert not is_left(shared_store)


def test_sweeps_in_two_processes_delete_each_session_once(shared_store: Store) -> None:
    sessions = shared_store.service()
    for number in range(30):
        sessions.create(f"{SID}-{number}", time_to_live=timedelta(0))
    sweeps = [started(SWEEP, shared_store) for _ in range(2)]
    counts = [int(sweep.communicate(b"!", PATIENCE)[0]) for sweep in sweeps]
    assert sum(counts) == 30
    assert sessions.list_sessions() == []


def test_of_sessions_extended_during_a_sweep_none_is_deleted_behind_its_extension(
    shared_store: Store,
) -> None:
    sessions = shared_store.service()
    names = [f"{SID}-{number}" for number in range(40)]
    for name in names:
        sessions.create(name, time_to_live=timedelta(0))
    sweep = started(SWEEP, shared_store)
    assert sweep.stdin is not None
    sweep.stdin.write(b"!")
    sweep.stdin.flush()
    extended: list[str] = []
    for name in reversed(names):
        try:
            sessions.extend(name, datetime.now(UTC) + timedelta(hours=1))
        except SessionNotFoundError:
            continue
        extended.append(name)
    count = int(sweep.communicate(timeout=PATIENCE)[0])
    assert count == len(names) - len(extended)
    assert all(sessions.find(name) for name in extended)


DIE = """
import json, os, signal, sys
from turnlog.application.service import SessionService
from turnlog.infrastructure.sqlite import eraser
env, sid, text = json.loads(sys.argv[1])
sessions = SessionService(env=env)
print("ready", flush=True)
place = sys.stdin.readline().strip()
overwrite, scrub = eraser.overwrite, eraser.SqliteEraser.scrub

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def overwrite_and_die(*arguments):
    overwrite(*arguments)
    die()

if place == "before":
    eraser.overwrite = die
elif place == "inside":
    eraser.overwrite = overwrite_and_die
else:
    eraser.SqliteEraser.scrub = die
sessions.delete(sid)
"""


@pytest.fixture
def sessions(file_store: Store) -> SessionService:
    """A service with a session of two hundred messages, more than the cache of a page or two."""
    service = file_store.service()
    service.create(SID, metadata={"title": RARE})
    service.append_events(SID, [NewEvent(message=Message.user(RARE * 50))] * 200)
    return service


def killed(store: Store, place: str) -> None:
    process = started(DIE, store)
    process.communicate(f"{place}\n".encode(), PATIENCE)
    assert process.returncode == -signal.SIGKILL


@pytest.mark.parametrize("place", ["before", "inside"])
def test_a_process_that_dies_before_the_commit_has_deleted_nothing(
    sessions: SessionService, file_store: Store, place: str
) -> None:
    before = (sessions.find(SID), sessions.get_events(SID))
    killed(file_store, place)
    again = file_store.service()
    assert (again.find(SID), again.get_events(SID)) == before


def test_a_process_that_dies_behind_the_commit_has_deleted_all_and_a_sweep_completes_it(
    sessions: SessionService, file_store: Store
) -> None:
    killed(file_store, "behind")
    assert sessions.find(SID) is None
    assert set(stored_kinds(sessions)[:-1]) == {EventErased.__name__}
    assert sessions.sweep().completed == 1
    assert not is_left(file_store)


def test_a_deletion_after_one_that_died_is_a_deletion(sessions: SessionService, file_store: Store) -> None:
    killed(file_store, "inside")
    assert sessions.delete(SID).erasure == "done"
    assert not is_left(file_store)
