"""Rebuilding and comparing the read models of an SQLite file."""

from __future__ import annotations

import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.projections.activity import FOLLOWABLE, PLAIN, compact, live, service_on, turn
from tests.projections.processes import worker

from turnlog.application.projections import (
    MaterialisedViews,
    ReadModelOutdatedError,
    replaying,
)
from turnlog.application.service import SessionService
from turnlog.application.sessions import Sessions
from turnlog.domain.errors import InvalidSettingError, SessionNotFoundError, StorageError
from turnlog.domain.ids import aggregate_id
from turnlog.domain.query import EventQuery
from turnlog.infrastructure.sqlite import SqliteReadModels, SqliteViewStore
from turnlog.infrastructure.sqlite.plain import PlainSqliteEraser

HERON = EventQuery(keywords="heron")

ROWS = {
    "directory": (
        "SELECT aggregate_id, position, namespace, session_id, created_at, modified_at, expires_at, idle, "
        "version, head, messages, deleted, content FROM turnlog_sessions "
        "LEFT JOIN turnlog_metadata ON number = metadata ORDER BY position",
        "SELECT * FROM turnlog_session_metadata ORDER BY hash, position",
        "SELECT sql FROM sqlite_master WHERE name LIKE 'turnlog_session%' ORDER BY name",
    ),
    "view": (
        "SELECT * FROM turnlog_views ORDER BY aggregate_id",
        "SELECT * FROM turnlog_view_messages ORDER BY aggregate_id, place",
    ),
}


def rows(path: Path, model: str) -> list[list[tuple[Any, ...]]]:
    with closing(sqlite3.connect(path)) as connection:
        return [connection.execute(select).fetchall() for select in ROWS[model]]


def change(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def tables(path: Path) -> set[str]:
    with closing(sqlite3.connect(path)) as connection:
        return {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}


def count(path: Path, what: str) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute(f"SELECT count(*) FROM {what}").fetchone()[0])


def found(sessions: SessionService, names: list[str]) -> dict[str, list[int]]:
    return {name: [event.version for event in sessions.search_events(name, HERON)] for name in names}


def follow_view(sessions: SessionService, path: Path) -> MaterialisedViews:
    store = SqliteViewStore(sessions.app.recorder.datastore)  # type: ignore[attr-defined]
    store.create_table()
    stored = MaterialisedViews(sessions, store)
    stored.catch_up()
    assert path.exists()
    return stored


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("recorder", [None, PLAIN, FOLLOWABLE])
def test_rebuilt_rows_are_the_caught_up_ones(path: Path, recorder: str | None, seed: int) -> None:
    with service_on(path, recorder) as sessions:
        life = live(sessions, seed, 80)
        sessions.list_sessions()
        follow_view(sessions, path)
        before = {model: rows(path, model) for model in ROWS}
        searched = found(sessions, life.names)
        SqliteReadModels(sessions.app).rebuild()
        assert {model: rows(path, model) for model in ROWS} == before
        assert found(sessions, life.names) == searched
        assert any(searched.values())


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 10_000), at=st.integers(0, 40), page=st.sampled_from((1, 3, 50)))
def test_whenever_it_was_rebuilt_nothing_differs_later(
    tmp_path_factory: pytest.TempPathFactory, seed: int, at: int, page: int
) -> None:
    path = tmp_path_factory.mktemp("rebuilt") / "sessions.db"
    with service_on(path) as sessions, pytest.MonkeyPatch.context() as patch:
        patch.setattr(replaying, "PAGE", page)
        models = SqliteReadModels(sessions.app)
        life = live(sessions, seed, at)
        models.rebuild()
        for _ in range(20):
            life.step()
        follow_view(sessions, path)
        assert models.compare().differences == ()


def test_the_index_is_whole_for_fts5_after_it_was_rebuilt(sessions: SessionService, path: Path) -> None:
    live(sessions, 1, 150)
    SqliteReadModels(sessions.app).rebuild(["recall"])
    names = [name for name in tables(path) if name.removeprefix("turnlog_recall_").isdigit()]
    assert names
    change(path, *(f"INSERT INTO {name} ({name}) VALUES ('integrity-check')" for name in names))


def test_an_index_goes_on_behind_its_rebuild(sessions: SessionService) -> None:
    life = live(sessions, 1, 60)
    SqliteReadModels(sessions.app).rebuild(["recall"])
    for _ in range(80):
        for name in life.names:
            turn(sessions, name, "a heron again")
    wanted = {
        name: [event.version for event in sessions.get_events(name) if "heron" in (event.text or "")]
        for name in life.names
    }
    assert found(sessions, life.names) == wanted
    assert SqliteReadModels(sessions.app).compare().differences == ()


