"""Recorders of a host, in most of which something goes wrong, each named by APPLICATION_RECORDER_TOPIC."""

from __future__ import annotations

import select
from collections.abc import Sequence
from typing import Any

from eventsourcing.persistence import StoredEvent
from eventsourcing.postgres import PostgresApplicationRecorder
from eventsourcing.sqlite import SQLiteApplicationRecorder, SQLiteCursor

from turnlog.infrastructure import postgres, sqlite


class HookError(Exception):
    """A mistake in the code of a host."""


def fail_for(stored_events: Sequence[StoredEvent]) -> None:
    """Fail when a message is among the events."""
    if any(stored.topic.endswith(":MessageAppended") for stored in stored_events):
        raise HookError


class SqliteHost(SQLiteApplicationRecorder):
    """Fails behind the insert of the events."""

    def _insert_events(self, c: SQLiteCursor, stored_events: Sequence[StoredEvent], **kwargs: Any) -> Any:
        ids = super()._insert_events(c, stored_events, **kwargs)
        fail_for(stored_events)
        return ids


class SqliteInsert(sqlite.SessionRows, SqliteHost):
    """Rows about sessions in front of it."""


class SqliteWholeHost(SQLiteApplicationRecorder):
    """Fails behind the transaction: what it was given is stored."""

    def insert_events(self, stored_events: Sequence[StoredEvent], **kwargs: Any) -> Sequence[int] | None:
        ids = super().insert_events(stored_events, **kwargs)
        fail_for(stored_events)
        return ids


class SqliteWhole(sqlite.SessionRows, SqliteWholeHost):
    """Rows about sessions in front of it."""


class InsertHost(PostgresApplicationRecorder):
    """Fails in the hook that runs in front of the insert."""

    def _insert_events(self, curs: Any, stored_events: Sequence[StoredEvent], **kwargs: Any) -> None:
        super()._insert_events(curs, stored_events, **kwargs)
        fail_for(stored_events)


class StoredHost(PostgresApplicationRecorder):
    """Fails behind the insert of the events, where the framework commits all the same."""

    def _insert_stored_events(self, curs: Any, stored_events: Sequence[StoredEvent], **kwargs: Any) -> None:
        super()._insert_stored_events(curs, stored_events, **kwargs)
        fail_for(stored_events)


class IdsHost(PostgresApplicationRecorder):
    """Fails when it has the ids of the events, where the framework commits all the same."""

    def _fetch_ids_after_insert_events(
        self, curs: Any, stored_events: Sequence[StoredEvent], **kwargs: Any
    ) -> Sequence[int] | None:
        ids = super()._fetch_ids_after_insert_events(curs, stored_events, **kwargs)
        fail_for(stored_events)
        return ids


class PostgresInsert(postgres.SessionRows, InsertHost):
    """Rows about sessions in front of it."""


class PostgresStored(postgres.SessionRows, StoredHost):
    """Rows about sessions in front of it."""


class PostgresIds(postgres.SessionRows, IdsHost):
    """Rows about sessions in front of it."""


class HookedOnSqlite(SQLiteApplicationRecorder):
    """Asks for something of its own in the transaction, and nothing is wrong with that."""

    def _insert_events(self, c: SQLiteCursor, stored_events: Sequence[StoredEvent], **kwargs: Any) -> Any:
        c.execute("SELECT 1")
        return super()._insert_events(c, stored_events, **kwargs)


class SqliteHooked(sqlite.SessionRows, HookedOnSqlite):
    """Rows about sessions in front of it."""


class HookedOnPostgres(PostgresApplicationRecorder):
    """Asks for something of its own in the transaction, and nothing is wrong with that."""

    def _insert_events(self, curs: Any, stored_events: Sequence[StoredEvent], **kwargs: Any) -> None:
        curs.execute("SELECT 1")
        super()._insert_events(curs, stored_events, **kwargs)


class PostgresHooked(postgres.SessionRows, HookedOnPostgres):
    """Rows about sessions in front of it."""


class Silent(PostgresApplicationRecorder):
    """Notifies nobody of what it stores."""

    def _notify_channel(self, curs: Any) -> None:
        pass


class PostgresLate(PostgresApplicationRecorder):
    """Sends what follows on the lock when the server has answered to that."""

    def _notify_channel(self, curs: Any) -> None:
        select.select([curs.connection.fileno()], [], [], 60)
        super()._notify_channel(curs)


class PostgresSilent(postgres.SessionRows, Silent):
    """Rows about sessions in front of it."""
