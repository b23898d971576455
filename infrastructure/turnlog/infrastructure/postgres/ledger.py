"""The ledger of event ids as rows of PostgreSQL, made from the log. Appends write theirs in `write_rows`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, LiteralString
from uuid import UUID

from psycopg import Cursor
from psycopg.rows import DictRow

from turnlog.application.ledger import needs_entry
from turnlog.domain.events import SessionDeleted, StreamEvent, as_uuid
from turnlog.infrastructure.postgres.tables import Tables

_INSERT: Final[LiteralString] = """
    INSERT INTO {ids} (aggregate_id, event_id, version)
    SELECT * FROM unnest(%s::uuid[], %s::text[], %s::bigint[]) ON CONFLICT DO NOTHING
"""

_REPEATED: Final[LiteralString] = """
    SELECT ids.aggregate_id, ids.event_id, ids.version AS first, given.version AS second
    FROM unnest(%s::uuid[], %s::text[], %s::bigint[]) AS given (aggregate_id, event_id, version)
    JOIN {ids} AS ids USING (aggregate_id, event_id)
    WHERE ids.version < given.version AND ids.aggregate_id <> ALL (%s::uuid[])
    ORDER BY given.version
"""

_REMOVE: Final[LiteralString] = "DELETE FROM {ids} WHERE aggregate_id = ANY (%s::uuid[])"


def follow(
    cursor: Cursor[DictRow], names: Tables, events: Iterable[StreamEvent]
) -> list[tuple[UUID, str, int, int]]:
    """Bring entries that are made from the log on by these events.

    An id that the log has twice, as one can that was written without its ledger, is where it was first.
    Returns each such id with its session, its first version and this one.
    """
    streams: list[UUID] = []
    ids: list[str] = []
    versions: list[int] = []
    deleted: list[UUID] = []
    for event in events:
        event_id = needs_entry(event)
        if event_id is not None:
            streams.append(as_uuid(event.originator_id))
            ids.append(event_id)
            versions.append(event.originator_version)
        elif isinstance(event, SessionDeleted):
            deleted.append(as_uuid(event.originator_id))
    repeated: list[tuple[UUID, str, int, int]] = []
    if ids:
        cursor.execute(names.sql(_INSERT), (streams, ids, versions))
        if cursor.rowcount < len(ids):
            cursor.execute(names.sql(_REPEATED), (streams, ids, versions, deleted))
            repeated = [
                (row["aggregate_id"], row["event_id"], row["first"], row["second"])
                for row in cursor.fetchall()
            ]
    if deleted:
        cursor.execute(names.sql(_REMOVE), (deleted,))
    return repeated
