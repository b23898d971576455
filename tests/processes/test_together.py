"""Several operating-system processes on one store at once, judged by a checker of its own behind them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.laws.profiles import IS_SOAK
from tests.processes.life import service
from tests.processes.reading import compare
from tests.support.log_checker import (
    Promise,
    calls_stored,
    check,
    check_journal,
    left_of_deleted,
    read_journal,
    unanswered_calls,
)
from tests.support.postgres import server
from tests.support.stored_rows import Database, read_database

from turnlog.application.audit import SessionAudit

_ROOT = Path(__file__).parents[2]


def run(env: Mapping[str, str], folder: Path, how: str, count: int, size: int) -> dict[str, Any]:
    """Let the processes do it."""
    place = (
        {"TURNLOG_TEST_POSTGRES": server()} if "POSTGRES_SCHEMA" in env else {}
    )  # who reads past turnlog asks
    command = [sys.executable, "-m", "tests.processes", json.dumps(dict(env)), str(folder), how]
    done = subprocess.run(
        [*command, str(count), str(size)],
        cwd=_ROOT,
        env={**os.environ, **place},
        capture_output=True,
        text=True,
        timeout=3000 if IS_SOAK else 300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    assert not told["failed"], done.stderr
    return told


def judge(env: Mapping[str, str], folder: Path) -> list[str]:
    """All that is wrong with what they left, once the read models have caught up."""
    journals = [
        line for file in folder.glob("journal-*") for line in file.read_text().splitlines(keepends=True)
    ]
    with service(env) as sessions:
        sessions.sweep()
        found = list(compare(sessions, read_database(env)))
        found += map(str, SessionAudit(sessions).verify().findings)
    database, promises = read_database(env), read_journal(journals)
    found += check(database, is_swept=True)
    found += check_journal(database, promises)
    print(figures(database, promises))
    found += [f"the index holds something of the deleted session {one}" for one in left_of_deleted(database)]
    return found


def figures(database: Database, promises: Mapping[str, Promise]) -> dict[str, int]:
    """How much there was to judge."""
    rows = [row for rows in database.streams.values() for row in rows]
    return {
        "sessions": len(database.streams),
        "events": len(rows),
        "boundaries": sum(row.kind == "Compacted" for row in rows),
        "tombstones": sum(row.kind == "SessionDeleted" for row in rows),
        "calls": len(promises),
        "acknowledged": sum(one.wrote is not None for one in promises.values()),
        "refused": sum(one.why is not None for one in promises.values()),
        "unanswered": len(unanswered := unanswered_calls(promises)),
        "unanswered and stored": len(unanswered & calls_stored(database)),
    }


def test_processes_that_do_everything_at_once_break_no_law(env: Mapping[str, str], tmp_path: Path) -> None:
    told = run(env, tmp_path, "together", 6 if IS_SOAK else 4, 800 if IS_SOAK else 30)
    print(told)
    assert told["found"] == []
    assert judge(env, tmp_path) == []


def test_processes_that_are_killed_lose_nothing_and_leave_nothing_half_written(
    env: Mapping[str, str], tmp_path: Path
) -> None:
    told = run(env, tmp_path, "killed", 300 if IS_SOAK else 20, 3)
    print(told)
    assert told["found"] == []
    assert judge(env, tmp_path) == []
