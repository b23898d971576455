"""The read models and the eraser beside a recorder of the framework's that writes no rows about sessions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast
from uuid import UUID

from eventsourcing.application import Application
from eventsourcing.sqlite import SQLiteApplicationRecorder, SQLiteCursor
from eventsourcing.utils import strtobool

from turnlog.application.aids import StoreAids
from turnlog.application.directory import CaughtUpDirectory
from turnlog.application.erasing import gathered
from turnlog.application.ports import keeps_recall
from turnlog.application.storage import storage_errors, unlocked
from turnlog.application.streams import id_form
from turnlog.domain.errors import StorageError
from turnlog.domain.events import ContentRedacted
from turnlog.infrastructure.sqlite import eraser
from turnlog.infrastructure.sqlite.catching_up import (
    CaughtUpRecallIndex,
    CaughtUpRows,
)
from turnlog.infrastructure.sqlite.directory import SqliteDirectory
from turnlog.infrastructure.sqlite.secure import may_be_in_first_page, writing


def plain_aids(app: Application[UUID]) -> StoreAids:
    """What this application's SQLite file has beside its recorder; nothing where it may not be written."""
    recorder = cast("SQLiteApplicationRecorder", app.recorder)
    if "mode=ro" in recorder.datastore.pool.db_name:
        return StoreAids()
    rows = CaughtUpRows(recorder, app.mapper)
    if not rows.has_tables():
        if not strtobool(app.env.get("CREATE_TABLE") or "yes"):
            return StoreAids()
        unlocked(rows.create_table)
    listing = CaughtUpDirectory(SqliteDirectory(rows.datastore), rows.catch_up)
    index = None
    if rows.index is not None and keeps_recall(app.env, app.mapper):
        index = CaughtUpRecallIndex(rows, app.mapper, recorder.events_table_name)
    elif rows.index is not None and rows.index.holds_something():
        unlocked(rows.index.empty)
    return StoreAids(listing, index, PlainSqliteEraser(rows, app))


class PlainSqliteEraser(eraser.SqliteEraser):
    """Overwrites deleted sessions behind the write of their tombstone, which the catching up finds.

    The connections of such a recorder leave copies in one place: when the table of events outgrows its first
    page, that page becomes the root, and keeps in its unused part the rows that it had. So when one of these
    first rows is deleted, the table is written anew.
    """

    def __init__(self, rows: CaughtUpRows, app: Application[UUID]) -> None:
        recorder = cast("SQLiteApplicationRecorder", app.recorder)
        super().__init__(rows.datastore, recorder.events_table_name, rows.index)
        self._rows = rows
        self._id_of = id_form(app)

    def erase(self, aggregate_id: UUID) -> None:
        """Overwrite the events in front of the tombstone, and take the session out of what is derived."""
        for failure in self._carry_out([eraser.stored_form(self._id_of(aggregate_id))], ()):
            raise failure

    def redact(self, redactions: Sequence[ContentRedacted]) -> None:
        """Put its marker over the content of each event, and take it out of what is derived."""
        places = [(eraser.stored_form(one.originator_id), one.originator_version) for one in redactions]
        for failure in self._carry_out((), places):
            raise failure

    def complete(self) -> Sequence[StorageError]:
        """Overwrite what is due."""
        with storage_errors(), self._datastore.transaction(commit=False) as cursor:
            due = eraser.with_state(cursor, eraser.DUE)
            redacted = eraser.redacted_with_state(cursor, eraser.DUE)
        return self._carry_out(due, redacted) if due or redacted else ()

    def scrub(self) -> str | None:
        """Complete what a process left, then remove old copies."""
        self.complete()
        return super().scrub()

    def pending(self) -> int:
        """How many sessions were deleted of which something may be left."""
        self._rows.catch_up()
        return super().pending()

    def purge(self, before: object) -> int:  # noqa: ARG002 - the port's argument
        """Nothing: without rows about sessions no write to a purged stream could be refused."""
        return 0

    def _carry_out(
        self, deleted: Sequence[str], redacted: Sequence[tuple[str, int]]
    ) -> Sequence[StorageError]:
        """Overwrite what is due of these deletions and redactions; why that cannot be done for some."""

        def carry_out() -> Sequence[StorageError]:
            failures: list[StorageError] = []
            with writing(self._datastore) as cursor:
                self._rows.catch_up_within(cursor)
                if self._rows.misses(cursor, deleted, redacted):
                    self._rows.begin_anew(cursor)
                    self._rows.catch_up_within(cursor)
                for stored_id in set(deleted).intersection(eraser.with_state(cursor, eraser.DUE)):
                    pending = eraser.ANEW if self._is_in_the_first_page(cursor, stored_id) else eraser.COPIES
                    with gathered(failures):
                        self._rows.overwrite(cursor, stored_id, pending)
                due = eraser.redacted_with_state(cursor, eraser.DUE)
                for stored_id, version in sorted(set(redacted).intersection(due)):
                    anew = self._is_in_the_first_page(cursor, stored_id)
                    with gathered(failures):
                        self._rows.overwrite_content(cursor, stored_id, version, anew=anew)
            return failures

        return unlocked(carry_out)

    def _is_in_the_first_page(self, cursor: SQLiteCursor, stored_id: str) -> bool:
        """Whether the stream has a row that may have been in the first page of the table."""
        cursor.execute("PRAGMA page_size")
        page_size = int(cursor.fetchone()[0])
        cursor.execute(
            "SELECT originator_id, length(originator_id) + length(topic) + length(state) "  # noqa: S608
            f"FROM {self._events} ORDER BY rowid LIMIT ?",
            (page_size // 32,),
        )
        return may_be_in_first_page([(row[0], row[1]) for row in cursor.fetchall()], page_size, stored_id)
