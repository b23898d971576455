"""The list of erasures as a file outside the database, so that a restore does not undo them unnoticed."""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from uuid import UUID

from turnlog.application.erasing import Erased


class ErasuresFile:
    """One line for each deletion, `<time> <aggregate id>`: nothing in it says whose session it was.

    Lines are only appended, each in one write, and are on disk when `add` returns. One that a crash cut off
    is passed over.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def add(self, erased: Iterable[Erased]) -> None:
        """Remember these deletions; those that are remembered already are left out."""
        known = set(self._lines())
        new = [
            line
            for one in erased
            if (line := f"{one.deleted_at.isoformat()} {one.aggregate_id}") not in known
        ]
        if not new:
            return
        handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            # Each line begins on a line of its own, also behind one that a crash cut off.
            os.write(handle, "".join(f"\n{line}\n" for line in new).encode())
            os.fsync(handle)
        finally:
            os.close(handle)

    def since(self, at: datetime) -> list[Erased]:
        """The deletions at this time or after it, the oldest first."""
        found = (_erased(line) for line in self._lines())
        return sorted((one for one in found if one and one.deleted_at >= at), key=lambda one: one.deleted_at)

    def _lines(self) -> list[str]:
        return self._path.read_text("utf-8").split("\n") if self._path.exists() else []


def _erased(line: str) -> Erased | None:
    time, _, aggregate_id = line.partition(" ")
    try:
        return Erased(UUID(aggregate_id), datetime.fromisoformat(time))
    except ValueError:
        return None
