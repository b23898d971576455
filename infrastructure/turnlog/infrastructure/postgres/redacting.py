"""Markers over redacted contents in PostgreSQL, with what is indexed of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from eventsourcing.persistence import Mapper
from psycopg import Cursor
from psycopg.rows import DictRow

from turnlog.domain.events import as_uuid
from turnlog.infrastructure.postgres.eraser import Rewrite
from turnlog.infrastructure.postgres.recall import PostgresRecallIndex
from turnlog.infrastructure.postgres.tables import Tables


def redact(
    cursor: Cursor[DictRow],
    tables: Tables,
    index: PostgresRecallIndex,
    mapper: Mapper[Any],
    rewrites: Sequence[Rewrite],
) -> None:
    """Put the markers over the contents, and index anew what stands beside them."""
    versions: dict[UUID, set[int]] = {}
    for rewrite in rewrites:
        redaction = rewrite.redaction
        versions.setdefault(as_uuid(redaction.originator_id), set()).add(redaction.redacted_version)
    for aggregate_id in sorted(versions):
        index.lock(cursor, aggregate_id)
    for rewrite in rewrites:
        rewrite.execute(cursor, tables, mapper)
    for aggregate_id, redacted in versions.items():
        index.rewrite(cursor, aggregate_id, redacted)
