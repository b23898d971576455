"""What holds for every command: the exit statuses, the database, and the form of the output."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import urlsplit

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
class PostgresUrl:
    """A database on a PostgreSQL server, as a connection URI. It is shown without its password."""

    uri: str

    def __str__(self) -> str:
        parts = urlsplit(self.uri)
        user, at, host = parts.netloc.rpartition("@")
        return f"{parts.scheme}://{user.partition(':')[0]}{at}{host}{parts.path}"

    def __repr__(self) -> str:
        return f"PostgresUrl({str(self)!r})"


Place: TypeAlias = Path | PostgresUrl
"""Where a database is."""


def place_of(name: str) -> Place:
    """The place of this name: a connection URI of PostgreSQL, or a file. Raises `InvalidSettingError`."""
    if name.startswith(("postgresql://", "postgres://")):
        return PostgresUrl(name)
    if (scheme := re.match(r"([A-Za-z][A-Za-z0-9+.-]*)://", name)) is not None:
        from turnlog.domain.errors import InvalidSettingError  # late: it loads the framework

        raise InvalidSettingError(
            f"A database is a file, or postgresql://USER@HOST:PORT/DATABASE; {scheme[1]}:// is neither."
        )
    return Path(name)


@dataclass(frozen=True)
class Settings:
    """The options that every command has."""

    database: Place
    json: bool = False

    @classmethod
    def of(cls, database: str | None, *, json: bool) -> Settings:
        """The settings: a database that is not named is the one of TURNLOG_DB, else `./turnlog.db`."""
        return cls(place_of(database or os.environ.get("TURNLOG_DB") or DEFAULT_DATABASE), json)
