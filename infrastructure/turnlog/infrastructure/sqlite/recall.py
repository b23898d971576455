"""The index of what was said, as a full-text table of SQLite.

The table holds no text, only which trigrams each message has (contentless, `detail=none`), so what it finds
are candidates that are checked against the log. A message's row id is the position of its session in the
directory and its version: a session is one range of row ids, and a search in it hardly depends on how many
others there are. Messages are indexed in batches, in the transaction of a write; what stands behind the
mark is not indexed yet, and every search takes it as candidates.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import cache
from typing import Any, Final
from uuid import UUID

from eventsourcing.persistence import Mapper, StoredEvent
from eventsourcing.sqlite import SQLiteCursor, SQLiteDatastore

from turnlog.application.recall import message_text
from turnlog.application.storage import storage_errors
from turnlog.domain.events import MessageAppended
from turnlog.domain.query import EventQuery, searchable

MAX_LAG: Final = 128
"""Events that may be stored and not indexed yet."""

MAX_INDEXED: Final = 200_000
"""Characters of a message that are indexed. A longer one is a candidate of every search."""

_RULE: Final = 1
"""Which form of the texts is indexed. With another one the index is built anew.

A new Unicode version changes nothing: the forms of characters that exist are stable.
"""

_LONG: Final = "\ue000\ue001\ue002"
"""The trigram of messages that are longer than what is indexed."""

_TRIGRAMS_OF_TERM: Final = 24
_VERSION_BITS: Final = 32
_PAGE: Final = 500
_RANGES: Final = 16
"""Sessions that are searched one by one; of more of them the hits are taken out of those of the store."""

CREATE = (
    """
    CREATE VIRTUAL TABLE IF NOT EXISTS turnlog_recall USING fts5(
        text, content = '', detail = none, columnsize = 0, tokenize = 'trigram case_sensitive 1'
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
            connection.execute(CREATE[0])
            connection.execute("SELECT value FROM json_each('[]')")
        except sqlite3.OperationalError:
            return False
    return True


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

    def follow(self, cursor: SQLiteCursor, newest: int, written: int) -> None:
        """Index what is due up to this row id, behind a write of so many events, in its transaction.

        After it at most `MAX_LAG` events are not indexed. Where an index is far behind, as after a change of
        its rule, a write catches up with a bounded part of that.
        """
        mark = self._mark(cursor)
        if mark is not None and newest - mark <= MAX_LAG:
            return
        if mark is None:
            cursor.execute("INSERT INTO turnlog_recall (turnlog_recall) VALUES ('delete-all')")
        rows = self._rows(
            cursor,
            "rowid > ? AND rowid <= ? ORDER BY rowid LIMIT ?",
            (mark or 0, newest, 4 * MAX_LAG + 2 * written),
        )
        if not rows:
            return
        cursor.executemany(
            "INSERT INTO turnlog_recall (rowid, text) VALUES (?, ?)", self._documents(cursor, rows)
        )
        last = rows[-1]
        cursor.execute(
            "INSERT OR REPLACE INTO turnlog_recall_mark VALUES (1, ?, ?, ?, ?)",
            (last["rowid"], last["originator_id"], last["originator_version"], _RULE),
        )

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
        if mark is None:  # nothing says what it holds, and it is built anew anyway
            cursor.execute("INSERT INTO turnlog_recall (turnlog_recall) VALUES ('delete-all')")
            return
        for rows in self._stream(cursor, aggregate_id):
            held = [
                row
                for row in rows
                if row["rowid"] <= mark and (versions is None or row["originator_version"] in versions)
            ]
            cursor.executemany(
                "INSERT INTO turnlog_recall (turnlog_recall, rowid, text) VALUES ('delete', ?, ?)",
                self._documents(cursor, held),
            )
        if rewrite:
            self.rewrite(cursor)

    def rewrite(self, cursor: SQLiteCursor) -> None:
        """Write the index anew without what was removed from it, once for many removals.

        FTS5 could do that by itself (`secure-delete`), at a hundred times the cost for a long session.
        """
        cursor.execute("INSERT INTO turnlog_recall (turnlog_recall) VALUES ('optimize')")

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
                for rowid in _hits(cursor, expression, positions):
                    position, version = rowid >> _VERSION_BITS, rowid & ((1 << _VERSION_BITS) - 1)
                    found.setdefault(positions[position], []).append(version)
            for aggregate_id, version in self._not_indexed(cursor, mark or 0, aggregate_ids):
                found.setdefault(aggregate_id, []).append(version)
        return {aggregate_id: sorted(versions) for aggregate_id, versions in found.items()}

    def messages(self, aggregate_id: UUID, versions: Sequence[int]) -> Sequence[MessageAppended]:
        """The messages of a session at these versions, in order."""
        with storage_errors(), self._datastore.transaction(commit=False) as cursor:
            rows = self._rows(
                cursor,
                "originator_id = ? AND topic = ? AND originator_version IN (SELECT value FROM json_each(?)) "
                "ORDER BY originator_version",
                (self._stored_id(aggregate_id), MessageAppended.TOPIC, json.dumps(list(versions))),
            )
        return [message for row in rows if (message := self._message(row))]

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
            f"FROM {self._events} WHERE rowid > ? AND +topic = ? "
            "AND +originator_id IN (SELECT value FROM json_each(?))",
            (mark, MessageAppended.TOPIC, json.dumps(list(searched))),
        )
        for row in cursor.fetchall():
            yield searched[row["originator_id"]], row["originator_version"]

    def _stream(self, cursor: SQLiteCursor, aggregate_id: UUID) -> Iterator[list[Any]]:
        """The events of the session, page by page."""
        stored_id = self._stored_id(aggregate_id)
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

    def _documents(self, cursor: SQLiteCursor, rows: Iterable[Any]) -> list[tuple[int, str]]:
        """Row id and indexed text of the messages among these rows, by row id, as the index is fastest."""
        positions: dict[str, int | None] = {}
        documents: list[tuple[int, str]] = []
        for row in rows:
            stored_id = row["originator_id"]
            if row["topic"] != MessageAppended.TOPIC:
                continue
            if stored_id not in positions:
                positions[stored_id] = _position(cursor, UUID(stored_id))
            position, message = positions[stored_id], self._message(row)
            text = message_text(message) if message else None
            if position is not None and text:
                rowid = (position << _VERSION_BITS) + row["originator_version"]
                documents.append((rowid, _indexed(text)))
        return sorted(documents)

    def _message(self, row: Any) -> MessageAppended | None:
        uuids = self._datastore.originator_id_type == "uuid"
        stored = StoredEvent(
            originator_id=UUID(row["originator_id"]) if uuids else row["originator_id"],
            originator_version=row["originator_version"],
            topic=row["topic"],
            state=row["state"],
        )
        event = self._mapper.to_domain_event(stored)
        return event if isinstance(event, MessageAppended) else None

    def _stored_id(self, aggregate_id: UUID) -> str:
        return aggregate_id.hex if self._datastore.originator_id_type == "uuid" else str(aggregate_id)


