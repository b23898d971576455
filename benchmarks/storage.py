"""What is stored: bytes by part and script, what a boundary costs, and what deleting and VACUUM take.

Run it with `python -m benchmarks.storage`; `--quick` takes fewer messages. SQLite and PostgreSQL files are in
memory: only sizes and processor time are told. Texts are made of made-up words of each script, since a
repeated sentence would flatter the search index.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg import sql

from benchmarks.core import MESSAGE, folder_in
from benchmarks.postgres import server, settings
from turnlog.application import SessionService
from turnlog.domain import CompactionWindow, EventFilter, Message, NewEvent, WindowCompactionStrategy

ALPHABETS = {
    "English": "eeeeettttaaaooiinnsshhrrddlcumwfgypbvk",
    "Russian": "ооооееееааиинннттссрвлкмдпуяыьгзбчйхжшюцщэф",
    "Chinese": "".join(chr(0x4E00 + (number * 37) % 3_000) for number in range(2_000)),
    "Emoji": "".join(chr(0x1F600 + number) for number in range(80)),
}
PARTS = ("log", "ledger", "directory", "recall")
VIEW = 40
"""Messages of the view that a boundary names."""


@dataclass(frozen=True)
class Row:
    """One line of a table."""

    cells: Sequence[str]

    def __str__(self) -> str:
        return "| " + " | ".join(self.cells) + " |"


def texts(script: str) -> Iterator[str]:
    """Texts of 500 bytes of UTF-8, of phrases of words, of both of which few are frequent (Zipf)."""
    chance = random.Random(script)
    separator = "" if script == "Chinese" else " "
    longest = 2 if script in {"Chinese", "Emoji"} else 9

    def vocabulary(size: int, make: Callable[[], str]) -> Callable[[int], str]:
        entries = [make() for _ in range(size)]
        weights = list(itertools.accumulate(1 / rank for rank in range(1, size + 1)))
        return lambda count: separator.join(chance.choices(entries, cum_weights=weights, k=count))

    words = vocabulary(
        4_000, lambda: "".join(chance.choices(ALPHABETS[script], k=chance.randint(1, longest)))
    )
    phrases = vocabulary(30_000, lambda: words(chance.randint(2, 5)))
    while True:
        yield phrases(120).encode()[:500].decode(errors="ignore")


def fill(sessions: SessionService, script: str, count: int, *, own_ids: bool) -> int:
    """So many messages in sessions of 200; returns the bytes of their UTF-8 JSON."""
    said = texts(script)
    plain = 0
    for number in range(count // 200):
        name = f"{script}-{number}"
        sessions.create(name)
        for turn in range(10):
            messages = [Message.user(next(said)) for _ in range(20)]
            sessions.append_events(
                name,
                [
                    NewEvent(message=message, id=f"mail-{turn:08}-{place:08}" if own_ids else None)
                    for place, message in enumerate(messages)
                ],
            )
            for message in messages:
                plain += len(
                    json.dumps(message.to_dict(), ensure_ascii=False, separators=(",", ":")).encode()
                )
    return plain


def part_of(table: str) -> str:
    """To which part a table or an index of it belongs; everything small goes to the directory."""
    if table in {"stored_events", "sessions_events"}:
        return "log"
    return "ledger" if "event_ids" in table else "recall" if "recall" in table else "directory"


def sizes_on_sqlite(folder: Path, script: str, count: int) -> tuple[dict[str, int], int]:
    """Bytes by part, and those of the messages' JSON."""
    file = folder / f"{script}.db"
    with SessionService(
        env={"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": str(file)}
    ) as sessions:
        plain = fill(sessions, script, count, own_ids=True)
    connection = sqlite3.connect(file)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    rows = connection.execute(
        "SELECT COALESCE(tbl_name, dbstat.name), SUM(pgsize) FROM dbstat LEFT JOIN sqlite_master "
        "ON sqlite_master.name = dbstat.name GROUP BY dbstat.name"
    ).fetchall()
    connection.close()
    found: dict[str, int] = dict.fromkeys(PARTS, 0)
    for name, size in rows:
        found[part_of(name)] += size
    return found, plain


def sizes_on_postgres(dsn: str, script: str, count: int) -> tuple[dict[str, int], int]:
    """Bytes by part, and those of the messages' JSON."""
    schema = f"storage_{script.lower()}"
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
        with SessionService(env=settings(dsn, schema, None)) as sessions:
            plain = fill(sessions, script, count, own_ids=True)
        connection.execute("VACUUM")  # takes over what the inverted index has pending
        rows = connection.execute(
            "SELECT relname, pg_total_relation_size(pg_class.oid) FROM pg_class JOIN pg_namespace "
            "ON pg_namespace.oid = relnamespace WHERE nspname = %s AND relkind = 'r'",
            (schema,),
        ).fetchall()
        connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(schema)))
    found: dict[str, int] = dict.fromkeys(PARTS, 0)
    for name, size in rows:
        found[part_of(name)] += size
    return found, plain


