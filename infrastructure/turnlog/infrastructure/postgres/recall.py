"""The index of what was said, as arrays of numbers with an inverted index (GIN) of PostgreSQL.

The table holds no text, only the trigrams of each message as hashes, with one more number that stands for its
session; no extension is needed. What it finds are candidates that are checked against the log. Messages are
indexed in batches, in a transaction of their own behind a write; what stands behind the mark is not indexed
yet, and every search takes it as candidates.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, LiteralString
from uuid import UUID

from eventsourcing.persistence import Mapper, StoredEvent
from eventsourcing.postgres import PostgresDatastore
from psycopg import Cursor
from psycopg.rows import DictRow

from turnlog.application.recall import message_text
from turnlog.application.storage import storage_errors
from turnlog.domain.events import MessageAppended, as_uuid
from turnlog.domain.query import EventQuery, searchable
from turnlog.infrastructure.postgres.pool import once_more
from turnlog.infrastructure.postgres.tables import Tables

EVERY: Final = 128
"""Notification ids between two batches that are indexed."""

MAX_INDEXED: Final = 200_000
"""Characters of a message that is indexed. A longer one is a candidate of every search."""

MAX_GRAMS: Final = 32_768
"""Different trigrams of a message that is indexed; one of more is a candidate of every search as well."""

_RULE: Final = 1
"""Which form of the texts is indexed. With another one the index is built anew."""

_PRIME: Final = 2**31 - 1
_FACTORS: Final = (1_172_357_663, 905_873_431)
_LONG: Final = _PRIME
"""Stands for messages that are too long to be indexed; no hash is this number."""

_PAGE: Final = 512
_PAGE_BYTES: Final = 8_000_000
_BEHIND: Final = 16 * EVERY
"""Events behind the mark from which on a writer waits for its turn to index: it does not get worse then."""

_TRIGRAMS_OF_TERM: Final = 24
_ALTERNATIVES: Final = 16
"""Sessions times terms that are asked for one by one; of more of them hits elsewhere are left out later."""

_NEXT: Final[LiteralString] = """
    SELECT * FROM (
        SELECT *, sum(octet_length(state)) OVER (ORDER BY notification_id) - octet_length(state) AS before
        FROM (SELECT * FROM {events} WHERE notification_id > %s ORDER BY notification_id LIMIT %s) AS page
    ) AS counted WHERE before < %s ORDER BY notification_id
"""

_HITS: Final[LiteralString] = "WITH hits AS MATERIALIZED (SELECT position, version FROM {recall} WHERE "

_HIT: Final[LiteralString] = "grams @> %s::int[]"

_CANDIDATES: Final[LiteralString] = """
    ), behind AS MATERIALIZED (
        SELECT originator_id, originator_version AS version FROM {events}
        WHERE topic = %s AND notification_id > (
            SELECT CASE WHEN rule = %s THEN notification ELSE 0 END FROM {recall_mark}
        )
    )
    SELECT position, version FROM hits WHERE position = ANY (%s::bigint[])
    UNION
    SELECT position, behind.version FROM behind JOIN {sessions} ON aggregate_id = originator_id::uuid
        WHERE position = ANY (%s::bigint[])
    ORDER BY position, version
