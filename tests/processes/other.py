"""Another process, which does what it is told: python -m tests.processes.other.

It reads calls as JSON, one a line, and answers each with a line. A call whose model is asked answers
`"asked"` first, and goes on at the next line.
"""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.conformance_stores import NoTokens

from turnlog.application.compacting import OnRace
from turnlog.application.service import SessionService
from turnlog.domain.compaction import SummaryRequest
from turnlog.domain.errors import TurnlogError
from turnlog.domain.messages import Message
from turnlog.domain.window import CompactionWindow, WindowCompactionStrategy

_ROOT = Path(__file__).parents[2]


class OtherProcess:
    """The process, as the one that tells it what to do sees it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.processes.other"],
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate(timeout=60)

    def tell(self, env: Mapping[str, str], call: str, *arguments: object) -> None:
        """Let it make a call."""
        self._say(json.dumps([dict(env), call, *arguments]))

    def answer(self) -> None:
        """Let its model answer."""
        self._say("answer")

    def hear(self) -> Any:
        """What it says next."""
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()


def _append(sessions: SessionService, session_id: str, prefix: str, count: int) -> Sequence[int]:
    return [
        sessions.append_message(
            session_id, Message.user(f"said by {prefix}"), event_id=f"{prefix}-{number}"
        ).version
        for number in range(count)
    ]


def _begin(sessions: SessionService, session_id: str, prefix: str) -> Sequence[int]:
    sessions.find_or_create(session_id)
    return _append(sessions, session_id, prefix, 1)


class _Recap:
    def __init__(self, *, waits: bool) -> None:
        self._waits = waits

    def summarize(self, request: SummaryRequest) -> Sequence[Message]:  # noqa: ARG002 - the port's argument
        if self._waits:
            _say("asked")
            sys.stdin.readline()
        return (Message.user("So far?"), Message.assistant("Things happened."))


def _compact(
    sessions: SessionService, session_id: str, keep: int, on_race: str = "skip", *, waits: bool = True
) -> list[object]:
    strategy = WindowCompactionStrategy(CompactionWindow.last_turns(keep), _Recap(waits=waits))
    result = sessions.compact(session_id, None, strategy, on_race=OnRace(on_race))
    return [result.reason.name.lower(), len(result.covered_events)]


def _compact_often(sessions: SessionService, session_id: str, times: int) -> int:
    done = 0
    for number in range(times):
        _append(sessions, session_id, f"again {number}", 2)
        done += _compact(sessions, session_id, 1, waits=False)[1] != 0
    return done


def _sweep(sessions: SessionService) -> int:
    return sessions.delete_expired(datetime.now(UTC))


def _write_now(env: Mapping[str, str]) -> str:
    """Write to a file of SQLite without waiting for anybody; what it says when it is locked."""
    with closing(sqlite3.connect(env["SQLITE_DBNAME"], timeout=0, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("CREATE TABLE IF NOT EXISTS notes (note TEXT)")
            connection.execute("INSERT INTO notes VALUES ('written')")
            connection.execute("COMMIT")
        except sqlite3.OperationalError as error:
            return str(error)
    return "written"


CALLS: Mapping[str, Callable[..., object]] = {
    "append": _append,
    "begin": _begin,
    "compact": _compact,
    "compact often": _compact_often,
    "sweep": _sweep,
}


def _say(what: object) -> None:
    print(json.dumps(what), flush=True)


def main() -> None:
    """Make one call after the other, each with connections of its own."""
    while line := sys.stdin.readline():
        env, call, *arguments = json.loads(line)
        if call == "write now":
            _say(_write_now(env))
            continue
        with SessionService(env=env, token_estimator=NoTokens()) as sessions:
            try:
                _say(CALLS[call](sessions, *arguments))
            except TurnlogError as error:
                _say(type(error).__name__)


if __name__ == "__main__":
    main()
