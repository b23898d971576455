"""Every connection that writes to a file with sessions leaves no copies of what it overwrites."""

from __future__ import annotations

from pathlib import Path

import pytest
from eventsourcing.persistence import ProgrammingError
from eventsourcing.sqlite import SQLiteConnectionPool, SQLiteDatastore

from turnlog.application.service import SessionService
from turnlog.domain.messages import Message
from turnlog.domain.query import EventQuery
from turnlog.infrastructure.sqlite import SecureConnectionPool, SqliteSessionRecorder


class HostPool(SQLiteConnectionPool):
    """A pool of a host."""


class SecureHostPool(SecureConnectionPool):
    """A pool of a host that derives from ours."""


@pytest.fixture
def datastore(tmp_path: Path) -> SQLiteDatastore:
    return SQLiteDatastore(str(tmp_path / "sessions.db"), lock_timeout=7, pool_size=3, max_overflow=2)


def test_the_connections_of_a_recorder_delete_securely(datastore: SQLiteDatastore) -> None:
    SqliteSessionRecorder(datastore)
    with datastore.transaction(commit=True) as cursor:
        cursor.execute("PRAGMA secure_delete")
        assert cursor.fetchone()[0] == 1


def test_the_settings_of_the_pool_are_kept(datastore: SQLiteDatastore) -> None:
    SqliteSessionRecorder(datastore)
    pool = datastore.pool
    assert (pool.lock_timeout, pool.pool_size, pool.max_overflow) == (7, 3, 2)


def test_a_pool_of_the_hosts_own_is_refused(datastore: SQLiteDatastore) -> None:
    datastore.pool = HostPool(db_name=datastore.pool.db_name)
    with pytest.raises(ProgrammingError, match="SecureConnectionPool"):
        SqliteSessionRecorder(datastore)


def test_a_pool_of_the_hosts_own_that_derives_from_ours_is_taken(datastore: SQLiteDatastore) -> None:
    datastore.pool = SecureHostPool(db_name=datastore.pool.db_name)
    SqliteSessionRecorder(datastore)
    assert isinstance(datastore.pool, SecureHostPool)


def test_a_second_recorder_on_a_datastore_takes_the_pool_that_is_there(datastore: SQLiteDatastore) -> None:
    SqliteSessionRecorder(datastore)
    pool = datastore.pool
    SqliteSessionRecorder(datastore)
    assert datastore.pool is pool


def test_sqlite_in_memory_erases_too() -> None:
    env = {"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": ":memory:"}
    with SessionService(env=env) as sessions:
        sessions.create("parcel")
        sessions.append_message("parcel", Message.user("Where is my parcel?"))
        assert sessions.delete("parcel").erasure == "done"
        assert sessions.sweep().pending == 0


def test_a_deleted_session_is_found_by_no_search(tmp_path: Path) -> None:
    env = {"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": str(tmp_path / "sessions.db")}
    with SessionService(env=env) as sessions:
        for session_id in ("gone", "stays"):
            sessions.create(session_id)
            for _ in range(200):
                sessions.append_message(session_id, Message.user("Where is my parcel?"))
        sessions.delete("gone")
        found = sessions.search_all(EventQuery(keywords="parcel"))
        assert {event.session_id for event in found} == {"stays"}
