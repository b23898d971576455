"""The index of what was said, as full-text tables of SQLite.

They hold no text, only which trigrams each message has (contentless, `detail=none`), so what they find are
candidates that are checked against the log. Each session is in one of `PARTS` tables, and a message's row id
is the place of its session there and its version: a session is one range of row ids in a small table, a
search in it does not depend on how many others there are, and when it is deleted one part is written anew.
Messages are indexed in batches, in the transaction of a write; what stands behind the mark is not indexed
yet, and every search takes it as candidates.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import cache
from typing import Any, Final, TypeAlias
from uuid import UUID

from eventsourcing.persistence import Mapper, StoredEvent
from eventsourcing.sqlite import SQLiteCursor, SQLiteDatastore

from turnlog.application.projections.batches import OUR_TOPICS
from turnlog.application.recall import OTHER_TOPICS, message_text
from turnlog.application.storage import storage_errors
from turnlog.application.stored_events import stream_event_of
from turnlog.domain.errors import UnreadableEventError
from turnlog.domain.events import MessageAppended
from turnlog.domain.query import EventQuery, searchable
from turnlog.infrastructure.sqlite.secure import writing

MAX_LAG: Final = 128
"""Events that may be stored and not indexed yet."""

MAX_INDEXED: Final = 200_000
"""Characters of a message that are indexed. A longer one is a candidate of every search."""

PARTS: Final = 32
"""Tables of the index; each is made when its first message is indexed."""

_NEIGHBOURS: Final = 4
"""Sessions that were created one after the other and share a part: they are often written to at one time."""

_RULE: Final = 3
"""Which form of the texts is indexed, and where. With another one the index is built anew.

A new Unicode version changes nothing: the forms of characters that exist are stable.
"""

DUE: Final = 2
"""The state of a session's erasure that is deleted and not overwritten: the index still holds it."""

_LONG_SESSION: Final = 500
"""Events from which on it is worth asking whether the rest of a part is shorter."""

_LONG: Final = "\ue000\ue001\ue002"
"""The trigram of messages that are longer than what is indexed. No text has it, as all of it is folded."""

_FOLDED: Final = re.compile("[\u2e80-\uffff]+")
"""What scripts of thousands of characters are written with: Chinese, Japanese, Korean, Yi."""

_FOLDS: Final = 31
"""Characters that stand for all of these.

Most of the trigrams that such a script can have would be in one message only, and their entries take more
than the text itself. With so few characters no text can have many; about one message in 200 is then a false
candidate of a term of three characters. A prime number, because Korean syllables go by 28.
"""

