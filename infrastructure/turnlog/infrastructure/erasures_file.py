"""The list of erasures as a file outside the database, so that a restore does not undo them unnoticed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Final
from uuid import UUID

from turnlog.application.erasing import Erased, UnreadableErasureError

_COMMITMENT: Final = re.compile("[0-9a-f]{64}|-")

_BEGINNING: Final = re.compile("[0-9T:.+-]*( [0-9a-f-]{,36}( [0-9]*( [0-9a-f]{,63})?)?)?")
"""What a crash can leave of a line."""


class ErasuresFile:
    """One line for each deletion, `<time> <aggregate id>`: nothing in it says whose session it was.

    For a redaction the version of the event and the commitment that is left of its content follow.
    Lines are only appended, each in one write, and are on disk when `add` returns. One that a crash cut off,
    which is a beginning without an end, is passed over; any other that cannot be read is an error.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def add(self, erased: Iterable[Erased]) -> None:
        """Remember these; those that are remembered already are left out."""
        known = set(self._lines())
        new = [line for one in erased if (line := _line(one)) not in known]
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
        """Those at this time or after it, the oldest first. Raises `UnreadableErasureError`."""
        found = (one for one in self._read() if one.deleted_at >= at)
        return sorted(found, key=lambda one: one.deleted_at)

    def _read(self) -> Iterator[Erased]:
        lines = self._lines()
        for number, (line, next_line) in enumerate(pairwise([*lines, None]), start=1):
            if not line:
                continue
            erased = _erased(line)
            if erased is not None:
                yield erased
            elif next_line == "" or not _BEGINNING.fullmatch(line):
                raise UnreadableErasureError(str(self._path), number)

    def _lines(self) -> list[str]:
        return self._path.read_text("utf-8", "replace").split("\n") if self._path.exists() else []


def _line(erased: Erased) -> str:
    of_event = () if erased.version is None else (str(erased.version), erased.commitment or "-")
    return " ".join((erased.deleted_at.isoformat(), str(erased.aggregate_id), *of_event))


def _erased(line: str) -> Erased | None:
    try:
        time, aggregate_id, *of_event = line.split(" ")
        version, commitment = of_event or (None, None)
        at = datetime.fromisoformat(time)
        erased = Erased(UUID(aggregate_id), at, None if version is None else int(version), commitment)
    except ValueError:
        return None
    is_whole = at.tzinfo is not None and (commitment is None or _COMMITMENT.fullmatch(commitment))
    return erased if is_whole else None
