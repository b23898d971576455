"""What deleting a long session costs in a large store, and what the purge of its stubs costs.

Run it with `python -m benchmarks.erasing`; `--quick` takes a tenth of the messages.
"""

from __future__ import annotations

import argparse
import random
import sqlite3
import string
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from turnlog.application import SessionService
from turnlog.domain import Message, NewEvent

BATCH = 500
OTHERS = 90


def words(count: int, seed: int = 7) -> list[str]:
    """Made-up words, so that the index is as large as that of real texts or larger."""
    dice = random.Random(seed)
    return ["".join(dice.choices(string.ascii_lowercase, k=dice.randrange(2, 11))) for _ in range(count)]


def fill(sessions: SessionService, session_id: str, count: int, vocabulary: list[str], seed: int) -> None:
    """A session of this many messages of about 300 bytes."""
    dice = random.Random(seed)
    sessions.create(session_id)
    for begin in range(0, count, BATCH):
        texts = (" ".join(dice.choices(vocabulary, k=45)) for _ in range(min(BATCH, count - begin)))
        sessions.append_events(session_id, [NewEvent(message=Message.user(text)) for text in texts])


def seconds(action: Callable[[], object]) -> tuple[float, float]:
    """How long the action takes, and how much of that the processor worked for it."""
    start, worked = time.perf_counter(), time.process_time()
    action()
    return time.perf_counter() - start, time.process_time() - worked


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    size = 1_000 if parser.parse_args().quick else 10_000
    vocabulary = words(20_000)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bench.db"
        env = {"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": str(path)}
        with SessionService(env=env) as sessions:
            for number in range(OTHERS):
                fill(sessions, f"other-{number}", size // 10, vocabulary, number)
            fill(sessions, "long", size, vocabulary, OTHERS)
            fill(sessions, "short", 10, vocabulary, OTHERS + 1)
            size_on_disk = path.stat().st_size / 2**20
            print(f"SQLite {sqlite3.sqlite_version}, {10 * size:,} messages, {size_on_disk:.0f} MiB")
            print("| what                             | seconds | processor | limit |")
            print("|----------------------------------|---------|-----------|-------|")
            rows = (
                (f"delete a session of {size:,}", lambda: sessions.delete("long"), "1"),
                ("delete a session of 10", lambda: sessions.delete("short"), ""),
                ("purge the stubs", lambda: sessions.sweep(purge_after=timedelta(0)), ""),
            )
            for what, action, allowed in rows:
                took, worked = seconds(action)
                print(f"| {what:<32} | {took:>7.2f} | {worked:>9.2f} | {allowed:>5} |")


if __name__ == "__main__":
    main()
