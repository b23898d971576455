"""Processes at one store: python -m tests.processes SETTINGS FOLDER together|killed COUNT SIZE.

`together` lets COUNT processes make SIZE calls each; `killed` kills COUNT of them, SIZE of which are always
at work. Both have a reader beside them. Prints as JSON what happened and all that the reader found.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.processes.life import Life, prepare, service
from tests.processes.reading import watch

READERS = 1
_fork = multiprocessing.get_context("fork")


class Flag:
    """Set once for all processes. One that is killed holds no lock of it, as it would that of an `Event`."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "over"

    def set(self) -> None:
        """Let all know."""
        self._file.touch()

    def is_set(self) -> bool:
        """Whether it was."""
        return self._file.exists()


def live(env: Mapping[str, str], folder: Path, name: str, start: Any, steps: int) -> None:
    """Make so many calls."""
    with service(env) as sessions:
        life = Life(sessions, name, folder)
        life.begin()
        start.wait()
        for _ in range(steps):
            life.step()
    (folder / f"passes-{name}").write_text(json.dumps(life.passes))


def live_on(env: Mapping[str, str], folder: Path, name: str, over: Any, before: str | None) -> None:
    """Go on where the killed one stopped, until it is over."""
    with service(env) as sessions:
        life = Life(sessions, name, folder)
        if before is not None:
            life.go_on_for(before, folder)
        life.begin()
        while not over.is_set():
            life.step()


def look(env: Mapping[str, str], over: Any, ready: Any, reports: Any) -> None:
    """Read until it is over."""
    with service(env) as sessions:
        reports.put(watch(sessions, env, ready, over))


def together(env: Mapping[str, str], folder: Path, count: int, steps: int) -> dict[str, Any]:
    """Let them begin together, and wait for all."""
    start, over, reports = _fork.Barrier(count + READERS), _fork.Event(), _fork.Queue()
    writers = [
        _fork.Process(target=live, args=(env, folder, f"w{number}", start, steps)) for number in range(count)
    ]
    readers = [_fork.Process(target=look, args=(env, over, start, reports)) for _ in range(READERS)]
    for process in (*writers, *readers):
        process.start()
    for process in writers:
        process.join()
    over.set()
    told = [reports.get(timeout=120) for _ in readers]
    for process in readers:
        process.join()
    passes: dict[str, int] = {}
    for file in folder.glob("passes-*"):
        for kind, number in json.loads(file.read_text()).items():
            passes[kind] = passes.get(kind, 0) + number
    failed = [process.exitcode for process in (*writers, *readers) if process.exitcode]
    return {"failed": failed, "passes": passes, **_joined(told)}


def killed(env: Mapping[str, str], folder: Path, count: int, size: int) -> dict[str, Any]:
    """Kill one after the other at moments that nobody chose, each followed by another that goes on."""
    over, ready, reports = Flag(folder), _fork.Barrier(1), _fork.Queue()
    reader = _fork.Process(target=look, args=(env, over, ready, reports))
    reader.start()
    names = (f"k{number}" for number in range(count + size))

    def start(before: str | None) -> tuple[str, Any]:
        name = next(names)
        process = _fork.Process(target=live_on, args=(env, folder, name, over, before))
        process.start()
        return name, process

    alive = [start(None) for _ in range(size)]
    failed: list[int | None] = []
    for _ in range(count):
        _let_them_write(folder, random.choice((0, random.randrange(6000))))
        time.sleep(random.uniform(0.0, 0.01))
        name, process = alive.pop(random.randrange(len(alive)))
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        if process.exitcode != -signal.SIGKILL:
            failed.append(process.exitcode)
        alive.append(start(name))
    over.set()
    told = [reports.get(timeout=120)]
    for process in (reader, *(process for _, process in alive)):
        process.join()
        if process.exitcode:
            failed.append(process.exitcode)
    return {"failed": failed, **_joined(told)}


def _let_them_write(folder: Path, size: int) -> None:
    """Until the journals have grown by so many bytes, so that a slow machine does as much as a fast one."""
    goal = _written(folder) + size
    while _written(folder) < goal:
        time.sleep(0.001)


def _written(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.glob("journal-*"))


def _joined(told: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "looks": sum(one["looks"] for one in told),
        "found": [found for one in told for found in one["found"]],
    }


def main(settings: str, folder: str, how: str, count: str, size: str) -> None:
    """Prepare the store, then do it."""
    env, place = json.loads(settings), Path(folder)
    first = _fork.Process(target=prepare, args=(env, place))
    first.start()
    first.join()
    assert first.exitcode == 0
    run = together if how == "together" else killed
    print(json.dumps(run(env, place, int(count), int(size))))


if __name__ == "__main__":
    main(*sys.argv[1:])