def at_progress(steps: list[Callable[[], object]]) -> Callable[[int], object]:
    """Takes one of the steps each time that progress is told."""

    def told(_: int) -> None:
        if steps:
            steps.pop(0)()

    return told


def test_readers_have_the_former_rows_until_the_new_ones_are_complete(
    sessions: SessionService, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replaying, "PAGE", 20)
    life = live(sessions, 3, 60)
    stored = follow_view(sessions, path)
    change(path, "UPDATE turnlog_sessions SET messages = 77", "DELETE FROM turnlog_view_messages")
    seen: list[tuple[set[int], int]] = []

    def read() -> None:
        listed = {row.messages for row in sessions.list_sessions()}
        seen.append((listed, len(stored.rows(life.names[0]).rows)))

    SqliteReadModels(sessions.app).rebuild(progress=lambda _: read())
    read()
    assert len(seen) > 3
    assert set(map(str, seen[:-1])) == {str(({77}, 0))}
    assert seen[-1][0] == {len(sessions.get_messages(name)) for name in life.names}
    assert stored.view(life.names[0]) == sessions.view(life.names[0])


def test_what_is_written_and_deleted_meanwhile_is_in_the_new_rows(
    sessions: SessionService, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replaying, "PAGE", 15)
    life = live(sessions, 5, 70)
    follow_view(sessions, path)
    with service_on(path) as other:
        first, second, *left = life.names
        steps: list[Callable[[], object]] = [
            lambda: turn(other, left[0], "a heron meanwhile"),
            lambda: other.delete(first),
            lambda: compact(other, left[0]),
            lambda: other.create("late"),
            lambda: turn(other, "late", "a late heron"),
            lambda: turn(other, second, "a doomed heron"),
        ]
        while len(steps) < 200:
            steps.append(lambda: None)
        calls = len(steps)

        def told(_: int) -> None:
            steps.pop(0)()
            if calls - len(steps) == 7:
                other.delete(second)

        models = SqliteReadModels(sessions.app)
        models.rebuild(progress=told)
        assert calls - len(steps) > 7
        assert models.compare().differences == ()
        assert found(sessions, ["late"]) == {"late": [1, 2]}
        assert {row.session_id for row in sessions.list_sessions()} == {*left, "late"}
        for name in (first, second):
            with pytest.raises(SessionNotFoundError):
                sessions.view(name)


def test_of_a_session_that_is_deleted_meanwhile_nothing_is_indexed(
    sessions: SessionService, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replaying, "PAGE", 10)
    for name in ("a", "b"):
        sessions.create(name)
        for _ in range(20):
            turn(sessions, name, f"zebra of {name}")
    models = SqliteReadModels(sessions.app)
    steps: list[Callable[[], object]] = [lambda: None] * 8
    models.rebuild(["recall"], at_progress([*steps, lambda: sessions.delete("a")]))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(
            "CREATE VIRTUAL TABLE temp.held USING fts5vocab('main', 'turnlog_recall_0', 'instance')"
        )
        documents = {row[0] >> 32 for row in connection.execute("SELECT DISTINCT doc FROM held")}
    assert documents == {2}


def died(*_: object) -> None:
    """What a process does that ends behind the tombstone."""


def test_a_deletion_that_was_not_completed_is_remembered(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replaying, "PAGE", 5)
    with service_on(path, PLAIN) as sessions:
        for name in ("a", "b"):
            sessions.create(name)
            turn(sessions, name, "a zebra")
        with monkeypatch.context() as dying:
            dying.setattr(PlainSqliteEraser, "erase", died)
            SqliteReadModels(sessions.app).rebuild(progress=at_progress([lambda: sessions.delete("a")]))
        assert count(path, "turnlog_erasures WHERE pending = 2") == 1
        sessions.sweep()
        assert count(path, "stored_events WHERE CAST(state AS TEXT) LIKE '%zebra%'") == 2
        assert SqliteReadModels(sessions.app).compare().differences == ()


