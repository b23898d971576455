"""Processes that find an empty database at the same time: each makes the tables, none fails."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from psycopg import sql
from psycopg.rows import dict_row
from tests.contracts.stores import sqlite_env
from tests.support.postgres import connect, fresh_schema, postgres_env
from tests.traps.conftest import plain

from turnlog.application import storage
from turnlog.application.service import SessionService
from turnlog.infrastructure.postgres.tables import is_missing, one_at_a_time

STARTER = Path(__file__).parent / "starter.py"
NAMES = tuple("abcdefgh")


class Starters:
    """Eight processes that begin at once when they are told."""

    def __init__(self) -> None:
        self._processes = [
            subprocess.Popen(
                [sys.executable, str(STARTER), name],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for name in NAMES
        ]
        assert self._answers() == ["ready"] * 8

    def open(self, env: Mapping[str, str]) -> list[str]:
        """Let all of them open this store and append to it; what they say then."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(json.dumps(dict(env)) + "\n")
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.flush()
        return self._answers()

    def _answers(self) -> list[str]:
        return [process.stdout.readline().strip() for process in self._processes if process.stdout]

    def close(self) -> None:
        """End them."""
        for process in self._processes:
            process.communicate()


@pytest.fixture(scope="module")
def starters() -> Iterator[Starters]:
    """The processes, started once for all rounds."""
    running = Starters()
    yield running
    running.close()


def appended(env: Mapping[str, str]) -> Sequence[str]:
    with SessionService(env=env) as sessions:
        return sorted(event.id for event in sessions.get_events("s"))


NEW_STORES: Mapping[str, Callable[[Path], Mapping[str, str]]] = {
    "sqlite": lambda folder: sqlite_env(folder / "sessions.db"),
    "sqlite without rows": lambda folder: plain(sqlite_env(folder / "sessions.db")),
    "postgres": lambda _: postgres_env(),
    "postgres without rows": lambda _: plain(postgres_env()),
}


@pytest.mark.parametrize("store", ["sqlite", "sqlite without rows"])
def test_a_new_file_that_another_process_writes_to_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: str
) -> None:
    env = NEW_STORES[store](tmp_path)
    with closing(sqlite3.connect(env["SQLITE_DBNAME"], isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")  # SQLite lets nobody wait for that who wants another journal mode

        def end_late(attempt: int) -> None:
            if attempt == 20:
                other.execute("COMMIT")

        monkeypatch.setattr(storage, "pause", end_late)
        with SessionService(env=env) as sessions:
            assert sessions.create("s").version == 0


@pytest.mark.parametrize("round_", range(3))
@pytest.mark.parametrize("store", NEW_STORES)
def test_eight_processes_that_start_at_once_on_an_empty_database_all_write(
    starters: Starters, tmp_path: Path, store: str, round_: int
) -> None:
    env = NEW_STORES[store](tmp_path)
    assert starters.open(env) == ["done"] * 8
    assert appended(env) == list(NAMES)


def test_who_waited_for_another_to_make_a_table_sees_it() -> None:
    """PostgreSQL remembers for a connection that there was none, also within the transaction that waited."""
    name = f"{fresh_schema()}.made"
    with connect() as maker, connect() as waiter, ThreadPoolExecutor(1) as thread:
        cursor = waiter.cursor(row_factory=dict_row)

        def look() -> bool:
            with waiter.transaction():
                assert is_missing(cursor, "to_regclass", name)
                one_at_a_time(cursor, name)
                return is_missing(cursor, "to_regclass", name)

        with maker.transaction():
            one_at_a_time(maker.cursor(row_factory=dict_row), name)
            looked = thread.submit(look)
            waits = "SELECT 1 FROM pg_locks WHERE pid = %s AND NOT granted"
            while maker.execute(waits, (waiter.info.backend_pid,)).fetchone() is None:
                assert not looked.done()
            maker.execute(sql.SQL("CREATE TABLE {} (id int)").format(sql.Identifier(*name.split("."))))
        assert not looked.result(60)
