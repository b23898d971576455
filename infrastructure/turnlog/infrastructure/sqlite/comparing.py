"""The read models of a file compared with what its log leads to, row by row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final
from uuid import UUID

from eventsourcing.sqlite import SQLiteCursor

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
from turnlog.application.projections.view_store import TRACKED_AS as VIEW_TRACKED_AS
from turnlog.application.projections.view_store import VIEW_MODEL
from turnlog.infrastructure.sqlite import directory, fence, recall, rules
from turnlog.infrastructure.sqlite.catching_up import ERASING, tables, tracked
from turnlog.infrastructure.sqlite.catching_up import TRACKED_AS as ROWS_TRACKED_AS

_DIRECTORY: Final = """
    SELECT aggregate_id, position, namespace, session_id, created_at, modified_at, expires_at, idle,
        session.version, head, messages, deleted, content AS metadata
    FROM {schema}.turnlog_sessions AS session
    LEFT JOIN {schema}.turnlog_metadata ON number = metadata
"""

_METADATA: Final = """
    SELECT aggregate_id, hash FROM {schema}.turnlog_session_metadata AS held
    JOIN {schema}.turnlog_sessions AS session ON session.position = held.position
"""

_VIEWS: Final = "SELECT aggregate_id, version, messages, named FROM {schema}.turnlog_views"

_VIEW_MESSAGES: Final = """
    SELECT aggregate_id, place, version, event_id, role, branch, synthetic FROM {schema}.turnlog_view_messages
