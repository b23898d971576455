"""Random single changes of a stored log, made behind the application's back."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Protocol

from turnlog.infrastructure.sqlite import fence

Change = tuple[str, set[tuple[str, int]]]
"""What was done, and (aggregate, version) of the events that it was done to."""

Row = tuple[str, int, str, bytes]
"""Aggregate, version, topic and state."""


class Log(Protocol):
    """The stored events of a database."""

    def rows(self) -> list[Row]:
        """All of them, in the order in which they were stored."""
        ...

    def put(self, aggregate: str, version: int, topic: str, state: bytes) -> None:
        """Put these into the place of an event."""
        ...

    def renumber(self, aggregate: str, version: int, other: int) -> None:
        """Give an event another version."""
        ...

    def remove(self, aggregate: str, version: int) -> None:
        """Remove an event."""
        ...

    def add(self, aggregate: str, version: int, topic: str, state: bytes) -> None:
        """One more event."""
        ...


class SqliteLog:
    """The log of a file."""

    _WHERE = "WHERE originator_id = ? AND originator_version = ?"

    def __init__(self, connection: sqlite3.Connection) -> None:
        fence.may_pass(connection)
        self._execute = connection.execute

    def rows(self) -> list[Row]:
        """All of them, in the order in which they were stored."""
        return self._execute(
            "SELECT originator_id, originator_version, topic, state FROM stored_events ORDER BY rowid"
        ).fetchall()

    def put(self, aggregate: str, version: int, topic: str, state: bytes) -> None:
        """Put these into the place of an event."""
        self._execute(
            f"UPDATE stored_events SET topic = ?, state = ? {self._WHERE}", (topic, state, aggregate, version)
        )

    def renumber(self, aggregate: str, version: int, other: int) -> None:
        """Give an event another version."""
        self._execute(
            f"UPDATE stored_events SET originator_version = ? {self._WHERE}", (other, aggregate, version)
        )

    def remove(self, aggregate: str, version: int) -> None:
        """Remove an event."""
        self._execute(f"DELETE FROM stored_events {self._WHERE}", (aggregate, version))

    def add(self, aggregate: str, version: int, topic: str, state: bytes) -> None:
        """One more event."""
        self._execute("INSERT INTO stored_events VALUES (?, ?, ?, ?)", (aggregate, version, topic, state))


def mutate(file: Path, random_: random.Random) -> Change:
    """Change one thing in the file, and say what and where."""
    with closing(sqlite3.connect(file)) as connection, connection:
        return change(SqliteLog(connection), random_)


def change(log: Log, random_: random.Random) -> Change:
    """Change one thing in the log, and say what and where."""
    return random_.choice(KINDS)(log, log.rows(), random_)


def _flip_byte(log: Log, rows: list[Row], random_: random.Random) -> Change:
    aggregate, version, topic, state = random_.choice(rows)
    place = random_.randrange(len(state))
    changed = bytearray(state)
    changed[place] ^= 1 << random_.randrange(8)
    log.put(aggregate, version, topic, bytes(changed))
    return f"bit of byte {place}", {(aggregate, version)}


def _flip_topic(log: Log, rows: list[Row], random_: random.Random) -> Change:
    aggregate, version, topic, state = random_.choice(rows)
    place = random_.randrange(len(topic))
    other = topic[:place] + chr(ord(topic[place]) ^ 1 << random_.randrange(5)) + topic[place + 1 :]
    log.put(aggregate, version, other, state)
    return f"topic {other!r}", {(aggregate, version)}


def _same_value(log: Log, rows: list[Row], random_: random.Random) -> Change:
    """Other bytes that JSON reads as the same value."""
    aggregate, version, topic, state = random_.choice(rows)
    text = state.decode()
    kind = random_.randrange(5)
    if kind == 0:  # a blank where JSON allows one
        other = text[0] + " " + text[1:]
    elif kind == 1:  # a letter of a key escaped
        other = text.replace('"chain"', '"\\u0063hain"', 1).replace('"timestamp"', '"\\u0074imestamp"', 1)
    elif kind == 2:  # a key twice
        other = '{"chain":"x",' + text[1:]
    elif kind == 3:  # the fields in another order
        fields = list(json.loads(text).items())
        fields = [*fields[1:], fields[0]]
        other = json.dumps(dict(fields), ensure_ascii=False, separators=(",", ":"))
    else:  # a blank at the end
        other = text + "\n"
    assert other != text
    log.put(aggregate, version, topic, other.encode())
    return f"same value {kind}", {(aggregate, version)}


def _drop(log: Log, rows: list[Row], random_: random.Random) -> Change:
    newest = {row[0]: row[1] for row in rows}
    aggregate, version, *_ = random_.choice(rows)
    if random_.random() < 0.3:
        version = newest[aggregate]
    log.remove(aggregate, version)
    return "dropped", {(aggregate, version)}


def _swap(log: Log, rows: list[Row], random_: random.Random) -> Change:
    one, other = _two_that_differ(rows, random_)
    for row, put in ((one, other), (other, one)):
        log.put(*row[:2], *put[2:])
    return "swapped", {one[:2], other[:2]}


def _duplicate(log: Log, rows: list[Row], random_: random.Random) -> Change:
    row = random_.choice(rows)
    aggregate = random_.choice(rows)[0]
    version = 1 + max(one[1] for one in rows if one[0] == aggregate)
    log.add(aggregate, version, *row[2:])
    return "duplicated", {(aggregate, version)}


def _overwrite(log: Log, rows: list[Row], random_: random.Random) -> Change:
    """A copy of one row in the place of another."""
    one, other = _two_that_differ(rows, random_)
    log.put(*other[:2], *one[2:])
    return "overwritten", {other[:2]}


def _renumber(log: Log, rows: list[Row], random_: random.Random) -> Change:
    """A row under another version."""
    aggregate, version, *_ = random_.choice(rows)
    free = 3 + max(one[1] for one in rows if one[0] == aggregate)
    log.renumber(aggregate, version, free)
    return "renumbered", {(aggregate, version), (aggregate, free)}


def _two_that_differ(rows: list[Row], random_: random.Random) -> tuple[Row, Row]:
    """Two rows; what stands for erased events of one session is the same everywhere."""
    one = random_.choice(rows)
    return one, random_.choice([row for row in rows if row[2:] != one[2:]])


KINDS: tuple[Callable[[Log, list[Row], random.Random], Change], ...] = (
    _flip_byte,
    _flip_byte,
    _flip_topic,
    _same_value,
    _same_value,
    _drop,
    _swap,
    _duplicate,
    _overwrite,
    _renumber,
)
