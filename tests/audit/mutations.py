"""Random single changes of a stored SQLite log, made behind the application's back."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

Change = tuple[str, set[tuple[str, int]]]
"""What was done, and (aggregate, version) of the events that it was done to."""

_Row = tuple[str, int, str, bytes]
_SELECT = "SELECT originator_id, originator_version, topic, state FROM stored_events ORDER BY rowid"
_WHERE = "WHERE originator_id = ? AND originator_version = ?"


def mutate(file: Path, random_: random.Random) -> Change:
    """Change one thing in the file, and say what and where."""
    with closing(sqlite3.connect(file)) as connection, connection:
        rows: list[_Row] = connection.execute(_SELECT).fetchall()
        return random_.choice(KINDS)(connection, rows, random_)


def _flip_byte(connection: sqlite3.Connection, rows: list[_Row], random_: random.Random) -> Change:
    aggregate, version, _, state = random_.choice(rows)
    place = random_.randrange(len(state))
    changed = bytearray(state)
    changed[place] ^= 1 << random_.randrange(8)
    connection.execute(f"UPDATE stored_events SET state = ? {_WHERE}", (bytes(changed), aggregate, version))
    return f"bit of byte {place}", {(aggregate, version)}


def _flip_topic(connection: sqlite3.Connection, rows: list[_Row], random_: random.Random) -> Change:
    aggregate, version, topic, _ = random_.choice(rows)
    place = random_.randrange(len(topic))
    other = topic[:place] + chr(ord(topic[place]) ^ 1 << random_.randrange(5)) + topic[place + 1 :]
    connection.execute(f"UPDATE stored_events SET topic = ? {_WHERE}", (other, aggregate, version))
    return f"topic {other!r}", {(aggregate, version)}


def _same_value(connection: sqlite3.Connection, rows: list[_Row], random_: random.Random) -> Change:
    """Other bytes that JSON reads as the same value."""
    aggregate, version, _, state = random_.choice(rows)
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
    connection.execute(f"UPDATE stored_events SET state = ? {_WHERE}", (other.encode(), aggregate, version))
    return f"same value {kind}", {(aggregate, version)}


def _drop(connection: sqlite3.Connection, rows: list[_Row], random_: random.Random) -> Change:
    newest = {row[0]: row[1] for row in rows}
    aggregate, version, *_ = random_.choice(rows)
    if random_.random() < 0.3:
        version = newest[aggregate]
    connection.execute(f"DELETE FROM stored_events {_WHERE}", (aggregate, version))
    return "dropped", {(aggregate, version)}


def _swap(connection: sqlite3.Connection, rows: list[_Row], random_: random.Random) -> Change:
    one, other = _two_that_differ(rows, random_)
    for row, put in ((one, other), (other, one)):
        values = (put[2], put[3], row[0], row[1])
        connection.execute(f"UPDATE stored_events SET topic = ?, state = ? {_WHERE}", values)
    return "swapped", {one[:2], other[:2]}


def _duplicate(connection: sqlite3.Connection, rows: list[_Row], random_: random.Random) -> Change:
    row = random_.choice(rows)
    aggregate = random_.choice(rows)[0]
    version = 1 + max(one[1] for one in rows if one[0] == aggregate)
    connection.execute("INSERT INTO stored_events VALUES (?, ?, ?, ?)", (aggregate, version, *row[2:]))
    return "duplicated", {(aggregate, version)}


def _overwrite(connection: sqlite3.Connection, rows: list[_Row], random_: random.Random) -> Change:
    """A copy of one row in the place of another."""
    one, other = _two_that_differ(rows, random_)
    values = (one[2], one[3], *other[:2])
    connection.execute(f"UPDATE stored_events SET topic = ?, state = ? {_WHERE}", values)
    return "overwritten", {other[:2]}


def _renumber(connection: sqlite3.Connection, rows: list[_Row], random_: random.Random) -> Change:
    """A row under another version."""
    aggregate, version, *_ = random_.choice(rows)
    free = 3 + max(one[1] for one in rows if one[0] == aggregate)
    connection.execute(
        f"UPDATE stored_events SET originator_version = ? {_WHERE}", (free, aggregate, version)
    )
    return "renumbered", {(aggregate, version), (aggregate, free)}


def _two_that_differ(rows: list[_Row], random_: random.Random) -> tuple[_Row, _Row]:
    """Two rows; what stands for erased events of one session is the same everywhere."""
    one = random_.choice(rows)
    return one, random_.choice([row for row in rows if row[2:] != one[2:]])


KINDS: tuple[Callable[[sqlite3.Connection, list[_Row], random.Random], Change], ...] = (
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