"""

_LEDGER: Final = "SELECT aggregate_id, event_id, version FROM {schema}.turnlog_event_ids"

_SELECTS: Final = {
    directory.DIRECTORY_MODEL: (
        ("row", "rows", _DIRECTORY),
        ("metadata entry", "metadata entries", _METADATA),
    ),
    VIEW_MODEL: (("row", "rows", _VIEWS), ("message", "messages", _VIEW_MESSAGES)),
    LEDGER_MODEL: (("event id", "event ids", _LEDGER),),
}

_VIEW_TABLES: Final = ("turnlog_views", "turnlog_view_messages")

_PAGE: Final = 500


def lost(cursor: SQLiteCursor) -> dict[str, list[str]]:
    """By model the tables that were dropped, where others of the same store are there."""
    names = tables(cursor)
    needed: dict[str, Sequence[str]] = {}
    if has_rows := fence.keeps_rows(cursor):
        needed[LEDGER_MODEL] = ["turnlog_event_ids"]
    if has_rows or not names.isdisjoint((*directory.TABLES, *ERASING)):
        needed[directory.DIRECTORY_MODEL] = directory.TABLES if has_rows else (*directory.TABLES, "tracking")
        needed[ERASURES] = sorted(ERASING)
    if not names.isdisjoint(_VIEW_TABLES):
        needed[VIEW_MODEL] = (*_VIEW_TABLES, "tracking")
    if any(name.startswith("turnlog_recall_") for name in names):
        needed["recall"] = ("turnlog_recall_parts", "turnlog_recall_mark")
    missing = {model: [name for name in tables if name not in names] for model, tables in needed.items()}
    return {model: gone for model, gone in missing.items() if gone}


def stops(cursor: SQLiteCursor, index: recall.SqliteRecallIndex | None, newest: int) -> dict[str, int]:
    """How far each model got; a model that was never made is left out."""
    found: dict[str, int] = {}
    if rules.has_tables(cursor, *directory.TABLES):
        found["directory"] = newest if fence.keeps_rows(cursor) else tracked(cursor, ROWS_TRACKED_AS)
    if rules.has_tables(cursor, "turnlog_event_ids"):
        found[LEDGER_MODEL] = newest
    if rules.has_tables(cursor, *_VIEW_TABLES):
        found["view"] = tracked(cursor, VIEW_TRACKED_AS)
    knows_positions = "directory" in found and not directory.is_lost(cursor)
    has_index = rules.has_tables(cursor, "turnlog_recall_parts", "turnlog_recall_mark")
    if index is not None and knows_positions and has_index:
        mark = index.mark(cursor)
        if mark is not None:
            found["recall"] = mark
    return found


class SqliteComparedRows(ComparedRows[SQLiteCursor]):
    """The rows of a file, and those in temporary tables."""

    def unusable(self, cursor: SQLiteCursor) -> Iterator[tuple[str, str]]:
        """Models that were made by another rule, and those of which tables are gone."""
        gone = lost(cursor)
        yield from of_lost(gone)
        for name, rule in ((directory.DIRECTORY_MODEL, directory.DIRECTORY_RULE), (VIEW_MODEL, VIEW_RULE)):
            is_lost = name == directory.DIRECTORY_MODEL and directory.is_lost(cursor)
            made_by = LOST if is_lost else rules.rule_of(cursor, name)
            if name not in gone and made_by is not None and made_by != rule:
                yield name, of_rule(name, made_by, rule)

    def unequal(self, cursor: SQLiteCursor, model: str) -> Iterator[Unequal]:
        """What is in one of the tables only."""
        for kind, kinds, select in _SELECTS[model]:
            real, made = select.format(schema="main"), select.format(schema="temp")
            yield Unequal(kind, kinds, _only(cursor, real, made), _only(cursor, made, real))

    def of_recall(self, cursor: SQLiteCursor) -> Iterator[Indexed]:
        """Messages whose trigrams differ."""
        yield from _of_recall(cursor)

    def views(self, cursor: SQLiteCursor, after: UUID | None) -> list[tuple[UUID, int]]:
        """The next sessions."""
        cursor.execute(
            "SELECT aggregate_id, version FROM temp.turnlog_views WHERE aggregate_id > ? "
            "ORDER BY aggregate_id LIMIT ?",
            (b"" if after is None else after.bytes, _PAGE),
        )
        return [(UUID(bytes=key), version) for key, version in map(tuple, cursor.fetchall())]

    def view_versions(self, cursor: SQLiteCursor, aggregate_id: UUID) -> list[int]:
        """The versions of the messages in a replayed view."""
        cursor.execute(
            "SELECT version FROM temp.turnlog_view_messages WHERE aggregate_id = ? ORDER BY place",
            (aggregate_id.bytes,),
        )
        return [int(row[0]) for row in cursor.fetchall()]

    def name_of(self, cursor: SQLiteCursor, aggregate_id: UUID) -> str | None:
        """The session id."""
        schemas = ("temp", "main") if rules.has_tables(cursor, "turnlog_sessions") else ("temp",)
        for schema in schemas:
            cursor.execute(
                f"SELECT session_id FROM {schema}.turnlog_sessions WHERE aggregate_id = ?",  # noqa: S608
                (aggregate_id.bytes,),
            )
            row = cursor.fetchone()
            if row is not None and row[0]:
                return str(row[0])
        return None


def _only(cursor: SQLiteCursor, one: str, other: str) -> dict[UUID, list[dict[str, Any]]]:
    cursor.execute(f"{one} EXCEPT {other} LIMIT {MOST}")
    found: dict[UUID, list[dict[str, Any]]] = {}
    for row in cursor.fetchall():
        found.setdefault(UUID(bytes=row["aggregate_id"]), []).append(
            {key: row[key] for key in row.keys() if key != "aggregate_id"}  # noqa: SIM118 - of sqlite3.Row
        )
    return found


def _of_recall(cursor: SQLiteCursor) -> Iterator[Indexed]:
    """Terms are compared by how many messages have them, then one by one."""
    made = recall.parts(cursor)
    cursor.execute("SELECT part FROM main.turnlog_recall_parts")
    real = {int(row[0]) for row in cursor.fetchall()}
    for part in sorted(made | real):
        named = [schema for schema, held in (("main", real), ("temp", made)) if part in held]
        for schema in named:
            for kind in ("row", "instance"):
                cursor.execute(
                    f"CREATE VIRTUAL TABLE temp.turnlog_{kind}_{schema}_{part} "
                    f"USING fts5vocab('{schema}', 'turnlog_recall_{part}', '{kind}')"
                )
        yield from _of_part(cursor, part, named)
        for schema in named:
            for kind in ("row", "instance"):
                cursor.execute(f"DROP TABLE temp.turnlog_{kind}_{schema}_{part}")


def _of_part(cursor: SQLiteCursor, part: int, schemas: Sequence[str]) -> Iterator[Indexed]:
    def terms(schema: str) -> str:
        return f"SELECT term, doc FROM temp.turnlog_row_{schema}_{part}"  # noqa: S608 - a number

    if len(schemas) == 2:
        cursor.execute(
            f"SELECT DISTINCT term FROM ({terms('main')} EXCEPT {terms('temp')}) UNION "  # noqa: S608
            f"SELECT term FROM ({terms('temp')} EXCEPT {terms('main')})"
        )
    else:
        cursor.execute(terms(schemas[0]))
    differing = [row[0] for row in cursor.fetchall()]
    held: dict[str, set[int]] = {"main": set(), "temp": set()}
    for term in differing[:MOST]:
        docs: dict[str, set[int]] = {"main": set(), "temp": set()}
        for schema in schemas:
            cursor.execute(
                f"SELECT doc FROM temp.turnlog_instance_{schema}_{part} WHERE term = ?",  # noqa: S608
                (term,),
            )
            docs[schema] = {int(row[0]) for row in cursor.fetchall()}
        held["main"] |= docs["main"] - docs["temp"]
        held["temp"] |= docs["temp"] - docs["main"]
    for schema in ("main", "temp"):
        for rowid in sorted(held[schema])[:MOST]:
            position, version = recall.place_of(part, rowid)
            cursor.execute("SELECT aggregate_id FROM turnlog_sessions WHERE position = ?", (position,))
            row = cursor.fetchone()
            session = None if row is None else UUID(bytes=row[0])
            yield Indexed(session, version, version, schema == "temp")