def test_one_that_is_killed_leaves_the_former_rows_and_nothing_else(
    sessions: SessionService, path: Path
) -> None:
    live(sessions, 6, 60)
    before = tables(path), rows(path, "directory")
    with worker("rebuild", path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "reading\n"
        process.send_signal(signal.SIGKILL)
        assert process.wait(30) == -signal.SIGKILL
    assert (tables(path), rows(path, "directory")) == before
    assert SqliteReadModels(sessions.app).compare().differences == ()


def test_a_directory_of_another_rule_is_refused_until_it_is_rebuilt(path: Path) -> None:
    with service_on(path) as sessions:
        sessions.create("a")
        app_env = dict(sessions.app.env)
    change(path, "UPDATE turnlog_read_models SET rule = 9 WHERE name = 'directory'")
    with pytest.raises(ReadModelOutdatedError, match="turnlog rebuild directory"):
        service_on(path)
    with Sessions(env=app_env) as app:
        assert [one.model for one in SqliteReadModels(app).compare().differences] == ["directory"]
        SqliteReadModels(app).rebuild(["directory"])
    with service_on(path) as sessions:
        assert [row.session_id for row in sessions.list_sessions()] == ["a"]


def test_a_view_of_another_rule_is_rebuilt(sessions: SessionService, path: Path) -> None:
    sessions.create("a")
    turn(sessions, "a")
    stored = follow_view(sessions, path)
    change(path, "UPDATE turnlog_read_models SET rule = 9 WHERE name = 'view'")
    SqliteReadModels(sessions.app).rebuild(["view"])
    assert stored.view("a") == sessions.view("a")


DAMAGES = {
    "a count": ("UPDATE turnlog_sessions SET messages = messages + 1", "directory", "messages is"),
    "a title": ("UPDATE turnlog_metadata SET content = '{}'", "directory", "metadata is"),
    "a lost session": ("DELETE FROM turnlog_sessions", "directory", "missing"),
    "a metadata entry": ("DELETE FROM turnlog_session_metadata", "directory", "a metadata entry is missing"),
    "a message of the view": ("DELETE FROM turnlog_view_messages WHERE place = 0", "view", "missing"),
    "an order": ("UPDATE turnlog_view_messages SET place = -1 WHERE place = 1", "view", "place is -1, not 1"),
    "a version": ("UPDATE turnlog_views SET version = version + 1", "view", "version is 6, not 5"),
    "the index": (
        "INSERT INTO turnlog_recall_0 (rowid, text) VALUES ((1 << 32) + 900, 'gnu')",
        "recall",
        "900",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_differs_is_named(path: Path, damage: str) -> None:
    statement, model, detail = DAMAGES[damage]
    with service_on(path) as sessions:
        sessions.create("a", metadata={"title": "heron"})
        for _ in range(2):
            turn(sessions, "a")
        sessions.update_metadata("a", {"title": "bird"})
        models = SqliteReadModels(sessions.app)
        models.rebuild()
        change(path, statement)
        differences = models.compare().differences
        assert {one.model for one in differences} >= {model}
        one = next(one for one in differences if one.model == model)
        assert detail in one.detail
        assert one.session_id == "a"
        assert one.aggregate_id == aggregate_id("a").hex


def test_a_boundary_that_names_other_messages_than_its_state_is_named(path: Path) -> None:
    with service_on(path) as sessions:
        sessions.create("a")
        for _ in range(4):
            turn(sessions, "a")
        compact(sessions, "a", summary=False)
    with closing(sqlite3.connect(path)) as connection, connection:
        row = connection.execute(
            "SELECT rowid, state FROM stored_events WHERE topic LIKE '%:Compacted'"
        ).fetchone()
        state = row[1].replace(b'"preserved":["', b'"preserved":["no such id","')
        assert state != row[1]
        connection.execute("UPDATE stored_events SET state = ? WHERE rowid = ?", (state, row[0]))
    with service_on(path) as sessions:
        named = SqliteReadModels(sessions.app).compare().differences
    assert [(one.model, one.session_id) for one in named] == [("boundaries", "a")]


def test_an_event_that_cannot_be_read_is_named(path: Path) -> None:
    with service_on(path) as sessions:
        sessions.create("a")
        turn(sessions, "a")
        change(path, "UPDATE stored_events SET state = '{' WHERE rowid = 2")
        differences = SqliteReadModels(sessions.app).compare().differences
    assert "the event in row 2 cannot be read" in {one.detail for one in differences}


def test_comparing_writes_nothing(path: Path) -> None:
    with service_on(path) as sessions:
        live(sessions, 1, 30)
        with closing(sqlite3.connect(path)) as watcher:
            before = watcher.execute("PRAGMA data_version").fetchone()
            SqliteReadModels(sessions.app).compare()
            assert watcher.execute("PRAGMA data_version").fetchone() == before


def test_a_model_that_does_not_exist_is_refused(sessions: SessionService) -> None:
    with pytest.raises(InvalidSettingError, match="view, recall, directory"):
        SqliteReadModels(sessions.app).rebuild(["summary"])


def test_a_database_in_memory_is_refused() -> None:
    env = {"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": ":memory:"}
    with SessionService(env=env) as sessions, pytest.raises(StorageError, match="in memory"):
        SqliteReadModels(sessions.app).rebuild()