def narrows(query: EventQuery) -> bool:
    """Whether the index is of use for this query."""
    return _expression(query) is not None


def _hits(cursor: SQLiteCursor, expression: str, positions: Collection[int]) -> Iterator[int]:
    """The row ids of these sessions that the index finds."""
    if not positions:
        return
    if len(positions) <= _RANGES:
        spans = [(position, position) for position in positions]
        chosen = ""
    else:
        spans = [(min(positions), max(positions))]
        chosen = "AND (rowid >> ?) IN (SELECT value FROM json_each(?))"
    for first, last in spans:
        values = [expression, first << _VERSION_BITS, (last + 1 << _VERSION_BITS) - 1]
        if chosen:
            values += [_VERSION_BITS, json.dumps(list(positions))]
        cursor.execute(
            "SELECT rowid FROM turnlog_recall "  # noqa: S608 - no value is put into it
            f"WHERE turnlog_recall MATCH ? AND rowid BETWEEN ? AND ? {chosen}",
            values,
        )
        yield from (row[0] for row in cursor.fetchall())


def _position(cursor: SQLiteCursor, aggregate_id: UUID) -> int | None:
    cursor.execute("SELECT position FROM turnlog_sessions WHERE aggregate_id = ?", (aggregate_id.bytes,))
    row = cursor.fetchone()
    return None if row is None else row[0]


def _expression(query: EventQuery) -> str | None:
    """What the index is asked, None when a term is too short for trigrams and no other narrows the search.

    Only trigrams in quotes stand in it, so nothing of the query is syntax.
    """
    indexed = [term for term in map(_encodable, query.terms) if len(term) >= 3]
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
    compared = _encodable(searchable(text[:MAX_INDEXED]))
    return compared + _LONG if len(text) > MAX_INDEXED else compared


def _encodable(text: str) -> str:
    """The text without what ends a text for the tokenizer (NUL) or has no UTF-8 form (lone surrogates)."""
    return text.encode("utf-8", "replace").decode().replace("\0", "?")
