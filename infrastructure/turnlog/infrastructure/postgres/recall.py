"""The index of what was said, as arrays of numbers with an inverted index (GIN) of PostgreSQL.

The table holds no text, only which trigrams a block of a session's messages has, as hashes, and a number that
stands for the session; no extension is needed. What it finds are candidates that are checked against the log.
A block is written in a transaction of its own behind the write that completes it; what stands behind a
session's mark is not indexed yet, and every search takes it as candidates.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, LiteralString, TypeAlias
from uuid import UUID

from eventsourcing.persistence import Mapper, StoredEvent
from eventsourcing.postgres import PostgresDatastore
from psycopg import Cursor
from psycopg.errors import UndefinedTable
from psycopg.rows import DictRow

from turnlog.application.recall import OTHER_TOPICS, message_text
from turnlog.application.storage import storage_errors
from turnlog.application.stored_events import stream_event_of
from turnlog.domain.errors import UnreadableEventError
from turnlog.domain.events import MessageAppended, as_uuid
from turnlog.domain.query import EventQuery, searchable
from turnlog.infrastructure.postgres.pool import once_more
from turnlog.infrastructure.postgres.tables import Tables

BLOCK: Final = 16
"""Versions of a session that are indexed together, and about the most that are not indexed yet.

Messages of one session share most of their trigrams: one by one they would cost three times as much.
"""

MAX_INDEXED: Final = 200_000
"""Characters of a message that is indexed. The block of a longer one is a candidate of every search."""

MAX_GRAMS: Final = 32_768
"""Different trigrams of a block that is indexed; one of more is a candidate of every search as well."""

RULE: Final = 1
"""Which form of the texts is indexed. With another one the index is built anew."""

_PRIME: Final = 2**31 - 1
_FACTORS: Final = (1_172_357_663, 905_873_431)
_LONG: Final = str(_PRIME)
"""Stands for messages that are too long to be indexed; no hash is this number."""

_MOST_AT_ONCE: Final = 64 * BLOCK
"""Versions that are indexed in one transaction."""

_TRIGRAMS_OF_TERM: Final = 24
_ALTERNATIVES: Final = 16
"""Sessions times terms that are asked for one by one; of more of them hits elsewhere are left out later."""

_MARK: Final[LiteralString] = """
    INSERT INTO {recall_mark} SELECT position, 0, %s FROM {sessions} WHERE aggregate_id = %s FOR KEY SHARE
    ON CONFLICT DO NOTHING
"""

_TAKE_MARK: Final[LiteralString] = """
    SELECT position, version, indexed, rule
    FROM {sessions} AS session JOIN {recall_mark} AS mark USING (position) WHERE aggregate_id = %s
    FOR KEY SHARE OF session FOR UPDATE OF mark SKIP LOCKED
"""
"""It lets others append to the session, but nobody delete it before the blocks are written."""

_MESSAGES: Final[LiteralString] = """
    SELECT * FROM {events} WHERE originator_id = %s::{id_type} AND topic = %s
        AND originator_version > %s AND originator_version <= %s ORDER BY originator_version
"""

_INCOMPLETE: Final[LiteralString] = """
    SELECT aggregate_id FROM {sessions} LEFT JOIN {recall_mark} USING (position)
    WHERE aggregate_id = ANY (%s::uuid[])
        AND version - CASE WHEN rule = %s THEN indexed ELSE 0 END >= %s
    ORDER BY aggregate_id
"""

_HITS: Final[LiteralString] = """
    WITH hits AS MATERIALIZED (SELECT position, first, last FROM {recall} WHERE
"""

_HIT: Final[LiteralString] = "grams @> %s::int[]"

_CANDIDATES: Final[LiteralString] = """
    ), searched AS MATERIALIZED (
        SELECT position, aggregate_id, version, CASE WHEN rule = %s THEN indexed ELSE 0 END AS indexed
        FROM {sessions} LEFT JOIN {recall_mark} USING (position) WHERE position = ANY (%s::bigint[])
    )
    SELECT aggregate_id, first, last FROM hits JOIN searched USING (position) WHERE last <= indexed
    UNION ALL
    SELECT aggregate_id, indexed + 1, version FROM searched
    ORDER BY 1, 2
