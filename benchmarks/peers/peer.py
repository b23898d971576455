"""What is compared: a library that keeps one conversation in a database, used as its documentation says."""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Sized
from contextlib import closing
from importlib import metadata
from pathlib import Path
from typing import ClassVar

from benchmarks.core import WORDS

RARE = "zyqueltar"
"""A word in ten messages of each log."""

WINDOW = 40
"""Messages that a model is told."""

CONVERSATION = "conversation"


def text_of(number: int, count: int) -> str:
    """The text of this message of a log of so many: 500 bytes, no two of them alike."""
    rare = f"{RARE} " if count >= 10 and number % (count // 10) == 0 else ""
    start = number % len(WORDS)
    return (f"{number}: {rare}" + WORDS[start:] + WORDS * 6)[:500]


class Peer(ABC):
    """One library on one database. Its operations are awaited, and measured within a running event loop."""

    name: ClassVar[str]
    distributions: ClassVar[tuple[str, ...]] = ()
    """What must be installed."""

    without: ClassVar[dict[str, str]] = {}
    """By operation that there is none of, why."""

    def __init__(self, place: str, size: int) -> None:
        self.place = place
        """A folder, or the connection string of a database of its own."""

        self.size = size
        """Messages that were there before anything was measured."""

        self.appended = 0

    @classmethod
    def missing(cls) -> list[str]:
        """The distributions that are not installed."""
        return [name for name in cls.distributions if not _is_installed(name)]

    @classmethod
    def version(cls) -> str:
        """The installed version of the first distribution."""
        return metadata.version(cls.distributions[0]) if cls.distributions else ""

    @property
    def file(self) -> Path:
        """The file of the database, where the place is a folder."""
        return Path(self.place) / "peer.db"

    @abstractmethod
    async def open(self) -> None:
        """Be ready for the first call: everything that an application does once when it starts."""

    @abstractmethod
    async def create(self) -> None:
        """Begin the conversation."""

    @abstractmethod
    async def fill(self, count: int) -> None:
        """Append this many messages, not one by one."""

    @abstractmethod
    async def append(self) -> object:
        """Append one message."""

    @abstractmethod
    async def window(self) -> Sized:
        """The newest messages, as many as a model is told."""

    async def before(self, operation: str) -> None:  # noqa: B027 - most have nothing to do
        """What happens before each measured call of this operation, and is not measured."""

    async def compact(self) -> object:
        """Take the oldest of the window's messages out of it."""
        raise NotImplementedError

    async def search(self) -> Sized:
        """The messages in which the rare word is."""
        raise NotImplementedError

    @abstractmethod
    async def durability(self) -> tuple[str, ...]:
        """The settings that decide what a commit survives, as the connection in use has them."""

    @abstractmethod
    async def close(self) -> None:
        """Give everything back."""


def next_text(peer: Peer) -> str:
    """The text of the message that is appended next."""
    peer.appended += 1
    return text_of(peer.appended * 7 + 1, 0)


def pragmas(execute: Callable[[str], object]) -> tuple[str, ...]:
    """The settings of a connection of the sqlite3 module, by its `execute`."""
    names = ("journal_mode", "synchronous")
    return tuple(f"{name}={_only(execute(f'PRAGMA {name}'))}" for name in names)


def _only(rows: object) -> object:
    assert isinstance(rows, sqlite3.Cursor)  # noqa: S101
    return rows.fetchone()[0]


def use_wal(file: Path) -> None:
    """Let the file have the write-ahead log, which it keeps, before a library opens it."""
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")


def _is_installed(distribution: str) -> bool:
    try:
        metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return False
    return True
