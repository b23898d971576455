"""Starting the processes of `worker.py`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests.projections.databases import Database

ROOT = Path(__file__).parents[2]


@contextmanager
def worker(command: str, database: Database, *arguments: object) -> Generator[subprocess.Popen[str]]:
    """A process that is gone at the end."""
    settings = json.dumps(dict(database.env))
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.projections.worker", command, settings, *map(str, arguments)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def finish(process: subprocess.Popen[str]) -> int:
    """Close its input, and wait for its end."""
    assert process.stdin is not None
    process.stdin.close()
    return process.wait(timeout=60)
