"""What appending, reading the view and compacting cost, as ratios within one run.

Every figure is a median; what is compared is measured in turns, so that a noisy moment hits both sides.
Run it with `make bench`; `--quick` takes smaller logs, `--large` (`make bench-large`) a million messages.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from uuid import UUID

from eventsourcing.application import Application
from eventsourcing.domain import Aggregate, event

from turnlog.application import SessionService
from turnlog.domain import CompactionWindow, Message, NewEvent, TokenCountTrigger, WindowCompactionStrategy

WORDS = "the parcel waits at the depot in Lund until the courier of the morning tour takes it along "
SCRIPTS = {
    "English": WORDS,
    "Russian": "посылка ждёт на складе в Лунде, пока утренний курьер не заберёт её с собой ",
    "Chinese": "包裹在隆德的仓库里等待早班快递员把它取走然后送到收件人的家门口",
    "Emoji": "📦🚚🏠🙂🌧️📮⏰✅",
}
STRATEGY = WindowCompactionStrategy(CompactionWindow.token_budget(4_500))
MILLION = 1_000_000
WAIT = 0.0002
"""Seconds, about what a flush takes where it is fast."""
TRIGGER = TokenCountTrigger(9_000)
"""At about 110 tokens a message the view swings between 40 and 80 messages."""


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    what: str
    figure: str
    ratio: float
    limit: float | None

    def __str__(self) -> str:
        limit = "" if self.limit is None else f"{self.limit:.4g}"
        verdict = "" if self.limit is None else ("ok" if self.ratio <= self.limit else "OVER")
        return f"| {self.what:<44} | {self.figure:>17} | {self.ratio:>5.2f} | {limit:>5} | {verdict:<4} |"


def text_of(size: int, script: str = "English") -> str:
    """A text of this many bytes of UTF-8."""
    sample = SCRIPTS[script]
    text = (sample * (size // len(sample.encode()) + 1)).encode()[:size]
    return text.decode(errors="ignore")


MESSAGE = Message.user(text_of(500))


def service(folder: Path, name: str = "bench.db") -> SessionService:
    """A service on a file of this folder."""
    return SessionService(
        env={"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": str(folder / name)}
    )


def fill(sessions: SessionService, session_id: str, count: int) -> None:
    """A session of this many messages that is compacted whenever its trigger fires."""
    sessions.create(session_id)
    done = 0
    while done < count:
        batch = [NewEvent(message=MESSAGE)] * min(20, count - done)
        sessions.append_events(session_id, batch)
        done += len(batch)
        sessions.compact(session_id, TRIGGER, STRATEGY)


def in_turns(
    actions: Sequence[Callable[[], object]],
    rounds: int,
    before: Sequence[Callable[[], object]] = (),
) -> list[float]:
    """The median seconds of each action, all of them run once per round, each after what comes before it."""
    times: list[list[float]] = [[] for _ in actions]
    for _ in range(rounds):
        for action, measured, prepare in zip(
            actions, times, before or [_nothing] * len(actions), strict=True
        ):
            prepare()
            start = time.perf_counter()
            action()
            measured.append(time.perf_counter() - start)
    return [statistics.median(measured) for measured in times]


def _nothing() -> None:
    """What comes before an action that nothing comes before."""


def cost_law(folder: Path, sizes: Sequence[int], rounds: int) -> Iterator[Row]:
    """Append, view and compact at a short and at a long log."""
    sessions = service(folder)
    names = [f"log-{size}" for size in sizes]
    start = time.perf_counter()
    for name, size in zip(names, sizes, strict=True):
        fill(sessions, name, size)
    filled = sum(sizes) / (time.perf_counter() - start)
    yield Row("appended in batches of 20, compacted", f"{filled:,.0f} /s", 10_000 / filled, None)

    def ratios(what: str, seconds: Sequence[float]) -> Iterator[Row]:
        for size, value in list(zip(sizes, seconds, strict=True))[1:]:
            limit = 1.3 if size < MILLION else 1.5
            yield Row(
                f"{what}, {size:,} : {sizes[0]:,} messages", microseconds(value), value / seconds[0], limit
            )

    yield from ratios(
        "append one", in_turns([partial(sessions.append_message, name, MESSAGE) for name in names], rounds)
    )
    for name in names:
        sessions.compact(name, None, STRATEGY)

    fresh = iter([service(folder) for _ in range(rounds * len(names))])

    def cold_view(name: str) -> object:
        return next(fresh).view(name)

    yield from ratios("view, cold", in_turns([partial(cold_view, name) for name in names], rounds))
    yield from ratios("view, warm", in_turns([partial(sessions.view, name) for name in names], rounds))

    passes: list[list[float]] = [[] for _ in names]
    for _ in range(max(10, rounds // 10)):
        for name, measured in zip(names, passes, strict=True):
            sessions.append_events(name, [NewEvent(message=MESSAGE)] * 20)
            sessions.view(name)
            start = time.perf_counter()
            sessions.compact(name, None, STRATEGY)
            measured.append(time.perf_counter() - start)
    yield from ratios("compact", [statistics.median(measured) for measured in passes])


def warm_view(folder: Path, rounds: int) -> Iterator[Row]:
    """A warm session with 40 messages in its view."""
    sessions = service(folder, "warm.db")
    sessions.create("warm")
    sessions.append_events("warm", [NewEvent(message=MESSAGE)] * 40)
    sessions.view("warm")
    (seconds,) = in_turns([lambda: sessions.view("warm")], rounds)
    yield Row("view of 40 messages, warm (ms)", microseconds(seconds), seconds * 1000, 1.0)


def durable_append(folder: Path, rounds: int) -> Iterator[Row]:
    """One append on disk against one row in one transaction of the bare module."""
    with append_and_bare_row(folder) as (append, insert):
        for name in ("durable.db", "bare.db"):
            grow_wal(folder / name)
        ours, floor = in_turns([append, insert], rounds)
    yield Row("durable append : one bare row, on disk", microseconds(ours), ours / floor, 2.5)


def behind_a_wait(folder: Path, rounds: int) -> Iterator[Row]:
    """What a wait as long as a flush does to the call behind it, where nothing is flushed."""
    with append_and_bare_row(folder) as actions:
        for what, action in zip(("append", "one bare row"), actions, strict=True):
            hot, cold = in_turns([action, action], rounds, before=[_nothing, lambda: time.sleep(WAIT)])
            yield Row(f"{what} behind a wait : at once, tmpfs", microseconds(cold), cold / hot, None)


@contextmanager
def append_and_bare_row(folder: Path) -> Generator[tuple[Callable[[], object], Callable[[], object]]]:
    """One append, and one row in one transaction of the bare module with the same durability."""
    sessions = service(folder, "durable.db")
    sessions.create("durable")
    bare = sqlite3.connect(folder / "bare.db", isolation_level=None)
    bare.execute("PRAGMA journal_mode=WAL")
    bare.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, body TEXT)")
    body = json.dumps(MESSAGE.to_dict())

    def insert() -> None:
        bare.execute("BEGIN")
        bare.execute("INSERT INTO rows (body) VALUES (?)", (body,))
        bare.execute("COMMIT")

    yield lambda: sessions.append_message("durable", MESSAGE), insert
    bare.close()


def grow_wal(file: Path) -> None:
    """Let the log have the size at which SQLite begins it anew, as it has in a service that ran for a while.

    Until then each commit enlarges the file, which takes the file system longer than the commit itself. The
    library must have a connection, or the log is removed with this one.
    """
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE grown AS SELECT randomblob(4500000)")
        connection.commit()


class Counter(Aggregate):
    """The most trivial aggregate there is."""

    @event("Counted")
    def count(self) -> None:
        """Count once."""


def software_append(folder: Path, rounds: int) -> Iterator[Row]:
    """One append on tmpfs against the framework's own save of one trivial event."""
    sessions = service(folder, "software.db")
    sessions.create("software")
    app = Application[UUID](
        env={"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": str(folder / "trivial.db")}
    )
    counter = Counter()
    app.save(counter)

    def save() -> None:
        counter.count()
        app.save(counter)

    ours, trivial = in_turns([lambda: sessions.append_message("software", MESSAGE), save], rounds)
    limit = 2.5 + 200e-6 / trivial  # 200 µs are for what recall adds
    yield Row("append : the framework's trivial save, tmpfs", microseconds(ours), ours / trivial, limit)


