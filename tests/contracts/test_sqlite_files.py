"""Files that cannot be used: each a typed error, and nothing half-written."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from tests.contracts.stores import WordCount, sqlite_env

from turnlog.application.service import SessionService
from turnlog.domain.errors import StorageError, StorageLockedError
from turnlog.domain.messages import Message


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "sessions.db"


@contextmanager
def _locked(file: Path) -> Generator[None]:
    """Another program writes to the file."""
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield
        other.execute("ROLLBACK")


def _service(file: Path) -> SessionService:
    env = {**sqlite_env(file), "SQLITE_LOCK_TIMEOUT": "1"}
    return SessionService(env=env, token_estimator=WordCount())


def test_a_locked_database_is_said_to_be_locked(file: Path) -> None:
    with _service(file) as sessions:
        sessions.create("s")
        with _locked(file), pytest.raises(StorageLockedError):
            sessions.append_message("s", Message.user("hi"))
        assert sessions.get_events("s") == ()


def test_what_was_refused_while_locked_succeeds_later(file: Path) -> None:
    with _service(file) as sessions:
        sessions.create("s")
        with _locked(file), pytest.raises(StorageLockedError):
            sessions.append_message("s", Message.user("hi"), event_id="given")
        assert not sessions.append_message("s", Message.user("hi"), event_id="given").is_repeat


def test_a_locked_database_can_be_read(file: Path) -> None:
    with _service(file) as sessions:
        sessions.create("s")
        with _locked(file):
            assert sessions.version("s") == 0


@pytest.mark.parametrize(
    "content", [b"This is a letter, no database. " * 40, b"SQLite format 3\0" + b"x" * 2000]
)
def test_a_file_that_is_no_database_is_said_to_be_none(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    with pytest.raises(StorageError):
        _service(file)
    assert file.read_bytes() == content


def test_a_folder_that_is_not_there_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        _service(tmp_path / "nowhere" / "sessions.db")


def test_a_database_of_somebody_else_is_said_not_to_be_ours(file: Path) -> None:
    with closing(sqlite3.connect(file)) as other:
        other.execute("CREATE TABLE stored_events (name TEXT)")
    with pytest.raises(StorageError), _service(file) as sessions:
        sessions.create("s")
