"""How fast read models are made anew, and what memory that takes.

Times on SQLite are those of the processor, as the machine may be shared; on PostgreSQL, whose server is
another process, those of the clock. Run it with `python -m benchmarks.rebuild`; `--quick` takes a tenth of
the messages, `--memory` a server in memory.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from eventsourcing.persistence import InfrastructureFactory
from eventsourcing.utils import Environment
from psycopg import sql

from benchmarks.core import Row, folder_in, microseconds, peak_of_this_process
from benchmarks.postgres import server, settings
from benchmarks.recall import Texts
from turnlog.application import SessionService
from turnlog.application.projections import MaterialisedViews, ReadModels, ViewProjection, ViewStore
from turnlog.domain import CompactionWindow, Message, NewEvent, TurnCountTrigger, WindowCompactionStrategy
from turnlog.infrastructure.postgres import PostgresReadModels, PostgresViewStore
from turnlog.infrastructure.sqlite import SqliteReadModels, SqliteViewStore

PER_SESSION = 500
TURNS = 25
STRATEGY = WindowCompactionStrategy(CompactionWindow.last_turns(10))
TRIGGER = TurnCountTrigger(20)


def fill(sessions: SessionService, count: int) -> None:
    """So many messages in sessions of 500, each of about 500 bytes, compacted as they grow."""
    texts = Texts()
    for number in range(count // PER_SESSION):
        name = f"session-{number}"
        sessions.create(name, metadata={"user.name": f"user {number % 50}", "title": texts(3)})
        for _ in range(PER_SESSION // (2 * TURNS)):
            said = [(Message.user(texts()), Message.assistant(texts())) for _ in range(TURNS)]
            sessions.append_events(
                name, [NewEvent(message=message) for messages in said for message in messages]
            )
            sessions.compact(name, TRIGGER, STRATEGY)


@dataclass(frozen=True)
class Place:
    """A database of the benchmark."""

    engine: str
    env: Mapping[str, str]

    def service(self) -> SessionService:
        """A service on it."""
        return SessionService(env=dict(self.env))

    def models(self, sessions: SessionService) -> ReadModels:
        """Its read models."""
        if self.engine == "SQLite":
            return SqliteReadModels(sessions.app)
        return PostgresReadModels(sessions.app)

    def clock(self) -> float:
        """Seconds of the processor in a file; on a server also those that it takes."""
        return time.process_time() if self.engine == "SQLite" else time.perf_counter()

    @contextmanager
    def store(self) -> Generator[ViewStore]:
        """A view store."""
        factory = InfrastructureFactory[ViewStore].construct(Environment(ViewProjection.name, dict(self.env)))
        kind: Any = SqliteViewStore if self.engine == "SQLite" else PostgresViewStore
        try:
            yield factory.tracking_recorder(kind)
        finally:
            factory.close()


def speeds(place: Place, count: int, rounds: int) -> Iterator[Row]:
    """Messages a second, the median of several rebuilds, each alone and all at once."""
    with place.service() as sessions:
        models = place.models(sessions)
        for wanted in (("directory",), ("view",), ("recall",), ("view", "recall", "directory")):
            name = wanted[0] if len(wanted) == 1 else "all three"
            seconds = sorted(elapsed(place, models, wanted) for _ in range(rounds))[rounds // 2]
            limit = 1 if len(wanted) > 1 and place.engine == "SQLite" else None
            yield Row(
                f"rebuild {name}, {count:,} messages",
                f"{count / seconds:,.0f} /s",
                10_000 * seconds / count,
                limit,
            )
        start = place.clock()
        same = models.compare().is_equal
        seconds = place.clock() - start
        if not same:
            raise SystemExit("What was rebuilt differs from the log.")
        yield Row("check all three", f"{count / seconds:,.0f} /s", 10_000 * seconds / count, None)
        yield from freshness(place, sessions, rounds)


def elapsed(place: Place, models: ReadModels, wanted: tuple[str, ...]) -> float:
    """Seconds for one rebuild."""
    start = place.clock()
    models.rebuild(wanted)
    return place.clock() - start


def freshness(place: Place, sessions: SessionService, rounds: int) -> Iterator[Row]:
    """What it takes to apply one append and to read the view with it."""
    times: list[float] = []
    with place.store() as store:
        stored = MaterialisedViews(sessions, store)
        stored.catch_up()
        for _ in range(rounds * 20):
            version = sessions.append_message("session-0", Message.user("heron")).version
            start = place.clock()
            stored.catch_up()
            stored.view("session-0", at_least=version)
            times.append(place.clock() - start)
    middle = sorted(times)[len(times) // 2]
    yield Row("apply an append and read the view (ms)", microseconds(middle), middle * 1000, None)


def memory(small: Place, large: Place, count: int) -> Iterator[Row]:
    """Peak memory of a process that rebuilds everything, at a tenth of the messages and at all of them."""
    peaks: list[int] = []
    for place in (small, large):
        asked = [
            sys.executable,
            "-m",
            "benchmarks.rebuild",
            "--place",
            place.engine,
            json.dumps(dict(place.env)),
        ]
        answer = subprocess.run(asked, capture_output=True, text=True, check=True)  # noqa: S603 - ourselves
        peaks.append(int(answer.stdout))
    yield Row(
        f"peak memory, {count:,} : {count // 10:,} messages",
        f"{peaks[1] / 1024:.1f} MiB",
        peaks[1] / peaks[0],
        1.2,
    )


def measured(places: Callable[[], Place], count: int) -> Iterator[Row]:
    """All rows of one engine."""
    small, large = places(), places()
    for place, messages in ((small, count // 10), (large, count)):
        with place.service() as sessions:
            fill(sessions, messages)
    yield from memory(small, large, count)
    yield from speeds(large, count, 3 if small.engine == "SQLite" else 1)


def schema_of(dsn: str, name: str) -> Place:
    """A fresh schema of a server."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(name)))
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(name)))
    return Place("PostgreSQL", settings(dsn, name, None))


def show(engine: str, rows: Iterable[Row]) -> None:
    """Print a table."""
    print(f"| {engine:<44} | {'median':>17} | {'ratio':>5} | {'limit':>5} | {'':<4} |")
    print(f"|{'-' * 46}|{'-' * 19}|{'-' * 7}|{'-' * 7}|{'-' * 6}|")
    for row in rows:
        print(row, flush=True)
    print()


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="10,000 messages, not 100,000")
    parser.add_argument("--memory", action="store_true", help="a server in memory")
    parser.add_argument("--place", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.place:
        place = Place(options.place[0], json.loads(options.place[1]))
        with place.service() as sessions:
            place.models(sessions).rebuild()
        print(peak_of_this_process())
        return
    count = 10_000 if options.quick else 100_000
    tmpfs = Path("/dev/shm")  # noqa: S108 - no sync hides the software
    with folder_in(tmpfs if os.access(tmpfs, os.W_OK) else None) as folder:
        numbers = itertools.count()

        def file() -> Place:
            where = str(folder / f"{next(numbers)}.db")
            return Place("SQLite", {"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": where})

        show("SQLite", measured(file, count))
    with server(options.memory) as dsn:
        show("PostgreSQL", measured(lambda: schema_of(dsn, f"turnlog_bench_{next(numbers)}"), count))


if __name__ == "__main__":
    main()
