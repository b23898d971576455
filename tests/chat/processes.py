"""Processes that run turns, for tests that need several of them or one that dies."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

_ROOT = Path(__file__).parents[2]


class Process:
    """One `worker.py` on a file, or on the store of these settings."""

    def __init__(self, store: Path | Mapping[str, str]) -> None:
        place = str(store) if isinstance(store, Path) else json.dumps(dict(store))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.chat.worker", place],
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        assert self.hear() == "ready"
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill()

    def say(self, line: str) -> None:
        """Tell the process something."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def hear(self) -> str:
        """The next line that it says."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def kill(self) -> None:
        """End it as a crash does (SIGKILL)."""
        self._process.kill()
        self._process.communicate(timeout=60)