"""
"""What is not indexed yet is found by the same statement: no block goes from one to the other in between."""

_Trigram: TypeAlias = tuple[str, str, str]

OUR_TOPICS: Final = "turnlog.domain.events:"

_logger = logging.getLogger("turnlog")


class PostgresRecallIndex:
    """The index over the events of one application."""

    def __init__(self, datastore: PostgresDatastore, mapper: Mapper[Any], tables: Tables) -> None:
        self._datastore = datastore
        self._mapper = mapper
        self._tables = tables

    def follow(self, stored_events: Sequence[StoredEvent]) -> None:
        """Index what is due behind a write of these events, which is committed.

        Where it fails the write is stored all the same, and a later one does it.
        """
        for aggregate_id in {
            as_uuid(event.originator_id)
            for event in stored_events
            if event.originator_version % BLOCK == 0
            and event.originator_version > 0
            and event.topic.startswith(OUR_TOPICS)
        }:
            try:
                self.catch_up(aggregate_id)
            except Exception as error:
                _logger.warning("Messages could not be indexed, %s: %s", _then(error), type(error).__name__)

    def catch_up(self, aggregate_id: UUID) -> bool:
        """Index the blocks of the session that are complete, unless somebody else is at it.

        Returns whether more are complete than are indexed at once.
        """
        with self._datastore.transaction(commit=True) as cursor:
            return self.catch_up_within(cursor, aggregate_id)

    def catch_up_within(
        self, cursor: Cursor[DictRow], aggregate_id: UUID, version: int | None = None
    ) -> bool:
        """The same in the transaction of the caller, with a version not further than that one."""
        take_mark = self._tables.sql(_TAKE_MARK)
        mark = cursor.execute(take_mark, (aggregate_id,)).fetchone()
        if mark is None:  # there is none yet, or somebody else has it
            cursor.execute(self._tables.sql(_MARK), (RULE, aggregate_id))
            mark = cursor.execute(take_mark, (aggregate_id,)).fetchone()
        if mark is None:
            return False
        position, indexed = mark["position"], int(mark["indexed"])
        newest = int(mark["version"]) if version is None else version
        if mark["rule"] != RULE:
            cursor.execute(self._tables.sql("DELETE FROM {recall} WHERE position = %s"), (position,))
            indexed = 0
        complete = newest - newest % BLOCK
        upto = min(complete, indexed + _MOST_AT_ONCE)
        for first in range(indexed + 1, upto, BLOCK):
            self._index(cursor, aggregate_id, position, first, first + BLOCK - 1)
        cursor.execute(
            self._tables.sql("UPDATE {recall_mark} SET indexed = %s, rule = %s WHERE position = %s"),
            (max(indexed, upto), RULE, position),
        )
        return upto < complete

    def complete(self, aggregate_ids: Sequence[UUID]) -> None:
        """Index what is due in these sessions, but for what somebody else is at."""
        with self._datastore.get_connection() as connection:
            rows = connection.execute(
                self._tables.sql(_INCOMPLETE), (list(aggregate_ids), RULE, BLOCK)
            ).fetchall()
        for row in rows:
            while self.catch_up(row["aggregate_id"]):
                pass

    def lock(self, cursor: Cursor[DictRow], aggregate_id: UUID) -> None:
        """Let nobody index messages of the session until this transaction has ended."""
        cursor.execute(
            self._tables.sql("SELECT 1 FROM {sessions} WHERE aggregate_id = %s FOR UPDATE"), (aggregate_id,)
        )

    def rewrite(self, cursor: Cursor[DictRow], aggregate_id: UUID, versions: Iterable[int]) -> None:
        """Index the blocks of these versions anew, as their messages are now."""
        row = cursor.execute(
            self._tables.sql("SELECT position FROM {sessions} WHERE aggregate_id = %s"), (aggregate_id,)
        ).fetchone()
        if row is None:
            return
        position = row["position"]
        blocks: set[tuple[int, int]] = set()
        for version in versions:
            found = cursor.execute(
                self._tables.sql(
                    "DELETE FROM {recall} WHERE position = %s AND first <= %s AND last >= %s "
                    "RETURNING first, last"
                ),
                (position, version, version),
            ).fetchall()
            blocks.update((block["first"], block["last"]) for block in found)
        for first, last in sorted(blocks):
            self._index(cursor, aggregate_id, position, first, last)

    def empty(self) -> None:
        """Forget all that is indexed, if anything is."""
        with storage_errors(), self._datastore.transaction(commit=True) as cursor:
            cursor.execute(self._tables.sql("SELECT 1 FROM {recall} LIMIT 1"))
            if cursor.fetchone() is not None:
                cursor.execute(self._tables.sql("TRUNCATE {recall}, {recall_mark}"))

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
                    self._tables.sql("SELECT position FROM {sessions} WHERE aggregate_id = ANY (%s::uuid[])"),
                    (list(aggregate_ids),),
                ).fetchall()
                positions = [row["position"] for row in rows]
                if not positions:
                    return {}
                asked = list(_asked(alternatives, positions))
                statement = self._tables.sql(_HITS + _HIT + (" OR " + _HIT) * (len(asked) - 1) + _CANDIDATES)
                found: dict[UUID, list[int]] = {}
                for row in connection.execute(statement, (*asked, RULE, positions)).fetchall():
                    found.setdefault(row["aggregate_id"], []).extend(range(row["first"], row["last"] + 1))
                return found

        with storage_errors():
            return once_more(self._datastore, read, writes=False)

    def messages(self, aggregate_id: UUID, versions: Sequence[int]) -> Sequence[MessageAppended]:
        """The messages of a session at these versions, in order."""
        statement = self._tables.sql(
            "SELECT * FROM {events} WHERE originator_id = %s::{id_type} AND topic <> ALL (%s) "
            "AND originator_version = ANY (%s::bigint[]) ORDER BY originator_version"
        )
        values = (str(aggregate_id), OTHER_TOPICS, list(versions))

        def read() -> list[DictRow]:
            with self._datastore.get_connection() as connection:
                return connection.execute(statement, values).fetchall()

        with storage_errors():
            rows = once_more(self._datastore, read, writes=False)
        return [message for row in rows if (message := self._message(row))]

    def _index(
        self, cursor: Cursor[DictRow], aggregate_id: UUID, position: int, first: int, last: int
    ) -> None:
        values = (str(aggregate_id), MessageAppended.TOPIC, first - 1, last)
        rows = cursor.execute(self._tables.sql(_MESSAGES), values).fetchall()
        try:
            grams = _grams(text for row in rows if (text := self._text(row)))
        except UnreadableEventError:  # the block is a candidate of every search, which says so
            grams = {_LONG}
        if grams:
            cursor.execute(
                self._tables.sql("INSERT INTO {recall} VALUES (%s, %s, %s, %s::int[])"),
                (position, first, last, _array(sorted({_session_key(position), *grams}))),
            )

    def _text(self, row: DictRow) -> str | None:
        """The text of a message, None of anything else."""
        message = self._message(row)
        return message_text(message) if message else None

    def _message(self, row: DictRow) -> MessageAppended | None:
        stored = StoredEvent(
            originator_id=row["originator_id"],
            originator_version=row["originator_version"],
            topic=row["topic"],
            state=bytes(row["state"]),
        )
        event = stream_event_of(self._mapper, stored)
        return event if isinstance(event, MessageAppended) else None


def narrows(query: EventQuery) -> bool:
    """Whether the index can say anything about this query."""
    return _alternatives(query) is not None


def _then(error: Exception) -> str:
    """What becomes of searches where messages could not be indexed."""
    if isinstance(error.__cause__, UndefinedTable):
        return "and searches miss a table, which `turnlog rebuild recall` makes anew"
    return "searches read them"


def _alternatives(query: EventQuery) -> list[set[str]] | None:
    """The trigrams that a message must have, by alternative; None when no term narrows the search."""
    indexed = [term for term in query.terms if len(term) >= 3]
    if not indexed or (query.match == "any" and len(indexed) < len(query.terms)):
        return None
    terms = [set(map(_hash, _spread(term))) for term in indexed]
    return [set().union(*terms)] if query.match == "all" else terms


def _asked(alternatives: Iterable[set[str]], positions: Sequence[int]) -> Iterator[str]:
    """The arrays that a candidate holds one of."""
    alternatives = [*alternatives, {_LONG}]
    if len(alternatives) * len(positions) > _ALTERNATIVES:
        yield from map(_array, alternatives)
    else:
        for position in positions:
            yield from (_array({_session_key(position), *grams}) for grams in alternatives)


def _spread(term: str) -> Iterable[_Trigram]:
    """Trigrams of the term: all of them, or as many as are worth asking for, from everywhere in it."""
    last = len(term) - 3
    step = max(1, -(-last // (_TRIGRAMS_OF_TERM - 1)))
    return ((term[at], term[at + 1], term[at + 2]) for at in (*range(0, last, step), last))


def _grams(texts: Iterable[str]) -> set[str]:
    """What is indexed of a block of messages."""
    trigrams: set[_Trigram] = set()
    grams: set[str] = set()
    for text in texts:
        if len(text) > MAX_INDEXED:
            grams.add(_LONG)
        else:
            compared = searchable(text)
            trigrams.update(zip(compared, compared[1:], compared[2:], strict=False))
    grams.update(map(_hash, trigrams))  # together: most of them are in many messages
    return {_LONG} if len(grams) > MAX_GRAMS else grams


@lru_cache(maxsize=32_768)
def _hash(trigram: _Trigram) -> str:
    """The number that stands for the trigram; it is storage."""
    one, two, three = map(ord, trigram)
    return str((one * _FACTORS[0] + two * _FACTORS[1] + three) % _PRIME)


def _session_key(position: int) -> str:
    """The number that stands for the session: negative, as no hash is."""
    return str(-(position % 2**31) - 1)


def _array(numbers: Iterable[str]) -> str:
    return "{" + ",".join(numbers) + "}"
