"""What a database holds, row by row, read with nothing but its driver and at one moment."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
from psycopg import sql
from psycopg.rows import dict_row
from tests.support.postgres import server

_OURS = "turnlog.domain.events:"
_RECORDER = "APPLICATION_RECORDER_TOPIC"
_VERSION_BITS, _PARTS, _NEIGHBOURS = 32, 32, 4


@dataclass(frozen=True)
class StoredRow:
    """One stored event. `place` is its notification id, `kind` the name of its class."""

    stream: UUID
    version: int
    kind: str
    topic: str
    place: int
    time: datetime
    fields: Mapping[str, Any]

    def get(self, name: str) -> Any:
        """The field of this name, None when it is not stored."""
        return self.fields.get(name)

    def ids(self, name: str) -> Sequence[str]:
        """The ids in the field of this name."""
        return tuple(self.fields.get(name) or ())


@dataclass(frozen=True)
class DirectoryRow:
    """What the directory says of a session; of one that was deleted only version and head count."""

    session_id: str
    version: int
    head: str
    messages: int
    expires_at: int | None
    metadata: str | None
    is_deleted: bool
    is_purged: bool
    position: int


@dataclass(frozen=True)
class Database:
    """All rows about sessions at one moment."""

    has_session_rows: bool
    streams: Mapping[UUID, Sequence[StoredRow]]
    ledger: Mapping[tuple[UUID, str], int]
    """Where the recorder writes rows: by stream and event id the version."""
    entries: Mapping[UUID, int]
    """Where it does not: by aggregate id of the entry the version that it holds."""
    directory: Mapping[UUID, DirectoryRow]
    tracked: int | None
    """The last notification that the directory has seen, None where it is always up to date."""
    indexed: Mapping[int, Mapping[int, frozenset[str] | None]] = field(
        default_factory=dict[int, Mapping[int, frozenset[str] | None]]
    )
    """SQLite: by position of a session and version of a message its trigrams in the index."""
    index_mark: int | None = None
    blocks: Mapping[int, Sequence[tuple[int, int]]] = field(
        default_factory=dict[int, Sequence[tuple[int, int]]]
    )
    """PostgreSQL: by position of a session the spans of versions in the index."""
    block_marks: Mapping[int, int] = field(default_factory=dict[int, int])


def read_database(env: Mapping[str, str]) -> Database:
    """What the database of these settings holds now."""
    has_session_rows = _RECORDER not in env
    if env["PERSISTENCE_MODULE"] == "eventsourcing.sqlite":
        return _read_sqlite(Path(env["SQLITE_DBNAME"]), has_session_rows)
    return _read_postgres(env["POSTGRES_SCHEMA"], has_session_rows)


def _read_sqlite(path: Path, has_session_rows: bool) -> Database:
    with closing(sqlite3.connect(path, isolation_level=None, timeout=60)) as connection:
        connection.row_factory = sqlite3.Row
        connection.execute("BEGIN")
        names = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}

        def rows(table: str, columns: str = "*") -> Sequence[Mapping[str, Any]]:
            if table not in names:
                return []
            return [dict(row) for row in connection.execute(f"SELECT {columns} FROM {table}")]

        streams, entries = _streams(rows("stored_events", "rowid AS place, *"))
        metadata = {row["number"]: row["content"] for row in rows("turnlog_metadata")}
        purged = {
            UUID(row["originator_id"]): bool(row["purged"])
            for row in rows("turnlog_erasures")
            if row["purged"]
        }
        tracking = {row["application_name"]: row["notification_id"] for row in rows("tracking")}
        directory = {
            (stream := UUID(bytes=row["aggregate_id"])): DirectoryRow(
                row["session_id"],
                row["version"],
                row["head"],
                row["messages"],
                row["expires_at"],
                metadata.get(row["metadata"]),
                bool(row["deleted"]),
                purged.get(stream, False),
                row["position"],
            )
            for row in rows("turnlog_sessions")
        }
        return Database(
            has_session_rows=has_session_rows,
            streams=streams,
            ledger={
                (UUID(bytes=row["aggregate_id"]), row["event_id"]): row["version"]
                for row in rows("turnlog_event_ids")
            },
            entries=entries,
            directory=directory,
            tracked=None if has_session_rows else tracking.get("turnlog.rows", 0),
            indexed=_trigrams(connection, [row["part"] for row in rows("turnlog_recall_parts")]),
            index_mark=next((row["notification"] for row in rows("turnlog_recall_mark")), None),
        )


def _trigrams(connection: sqlite3.Connection, parts: Sequence[int]) -> dict[int, dict[int, frozenset[str]]]:
    """What the full-text tables hold, as SQLite itself lists it."""
    found: dict[int, dict[int, set[str]]] = {}
    for part in parts:
        listing = f"temp.listing_{part}"
        connection.execute(
            f"CREATE VIRTUAL TABLE {listing} USING fts5vocab(main, turnlog_recall_{part}, instance)"
        )
        for term, document in connection.execute(f"SELECT term, doc FROM {listing}"):
            turn, neighbour = divmod(document >> _VERSION_BITS, _NEIGHBOURS)
            versions = found.setdefault((turn * _PARTS + part) * _NEIGHBOURS + neighbour, {})
            versions.setdefault(document & ((1 << _VERSION_BITS) - 1), set()).add(term)
    return {
        position: {version: frozenset(terms) for version, terms in versions.items()}
        for position, versions in found.items()
    }


def _read_postgres(schema: str, has_session_rows: bool) -> Database:
    kind = "" if has_session_rows else "plain_"
    with psycopg.connect(server()) as connection, connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        cursor.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (schema,))
        names = {row["tablename"] for row in cursor.fetchall()}

        def rows(table: str) -> Sequence[Mapping[str, Any]]:
            if table not in names:
                return []
            return cursor.execute(
                sql.SQL("SELECT * FROM {}").format(sql.Identifier(schema, table))
            ).fetchall()

        def ours(table: str) -> Sequence[Mapping[str, Any]]:
            return rows(f"sessions_turnlog_{kind}{table}")

        events = rows("sessions_events")
        streams, entries = _streams([{**row, "place": row["notification_id"]} for row in events])
        metadata = {row["position"]: row["content"] for row in ours("metadata")}
        purged = {row["aggregate_id"] for row in ours("erasures") if row["purged"]}
        directory = {
            row["aggregate_id"]: DirectoryRow(
                row["session_id"],
                row["version"],
                row["head"],
                row["messages"],
                row["expires_at"],
                metadata.get(row["position"]),
                False,
                False,
                row["position"],
            )
            for row in ours("sessions")
        }
        for row in ours("ended"):
            stream = row["aggregate_id"]
            assert stream not in directory, "a session is either there or ended"
            directory[stream] = DirectoryRow(
                "", row["version"], row["head"], 0, None, None, True, stream in purged, row["position"]
            )
        blocks: dict[int, list[tuple[int, int]]] = {}
        for row in ours("recall"):
            blocks.setdefault(row["position"], []).append((row["first"], row["last"]))
        return Database(
            has_session_rows=has_session_rows,
            streams=streams,
            ledger={(row["aggregate_id"], row["event_id"]): row["version"] for row in ours("event_ids")},
            entries=entries,
            directory=directory,
            tracked=None
            if has_session_rows
            else next((row["notification_id"] for row in ours("tracking")), 0),
            blocks=blocks,
            block_marks={row["position"]: row["indexed"] for row in ours("recall_mark")},
        )


def _streams(
    rows: Sequence[Mapping[str, Any]],
) -> tuple[dict[UUID, list[StoredRow]], dict[UUID, int]]:
    """The streams of sessions in the order of their versions, and the entries of the ledger."""
    streams: dict[UUID, list[StoredRow]] = {}
    entries: dict[UUID, int] = {}
    for row in rows:
        stored = _decoded(row)
        if stored is None:
            continue
        if stored.kind == "EventIdTaken":
            assert stored.version == 0
            entries[stored.stream] = stored.get("version")
        else:
            streams.setdefault(stored.stream, []).append(stored)
    for events in streams.values():
        events.sort(key=lambda event: event.version)
    return streams, entries


def _decoded(row: Mapping[str, Any]) -> StoredRow | None:
    topic = row["topic"]
    if not topic.startswith(_OURS):
        return None
    state: dict[str, Any] = json.loads(bytes(row["state"]))
    time = state.pop("timestamp")
    assert time["_type_"] == "datetime_iso"
    stream = row["originator_id"]
    return StoredRow(
        stream=stream if isinstance(stream, UUID) else UUID(stream),
        version=row["originator_version"],
        kind=topic.removeprefix(_OURS),
        topic=topic,
        place=row["place"],
        time=datetime.fromisoformat(time["_data_"]).astimezone(UTC),
        fields=state,
    )
