"""How fast read models are made anew, and what memory that takes.

Times are those of the processor, as the machine may be shared. Run it with `python -m benchmarks.rebuild`;
`--quick` takes a tenth of the messages.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.core import Row, folder_in, microseconds, peak_of_this_process
from benchmarks.recall import Texts, service
from turnlog.application import SessionService
from turnlog.application.projections import MaterialisedViews
from turnlog.domain import CompactionWindow, Message, NewEvent, TurnCountTrigger, WindowCompactionStrategy
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


def speeds(path: Path, count: int, rounds: int) -> Iterator[Row]:
    """Messages a second, the median of several rebuilds, each alone and all at once."""
    with service(path) as sessions:
        models = SqliteReadModels(sessions.app)
        for wanted in (("directory",), ("view",), ("recall",), ("view", "recall", "directory")):
            name = wanted[0] if len(wanted) == 1 else "all three"
            seconds = sorted(elapsed(models, wanted) for _ in range(rounds))[rounds // 2]
            limit = 1 if len(wanted) > 1 else None
            yield Row(
                f"rebuild {name}, {count:,} messages",
                f"{count / seconds:,.0f} /s",
                10_000 * seconds / count,
                limit,
            )
        start = time.process_time()
        same = models.compare().is_equal
        seconds = time.process_time() - start
        if not same:
            raise SystemExit("What was rebuilt differs from the log.")
        yield Row("check all three", f"{count / seconds:,.0f} /s", 10_000 * seconds / count, None)
        yield from freshness(sessions, rounds)


def elapsed(models: SqliteReadModels, wanted: tuple[str, ...]) -> float:
    """Seconds of the processor for one rebuild, which on tmpfs waits for nothing else."""
    start = time.process_time()
    models.rebuild(wanted)
    return time.process_time() - start


def freshness(sessions: SessionService, rounds: int) -> Iterator[Row]:
    """What it takes to apply one append and to read the view with it."""
    store = SqliteViewStore(sessions.app.recorder.datastore)  # type: ignore[attr-defined]
    stored = MaterialisedViews(sessions, store)
    stored.catch_up()
    times: list[float] = []
    for _ in range(rounds * 20):
        version = sessions.append_message("session-0", Message.user("heron")).version
        start = time.process_time()
        stored.catch_up()
        stored.view("session-0", at_least=version)
        times.append(time.process_time() - start)
    middle = sorted(times)[len(times) // 2]
    yield Row("apply an append and read the view (ms)", microseconds(middle), middle * 1000, None)


def memory(small: Path, large: Path, count: int) -> Iterator[Row]:
    """Peak memory of a process that rebuilds everything, at a tenth of the messages and at all of them."""
    peaks: list[int] = []
    for path in (small, large):
        command = [sys.executable, "-m", "benchmarks.rebuild", "--file", str(path)]
        answer = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 - ourselves
        peaks.append(int(answer.stdout))
    yield Row(
        f"peak memory, {count:,} : {count // 10:,} messages",
        f"{peaks[1] / 1024:.1f} MiB",
        peaks[1] / peaks[0],
        1.2,
    )


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="10,000 messages, not 100,000")
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.file:
        with service(options.file) as sessions:
            SqliteReadModels(sessions.app).rebuild()
        print(peak_of_this_process())
        return
    count = 10_000 if options.quick else 100_000
    tmpfs = Path("/dev/shm")  # noqa: S108 - no sync hides the software
    print(f"| {'what':<44} | {'median':>17} | {'ratio':>5} | {'limit':>5} | {'':<4} |")
    print(f"|{'-' * 46}|{'-' * 19}|{'-' * 7}|{'-' * 7}|{'-' * 6}|")
    with folder_in(tmpfs if os.access(tmpfs, os.W_OK) else None) as folder:
        small, large = folder / "small.db", folder / "large.db"
        for path, messages in ((small, count // 10), (large, count)):
            with service(path) as sessions:
                fill(sessions, messages)
        for row in (*memory(small, large, count), *speeds(large, count, 3)):
            print(row, flush=True)


if __name__ == "__main__":
    main()
