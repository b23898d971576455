"""What holds for every command: the exit statuses, the database, and the form of the output."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Final

DEFAULT_DATABASE: Final = "turnlog.db"


class Status(IntEnum):
    """How a command ends, for scripts."""

    DONE = 0
    FOUND_OR_NOTHING_TO_DO = 1
    USAGE = 2
    NOT_FOUND = 3
    CONFLICT = 4
    BAD_INPUT = 5
    UNREACHABLE = 6
    INTERRUPTED = 130


@dataclass(frozen=True)
class Settings:
    """The options that every command has."""

    database: Path
    json: bool = False

    @classmethod
    def of(cls, database: Path | None, *, json: bool) -> Settings:
        """The settings: a database that is not named is the one of TURNLOG_DB, else `./turnlog.db`."""
        return cls(database or Path(os.environ.get("TURNLOG_DB") or DEFAULT_DATABASE), json)
