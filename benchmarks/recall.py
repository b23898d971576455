"""What searching costs, how much other sessions add to it, and what the index adds to a write.

Run it with `python -m benchmarks.recall`; `--quick` takes a tenth of the messages.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeAlias

from benchmarks.core import Row, folder_in, in_turns, microseconds
from turnlog.application import SessionService
from turnlog.domain import Message, NewEvent, SessionAttributes
from turnlog.domain.query import EventQuery
from turnlog.infrastructure.sqlite import SqliteSessionRecorder

Clock: TypeAlias = Callable[[], float]

RARE = "zyqueltar"
"""A word in 10 messages of the session and in 1,000 of the store."""

ONSETS = (*"bcdfghklmnprstvw", "st", "tr", "ch", "pl")
VOWELS = (*"aeiou", "an", "er", "in", "on")
WHERE = {SessionAttributes.PRINCIPAL_NAME: "ada"}


class WithoutRecall(SqliteSessionRecorder):
    """The recorder without its index, to tell what the index costs."""

    @property
    def recall(self) -> None:
        """No index."""


class Texts:
    """Texts of made-up words, some of them frequent and most of them rare, about 500 characters long."""

    def __init__(self, words: int = 30_000) -> None:
        self._random = random.Random(11)
        syllables = [onset + vowel for onset in ONSETS for vowel in VOWELS]
        lengths = (1, 2, 2, 3, 3, 4)
        self._words = [
            "".join(self._random.choices(syllables, k=self._random.choice(lengths))) for _ in range(words)
        ]
        self._weights = list(itertools.accumulate(1 / rank**0.9 for rank in range(1, words + 1)))

    def __call__(self, words: int = 64) -> str:
        return " ".join(self._random.choices(self._words, cum_weights=self._weights, k=words))


def service(path: Path, recorder: type[SqliteSessionRecorder] = SqliteSessionRecorder) -> SessionService:
    """A service on this file."""
    return SessionService(
        env={
            "PERSISTENCE_MODULE": "eventsourcing.sqlite",
            "SQLITE_DBNAME": str(path),
            "APPLICATION_RECORDER_TOPIC": f"{recorder.__module__}:{recorder.__qualname__}",
        }
    )


class Filler:
    """Appends made-up messages to one session, every `every`-th of them with the rare word."""

    def __init__(self, sessions: SessionService, session_id: str, texts: Texts, every: int) -> None:
        self._sessions, self._session_id, self._texts, self._every = sessions, session_id, texts, every
        self._numbers = itertools.count(1)
        sessions.create(session_id, metadata=WHERE)

    def append(self, count: int) -> None:
        """Append this many messages in one write."""
        batch = [
            self._texts() + (f" {RARE}" if next(self._numbers) % self._every == 0 else "")
            for _ in range(count)
        ]
        self._sessions.append_events(
            self._session_id, [NewEvent(message=Message.user(text)) for text in batch]
        )


def searches(folder: Path, size: int, rounds: int) -> Iterator[Row]:
    """A search in one session, alone in its store and beside ten times as many messages of others."""
    texts = Texts()
    stores = [service(folder / "alone.db"), service(folder / "shared.db")]
    before = [Filler(stores[1], f"before-{number}", texts, size // 100) for number in range(50)]
    fillers = [Filler(store, "searched", texts, size // 10) for store in stores]
    others = before + [Filler(stores[1], f"behind-{number}", texts, size // 100) for number in range(50)]
    for step in range(size // 100):
        for filler in fillers:
            filler.append(100)
        for number in range(10):
            others[(step * 10 + number) % len(others)].append(100)
    query = EventQuery(keywords=RARE)
    alone, shared = in_turns([partial(store.search_events, "searched", query) for store in stores], rounds)
    yield Row(f"search in {size:,} messages (ms)", microseconds(alone), alone * 1000, 10)
    yield Row(f"search beside {size * 10:,} of others", microseconds(shared), shared / alone, 1.5)
    (everywhere,) = in_turns([lambda: stores[1].search_all(query, where=WHERE)], max(3, rounds // 20))
    found = len(stores[1].search_all(query, where=WHERE))
    yield Row(
        f"search over 101 sessions, {found:,} found (ms)", microseconds(everywhere), everywhere * 1000, None
    )
    short = EventQuery(keywords="zy")
    (read,) = in_turns([lambda: stores[0].search_events("searched", short)], 3)
    yield Row("two letters, read from the log (ms)", microseconds(read), read * 1000, None)
    for store in stores:
        store.close()


def writes(name: str, folder: Path, count: int, clock: Clock) -> Iterator[tuple[float, float]]:
    """Mean seconds of an append without and with the index, by blocks of `count` messages."""
    texts = Texts()
    stores = [service(folder / f"{name}-without.db", WithoutRecall), service(folder / f"{name}-with.db")]
    for store in stores:
        store.create("written")
    while True:
        messages = [Message.user(texts()) for _ in range(count)]
        yield mean(messages, stores[0], clock), mean(messages, stores[1], clock)


def mean(messages: list[Message], sessions: SessionService, clock: Clock) -> float:
    """Seconds per append of these messages, one by one."""
    start = clock()
    for message in messages:
        sessions.append_message("written", message)
    return (clock() - start) / len(messages)


def write_rows(fast: Path, disk: Path, blocks: int) -> Iterator[Row]:
    """What the index adds to an append, in time of the processor and as a part of a durable one."""
    pairs = list(itertools.islice(writes("fast", fast, 1024, time.process_time), blocks))
    cost = statistics.median(with_it - without for without, with_it in pairs)
    yield Row("recall adds to an append (µs)", microseconds(cost), cost * 1e6, 150)
    pairs = list(itertools.islice(writes("disk", disk, 1024, time.perf_counter), max(3, blocks // 4)))
    durable = statistics.median(without for without, _ in pairs)
    share = statistics.median(with_it - without for without, with_it in pairs) / durable
    yield Row("recall adds : durable append, on disk", microseconds(durable), share, 0.6)


def removal(folder: Path, size: int) -> Iterator[Row]:
    """Removing one session of a tenth of the messages from the index."""
    texts = Texts()
    sessions = service(folder / "removal.db")
    fillers = [Filler(sessions, f"session-{number}", texts, size) for number in range(10)]
    for _ in range(size // 1000):
        for filler in fillers:
            filler.append(100)
    recorder = sessions.app.recorder
    assert isinstance(recorder, SqliteSessionRecorder)  # noqa: S101 - the service was made with it
    index = recorder.recall
    assert index is not None  # noqa: S101 - a benchmark of the index needs it
    removed = next(row for row in sessions.list_sessions(limit=1))

    def remove() -> None:
        with recorder.datastore.transaction(commit=True) as cursor:
            index.remove(cursor, removed.aggregate_id)

    seconds = timed(remove)
    yield Row(
        f"remove {removed.messages:,} of {size:,} from the index (s)", microseconds(seconds), seconds, None
    )
    sessions.close()


def timed(action: Callable[[], object]) -> float:
    """Seconds that the action takes."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="10,000 messages in the session, not 100,000")
    options = parser.parse_args()
    size = 10_000 if options.quick else 100_000
    memory = Path("/dev/shm")  # noqa: S108 - tmpfs, where no sync hides the software
    tmpfs = memory if os.access(memory, os.W_OK) else None
    print(f"| {'what':<43} | {'median':>17} | ratio | limit |      |")
    print(f"|{'-' * 45}|{'-' * 19}|{'-' * 7}|{'-' * 7}|{'-' * 6}|")
    with folder_in(tmpfs) as fast, folder_in(Path.cwd()) as disk:
        rows = itertools.chain(
            write_rows(fast, disk, 8 if options.quick else 20),
            searches(fast, size, 100 if options.quick else 300),
            removal(fast, size),
        )
        for row in rows:
            print(row, flush=True)


if __name__ == "__main__":
    main()
