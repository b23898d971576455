"""The read models of a file compared with what its log leads to, row by row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final
from uuid import UUID

from eventsourcing.sqlite import SQLiteCursor

from turnlog.application.projections.maintaining import Comparison, Difference, Progress
from turnlog.application.projections.stored_view import VIEW_RULE
from turnlog.application.projections.view_store import TRACKED_AS as VIEW_TRACKED_AS
from turnlog.infrastructure.sqlite import directory, recall, rules
from turnlog.infrastructure.sqlite.building import (
    Builder,
    DirectoryBuilder,
    RecallBuilder,
    StoredLog,
    ViewBuilder,
)
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

_PAGE: Final = 500

_MOST: Final = 1000
"""Differences of one model that are named."""


def compared(
    cursor: SQLiteCursor, log: StoredLog, index: recall.SqliteRecallIndex | None, progress: Progress | None
) -> Comparison:
    """Replay the log up to where each model stands, and compare it there."""
    newest = log.newest(cursor)
    stops = _stops(cursor, index, newest)
    builders: list[Builder] = [DirectoryBuilder(), ViewBuilder()]
    if index is not None and "recall" in stops:
        builders.append(RecallBuilder(log, index))
    found: list[Difference] = []
    for name, rule in (("directory", directory.DIRECTORY_RULE), ("view", VIEW_RULE)):
        made_by = rules.rule_of(cursor, name)
        if made_by is not None and made_by != rule:
            found.append(Difference(name, f"made by rule {made_by}, not {rule}: rebuild it"))
            stops.pop(name, None)
    for builder in builders:
        builder.begin(cursor)
    last = 0
    for stop in sorted({0, newest, *stops.values()}):
        while page := log.page(cursor, last, stop):
            for builder in builders:
                builder.apply(cursor, page)
            last = page[-1].position
            if progress is not None:
                progress(len(page))
        for builder in builders:
            if stops.get(builder.name) == stop:
                builder.settle(cursor, stop)
                found += _differences(cursor, builder.name, log, stop)
    found += (Difference("log", f"the event in row {rowid} cannot be read") for rowid in log.unreadable)
    found += _of_boundaries(cursor, log)
    return Comparison(
        differences=tuple(found),
        positions=dict(stops),
        behind={name: newest - stop for name, stop in stops.items()},
        events=newest,
    )


def _stops(cursor: SQLiteCursor, index: recall.SqliteRecallIndex | None, newest: int) -> dict[str, int]:
    """How far each model got; a model that was never made is left out."""
    stops: dict[str, int] = {}
    if rules.has_tables(cursor, "turnlog_sessions"):
        has_rows = rules.has_tables(cursor, "turnlog_event_ids")
        stops["directory"] = newest if has_rows else _tracked(cursor, ROWS_TRACKED_AS)
    if rules.has_tables(cursor, "turnlog_views"):
        stops["view"] = _tracked(cursor, VIEW_TRACKED_AS)
    if index is not None and rules.has_tables(cursor, "turnlog_recall_mark"):
        mark = index.mark(cursor)
        if mark is not None:
            stops["recall"] = mark
    return stops


def _tracked(cursor: SQLiteCursor, name: str) -> int:
    if not rules.has_tables(cursor, "tracking"):
        return 0
    cursor.execute("SELECT max(notification_id) FROM tracking WHERE application_name = ?", (name,))
    return int(cursor.fetchone()[0] or 0)


def _differences(cursor: SQLiteCursor, name: str, log: StoredLog, stop: int) -> Iterator[Difference]:
    if name == "recall":
        yield from _of_recall(cursor)
        return
    selects = (_DIRECTORY, _METADATA) if name == "directory" else (_VIEWS, _VIEW_MESSAGES)
    told: dict[bytes, list[str]] = {}
    for select in selects:
        for key, what in _unequal(cursor, select):
            if len(told) < _MOST or key in told:
                told.setdefault(key, []).append(what)
    for key, details in told.items():
        aggregate_id = UUID(bytes=key)
        if log.is_deleted_behind(cursor, _stored_text(log, aggregate_id), stop):
            continue  # what stood there then is not in the log any more
        yield Difference(name, "; ".join(dict.fromkeys(details)), _name_of(cursor, key), aggregate_id.hex)


def _unequal(cursor: SQLiteCursor, select: str) -> Iterator[tuple[bytes, str]]:
    """By session, what is in one of the tables only."""
    real, made = select.format(schema="main"), select.format(schema="temp")
    stored = _only(cursor, real, made)
    derived = _only(cursor, made, real)
    kind = "a metadata entry" if "hash" in select else "a row"
    if "place" in select:
        kind = "a message"
    for key in dict.fromkeys((*stored, *derived)):
        one, other = stored.get(key, []), derived.get(key, [])
        if len(one) == 1 and len(other) == 1:
            columns = [name for name in one[0] if one[0][name] != other[0][name]]
            yield key, ", ".join(f"{name} is {one[0][name]!r}, not {other[0][name]!r}" for name in columns)
        else:
            if one:
                yield key, f"{kind} that the log does not lead to ({len(one)})"
            if other:
                yield key, f"{kind} is missing ({len(other)})"


def _only(cursor: SQLiteCursor, one: str, other: str) -> dict[bytes, list[dict[str, Any]]]:
    cursor.execute(f"{one} EXCEPT {other} LIMIT {_MOST}")
    found: dict[bytes, list[dict[str, Any]]] = {}
    for row in cursor.fetchall():
        found.setdefault(row["aggregate_id"], []).append(
            {key: row[key] for key in row.keys() if key != "aggregate_id"}  # noqa: SIM118 - of sqlite3.Row
        )
    return found


def _of_boundaries(cursor: SQLiteCursor, log: StoredLog) -> Iterator[Difference]:
    """Sessions whose view by the ids that boundaries name is not the one that their events carry."""
    after = b""
    while True:
        cursor.execute(
            "SELECT aggregate_id, version FROM temp.turnlog_views WHERE aggregate_id > ? "
            "ORDER BY aggregate_id LIMIT ?",
            (after, _PAGE),
        )
        rows = cursor.fetchall()
        for key, version in map(tuple, rows):
            yield from _of_boundary(cursor, log, key, version)
        if not rows:
            return
        after = rows[-1]["aggregate_id"]


def _of_boundary(cursor: SQLiteCursor, log: StoredLog, key: bytes, version: int) -> Iterator[Difference]:
    aggregate_id = UUID(bytes=key)
    carried = log.carried_view(cursor, _stored_text(log, aggregate_id), version)
    cursor.execute(
        "SELECT version FROM temp.turnlog_view_messages WHERE aggregate_id = ? ORDER BY place", (key,)
    )
    by_ids = [int(row[0]) for row in cursor.fetchall()]
    if carried != by_ids:
        yield Difference(
            "boundaries",
            f"the ids that its boundaries name lead to {_shown(by_ids)} at version {version}, "
            f"its events carry {'no readable state' if carried is None else _shown(carried)}",
            _name_of(cursor, key),
            aggregate_id.hex,
        )


def _shown(versions: list[int]) -> str:
    """A view in short."""
    some = ", ".join(map(str, versions[:8]))
    return f"a view of {len(versions)} messages ({some}{', …' if len(versions) > 8 else ''})"


def _of_recall(cursor: SQLiteCursor) -> Iterator[Difference]:
    """Messages whose trigrams differ: terms are compared by how many messages have them, then one by one."""
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


def _of_part(cursor: SQLiteCursor, part: int, schemas: Sequence[str]) -> Iterator[Difference]:
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
    for term in differing[:_MOST]:
        docs: dict[str, set[int]] = {"main": set(), "temp": set()}
        for schema in schemas:
            cursor.execute(
                f"SELECT doc FROM temp.turnlog_instance_{schema}_{part} WHERE term = ?",  # noqa: S608
                (term,),
            )
            docs[schema] = {int(row[0]) for row in cursor.fetchall()}
        held["main"] |= docs["main"] - docs["temp"]
        held["temp"] |= docs["temp"] - docs["main"]
    for schema, what in (("main", "is indexed as the log does not have it"), ("temp", "is not indexed")):
        for rowid in sorted(held[schema])[:_MOST]:
            position, version = recall.place_of(rowid)
            cursor.execute("SELECT aggregate_id FROM turnlog_sessions WHERE position = ?", (position,))
            row = cursor.fetchone()
            key = None if row is None else row[0]
            yield Difference(
                "recall",
                f"the message at version {version} {what}",
                None if key is None else _name_of(cursor, key),
                None if key is None else UUID(bytes=key).hex,
            )


def _name_of(cursor: SQLiteCursor, key: bytes) -> str | None:
    for schema in ("temp", "main"):
        cursor.execute(f"SELECT session_id FROM {schema}.turnlog_sessions WHERE aggregate_id = ?", (key,))  # noqa: S608
        row = cursor.fetchone()
        if row is not None and row[0]:
            return str(row[0])
    return None


def _stored_text(log: StoredLog, aggregate_id: UUID) -> str:
    return aggregate_id.hex if log.recorder.datastore.originator_id_type == "uuid" else str(aggregate_id)
