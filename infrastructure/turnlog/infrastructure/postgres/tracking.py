"""A position in the log, which whoever moves it locks first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, LiteralString, TypeVar

from eventsourcing.persistence import Tracking
from eventsourcing.postgres import PostgresDatastore, PostgresTrackingRecorder
from psycopg import Cursor
from psycopg.rows import DictRow

from turnlog.application.projections.waiting import PromptWait
from turnlog.application.storage import unlocked
from turnlog.infrastructure.postgres.pool import bound, once_more
from turnlog.infrastructure.postgres.tables import Names, is_missing, one_at_a_time

T = TypeVar("T")


class LockedTracking(PromptWait, PostgresTrackingRecorder):
    """A tracking recorder of the framework's with one position, whatever the application is called."""

    def __init__(self, datastore: PostgresDatastore, *, tracking_table_name: str, **kwargs: Any) -> None:
        bound(datastore)
        super().__init__(datastore, tracking_table_name=tracking_table_name, **kwargs)
        self._tracking = Names(datastore.schema, {"tracking": tracking_table_name})

    @property
    def tracked_as(self) -> str:
        """The name of the tracking row."""
        raise NotImplementedError

    def create_table(self) -> None:
        """Create what is missing; another process may do so at the same time."""
        unlocked(super().create_table)

    def max_tracking_id(self, application_name: str) -> int | None:
        """The position that was reached."""
        ours = application_name != self.table_migration_identifier
        position: int | None = super().max_tracking_id(self.tracked_as if ours else application_name)
        return position

    def insert_tracking(self, tracking: Tracking) -> None:
        """Move the position alone."""
        super().insert_tracking(Tracking(self.tracked_as, tracking.notification_id))

    def _create_table(self, curs: Cursor[DictRow]) -> None:
        one_at_a_time(curs, self._tracking.regclass("tracking"))
        if not is_missing(curs, "to_regclass", self._tracking.regclass("tracking")):
            self.tracking_table_exists = True  # perhaps since the framework looked
            self.tracking_migration_previous = self._max_tracking_id(self.table_migration_identifier, curs)
        super()._create_table(curs)

    def in_transaction(self, action: Callable[[Cursor[DictRow]], T]) -> T:
        """What the action returns, which may be called again where the connection or a lock failed."""

        def act() -> T:
            with self.datastore.transaction(commit=True) as cursor:
                return action(cursor)

        return unlocked(lambda: once_more(self.datastore, act, writes=False))

    def take_position(self, cursor: Cursor[DictRow]) -> int:
        """Let nobody else move the position until the transaction ends; 0 in front of the first."""
        limit_waiting(cursor, self.datastore)
        found = self._locked(cursor)
        if not found:
            statement: LiteralString = "INSERT INTO {tracking} VALUES (%s, 0) ON CONFLICT DO NOTHING"
            cursor.execute(self._tracking.sql(statement), (self.tracked_as,))
            found = self._locked(cursor)
        if not self.datastore.single_row_tracking:
            found = self._locked(cursor)  # rows that were added while it waited are only seen now
        return max(found)

    def move_position(self, cursor: Cursor[DictRow], position: int) -> None:
        """Move it on."""
        self._insert_tracking(cursor, Tracking(self.tracked_as, position))

    def reset_position(self, cursor: Cursor[DictRow], position: int) -> None:
        """Move it to wherever the rows are now, back too."""
        statement: LiteralString = "DELETE FROM {tracking} WHERE application_name = %s"
        cursor.execute(self._tracking.sql(statement), (self.tracked_as,))
        if position:
            self.move_position(cursor, position)

    def _locked(self, cursor: Cursor[DictRow]) -> list[int]:
        statement: LiteralString = (
            "SELECT notification_id FROM {tracking} WHERE application_name = %s FOR UPDATE"
        )
        rows = cursor.execute(self._tracking.sql(statement), (self.tracked_as,)).fetchall()
        return [row["notification_id"] for row in rows]


def limit_waiting(cursor: Cursor[DictRow], datastore: PostgresDatastore) -> None:
    """Wait for locks as long as the setting says, in this transaction."""
    cursor.execute("SELECT set_config('lock_timeout', %s, true)", (f"{datastore.lock_timeout}s",))
