"""What others need for the same conversation, in one run, side by side.

Append one message, read the 40 messages that a model is told, compact, and search, at logs of 100 to 100,000
messages of 500 bytes. Each library is used as its documentation says, with the same durability. Run it with
`python -m benchmarks.peers`; `--quick` leaves out 100,000. Libraries that are not installed are left out:
`pip install -e '.[dev,bench]'`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

from benchmarks.core import Row, folder_in, grow_wal, microseconds
from benchmarks.peers.agents_sdk import AgentsSession, AgentsSessionOnPostgres
from benchmarks.peers.bare import BarePostgres, BareSqlite
from benchmarks.peers.google_adk import AdkSession, AdkSessionOnPostgres
from benchmarks.peers.langgraph_savers import LangGraphThread, LangGraphThreadOnPostgres
from benchmarks.peers.measuring import OPERATIONS, Table, measure
from benchmarks.peers.ours import Ours, OursOnPostgres
from benchmarks.peers.peer import Peer
from benchmarks.postgres import server

ON_SQLITE: tuple[type[Peer], ...] = (Ours, BareSqlite, AgentsSession, AdkSession, LangGraphThread)
ON_POSTGRES: tuple[type[Peer], ...] = (
    OursOnPostgres,
    BarePostgres,
    AgentsSessionOnPostgres,
    AdkSessionOnPostgres,
    LangGraphThreadOnPostgres,
)
SAME_FOR_ALL = ("journal_mode=wal", "synchronous=2")
"""The write-ahead log, flushed at each commit."""

PATIENCE = 2.0
"""Seconds for one operation of one library."""

OF_PROMISES = 10_000
"""Messages at which the ratios are promised."""


def installed(kinds: Sequence[type[Peer]]) -> list[type[Peer]]:
    """Those that can be measured here; the others are named."""
    for kind in kinds:
        if kind.missing():
            print(f"{kind.name} is not installed, and left out: pip install -e '.[dev,bench]'", flush=True)
    return [kind for kind in kinds if not kind.missing()]


async def opened(kind: type[Peer], place: str, size: int) -> Peer:
    """The library on this place."""
    peer = kind(place, size)
    await peer.open()
    return peer


async def fill(kind: type[Peer], place: str, size: int) -> None:
    """Make a conversation of so many messages, and look at what the library's commits survive."""
    peer = await opened(kind, place, size)
    await peer.create()
    await peer.fill(size)
    found = await peer.durability()
    if found not in ((), SAME_FOR_ALL):
        raise AssertionError(f"{kind.name} has {found}, which is not what the others have.")
    await peer.close()


async def measured(places: Sequence[tuple[type[Peer], str, int]], rounds: int) -> Table:
    """The times of all that was filled, opened again."""
    peers = [await opened(*place) for place in places]
    for peer in peers:
        await peer.window()
        if peer.file.exists():
            grow_wal(peer.file)
    table = await measure(peers, rounds, PATIENCE)
    for peer in peers:
        await peer.close()
    return table


async def tables_of_files(
    kinds: Sequence[type[Peer]], sizes: Sequence[int], rounds: int, fast: Path, disk: Path
) -> tuple[Table, Table]:
    """On tmpfs and on disk; the files are filled on tmpfs and copied."""
    places = [(kind, f"{kind.__name__}-{size}", size) for size in sizes for kind in kinds]
    for kind, name, size in places:
        (fast / name).mkdir()
        await fill(kind, str(fast / name), size)
        shutil.copytree(fast / name, disk / name)
    found = [
        await measured([(kind, str(parent / name), size) for kind, name, size in places], rounds)
        for parent in (fast, disk)
    ]
    return found[0], found[1]


def print_table(title: str, kinds: Sequence[type[Peer]], sizes: Sequence[int], table: Table) -> None:
    """One line for each operation and number of messages, one column for each library."""
    heads = [f"{kind.name} {kind.version()}".strip() for kind in kinds]
    print(f"\n{title}\n")
    print(f"| {'what':<12} | messages | " + " | ".join(f"{head:>18}" for head in heads) + " |")
    print(f"|{'-' * 14}|{'-' * 9}:|" + "|".join(f"{'-' * 19}:" for _ in heads) + "|")
    for operation in OPERATIONS:
        for size in sizes:
            cells = [_cell(kind, size, operation, table) for kind in kinds]
            print(f"| {operation:<12} | {size:>8,} | " + " | ".join(f"{cell:>18}" for cell in cells) + " |")


def _cell(kind: type[Peer], size: int, operation: str, table: Table) -> str:
    times = table.get((kind.name, size, operation))
    return kind.without[operation] if times is None else microseconds(times.seconds)


