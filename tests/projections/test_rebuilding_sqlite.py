"""What is particular to rebuilding and comparing in an SQLite file."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from tests.projections.activity import live, turn
from tests.projections.databases import SqliteFile
from tests.projections.test_rebuilding import at_progress

from turnlog.application.projections import replaying
from turnlog.application.service import SessionService
from turnlog.domain.errors import StorageError
from turnlog.infrastructure.sqlite import SqliteReadModels

sqlite = pytest.mark.parametrize("database", ["sqlite"], indirect=True)


@sqlite
def test_the_index_is_whole_for_fts5_after_it_was_rebuilt(
    sessions: SessionService, database: SqliteFile
) -> None:
    live(sessions, 1, 150)
    SqliteReadModels(sessions.app).rebuild(["recall"])
    names = [name for name in database.tables() if name.removeprefix("turnlog_recall_").isdigit()]
    assert names
    database.change(*(f"INSERT INTO {name} ({name}) VALUES ('integrity-check')" for name in names))


@sqlite
def test_of_a_session_that_is_deleted_meanwhile_nothing_is_indexed(
    sessions: SessionService, database: SqliteFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replaying, "PAGE", 10)
    for name in ("a", "b"):
        sessions.create(name)
        for _ in range(20):
            turn(sessions, name, f"zebra of {name}")
    models = SqliteReadModels(sessions.app)
    models.rebuild(["recall"], at_progress([*([lambda: None] * 8), lambda: sessions.delete("a")]))
    with closing(sqlite3.connect(database.path)) as connection:
        connection.execute(
            "CREATE VIRTUAL TABLE temp.held USING fts5vocab('main', 'turnlog_recall_0', 'instance')"
        )
        documents = {row[0] >> 32 for row in connection.execute("SELECT DISTINCT doc FROM held")}
    assert documents == {2}


@sqlite
def test_an_entry_of_the_index_that_the_log_does_not_have_is_named(
    sessions: SessionService, database: SqliteFile
) -> None:
    sessions.create("a")
    turn(sessions, "a")
    models = SqliteReadModels(sessions.app)
    models.rebuild(["recall"])
    database.change("INSERT INTO turnlog_recall_0 (rowid, text) VALUES ((1 << 32) + 900, 'gnu')")
    (one,) = models.compare().differences
    assert (one.model, one.session_id) == ("recall", "a")
    assert "900" in one.detail


@sqlite
def test_comparing_writes_nothing(database: SqliteFile) -> None:
    with database.service() as sessions:
        live(sessions, 1, 30)
        with closing(sqlite3.connect(database.path)) as watcher:
            before = watcher.execute("PRAGMA data_version").fetchone()
            SqliteReadModels(sessions.app).compare()
            assert watcher.execute("PRAGMA data_version").fetchone() == before


def test_a_database_in_memory_is_refused() -> None:
    env = {"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": ":memory:"}
    with SessionService(env=env) as sessions, pytest.raises(StorageError, match="in memory"):
        SqliteReadModels(sessions.app).rebuild()