"""
"""What is not indexed yet is read in the same statement: no batch goes from one to the other in between."""

_logger = logging.getLogger("turnlog")


class PostgresRecallIndex:
    """The index over the events of one application."""

    def __init__(self, datastore: PostgresDatastore, mapper: Mapper[Any], tables: Tables) -> None:
        self._datastore = datastore
        self._mapper = mapper
        self._tables = tables

    def follow(self, notification_ids: Sequence[int]) -> None:
        """Index what is due behind a write of these events, which is committed.

        Where it fails the write is stored all the same, and a later one does it.
        """
        first, last = notification_ids[0], notification_ids[-1]
        if (first - 1) // EVERY == last // EVERY:
            return
        try:
            self.catch_up(last)
        except Exception as error:
            _logger.warning("Messages could not be indexed, searches read them: %s", type(error).__name__)

    def catch_up(self, upto: int) -> None:
        """Index the events up to this notification, unless somebody else is at it."""
        while True:
            with self._datastore.transaction(commit=True) as cursor:
                mark = self._take_mark(cursor, upto)
                if mark is None:
                    return
                cursor.execute(self._tables.sql(_NEXT), (mark, _PAGE, _PAGE_BYTES))
                rows = cursor.fetchall()
                if not rows:
                    return
                self._insert(cursor, rows)
                mark = rows[-1]["notification_id"]
                cursor.execute(
                    self._tables.sql("UPDATE {recall_mark} SET notification = %s, rule = %s"), (mark, _RULE)
                )
            if mark >= upto:
                return

    def candidates(
        self, aggregate_ids: Sequence[UUID], query: EventQuery
    ) -> Mapping[UUID, Sequence[int]] | None:
        """By session the versions of messages among which are all that match, in order."""
        alternatives = _alternatives(query)
        if alternatives is None:
            return None

        def read() -> dict[UUID, list[int]]:
            with self._datastore.get_connection() as connection:
                rows = connection.execute(
                    self._tables.sql(
                        "SELECT position, aggregate_id FROM {sessions} WHERE aggregate_id = ANY (%s::uuid[])"
                    ),
                    (list(aggregate_ids),),
                ).fetchall()
                sessions = {row["position"]: row["aggregate_id"] for row in rows}
                if not sessions:
                    return {}
                positions = list(sessions)
                asked = list(_asked(alternatives, positions))
                statement = self._tables.sql(_HITS + _HIT + (" OR " + _HIT) * (len(asked) - 1) + _CANDIDATES)
                values = (*asked, MessageAppended.TOPIC, _RULE, positions, positions)
                found: dict[UUID, list[int]] = {}
                for row in connection.execute(statement, values).fetchall():
                    found.setdefault(sessions[row["position"]], []).append(row["version"])
                return found

        with storage_errors():
            return once_more(self._datastore, read, writes=False)

    def messages(self, aggregate_id: UUID, versions: Sequence[int]) -> Sequence[MessageAppended]:
        """The messages of a session at these versions, in order."""
        statement = self._tables.sql(
            "SELECT * FROM {events} WHERE originator_id = %s::{id_type} AND topic = %s "
            "AND originator_version = ANY (%s::bigint[]) ORDER BY originator_version"
        )
        values = (str(aggregate_id), MessageAppended.TOPIC, list(versions))

        def read() -> list[DictRow]:
            with self._datastore.get_connection() as connection:
                return connection.execute(statement, values).fetchall()

        with storage_errors():
            rows = once_more(self._datastore, read, writes=False)
        return [message for row in rows if (message := self._message(row))]

    def _take_mark(self, cursor: Cursor[DictRow], upto: int) -> int | None:
        """How far the index got, locked for this transaction; None while another one holds it, or if it is
        there already."""
        cursor.execute(self._tables.sql("SELECT notification FROM {recall_mark}"))
        seen = cursor.fetchone()
        waits = seen is not None and upto - seen["notification"] > _BEHIND
        select: LiteralString = "SELECT notification, rule FROM {recall_mark} FOR UPDATE "
        cursor.execute(self._tables.sql(select + ("" if waits else "SKIP LOCKED")))
        row = cursor.fetchone()
        if row is None or (row["rule"] == _RULE and row["notification"] >= upto):
            return None
        if row["rule"] != _RULE:
            cursor.execute(self._tables.sql("DELETE FROM {recall}"))
            return 0
        return int(row["notification"])

    def _insert(self, cursor: Cursor[DictRow], rows: Sequence[DictRow]) -> None:
        said = [row for row in rows if row["topic"] == MessageAppended.TOPIC]
        cursor.execute(
            self._tables.sql(
                "SELECT position, aggregate_id FROM {sessions} WHERE aggregate_id = ANY (%s::uuid[])"
            ),
            (list({str(row["originator_id"]) for row in said}),),
        )
        positions = {row["aggregate_id"]: row["position"] for row in cursor.fetchall()}
        copying = self._tables.sql("COPY {recall} (position, version, grams) FROM STDIN")
        with cursor.copy(copying) as copy:
            for row in said:
                position = positions.get(as_uuid(row["originator_id"]))
                message = self._message(row)
                text = message_text(message) if message else None
                if position is not None and text:
                    grams = [_session_key(position), *_grams_of_text(text)]
                    copy.write_row((position, row["originator_version"], _array(grams)))

    def _message(self, row: DictRow) -> MessageAppended | None:
        stored = StoredEvent(
            originator_id=row["originator_id"],
            originator_version=row["originator_version"],
            topic=row["topic"],
            state=bytes(row["state"]),
        )
        event = self._mapper.to_domain_event(stored)
        return event if isinstance(event, MessageAppended) else None


def _alternatives(query: EventQuery) -> list[set[int]] | None:
    """The trigrams that a message must have, by alternative; None when no term narrows the search."""
    indexed = [term for term in query.terms if len(term) >= 3]
    if not indexed or (query.match == "any" and len(indexed) < len(query.terms)):
        return None
    terms = [set(_grams(_spread(term))) for term in indexed]
    return [set().union(*terms)] if query.match == "all" else terms


def _asked(alternatives: Iterable[set[int]], positions: Sequence[int]) -> Iterator[str]:
    """The arrays that a candidate holds one of."""
    alternatives = [*alternatives, {_LONG}]
    if len(alternatives) * len(positions) > _ALTERNATIVES:
        yield from map(_array, alternatives)
    else:
        for position in positions:
            yield from (_array({_session_key(position), *grams}) for grams in alternatives)


def _spread(term: str) -> Iterable[str]:
    """Trigrams of the term: all of them, or as many as are worth asking for, from everywhere in it."""
    last = len(term) - 3
    step = max(1, -(-last // (_TRIGRAMS_OF_TERM - 1)))
    return (term[start : start + 3] for start in (*range(0, last, step), last))


def _grams_of_text(text: str) -> Iterable[int]:
    """What is indexed of a message."""
    if len(text) > MAX_INDEXED:
        return (_LONG,)
    compared = searchable(text)
    found = set(_grams(map("".join, zip(compared, compared[1:], compared[2:], strict=False))))
    return (_LONG,) if len(found) > MAX_GRAMS else found


def _grams(trigrams: Iterable[str]) -> Iterator[int]:
    """The hashes of these trigrams; they are storage."""
    first, second = _FACTORS
    for one, two, three in map(tuple, set(trigrams)):
        yield (ord(one) * first + ord(two) * second + ord(three)) % _PRIME


def _session_key(position: int) -> int:
    """The number that stands for the session: negative, as no hash is."""
    return -(position % 2**31) - 1


def _array(numbers: Iterable[int]) -> str:
    return "{" + ",".join(map(str, numbers)) + "}"