def print_ratios(title: str, rows: Sequence[Row]) -> None:
    """What is promised, as ratios within the run."""
    print(f"\n{title}\n")
    print(f"| {'what':<44} | {'median':>17} | ratio | limit |      |")
    print(f"|{'-' * 46}|{'-' * 19}|{'-' * 7}|{'-' * 7}|{'-' * 6}|")
    for row in rows:
        print(row)


def ratios(table: Table, other: type[Peer], limits: dict[str, float]) -> Iterator[Row]:
    """Ours against the other, by the clock and by what the processor worked."""
    for operation, limit in limits.items():
        ours = table[Ours.name, OF_PROMISES, operation]
        theirs = table.get((other.name, OF_PROMISES, operation))
        if theirs is not None:
            what = f"{operation} : {other.name}"
            yield Row(what, microseconds(ours.seconds), ours.seconds / theirs.seconds, limit)
            yield Row(
                f"{what}, processor", microseconds(ours.processor), ours.processor / theirs.processor, None
            )


def growth(table: Table, sizes: Sequence[int]) -> Iterator[Row]:
    """Ours at a long log against ours at 1,000 messages."""
    for operation in OPERATIONS:
        short = table[Ours.name, 1_000, operation].seconds
        for size in sizes:
            seconds = table[Ours.name, size, operation].seconds
            limit = None if operation == "search" else 1.3
            if size > 1_000:
                yield Row(f"{operation}, {size:,} : 1,000", microseconds(seconds), seconds / short, limit)


def above_the_floor(table: Table) -> Row:
    """Microseconds of an append that the bare module does not need."""
    ours, bare = (table[kind.name, OF_PROMISES, "append"].seconds for kind in (Ours, BareSqlite))
    return Row("append above bare sqlite3 (µs)", microseconds(ours - bare), (ours - bare) * 1e6, 250)


async def measure_files(sizes: Sequence[int], rounds: int) -> None:
    """SQLite, in memory and on disk."""
    kinds = installed(ON_SQLITE)
    memory = Path("/dev/shm")  # noqa: S108 - tmpfs, where no sync hides the software
    with folder_in(memory if os.access(memory, os.W_OK) else None) as fast, folder_in(Path.cwd()) as disk:
        on_tmpfs, on_disk = await tables_of_files(kinds, sizes, rounds, fast, disk)
    print_table("SQLite on disk", kinds, sizes, on_disk)
    print_table("SQLite on tmpfs", kinds, sizes, on_tmpfs)
    against_floor, against_agents = {"append": 2.5}, {"append": 1.0, "window, warm": 0.5, "window, cold": 1.5}
    print_ratios(
        f"On disk, {OF_PROMISES:,} messages",
        [*ratios(on_disk, BareSqlite, against_floor), *ratios(on_disk, AgentsSession, against_agents)],
    )
    print_ratios(
        f"On tmpfs, {OF_PROMISES:,} messages",
        [above_the_floor(on_tmpfs), *ratios(on_tmpfs, AgentsSession, against_agents)],
    )
    print_ratios("On tmpfs, as the log grows", list(growth(on_tmpfs, sizes)))


async def measure_server(sizes: Sequence[int], rounds: int, memory: bool) -> None:
    """PostgreSQL."""
    kinds = installed(ON_POSTGRES)
    with server(memory) as dsn:
        places = [(kind, database(dsn, f"{kind.__name__}-{size}"), size) for size in sizes for kind in kinds]
        for place in places:
            await fill(*place)
        table = await measured(places, rounds)
    print_table("PostgreSQL", kinds, sizes, table)
    print_ratios("PostgreSQL, as the log grows", list(growth(table, sizes)))


def database(dsn: str, name: str) -> str:
    """The connection string of a new database on this server."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    return urlsplit(dsn)._replace(path=f"/{name}").geturl()


def main() -> None:
    """Measure and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="logs of at most 10,000 messages")
    parser.add_argument("--memory", action="store_true", help="keep PostgreSQL's files in memory")
    parser.add_argument("--only", choices=("sqlite", "postgres"))
    parser.add_argument("--sizes", type=int, nargs="+", help="messages, 1,000 and 10,000 among them")
    options = parser.parse_args()
    sizes = options.sizes or ((100, 1_000, 10_000) if options.quick else (100, 1_000, 10_000, 100_000))
    rounds = 20 if options.quick else 60
    if options.only != "postgres":
        asyncio.run(measure_files(sizes, rounds))
    if options.only != "sqlite":
        asyncio.run(measure_server(sizes, rounds, options.memory))


if __name__ == "__main__":
    main()
