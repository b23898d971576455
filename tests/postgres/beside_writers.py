"""Eight processes write to a store while two verify it: python -m tests.postgres.beside_writers SETTINGS.

Prints as JSON how often each of the two verified, and all that they found.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
from collections.abc import Mapping
from typing import Any

from tests.audit.logs import WordCount, compact

from turnlog.application.audit import Heads, SessionAudit
from turnlog.application.service import SessionService
from turnlog.domain.messages import Message

SHARED = "shared"
WRITERS, VERIFIERS, TURNS = 8, 2, 12

_fork = multiprocessing.get_context("fork")


def write(env: Mapping[str, str], number: int, start: Any) -> None:
    """Say something in the session of all and in one's own, which two of the writers delete."""
    with SessionService(env=env, token_estimator=WordCount()) as sessions:
        own = sessions.create(f"of {number}").id
        start.wait()
        for turn in range(TURNS):
            sessions.append_message(SHARED, Message.user(f"{number} {turn}"), event_id=f"{number}-{turn}")
            sessions.append_events(own, [Message.user("hi"), Message.assistant("hello")])
        compact(sessions, own)
        if number < 2:
            sessions.delete(own)


def verify(env: Mapping[str, str], over: Any, start: Any, reports: Any) -> None:
    """Verify everything and one session, against the heads of the last time, until all was written."""
    with SessionService(env=env) as sessions:
        audit = SessionAudit(sessions)
        runs, found = 0, list[str]()
        heads: Heads | None = None
        start.wait()
        while True:
            is_last = over.is_set()
            findings = (*audit.verify(heads=heads).findings, *audit.verify(SHARED).findings)
            found += map(str, findings)
            heads = audit.export_heads()
            runs += 1
            if is_last:
                break
    reports.put([runs, found])


def main(settings: str) -> None:
    """Let them begin together."""
    env = json.loads(settings)
    start, over, reports = _fork.Barrier(WRITERS + VERIFIERS), _fork.Event(), _fork.Queue()
    writers = [_fork.Process(target=write, args=(env, number, start)) for number in range(WRITERS)]
    verifiers = [_fork.Process(target=verify, args=(env, over, start, reports)) for _ in range(VERIFIERS)]
    for process in (*writers, *verifiers):
        process.start()
    for process in writers:
        process.join()
    over.set()
    told = [reports.get(timeout=60) for _ in verifiers]
    for process in verifiers:
        process.join()
    assert {process.exitcode for process in (*writers, *verifiers)} == {0}
    print(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
