"""The read models and the eraser beside a recorder of the framework's that writes no rows about sessions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, LiteralString, cast
from uuid import UUID

from eventsourcing.application import Application
from eventsourcing.persistence import ProgrammingError
from eventsourcing.postgres import PostgresApplicationRecorder
from eventsourcing.utils import strtobool

from turnlog.application.aids import StoreAids
from turnlog.application.directory import CaughtUpDirectory
from turnlog.application.ports import keeps_recall
from turnlog.application.storage import storage_errors, unlocked
from turnlog.domain.errors import StorageError
from turnlog.domain.events import ContentRedacted, as_uuid
from turnlog.infrastructure.postgres.catching_up import (
    CaughtUpRecallIndex,
    CaughtUpRows,
)
from turnlog.infrastructure.postgres.directory import PostgresDirectory
from turnlog.infrastructure.postgres.eraser import PostgresEraser

_HOLDS: Final[LiteralString] = """
    SELECT current_setting('transaction_read_only') = 'off'
            AND current_setting('server_encoding') = 'UTF8' AS writable,
        has_schema_privilege(%s, 'CREATE') AS may_create,
        to_regclass(%s) IS NOT NULL AS has_tables,
        has_table_privilege(to_regclass(%s), 'UPDATE') AS may_update
"""


def plain_aids(app: Application[UUID]) -> StoreAids:
    """What this application's database has beside its recorder; nothing where it may not be written.

    With POSTGRES_ENABLE_DB_FUNCTIONS events are committed in another order than that of their notification
    ids, so nobody could say how far rows got.
    """
    recorder = cast("PostgresApplicationRecorder", app.recorder)
    if recorder.datastore.enable_db_functions:
        return StoreAids()
    try:
        rows = CaughtUpRows(recorder, app.mapper)
    except ProgrammingError:  # the application's name is too long for names of tables made of it
        return StoreAids()
    if not _has_tables(rows, create=bool(strtobool(app.env.get("CREATE_TABLE") or "yes"))):
        return StoreAids()
    listing = CaughtUpDirectory(PostgresDirectory(rows.datastore, rows.tables), rows.catch_up)
    index = CaughtUpRecallIndex(rows)
    if keeps_recall(app.env, app.mapper):
        return StoreAids(listing, index, PlainPostgresEraser(rows))
    index.empty()
    return StoreAids(listing, None, PlainPostgresEraser(rows))


def _has_tables(rows: CaughtUpRows, *, create: bool) -> bool:
    """Whether the tables are there to be written, made now if that is wished and allowed."""
    table = rows.tables.regclass("tracking")
    with storage_errors(), rows.datastore.get_connection() as connection:
        held = connection.execute(_HOLDS, (rows.tables.schema, table, table)).fetchone()
    if held is None or not held["writable"]:
        return False
    if not held["has_tables"] and create and held["may_create"]:
        unlocked(rows.create_tables)
        return True
    return bool(held["has_tables"] and held["may_update"])


class PlainPostgresEraser(PostgresEraser):
    """Overwrites deleted sessions behind the write of their tombstone, which the catching up finds."""

    def __init__(self, rows: CaughtUpRows) -> None:
        super().__init__(rows.datastore, rows.tables)
        self._rows = rows

    def erase(self, aggregate_id: UUID) -> None:
        """Overwrite what a tombstone or redactions ask for, and take it out of what is derived."""
        for failure in self._carry_out(aggregate_id):
            raise failure

    def redact(self, redactions: Sequence[ContentRedacted]) -> None:
        """Put its marker over the content of each event, and take it out of what is derived."""
        for aggregate_id in {as_uuid(redaction.originator_id) for redaction in redactions}:
            self.erase(aggregate_id)

    def complete(self) -> Sequence[StorageError]:
        """Overwrite what is due."""
        with storage_errors():
            due = self._rows.due()
        return [failure for aggregate_id in set(due) for failure in self._carry_out(aggregate_id)]

    def scrub(self) -> str | None:
        """Complete what a process left, then remove old copies."""
        self.complete()
        return super().scrub()

    def pending(self) -> int:
        """Of how many deletions and redactions something may be left."""
        self._rows.catch_up()
        with storage_errors():
            return len(self._rows.due()) + super().pending()

    def purge(self, before: datetime) -> int:  # noqa: ARG002 - the port's argument
        """Nothing: without rows about sessions no write to a purged stream could be refused."""
        return 0

    def _carry_out(self, aggregate_id: UUID) -> Sequence[StorageError]:
        """Overwrite what is due of this session; why that cannot be done for some of it."""
        self._rows.catch_up()

        def carry_out() -> Sequence[StorageError]:
            with self._datastore.transaction(commit=True) as cursor:
                self._rows.catch_up_within(cursor)
                return self._rows.overwrite(cursor, aggregate_id)

        return unlocked(carry_out)