def storage(folder: Path, dsn: str, count: int) -> Iterator[Row]:
    """GB for a million messages by part, and the whole as a multiple of the messages' JSON."""
    yield Row(("store, script", *(f"{head} GB" for head in PARTS), "without recall", "with recall", ""))
    yield Row(("---",) * 8)
    for store in ("SQLite", "PostgreSQL"):
        for script in ALPHABETS:
            if store == "SQLite":
                found, plain = sizes_on_sqlite(folder, script, count)
            else:
                found, plain = sizes_on_postgres(dsn, script, count)
            bare = found["log"] + found["directory"]
            whole = bare + found["recall"]
            yield Row(
                (
                    f"{store}, {script}",
                    *(f"{found[head] / count / 1e3:.3f}" for head in PARTS),
                    f"{bare / plain:.2f}x",
                    f"{whole / plain:.2f}x",
                    "ok" if bare / plain <= 2.2 and whole / plain <= 3.5 else "OVER",
                )
            )


def boundaries(folder: Path, count: int) -> Iterator[Row]:
    """What a boundary costs that keeps a view of 40, every so many messages: bytes, and processor time."""
    yield Row(
        ("a boundary every", "bytes of one", "for each id", "file grows by", "ms of one", "appends take more")
    )
    yield Row(("---",) * 6)
    plain, *_ = _compacted_every(folder, None, count)
    for every in (20, 50, 200):
        size, stored, named, appending, compacting = _compacted_every(folder, every, count)
        yield Row(
            (
                f"{every} messages",
                f"{stored / len(named):,.0f}",
                f"{stored / sum(named):.1f}",
                f"{size / plain - 1:.1%}",
                f"{compacting / len(named) * 1000:.2f}",
                f"{compacting / appending:.0%}",
            )
        )


def _compacted_every(folder: Path, every: int | None, count: int) -> tuple[int, int, list[int], float, float]:
    """Size of the file, bytes of boundaries, ids that each names, seconds of appending and of compacting."""
    strategy = WindowCompactionStrategy(CompactionWindow.last_events(VIEW))
    file = folder / f"boundaries-{every}.db"
    appending = compacting = 0.0
    with SessionService(
        env={"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": str(file)}
    ) as sessions:
        sessions.create("one")
        for done in range(1, count + 1):
            start = time.process_time()
            sessions.append_message("one", MESSAGE)
            between = time.process_time()
            appending += between - start
            if every and done > VIEW and done % every == 0:
                sessions.compact("one", None, strategy)
                compacting += time.process_time() - between
        named = [
            len(event.boundary.named)
            for event in sessions.get_events("one", EventFilter())
            if event.boundary is not None
        ]
    connection = sqlite3.connect(file)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    (stored,) = connection.execute(
        "SELECT SUM(LENGTH(state)) FROM stored_events WHERE topic LIKE '%:Compacted'"
    ).fetchone()
    connection.close()
    return file.stat().st_size, stored, named, appending, compacting


def deletions(dsn: str, count: int) -> Iterator[Row]:
    """Sessions of 200 messages deleted one by one on PostgreSQL, and what becomes of their space."""
    schema = "storage_deletions"
    yield Row(("end of life on PostgreSQL", "seconds", "messages a second", "log and recall, MB"))
    yield Row(("---",) * 4)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))

        def row(what: str, seconds: float | None) -> Row:
            size = connection.execute(
                "SELECT SUM(pg_total_relation_size(pg_class.oid)) FROM pg_class JOIN pg_namespace "
                "ON pg_namespace.oid = relnamespace WHERE nspname = %s AND relkind = 'r' "
                "AND (relname = 'sessions_events' OR relname LIKE '%%recall%%')",
                (schema,),
            ).fetchone()
            told = ("", "") if seconds is None else (f"{seconds:.2f}", f"{count / seconds:,.0f}")
            return Row((what, *told, f"{float((size or (0,))[0]) / 1e6:.1f}"))

        with SessionService(env=settings(dsn, schema, None)) as sessions:
            fill(sessions, "English", count, own_ids=False)
            yield row("stored", None)
            start = time.perf_counter()
            for listed in sessions.list_sessions(limit=count):
                sessions.delete(listed.session_id)
            yield row("deleted", time.perf_counter() - start)
            start = time.perf_counter()
            connection.execute(sql.SQL("VACUUM {}").format(sql.Identifier(schema, "sessions_events")))
            yield row("vacuumed", time.perf_counter() - start)
            fill(sessions, "Russian", count, own_ids=False)
            yield row("filled again", None)
        connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(schema)))


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    memory = Path("/dev/shm")  # noqa: S108 - tmpfs
    with folder_in(memory if os.access(memory, os.W_OK) else None) as folder, server(memory=True) as dsn:
        for table in (
            storage(folder, dsn, 4_000 if quick else 20_000),
            boundaries(folder, 1_000 if quick else 4_000),
            deletions(dsn, 4_000 if quick else 20_000),
        ):
            for row in table:
                print(row, flush=True)
            print()


if __name__ == "__main__":
    main()
