"""Followers whose results are rows of SQLite, and the caught-up rows as something that follows too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from eventsourcing.persistence import ApplicationRecorder, IntegrityError, Mapper, Tracking
from eventsourcing.projection import Projection
from eventsourcing.sqlite import (
    SQLiteApplicationRecorder,
    SQLiteCursor,
    SQLiteDatastore,
    SQLiteTrackingRecorder,
)

from turnlog.application.projections.batches import Positioned
from turnlog.application.projections.errors import UnboundFollowerError
from turnlog.application.projections.following import FollowerStore
from turnlog.application.projections.waiting import PromptWait
from turnlog.application.storage import unlocked
from turnlog.domain.errors import InvalidSettingError
from turnlog.infrastructure.sqlite.catching_up import TRACKED_AS, CaughtUpRows
from turnlog.infrastructure.sqlite.secure import secure, writing


class SqliteFollowerStore(FollowerStore[SQLiteCursor], SQLiteTrackingRecorder):
    """Tables of a follower's own. Derive from it: a `name`, and the statements that make the tables.

    Handlers get a cursor in the transaction that moves the position. The file may be that of the log or
    another one, as the environment of the projection says.
    """

    CREATE: ClassVar[Sequence[str]] = ()

    def __init__(self, datastore: SQLiteDatastore, **kwargs: Any) -> None:
        if not self.name:
            raise InvalidSettingError(f"{type(self).__name__} has no name: set `name`, for its position.")
        secure(datastore)
        super().__init__(datastore, **kwargs)

    def construct_create_table_statements(self) -> list[str]:
        """The framework's table of tracking, and the follower's own."""
        return [*super().construct_create_table_statements(), *self.CREATE]

    def create_table(self) -> None:
        """Create what is missing; another process may do so at the same time."""
        create = super().create_table
        try:
            unlocked(create)
        except IntegrityError:  # it was first with the table of tracking
            unlocked(create)

    def follow(self, batch: Sequence[Positioned], handle: Callable[[SQLiteCursor, Positioned], None]) -> None:
        """Handle what is new of the batch, and move the position."""
        unlocked(lambda: self._follow(batch, handle))

    def max_tracking_id(self, application_name: str) -> int | None:
        """The position that was reached."""
        ours = application_name != self.table_migration_identifier
        return super().max_tracking_id(self._row if ours else application_name)

    @property
    def _row(self) -> str:
        return f"turnlog.follower:{self.name}"

    def _follow(
        self, batch: Sequence[Positioned], handle: Callable[[SQLiteCursor, Positioned], None]
    ) -> None:
        with writing(self.datastore) as cursor:
            tracked = self._max_tracking_id(self._row, cursor) or 0
            new = [item for item in batch if item.position > tracked]
            for item in new:
                handle(cursor, item)
            if new:
                self._insert_tracking(cursor, Tracking(self._row, new[-1].position))


class SqliteRowsStore(PromptWait, SQLiteTrackingRecorder):
    """The caught-up directory and index of a store without `SessionRows`, for a runner to keep up to date."""

    _rows: CaughtUpRows | None = None

    def bind(self, recorder: ApplicationRecorder, mapper: Mapper[Any]) -> None:
        """Catch up with the log of this recorder."""
        if not isinstance(recorder, SQLiteApplicationRecorder):
            raise InvalidSettingError(f"{type(recorder).__name__} is no SQLite recorder.")
        rows = CaughtUpRows(recorder, mapper)
        if not rows.has_tables():
            unlocked(rows.create_table)
        self._rows = rows

    def catch_up(self) -> None:
        """Apply what is missing."""
        if self._rows is None:
            raise UnboundFollowerError(RowsProjection.name)
        self._rows.catch_up(index=True)

    def max_tracking_id(self, application_name: str) -> int | None:
        """How far the rows got."""
        ours = application_name != self.table_migration_identifier
        return super().max_tracking_id(TRACKED_AS if ours else application_name)


class RowsProjection(Projection[SqliteRowsStore]):
    """Catches the rows up as events come, so that no reader has to."""

    name = "turnlog_rows"

    def bind(self, recorder: ApplicationRecorder, mapper: Mapper[Any]) -> None:
        """Catch up with the log of this recorder. The runners do it."""
        self.view.bind(recorder, mapper)

    def process_event(  # pyright: ignore[reportIncompatibleVariableOverride] # a method without dispatch
        self,
        domain_event: object,  # noqa: ARG002 - the rows are made of what is stored
        tracking: Tracking,
    ) -> None:
        """Apply what is missing, unless a reader or another runner has."""
        if not self.view.has_tracking_id("", tracking.notification_id):
            self.view.catch_up()

    def process_page(self, page: Sequence[Positioned]) -> None:
        """Apply all that is missing."""
        if page and not self.view.has_tracking_id("", page[-1].position):
            self.view.catch_up()
