"""The framework's pool of SQLite keeps its writer lock when a writer gets no connection; ours does not."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from eventsourcing.persistence import ConnectionPoolClosedError, ConnectionUnavailableError
from eventsourcing.sqlite import SQLiteDatastore

from turnlog.application.service import SessionService
from turnlog.application.sessions import Sessions
from turnlog.domain.errors import StorageUnavailableError
from turnlog.domain.messages import Message
from turnlog.infrastructure.sqlite import SqliteSessionRecorder
from turnlog.infrastructure.sqlite.secure import secure


@pytest.fixture(params=["file", "memory"])
def sessions(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SessionService]:
    """A service whose callers wait for a connection for a tenth of a second."""
    file = str(tmp_path / "sessions.db") if request.param == "file" else ":memory:"
    env = {"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": file}
    with SessionService(env=env) as service:
        datastore_of(service).pool.pool_timeout = 0.1
        service.create("s")
        yield service


def datastore_of(sessions: SessionService) -> SQLiteDatastore:
    app = sessions.app
    assert isinstance(app, Sessions)
    assert isinstance(app.recorder, SqliteSessionRecorder)
    return app.recorder.datastore


@contextmanager
def slow_readers(datastore: SQLiteDatastore) -> Generator[None]:
    """As many readers as there are connections, each of which has one."""
    pool = datastore.pool
    with ExitStack() as readers:
        for _ in range(pool.pool_size + pool.max_overflow):
            readers.enter_context(datastore.get_connection(commit=False))
        yield


def test_a_writer_that_gets_no_connection_has_an_error_of_ours(sessions: SessionService) -> None:
    with slow_readers(datastore_of(sessions)), pytest.raises(StorageUnavailableError, match="Nothing was"):
        sessions.append_message("s", Message.user("hi"))
    assert sessions.version("s") == 0


def test_a_reader_that_gets_no_connection_has_an_error_of_ours(sessions: SessionService) -> None:
    with slow_readers(datastore_of(sessions)), pytest.raises(StorageUnavailableError):
        sessions.get_events("s")


def test_writing_works_when_the_readers_are_through(sessions: SessionService) -> None:
    datastore = datastore_of(sessions)
    with slow_readers(datastore):
        for commit in (True, False):
            with pytest.raises(ConnectionUnavailableError), datastore.get_connection(commit=commit):
                pass
    assert sessions.append_message("s", Message.user("hi")).version == 1


def test_writing_works_when_a_connection_could_not_be_made(
    sessions: SessionService, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool: Any = datastore_of(sessions).pool
    with slow_readers(datastore_of(sessions)):
        pass
    for connection in list(pool._pool):
        connection.close()
    pool._pool.clear()
    with monkeypatch.context() as broken:
        broken.setattr(pool, "_create_connection", _no_more_files)
        with pytest.raises(OSError, match="files"):
            sessions.append_message("s", Message.user("hi"))
    with datastore_of(sessions).get_connection(commit=True):
        pass


def _no_more_files() -> object:
    raise OSError("too many open files")


def test_who_writes_while_the_service_is_closed_finishes(tmp_path: Path) -> None:
    datastore = SQLiteDatastore(str(tmp_path / "sessions.db"))
    secure(datastore)
    with datastore.transaction(commit=True) as cursor:
        cursor.execute("CREATE TABLE notes (note TEXT)")
        closer = Thread(target=datastore.close)
        closer.start()
        closer.join()
        cursor.execute("INSERT INTO notes VALUES ('written')")
    with closing(sqlite3.connect(tmp_path / "sessions.db")) as connection:
        assert connection.execute("SELECT note FROM notes").fetchall() == [("written",)]
    with pytest.raises(ConnectionPoolClosedError), datastore.transaction(commit=True):
        pass
