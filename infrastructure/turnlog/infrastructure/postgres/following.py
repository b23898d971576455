"""Followers whose results are rows of PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, LiteralString

from eventsourcing.postgres import PostgresDatastore
from psycopg import Cursor
from psycopg.rows import DictRow

from turnlog.application.projections.batches import Positioned
from turnlog.application.projections.following import FollowerStore
from turnlog.domain.errors import InvalidSettingError
from turnlog.infrastructure.postgres.tracking import LockedTracking

_TRACKING: Final = "turnlog_followers_tracking"
"""One table for all followers, with a row for each name."""

_OWN_SCHEMA: LiteralString = (
    "SELECT set_config('search_path', quote_ident(%s) || ', ' || current_setting('search_path'), true)"
)


class PostgresFollowerStore(FollowerStore[Cursor[DictRow]], LockedTracking):
    """Tables of a follower's own. Derive from it: a `name`, and the statements that make the tables.

    Handlers get a cursor in the transaction that moves the position. Tables that they name without a schema
    are in that of the settings. The database may be that of the log or another one, as the environment of the
    projection says.
    """

    CREATE: ClassVar[Sequence[LiteralString]] = ()

    def __init__(self, datastore: PostgresDatastore, **kwargs: Any) -> None:
        if not self.name:
            raise InvalidSettingError(f"{type(self).__name__} has no name: set `name`, for its position.")
        kwargs["tracking_table_name"] = _TRACKING  # not that of the projection, which may be derived
        super().__init__(datastore, **kwargs)

    @property
    def tracked_as(self) -> str:
        """Named after the follower."""
        return f"turnlog.follower:{self.name}"

    def follow(
        self, batch: Sequence[Positioned], handle: Callable[[Cursor[DictRow], Positioned], None]
    ) -> None:
        """Handle what is new of the batch, and move the position."""
        self.in_transaction(lambda cursor: self._follow(cursor, batch, handle))

    def _create_table(self, curs: Cursor[DictRow]) -> None:
        super()._create_table(curs)
        curs.execute(_OWN_SCHEMA, (self.datastore.schema,))
        for statement in self.CREATE:
            curs.execute(statement, prepare=False)

    def _follow(
        self,
        cursor: Cursor[DictRow],
        batch: Sequence[Positioned],
        handle: Callable[[Cursor[DictRow], Positioned], None],
    ) -> None:
        tracked = self.take_position(cursor)
        new = [item for item in batch if item.position > tracked]
        if not new:
            return
        cursor.execute(_OWN_SCHEMA, (self.datastore.schema,))
        for item in new:
            handle(cursor, item)
        self.move_position(cursor, new[-1].position)