_STAND_INS: Final = "".join(map(chr, range(1, _FOLDS + 1))) * (0x10000 // _FOLDS + 1)
"""By code point. They are control characters, so that what is folded is no candidate of other words."""

_TRIGRAMS_OF_TERM: Final = 24
_VERSION_BITS: Final = 32
_PAGE: Final = 500
_RANGES: Final = 16
"""Sessions that are searched one by one; of more of them the hits are taken out of those of the store."""

TABLE = """
    CREATE VIRTUAL TABLE turnlog_recall_{part} USING fts5(
        text, content = '', detail = none, columnsize = 0, tokenize = 'trigram case_sensitive 1'
    )
"""

CREATE = (
    """
    CREATE TABLE IF NOT EXISTS turnlog_recall_parts (
        part INTEGER PRIMARY KEY
    )
    """,
    """
    CREATE TABLE IF NOT EXISTS turnlog_recall_mark (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        notification INTEGER NOT NULL,
        originator_id TEXT NOT NULL,
        originator_version INTEGER NOT NULL,
        rule INTEGER NOT NULL
    )
    """,
)

MARKED: Final = "SELECT notification FROM turnlog_recall_mark"
"""The row of the last event that is indexed. Without it the index is built anew."""


@cache
def is_supported() -> bool:
    """Whether this SQLite has FTS5 with trigrams, and JSON."""
    with closing(sqlite3.connect(":memory:")) as connection:
        try:
            connection.execute(TABLE.format(part=0))
            connection.execute("SELECT value FROM json_each('[]')")
        except sqlite3.OperationalError:
            return False
    return True


Document: TypeAlias = tuple[int, int, str]
"""Position of the session, version and indexed text of a message."""


class SqliteRecallIndex:
    """The index over the events of one recorder."""

    def __init__(self, datastore: SQLiteDatastore, mapper: Mapper[Any], events_table: str) -> None:
        self._datastore = datastore
        self._mapper = mapper
        self._events = events_table

    def is_due(self, cursor: SQLiteCursor, newest: int) -> bool:
        """Whether more events than may be are not indexed, when this is the row id of the newest one."""
        mark = self._mark(cursor)
        return newest - (mark or 0) > MAX_LAG or (mark is None and newest > 0)

    def follow(self, cursor: SQLiteCursor, newest: int, written: int) -> int:
        """Index what is due up to this row id, behind a write of so many events, in its transaction.

        After it at most `MAX_LAG` events are not indexed. Where an index is far behind, as after a change of
        its rule, a write catches up with a bounded part of that. Returns up to which row it was indexed
        before.
        """
        mark = self._mark(cursor)
        if mark is not None and newest - mark <= MAX_LAG:
            return mark
        if mark is None:
            _empty(cursor, _parts(cursor))
        rows = self._rows(
            cursor,
            "rowid > ? AND rowid <= ? ORDER BY rowid LIMIT ?",
            (mark or 0, newest, 4 * MAX_LAG + 2 * written),
        )
        if rows:
            _insert(cursor, self._documents(cursor, rows))
            last = rows[-1]
            write_mark(cursor, last["rowid"], last["originator_id"], last["originator_version"])
        return mark or 0

    def holds_something(self) -> bool:
        """Whether anything was ever indexed."""
        with storage_errors(), self._datastore.transaction(commit=False) as cursor:
            return bool(_parts(cursor))

    def empty(self) -> None:
        """Forget all that is indexed."""
        with writing(self._datastore) as cursor:
            for part in _parts(cursor):
                cursor.execute(f"DROP TABLE turnlog_recall_{part}")
            cursor.execute("DELETE FROM turnlog_recall_parts")
            cursor.execute("DELETE FROM turnlog_recall_mark")

    def remove(
        self,
        cursor: SQLiteCursor,
        aggregate_id: UUID,
        versions: Collection[int] | None = None,
        *,
        rewrite: bool = True,
    ) -> None:
        """Remove every trace of the session's messages, or of those at these versions.

        To be called in the transaction that erases the events, before it does: the index needs to be told
        what it held.
        """
        mark = self._mark(cursor)
        position = _position(cursor, aggregate_id)
        if mark is None:  # nothing says what it holds, and it is built anew anyway
            _empty(cursor, _parts(cursor))
            cursor.execute("DELETE FROM turnlog_recall_mark")  # another release may know its rule
        elif position is not None and _part(position) in _parts(cursor):
            others = self._others(cursor, position) if versions is None else None
            if others is None:
                try:
                    self._remove(cursor, aggregate_id, versions, mark)
                except UnreadableEventError:  # nobody knows what the index holds of it
                    if versions is not None:
                        raise
                    others = self._others(cursor, position, however_long=True)
            if others is not None:  # which takes less where they are short
                self._build_anew(cursor, _part(position), others, mark)
        if rewrite:
            self.rewrite(cursor, [aggregate_id])

    def rewrite(self, cursor: SQLiteCursor, aggregate_ids: Iterable[UUID]) -> None:
        """Write the parts of these sessions anew without what was removed from them, once for many removals.

        FTS5 could do that by itself (`secure-delete`), at a hundred times the cost for a long session.
        """
        positions = (_position(cursor, aggregate_id) for aggregate_id in aggregate_ids)
        touched = {_part(position) for position in positions if position is not None}
        for part in touched & _parts(cursor):
            cursor.execute(_command(part), ("optimize",))

    def _remove(
        self, cursor: SQLiteCursor, aggregate_id: UUID, versions: Collection[int] | None, mark: int
    ) -> None:
        """Tell the index which messages to forget."""
        for rows in self._stream(cursor, aggregate_id, versions):
            held = [row for row in rows if row["rowid"] <= mark]
            for part, documents in _by_part(self._documents(cursor, held, strict=True)).items():
                table = f"turnlog_recall_{part}"
                cursor.executemany(
                    f"INSERT INTO {table} ({table}, rowid, text) VALUES ('delete', ?, ?)",  # noqa: S608 - a number
                    documents,
                )

    def _others(
        self, cursor: SQLiteCursor, position: int, *, however_long: bool = False
    ) -> list[UUID] | None:
        """The other sessions of its part, None where they have more messages than this one.

        What is deleted and not overwritten is among them: it will be removed one by one, and the index must
        not be told to forget what it does not hold.
        """
        cursor.execute("SELECT version FROM turnlog_sessions WHERE position = ?", (position,))
        most = int(cursor.fetchone()[0])
        if most < _LONG_SESSION and not however_long:
            return None
        cursor.execute(
            "SELECT aggregate_id, messages FROM turnlog_sessions "
            "WHERE position / ? % ? = ? AND position <> ? AND (deleted = 0 OR lower(hex(aggregate_id)) IN "
            "(SELECT replace(originator_id, '-', '') FROM turnlog_erasures WHERE pending = ?))",
            (_NEIGHBOURS, PARTS, _part(position), position, DUE),
        )
        rows = cursor.fetchall()
        is_shorter = sum(row[1] for row in rows) <= most
        return [UUID(bytes=row[0]) for row in rows] if is_shorter or however_long else None

    def build_part(self, cursor: SQLiteCursor, part: int, upto: int) -> None:
        """Empty a part, and index the messages of its sessions anew, up to this row id.

        Not those of a session that was deleted behind it: the index has forgotten them.
        """
        cursor.execute(
            "SELECT aggregate_id FROM turnlog_sessions WHERE deleted = 0 AND position / ? % ? = ? "
            "AND aggregate_id NOT IN (SELECT aggregate_id FROM main.turnlog_sessions WHERE deleted = 1)",
            (_NEIGHBOURS, PARTS, part),
        )
        self._build_anew(cursor, part, [UUID(bytes=row[0]) for row in cursor.fetchall()], upto)

    def _build_anew(self, cursor: SQLiteCursor, part: int, sessions: Iterable[UUID], mark: int) -> None:
        """Empty the part and index these sessions anew."""
        _empty(cursor, [part])
        for aggregate_id in sessions:
            for rows in self._stream(cursor, aggregate_id):
                _insert(cursor, self._documents(cursor, [row for row in rows if row["rowid"] <= mark]))

    def candidates(
        self, aggregate_ids: Sequence[UUID], query: EventQuery
    ) -> Mapping[UUID, Sequence[int]] | None:
        """By session the versions of messages among which are all that match, in order."""
        expression = _expression(query)
        if expression is None:
            return None
        with storage_errors(), self._datastore.transaction(commit=False) as cursor:
            mark = self._mark(cursor)
            positions = {
                position: aggregate_id
                for aggregate_id in aggregate_ids
                if (position := _position(cursor, aggregate_id)) is not None
            }
            found: dict[UUID, list[int]] = {}
            if mark is not None:
                for position, version in _hits(cursor, expression, positions):
                    found.setdefault(positions[position], []).append(version)
            for aggregate_id, version in self._not_indexed(cursor, mark or 0, aggregate_ids):
                found.setdefault(aggregate_id, []).append(version)
        return {aggregate_id: sorted(versions) for aggregate_id, versions in found.items()}

    def messages(self, aggregate_id: UUID, versions: Sequence[int]) -> Sequence[MessageAppended]:
        """The messages of a session at these versions, in order."""
        with storage_errors(), self._datastore.transaction(commit=False) as cursor:
            rows = self._rows(
                cursor,
                "originator_id = ? AND originator_version IN (SELECT value FROM json_each(?)) "
                "AND topic NOT IN (SELECT value FROM json_each(?)) ORDER BY originator_version",
                (self._stored_id(aggregate_id), json.dumps(list(versions)), json.dumps(OTHER_TOPICS)),
            )
        return [message for row in rows if (message := self._message(row))]

    def mark(self, cursor: SQLiteCursor) -> int | None:
        """The row id of the last event that is indexed, None when the index has to be built anew."""
        return self._mark(cursor)

    def _mark(self, cursor: SQLiteCursor) -> int | None:
        """The last notification that is indexed; None when the index has to be built anew.

        That is so at first, with another rule, and when another event has that row id: behind a purge a
        VACUUM or a restored dump may give new ones.
        """
        cursor.execute(
            "SELECT notification FROM turnlog_recall_mark AS mark "  # noqa: S608 - the recorder's table
            f"JOIN {self._events} AS event ON event.rowid = notification "
            "AND event.originator_id = mark.originator_id "
            "AND event.originator_version = mark.originator_version WHERE rule = ?",
            (_RULE,),
        )
        row = cursor.fetchone()
        return None if row is None else int(row[0])

    def _not_indexed(
        self, cursor: SQLiteCursor, mark: int, aggregate_ids: Iterable[UUID]
    ) -> Iterator[tuple[UUID, int]]:
        """The messages of these sessions behind the mark; each + keeps SQLite from reading whole sessions."""
        searched = {self._stored_id(aggregate_id): aggregate_id for aggregate_id in aggregate_ids}
        cursor.execute(
            "SELECT originator_id, originator_version "  # noqa: S608 - the recorder's table
            f"FROM {self._events} WHERE rowid > ? AND +originator_id IN (SELECT value FROM json_each(?)) "
            "AND +topic NOT IN (SELECT value FROM json_each(?))",
            (mark, json.dumps(list(searched)), json.dumps(OTHER_TOPICS)),
        )
        for row in cursor.fetchall():
            yield searched[row["originator_id"]], row["originator_version"]

    def _stream(
        self, cursor: SQLiteCursor, aggregate_id: UUID, versions: Collection[int] | None = None
    ) -> Iterator[list[Any]]:
        """The events of the session, or those at these versions, page by page."""
        stored_id = self._stored_id(aggregate_id)
        if versions is not None:
            yield self._rows(
                cursor,
                "originator_id = ? AND originator_version IN (SELECT value FROM json_each(?))",
                (stored_id, json.dumps(sorted(versions))),
            )
            return
        after = -1
        while rows := self._rows(
            cursor,
            "originator_id = ? AND originator_version > ? ORDER BY originator_version LIMIT ?",
            (stored_id, after, _PAGE),
        ):
            yield rows
            after = rows[-1]["originator_version"]

    def _rows(self, cursor: SQLiteCursor, criteria: str, values: Sequence[object]) -> list[Any]:
        cursor.execute(
            "SELECT rowid, originator_id, originator_version, topic, state "  # noqa: S608 - the recorder's table
            f"FROM {self._events} WHERE {criteria}",
            values,
        )
        return list(cursor.fetchall())

    def _documents(
        self, cursor: SQLiteCursor, rows: Iterable[Any], *, strict: bool = False
    ) -> list[Document]:
        """What is indexed of the messages among these rows, by row id, as the index is fastest.

        What cannot be read is a candidate of every search, which says so then. With `strict` it is an
        `UnreadableEventError`, and sessions that were deleted count too, as what is removed is theirs.
        """
        place_of_session = _position if strict else _indexed_position
        positions: dict[str, int | None] = {}
        documents: list[Document] = []
        for row in rows:
            stored_id, topic = row["originator_id"], row["topic"]
            if topic in OTHER_TOPICS or not topic.startswith(OUR_TOPICS):
                continue
            if stored_id not in positions:
                positions[stored_id] = place_of_session(cursor, UUID(stored_id))
            position = positions[stored_id]
            if position is not None and (text := self._text(row, strict)):
                documents.append((position, row["originator_version"], text))
        return sorted(documents)

    def _text(self, row: Any, strict: bool) -> str | None:
        """What is indexed of a message, None of anything else."""
        try:
            message = self._message(row)
            text = message_text(message) if message else None
            return _indexed(text) if text else None
        except UnreadableEventError:
            if strict:
                raise
            return _LONG

    def _message(self, row: Any) -> MessageAppended | None:
        uuids = self._datastore.originator_id_type == "uuid"
        stored = StoredEvent(
            originator_id=UUID(row["originator_id"]) if uuids else row["originator_id"],
            originator_version=row["originator_version"],
            topic=row["topic"],
            state=row["state"],
        )
        event = stream_event_of(self._mapper, stored)
        return event if isinstance(event, MessageAppended) else None

    def _stored_id(self, aggregate_id: UUID) -> str:
        return aggregate_id.hex if self._datastore.originator_id_type == "uuid" else str(aggregate_id)


def write_mark(cursor: SQLiteCursor, notification: int, originator_id: str, version: int) -> None:
    """Say which event is the last that is indexed."""
    cursor.execute(
        "INSERT OR REPLACE INTO turnlog_recall_mark VALUES (1, ?, ?, ?, ?)",
        (notification, originator_id, version, _RULE),
    )


def document_of(event: MessageAppended, position: int) -> Document | None:
    """What is indexed of a message of the session at this position, None without text."""
    text = message_text(event)
    return (position, event.originator_version, _indexed(text)) if text else None


def unreadable(position: int, version: int) -> Document:
    """What is indexed of a message that cannot be read: it stays a candidate of every search."""
    return position, version, _LONG


def part_of(position: int) -> int:
    """The part of the index that has the session at this position."""
    return _part(position)


def place_of(part: int, rowid: int) -> tuple[int, int]:
    """Position of the session and version of the message that a row id of this part stands for."""
    turn, neighbour = divmod(rowid >> _VERSION_BITS, _NEIGHBOURS)
    return (turn * PARTS + part) * _NEIGHBOURS + neighbour, rowid & ((1 << _VERSION_BITS) - 1)


def insert(cursor: SQLiteCursor, documents: Iterable[Document]) -> None:
    """Index the documents, each in the part of its session."""
    _insert(cursor, documents)


def parts(cursor: SQLiteCursor) -> frozenset[int]:
    """The tables of the index that there are."""
    return _parts(cursor)


def narrows(query: EventQuery) -> bool:
    """Whether the index is of use for this query."""
    return _expression(query) is not None


def _hits(cursor: SQLiteCursor, expression: str, positions: Collection[int]) -> Iterator[tuple[int, int]]:
    """Position and version of the messages of these sessions that the index finds."""
    by_part: dict[int, list[int]] = {}
    for position in positions:
        by_part.setdefault(_part(position), []).append(position)
    for part in sorted(by_part.keys() & _parts(cursor)):
        held = [_place(position) for position in by_part[part]]
        if len(positions) <= _RANGES:
            spans = [(place, place) for place in held]
            chosen = ""
        else:
            spans = [(min(held), max(held))]
            chosen = "AND (rowid >> ?) IN (SELECT value FROM json_each(?))"
        for first, last in spans:
            values = [expression, first << _VERSION_BITS, (last + 1 << _VERSION_BITS) - 1]
            if chosen:
                values += [_VERSION_BITS, json.dumps(held)]
            cursor.execute(
                f"SELECT rowid FROM turnlog_recall_{part} "  # noqa: S608 - no value is put into it
                f"WHERE turnlog_recall_{part} MATCH ? AND rowid BETWEEN ? AND ? {chosen}",
                values,
            )
            yield from (place_of(part, row[0]) for row in cursor.fetchall())


def _insert(cursor: SQLiteCursor, documents: Iterable[Document]) -> None:
    """Index the documents, each in the part of its session, which is made if it has to be."""
    parts = _by_part(documents)
    for part in sorted(parts.keys() - _parts(cursor)):
        cursor.execute(TABLE.format(part=part))
        cursor.execute("INSERT INTO turnlog_recall_parts VALUES (?)", (part,))
    for part, held in parts.items():
        cursor.executemany(
            f"INSERT INTO turnlog_recall_{part} (rowid, text) VALUES (?, ?)",  # noqa: S608 - a number
            held,
        )


def _empty(cursor: SQLiteCursor, parts: Iterable[int]) -> None:
    for part in parts:
        cursor.execute(_command(part), ("delete-all",))


def _command(part: int) -> str:
    return f"INSERT INTO turnlog_recall_{part} (turnlog_recall_{part}) VALUES (?)"  # noqa: S608 - a number


def _parts(cursor: SQLiteCursor) -> frozenset[int]:
    """The tables of the index that there are."""
    cursor.execute("SELECT part FROM turnlog_recall_parts")
    return frozenset(row[0] for row in cursor.fetchall())


def _part(position: int) -> int:
    return position // _NEIGHBOURS % PARTS


def _place(position: int) -> int:
    """Where the session is in its part. A small number: each trigram is stored with a row id in full."""
    turn, within = divmod(position, PARTS * _NEIGHBOURS)
    return turn * _NEIGHBOURS + within % _NEIGHBOURS


def _by_part(documents: Iterable[Document]) -> Mapping[int, list[tuple[int, str]]]:
    """Row id and text of the documents, by the part of the index that they belong to."""
    parts: dict[int, list[tuple[int, str]]] = {}
    for position, version, text in documents:
        rowid = (_place(position) << _VERSION_BITS) + version
        parts.setdefault(_part(position), []).append((rowid, text))
    return parts


def _position(cursor: SQLiteCursor, aggregate_id: UUID) -> int | None:
    cursor.execute("SELECT position FROM turnlog_sessions WHERE aggregate_id = ?", (aggregate_id.bytes,))
    row = cursor.fetchone()
    return None if row is None else row[0]


def _indexed_position(cursor: SQLiteCursor, aggregate_id: UUID) -> int | None:
    """The position of a session of which messages are indexed: none that was deleted and is kept."""
    cursor.execute(
        "SELECT position FROM turnlog_sessions WHERE aggregate_id = ? AND (deleted = 0 OR EXISTS ("
        "SELECT 1 FROM turnlog_erasures WHERE originator_id IN (?, ?) AND pending = ?))",
        (aggregate_id.bytes, aggregate_id.hex, str(aggregate_id), DUE),
    )
    row = cursor.fetchone()
    return None if row is None else row[0]


def _expression(query: EventQuery) -> str | None:
    """What the index is asked, None when a term is too short for trigrams and no other narrows the search.

    Only trigrams in quotes stand in it, so nothing of the query is syntax.
    """
    indexed = [term for term in map(_folded, query.terms) if len(term) >= 3]
    if not indexed or (query.match == "any" and len(indexed) < len(query.terms)):
        return None
    groups = (" AND ".join(map(_quoted, _trigrams(term))) for term in indexed)
    joint = " AND " if query.match == "all" else " OR "
    return f"({joint.join(f'({group})' for group in groups)}) OR {_quoted(_LONG)}"


def _trigrams(term: str) -> Iterable[str]:
    """Trigrams of the term: all of them, or as many as are worth asking for, from everywhere in it."""
    last = len(term) - 3
    step = max(1, -(-last // (_TRIGRAMS_OF_TERM - 1)))
    starts = [*range(0, last, step), last]
    return dict.fromkeys(term[start : start + 3] for start in starts)


def _quoted(trigram: str) -> str:
    return '"' + trigram.replace('"', '""') + '"'


def _indexed(text: str) -> str:
    """What is indexed of a message."""
    compared = _folded(searchable(text[:MAX_INDEXED]))
    return compared + _LONG if len(text) > MAX_INDEXED else compared


def _folded(text: str) -> str:
    """The text in as many characters, folded, and without what ends a text for the tokenizer (NUL).

    Lone surrogates, which have no UTF-8 form, are among what is folded.
    """
    return _FOLDED.sub(lambda run: run[0].translate(_STAND_INS), text).replace("\0", "?")
