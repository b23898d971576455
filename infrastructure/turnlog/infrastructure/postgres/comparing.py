"""The rows of a PostgreSQL database, and those that a replay made in temporary tables of the connection."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, LiteralString
from uuid import UUID

from psycopg import Cursor, sql
from psycopg.rows import DictRow

from turnlog.application.ledger import LEDGER_MODEL
from turnlog.application.projections.comparing import (
    MOST,
    ComparedRows,
    Indexed,
    Unequal,
    of_lost,
    of_rule,
)
from turnlog.application.projections.errors import LOST
from turnlog.application.projections.maintaining import ERASURES
from turnlog.application.projections.stored_view import VIEW_RULE
from turnlog.application.projections.view_store import VIEW_MODEL
from turnlog.infrastructure.postgres import directory, rules
from turnlog.infrastructure.postgres.catching_up import is_directory_lost
from turnlog.infrastructure.postgres.directory import DIRECTORY_MODEL, DIRECTORY_RULE
from turnlog.infrastructure.postgres.tables import Names, Tables

_DIRECTORY: Final[LiteralString] = """
    SELECT aggregate_id, position, namespace, salt, session_id, created_at, modified_at, expires_at, idle,
        version, head, messages, content AS metadata,
        ARRAY(SELECT unnest(hashes) ORDER BY 1)::text AS hashes
    FROM {sessions} LEFT JOIN {metadata} USING (position)
"""

_ENDED: Final[LiteralString] = "SELECT aggregate_id, position, version, head FROM {ended}"

_METADATA: Final[LiteralString] = """
    SELECT aggregate_id, hash FROM {by_metadata} JOIN {sessions} USING (position)
"""

_LEDGER: Final[LiteralString] = "SELECT aggregate_id, event_id, version FROM {ids}"

_VIEWS: Final[LiteralString] = "SELECT aggregate_id, version, messages, named FROM {views}"

_VIEW_MESSAGES: Final[LiteralString] = """
    SELECT aggregate_id, place, version, event_id, role, branch, synthetic FROM {view_messages}
"""

_SELECTS: Final[dict[str, tuple[tuple[str, str, LiteralString], ...]]] = {
    DIRECTORY_MODEL: (
        ("row", "rows", _DIRECTORY),
        ("deletion", "deletions", _ENDED),
        ("metadata entry", "metadata entries", _METADATA),
    ),
    VIEW_MODEL: (("row", "rows", _VIEWS), ("message", "messages", _VIEW_MESSAGES)),
    LEDGER_MODEL: (("event id", "event ids", _LEDGER),),
}

_RECALL: Final[LiteralString] = """
    SELECT position, first, last, former IS NULL AS is_missing, aggregate_id
    FROM {real} AS former FULL JOIN {made} AS new USING (position, first, last)
    LEFT JOIN (
        SELECT position, aggregate_id FROM {made_sessions}
        UNION SELECT position, aggregate_id FROM {real_sessions}
    ) AS session USING (position)
    WHERE former IS NULL OR new IS NULL OR (
        former.grams <> new.grams AND ARRAY(SELECT unnest(former.grams) ORDER BY 1)
            <> ARRAY(SELECT unnest(new.grams) ORDER BY 1)
    )
    ORDER BY position, first LIMIT %s
"""
"""The numbers of a block may stand in any order."""

_NEXT_VIEWS: Final[LiteralString] = """
    SELECT aggregate_id, version FROM {views} WHERE %(after)s::uuid IS NULL OR aggregate_id > %(after)s
    ORDER BY aggregate_id LIMIT 500
"""

_VIEW_VERSIONS: Final[LiteralString] = """
    SELECT version FROM {view_messages} WHERE aggregate_id = %s ORDER BY place
