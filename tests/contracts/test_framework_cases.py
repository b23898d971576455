"""The framework's own test cases for recorders, on ours."""

from __future__ import annotations

import threading
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from eventsourcing.persistence import ApplicationRecorder
from eventsourcing.postgres import PostgresDatastore
from eventsourcing.sqlite import SQLiteDatastore
from eventsourcing.tests import persistence as shipped
from tests.support.postgres import postgres_env

from turnlog.infrastructure.postgres import PostgresSessionRecorder
from turnlog.infrastructure.sqlite import SqliteSessionRecorder


class TestSqliteRecorder(shipped.ApplicationRecorderTestCase[Any]):
    """Ours for SQLite."""

    def create_recorder(self) -> ApplicationRecorder:
        """A recorder on a file of its own."""
        recorder = SqliteSessionRecorder(SQLiteDatastore(str(Path(mkdtemp()) / "cases.db")))
        recorder.create_table()
        _close_after_all_threads(self, recorder.datastore)
        return recorder


class TestPostgresRecorder(shipped.ApplicationRecorderTestCase[Any]):
    """Ours for PostgreSQL."""

    def create_recorder(self) -> ApplicationRecorder:
        """A recorder on a schema of its own."""
        return _on_postgres(self)


class TestOrderOfNotifications(shipped.NonInterleavingNotificationIDsBaseCase):
    """The order of ours for PostgreSQL."""

    insert_num = 200

    def create_recorder(self) -> ApplicationRecorder:
        """A recorder on a schema of its own."""
        return _on_postgres(self)


def _on_postgres(case: Any) -> PostgresSessionRecorder:
    env = postgres_env()
    datastore = PostgresDatastore(
        env["POSTGRES_DBNAME"],
        env["POSTGRES_HOST"],
        env["POSTGRES_PORT"],
        env["POSTGRES_USER"],
        env["POSTGRES_PASSWORD"],
        schema=env["POSTGRES_SCHEMA"],
        pool_size=3,
        max_overflow=20,
    )
    recorder = PostgresSessionRecorder(datastore)
    recorder.create_table()
    _close_after_all_threads(case, datastore)
    return recorder


def _close_after_all_threads(case: Any, datastore: SQLiteDatastore | PostgresDatastore) -> None:
    """Close the datastore behind the case; the cases leave readers that are about to end."""
    before = set(threading.enumerate())

    def close() -> None:
        for thread in set(threading.enumerate()) - before:
            if not thread.daemon:
                thread.join(60)
        datastore.close()

    case.addCleanup(close)
