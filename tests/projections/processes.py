"""Starting the processes of `worker.py`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]


@contextmanager
def worker(*arguments: object) -> Generator[subprocess.Popen[str]]:
    """A process that is gone at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.projections.worker", *map(str, arguments)],
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