def bytes_stored(folder: Path, count: int) -> Iterator[Row]:
    """Bytes per byte of UTF-8 JSON, in the stored state and in the whole file."""
    for script in SCRIPTS:
        message = Message.user(text_of(500, script))
        name = f"bytes-{script}.db"
        sessions = service(folder, name)
        sessions.create("bytes")
        for _ in range(count // 20):
            sessions.append_events("bytes", [NewEvent(message=message)] * 20)
        sessions.close()
        connection = sqlite3.connect(folder / name)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (state,) = connection.execute("SELECT SUM(LENGTH(state)) FROM stored_events").fetchone()
        connection.close()
        plain = count * len(json.dumps(message.to_dict(), ensure_ascii=False, separators=(",", ":")).encode())
        size = (folder / name).stat().st_size
        yield Row(f"stored state : UTF-8 JSON, {script}", f"{state / count:.0f} B", state / plain, 1.7)
        yield Row(f"whole file : UTF-8 JSON, {script}", f"{size / count:.0f} B", size / plain, 2.2)


def peak_memory(folder: Path, sizes: Sequence[int]) -> Iterator[Row]:
    """Peak memory of a process that reads one view, by length of the log."""
    peaks: list[int] = []
    for size in sizes:
        command = [sys.executable, "-m", "benchmarks.core", "--read-one-view", str(folder), f"log-{size}"]
        answer = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 - ourselves
        peaks.append(int(answer.stdout))
    for size, peak in list(zip(sizes, peaks, strict=True))[1:]:
        yield Row(
            f"peak memory, {size:,} : {sizes[0]:,} messages", f"{peak / 1024:.1f} MiB", peak / peaks[0], 1.05
        )


def peak_of_this_process() -> int:
    """The most memory that this process has held, in KiB."""
    status = Path("/proc/self/status")
    if status.exists():  # what `getrusage` says includes the process that started this one
        return int(next(line for line in status.read_text().splitlines() if "VmHWM" in line).split()[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def microseconds(seconds: float) -> str:
    """The time in microseconds."""
    return f"{seconds * 1e6:,.0f} µs"


@contextmanager
def folder_in(parent: Path | None) -> Generator[Path]:
    """A folder for the files of one measurement."""
    with tempfile.TemporaryDirectory(prefix="turnlog-bench-", dir=parent) as name:
        yield Path(name)


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="logs of 10,000 messages instead of 100,000")
    parser.add_argument("--large", action="store_true", help="the cost laws alone, at a million messages")
    parser.add_argument("--read-one-view", nargs=2, metavar=("FOLDER", "SESSION"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read_one_view:
        service(Path(options.read_one_view[0])).view(options.read_one_view[1])
        print(peak_of_this_process())
        return
    sizes = (1_000, 10_000) if options.quick else (1_000, 10_000, 100_000)
    rounds = 100 if options.quick else 300
    memory = Path("/dev/shm")  # noqa: S108 - tmpfs, where no sync hides the software
    tmpfs = memory if os.access(memory, os.W_OK) else None
    print(f"| {'what':<44} | {'median':>17} | ratio | limit |      |")
    print(f"|{'-' * 46}|{'-' * 19}|{'-' * 7}|{'-' * 7}|{'-' * 6}|")
    with folder_in(tmpfs) as fast, folder_in(Path.cwd()) as disk:
        if options.large:
            for row in cost_law(fast, (1_000, MILLION), rounds):
                print(row, flush=True)
            return
        rows = itertools.chain(
            cost_law(fast, sizes, rounds),
            warm_view(fast, rounds),
            durable_append(disk, rounds),
            behind_a_wait(fast, rounds),
            software_append(fast, rounds * 3),
            bytes_stored(fast, 2_000 if options.quick else 10_000),
            peak_memory(fast, sizes),
        )
        for row in rows:
            print(row, flush=True)


if __name__ == "__main__":
    main()