"""


_NEEDED: Final[dict[str, tuple[str, ...]]] = {
    DIRECTORY_MODEL: directory.TABLES,
    ERASURES: ("erasures", "redactions"),
    "recall": ("recall", "recall_mark"),
}


_OF_VIEW: Final = ("views", "view_messages", "tracking")


def lost(cursor: Cursor[DictRow], real: Tables, view: Names, *, has_ledger: bool) -> dict[str, list[str]]:
    """By model the tables that were dropped, where others of the same store are there."""
    expected = [(model, real, names) for model, names in _NEEDED.items()] if real.are_kept(cursor) else []
    if has_ledger and expected:
        expected.append((LEDGER_MODEL, real, ("ids",)))
    missing = {
        model: [names.tables[name] for name in names.missing(cursor, needed)]
        for model, names, needed in expected
    }
    of_view = view.missing(cursor, _OF_VIEW)
    if len(of_view) < len(_OF_VIEW):
        missing[VIEW_MODEL] = [view.tables[name] for name in of_view]
    return {model: names for model, names in missing.items() if names}


class PostgresComparedRows(ComparedRows[Cursor[DictRow]]):
    """The rows of the tables in use, and of those that were made."""

    def __init__(
        self, real: Tables, made: Tables, real_view: Names, made_view: Names, *, has_ledger: bool
    ) -> None:
        self._real, self._made = real, made
        self._has_ledger = has_ledger
        self._real_view, self._made_view = real_view, made_view

    def unusable(self, cursor: Cursor[DictRow]) -> Iterator[tuple[str, str]]:
        """Models that were made by another rule, and those of which tables are gone."""
        gone = lost(cursor, self._real, self._real_view, has_ledger=self._has_ledger)
        yield from of_lost(gone)
        for names, name, rule in (
            (self._real, DIRECTORY_MODEL, DIRECTORY_RULE),
            (self._real_view, VIEW_MODEL, VIEW_RULE),
        ):
            is_lost = name == DIRECTORY_MODEL and is_directory_lost(cursor, self._real)
            made_by = LOST if is_lost else rules.rule_of(cursor, names, name)
            if name not in gone and made_by is not None and made_by != rule:
                yield name, of_rule(name, made_by, rule)

    def unequal(self, cursor: Cursor[DictRow], model: str) -> Iterator[Unequal]:
        """What is in one of the tables only."""
        names = (self._real_view, self._made_view) if model == VIEW_MODEL else (self._real, self._made)
        for kind, kinds, select in _SELECTS[model]:
            real, made = (sql.SQL(select).format(**one.names) for one in names)
            yield Unequal(kind, kinds, _only(cursor, real, made), _only(cursor, made, real))

    def of_recall(self, cursor: Cursor[DictRow]) -> Iterator[Indexed]:
        """Blocks of messages whose trigrams differ."""
        statement = sql.SQL(_RECALL).format(
            real=self._real.names["recall"],
            made=self._made.names["recall"],
            real_sessions=self._real.names["sessions"],
            made_sessions=self._made.names["sessions"],
        )
        for row in cursor.execute(statement, (MOST,)).fetchall():
            yield Indexed(row["aggregate_id"], row["first"], row["last"], row["is_missing"])

    def views(self, cursor: Cursor[DictRow], after: UUID | None) -> list[tuple[UUID, int]]:
        """The next sessions."""
        rows = cursor.execute(self._made_view.sql(_NEXT_VIEWS), {"after": after}).fetchall()
        return [(row["aggregate_id"], row["version"]) for row in rows]

    def view_versions(self, cursor: Cursor[DictRow], aggregate_id: UUID) -> list[int]:
        """The versions of the messages in a replayed view."""
        rows = cursor.execute(self._made_view.sql(_VIEW_VERSIONS), (aggregate_id,)).fetchall()
        return [row["version"] for row in rows]

    def name_of(self, cursor: Cursor[DictRow], aggregate_id: UUID) -> str | None:
        """The session id."""
        known = [names for names in (self._made, self._real) if not names.missing(cursor, ("sessions",))]
        for names in known:
            statement = names.sql("SELECT session_id FROM {sessions} WHERE aggregate_id = %s")
            row = cursor.execute(statement, (aggregate_id,)).fetchone()
            if row is not None:
                return str(row["session_id"])
        return None


def _only(
    cursor: Cursor[DictRow], one: sql.Composed, other: sql.Composed
) -> dict[UUID, list[dict[str, Any]]]:
    statement = sql.SQL("{} EXCEPT {} LIMIT {}").format(one, other, MOST)
    found: dict[UUID, list[dict[str, Any]]] = {}
    for row in cursor.execute(statement).fetchall():
        found.setdefault(row.pop("aggregate_id"), []).append(row)
    return found
