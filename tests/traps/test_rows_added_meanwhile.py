"""Rows about sessions that are added while a process runs whose recorder writes none: it writes no more."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest
from eventsourcing.application import Application
from eventsourcing.persistence import IntegrityError
from psycopg import sql
from tests.contracts.stores import Order, sqlite_env
from tests.support.postgres import connect
from tests.traps.conftest import plain

from turnlog.application.service import SessionService
from turnlog.application.sessions import Sessions
from turnlog.domain.messages import Message
from turnlog.domain.query import EventQuery
from turnlog.domain.session import Session
from turnlog.infrastructure.sqlite import SqliteReadModels

WRITER = """
import json, sys
from turnlog.application import SessionService
from turnlog.domain import Message
from turnlog.domain.errors import StorageError

with SessionService(env=json.loads(sys.argv[1])) as sessions:
    sessions.create("s")
    for line in sys.stdin:
        try:
            stored = sessions.append_message("s", Message.user(line), event_id=line.strip())
            print(stored.version, flush=True)
        except StorageError as error:
            print(error, flush=True)
"""


class Writer:
    """A process that appends what it is told, and says at which version or why not."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def append(self, event_id: str) -> str:
        """What it says."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(event_id + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()


@contextmanager
def running(env: Mapping[str, str]) -> Generator[Writer]:
    command = [sys.executable, "-c", WRITER, json.dumps(dict(env))]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as process:
        yield Writer(process)


@pytest.fixture
def old(env: Mapping[str, str]) -> Iterator[Writer]:
    """A process without rows, which wrote the message `before`."""
    with running(plain(env)) as writer:
        assert writer.append("before") == "1"
        yield writer


def test_the_old_process_is_refused_with_words_that_say_what_to_do(
    old: Writer, env: Mapping[str, str]
) -> None:
    with SessionService(env=env) as sessions:
        said = old.append("behind")
        assert "Rows about sessions are kept in this database by now" in said
        assert "nothing was written" in said
        assert sessions.version("s") == 1


def test_a_repeat_that_the_old_process_tries_is_stored_once(old: Writer, env: Mapping[str, str]) -> None:
    with SessionService(env=env) as sessions:
        sessions.append_message("s", Message.user("mine"), event_id="mine")
        assert "nothing was written" in old.append("mine")
        assert [event.id for event in sessions.get_events("s")] == ["before", "mine"]


def test_the_process_goes_on_when_it_is_started_anew(old: Writer, env: Mapping[str, str]) -> None:
    SessionService(env=env).close()
    with SessionService(env=env) as sessions:
        assert sessions.append_message("s", Message.user("before"), event_id="before").is_repeat
        assert sessions.append_message("s", Message.user("next"), event_id="next").version == 2


@contextmanager
def host_without_rows(env: Mapping[str, str]) -> Generator[Application[UUID]]:
    """An application that saves aggregates itself, with the framework's own recorder."""
    with closing(Sessions(env=plain(env))) as app:
        yield app


def opened(name: str) -> Session:
    """A session that is not stored yet."""
    return Session.open(name, now=datetime(2026, 5, 1, tzinfo=UTC))


def test_a_host_that_saves_a_session_itself_is_refused_too(
    sessions: SessionService, env: Mapping[str, str]
) -> None:
    with host_without_rows(env) as host, pytest.raises(IntegrityError, match="does not write them"):
        host.save(opened("late"))
    assert sessions.create("late").version == 0


def test_aggregates_of_a_host_are_stored_without_rows_as_before(env: Mapping[str, str]) -> None:
    SessionService(env=env).close()
    with host_without_rows(env) as host:
        order = Order("tea")
        host.save(order)
        assert order.id in host.repository


def test_a_database_that_lacks_the_fence_gets_it_at_the_next_start(env: Mapping[str, str]) -> None:
    SessionService(env=env).close()
    drop_fence(env)
    with host_without_rows(env) as host:
        host.save(opened("early"))
        SessionService(env=env).close()
        with pytest.raises(IntegrityError, match="does not write them"):
            host.save(opened("late"))


def drop_fence(env: Mapping[str, str]) -> None:
    """Make the database one of an earlier release."""
    if env["PERSISTENCE_MODULE"] == "eventsourcing.sqlite":
        with closing(sqlite3.connect(env["SQLITE_DBNAME"])) as connection:
            connection.execute("DROP TRIGGER turnlog_fence_of_stored_events")
    else:
        events = sql.Identifier(env["POSTGRES_SCHEMA"], "sessions_events")
        with connect() as connection:
            connection.execute(sql.SQL("DROP TRIGGER turnlog_fence ON {}").format(events))


@pytest.fixture
def file(tmp_path: Path) -> dict[str, str]:
    """The settings of a store on SQLite."""
    return sqlite_env(tmp_path / "sessions.db")


def test_a_copy_of_a_file_goes_on_with_rows(file: dict[str, str], tmp_path: Path) -> None:
    with SessionService(env=file) as sessions:
        sessions.create("s")
        sessions.backup(tmp_path / "copy.db")
    with SessionService(env=sqlite_env(tmp_path / "copy.db")) as copy:
        copy.append_message("s", Message.user("a heron"))
        assert len(copy.search_events("s", EventQuery(keywords="heron"))) == 1


def test_a_file_that_is_restored_from_its_statements_goes_on_with_rows(
    file: dict[str, str], tmp_path: Path
) -> None:
    with SessionService(env={**file, "RECALL": "off"}) as sessions:
        sessions.create("s")
    with closing(sqlite3.connect(file["SQLITE_DBNAME"])) as old:
        script = "\n".join(old.iterdump())
    with closing(sqlite3.connect(tmp_path / "copy.db")) as new:
        new.executescript(script)
    with SessionService(env={**sqlite_env(tmp_path / "copy.db"), "RECALL": "off"}) as copy:
        assert copy.append_message("s", Message.user("hi")).version == 1


def test_a_purge_that_writes_the_events_anew_leaves_the_fence(file: dict[str, str]) -> None:
    with SessionService(env=file) as sessions:
        sessions.create("s")
        sessions.append_message("s", Message.user("hi"))
        sessions.delete("s")
        assert sessions.sweep(purge_after=timedelta(0)).purged == 1
    with host_without_rows(file) as host, pytest.raises(IntegrityError, match="does not write them"):
        host.save(opened("late"))


def test_read_models_are_rebuilt_behind_the_fence(file: dict[str, str]) -> None:
    with SessionService(env=file) as sessions:
        sessions.create("s")
        SqliteReadModels(sessions.app).rebuild()
        assert sessions.append_message("s", Message.user("hi")).version == 1
