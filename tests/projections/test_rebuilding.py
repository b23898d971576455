"""Rebuilding and comparing the read models of a database."""

from __future__ import annotations

import signal
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.projections.activity import compact, live, turn
from tests.projections.databases import DATABASES, RECORDERS, Database
from tests.projections.processes import worker

from turnlog.application.projections import (
    MaterialisedViews,
    ReadModelOutdatedError,
    replaying,
)
from turnlog.application.service import SessionService
from turnlog.application.sessions import Sessions
from turnlog.domain.errors import InvalidSettingError, SessionNotFoundError
from turnlog.domain.ids import aggregate_id
from turnlog.domain.query import EventQuery
from turnlog.infrastructure.postgres import PlainPostgresEraser, PostgresReadModels
from turnlog.infrastructure.sqlite import SqliteReadModels
from turnlog.infrastructure.sqlite.plain import PlainSqliteEraser

HERON = EventQuery(keywords="heron")

VIEW = (
    "SELECT * FROM turnlog_views ORDER BY aggregate_id",
    "SELECT * FROM turnlog_view_messages ORDER BY aggregate_id, place",
)

ROWS: Mapping[str, Sequence[str]] = {
    "sqlite": (
        "SELECT aggregate_id, position, namespace, session_id, created_at, modified_at, expires_at, idle, "
        "version, head, messages, deleted, content FROM turnlog_sessions "
        "LEFT JOIN turnlog_metadata ON number = metadata ORDER BY position",
        "SELECT * FROM turnlog_session_metadata ORDER BY hash, position",
        "SELECT sql FROM sqlite_master WHERE name LIKE 'turnlog_session%' ORDER BY name",
        *VIEW,
    ),
    "postgres": (
        "SELECT * FROM turnlog_sessions ORDER BY position",
        "SELECT * FROM turnlog_ended ORDER BY position",
        "SELECT * FROM turnlog_metadata ORDER BY position",
        "SELECT * FROM turnlog_by_metadata ORDER BY hash, position",
        "SELECT * FROM turnlog_recall_mark ORDER BY position",
        "SELECT position, first, last, ARRAY(SELECT unnest(grams) ORDER BY 1) FROM turnlog_recall "
        "ORDER BY position, first",
        *VIEW,
    ),
}
"""All that read models consist of."""


def rows(database: Database, kind: str = "") -> list[list[tuple[Any, ...]]]:
    """All rows of all read models."""
    engine = "sqlite" if hasattr(database, "path") else "postgres"
    return [
        database.rows(select.replace("turnlog_", f"turnlog_{kind}") if "view" not in select else select)
        for select in ROWS[engine]
    ]


def found(sessions: SessionService, names: list[str]) -> dict[str, list[int]]:
    return {name: [event.version for event in sessions.search_events(name, HERON)] for name in names}


def states(database: Database) -> list[bytes]:
    """What stands in the log."""
    return [state for (state,) in database.rows("SELECT state FROM stored_events")]


@contextmanager
def followed(sessions: SessionService, database: Database) -> Generator[MaterialisedViews]:
    """The views, caught up."""
    with database.view_store() as store:
        stored = MaterialisedViews(sessions, store)
        stored.catch_up()
        yield stored


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("engine", "recorder"), [(engine, one) for engine in RECORDERS for one in RECORDERS[engine]]
)
def test_rebuilt_rows_are_the_caught_up_ones(
    tmp_path: Path, engine: str, recorder: str | None, seed: int
) -> None:
    database = DATABASES[engine](tmp_path)
    with database.service(recorder) as sessions, followed(sessions, database):
        life = live(sessions, seed, 80)
        sessions.list_sessions()
        kind = "plain_" if engine == "postgres" and recorder else ""
        searched = found(sessions, life.names)
        with followed(sessions, database):
            before = rows(database, kind)
        database.models(sessions.app).rebuild()
        assert rows(database, kind) == before
        assert found(sessions, life.names) == searched
        assert any(searched.values())


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    engine=st.sampled_from(sorted(DATABASES)),
    seed=st.integers(0, 10_000),
    at=st.integers(0, 40),
    page=st.sampled_from((1, 3, 50)),
)
def test_whenever_it_was_rebuilt_nothing_differs_later(
    tmp_path_factory: pytest.TempPathFactory, engine: str, seed: int, at: int, page: int
) -> None:
    database = DATABASES[engine](tmp_path_factory.mktemp("rebuilt"))
    with database.service() as sessions, pytest.MonkeyPatch.context() as patch:
        patch.setattr(replaying, "PAGE", page)
        models = database.models(sessions.app)
        life = live(sessions, seed, at)
        models.rebuild()
        for _ in range(20):
            life.step()
        with followed(sessions, database):
            assert models.compare().differences == ()


def test_an_index_goes_on_behind_its_rebuild(sessions: SessionService, database: Database) -> None:
    life = live(sessions, 1, 60)
    database.models(sessions.app).rebuild(["recall"])
    for _ in range(80):
        for name in life.names:
            turn(sessions, name, "a heron again")
    wanted = {
        name: [event.version for event in sessions.get_events(name) if "heron" in (event.text or "")]
        for name in life.names
    }
    assert found(sessions, life.names) == wanted
    assert database.models(sessions.app).compare().differences == ()


def at_progress(steps: Sequence[Callable[[], object]]) -> Callable[[int], object]:
    """Takes one of the steps each time that progress is told."""
    left = list(steps)

    def told(_: int) -> None:
        if left:
            left.pop(0)()

    return told


def test_readers_have_the_former_rows_until_the_new_ones_are_complete(
    sessions: SessionService, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replaying, "PAGE", 20)
    life = live(sessions, 3, 60)
    seen: list[tuple[set[int], int]] = []
    with followed(sessions, database) as stored:
        database.change("UPDATE turnlog_sessions SET messages = 77", "DELETE FROM turnlog_view_messages")

        def read() -> None:
            listed = {row.messages for row in sessions.list_sessions()}
            seen.append((listed, len(stored.rows(life.names[0]).rows)))

        database.models(sessions.app).rebuild(progress=lambda _: read())
        read()
        assert stored.view(life.names[0]) == sessions.view(life.names[0])
    assert len(seen) > 3
    assert set(map(str, seen[:-1])) == {str(({77}, 0))}
    assert seen[-1][0] == {len(sessions.get_messages(name)) for name in life.names}


def test_what_is_written_and_deleted_meanwhile_is_in_the_new_rows(
    sessions: SessionService, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replaying, "PAGE", 15)
    life = live(sessions, 5, 70)
    with database.service() as other, followed(sessions, database):
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

        models = database.models(sessions.app)
        models.rebuild(progress=told)
        assert calls - len(steps) > 7
        assert models.compare().differences == ()
        assert found(sessions, ["late"]) == {"late": [1, 2]}
        assert {row.session_id for row in sessions.list_sessions()} == {*left, "late"}
        for name in (first, second):
            with pytest.raises(SessionNotFoundError):
                sessions.view(name)


def died(*_: object) -> None:
    """What a process does that ends behind the tombstone."""


def test_a_deletion_that_was_not_completed_is_remembered(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replaying, "PAGE", 5)
    with database.service(database.plain_recorder) as sessions:
        for name in ("a", "b"):
            sessions.create(name)
            turn(sessions, name, "a zebra")
        with monkeypatch.context() as dying:
            for eraser in (PlainSqliteEraser, PlainPostgresEraser):
                dying.setattr(eraser, "erase", died)
            database.models(sessions.app).rebuild(progress=at_progress([lambda: sessions.delete("a")]))
        assert sum(b"zebra" in state for state in states(database)) == 4
        assert sessions.sweep().completed == 1
        assert sum(b"zebra" in state for state in states(database)) == 2
        assert database.models(sessions.app).compare().differences == ()


def test_one_that_is_killed_leaves_the_former_rows_and_nothing_else(
    sessions: SessionService, database: Database
) -> None:
    live(sessions, 6, 60)
    database.models(sessions.app).rebuild()
    before = database.tables(), rows(database)
    with worker("rebuild", database) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "reading\n"
        process.send_signal(signal.SIGKILL)
        assert process.wait(60) == -signal.SIGKILL
    assert (database.tables(), rows(database)) == before
    assert database.models(sessions.app).compare().differences == ()


def test_a_directory_of_another_rule_is_refused_until_it_is_rebuilt(database: Database) -> None:
    with database.service() as sessions:
        sessions.create("a")
        app_env = dict(sessions.app.env)
    database.set_rule("directory", 9)
    with pytest.raises(ReadModelOutdatedError, match="turnlog rebuild directory"):
        database.service()
    with Sessions(env=app_env) as app:
        assert [one.model for one in database.models(app).compare().differences] == ["directory"]
        database.models(app).rebuild(["directory"])
    with database.service() as sessions:
        assert [row.session_id for row in sessions.list_sessions()] == ["a"]


def test_a_view_of_another_rule_is_rebuilt(sessions: SessionService, database: Database) -> None:
    sessions.create("a")
    turn(sessions, "a")
    with followed(sessions, database) as stored:
        database.set_rule("view", 9)
        with pytest.raises(ReadModelOutdatedError):
            stored.view("a")
        database.models(sessions.app).rebuild(["view"])
        assert stored.view("a") == sessions.view("a")


DAMAGES = {
    "a count": ("UPDATE turnlog_sessions SET messages = messages + 1", "directory", "messages is"),
    "a title": ("UPDATE turnlog_metadata SET content = '{}'", "directory", "metadata is"),
    "a lost session": ("DELETE FROM turnlog_sessions", "directory", "missing"),
    "a metadata entry": ("DELETE FROM turnlog_session_metadata", "directory", "1 metadata entry is missing"),
    "a message of the view": ("DELETE FROM turnlog_view_messages WHERE place = 0", "view", "missing"),
    "an order": ("UPDATE turnlog_view_messages SET place = -1 WHERE place = 1", "view", "place is -1, not 1"),
    "a version": ("UPDATE turnlog_views SET version = version + 1", "view", "version is 6, not 5"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_differs_is_named(database: Database, damage: str) -> None:
    statement, model, detail = DAMAGES[damage]
    with database.service() as sessions:
        sessions.create("a", metadata={"title": "heron"})
        for _ in range(2):
            turn(sessions, "a")
        sessions.update_metadata("a", {"title": "bird"})
        models = database.models(sessions.app)
        models.rebuild()
        database.change(statement)
        differences = models.compare().differences
        assert {one.model for one in differences} >= {model}
        one = next(one for one in differences if one.model == model)
        assert detail in one.detail
        assert one.session_id == "a"
        assert one.aggregate_id == aggregate_id("a").hex


def test_a_boundary_that_names_other_messages_than_its_state_is_named(database: Database) -> None:
    with database.service() as sessions:
        sessions.create("a")
        for _ in range(4):
            turn(sessions, "a")
        compact(sessions, "a", summary=False)
    ((position, state),) = database.rows(
        "SELECT rowid, state FROM stored_events WHERE topic = 'turnlog.domain.events:Compacted'"
    )
    changed = state.replace(b'"preserved":["', b'"preserved":["no such id","')
    assert changed != state
    database.put_state(position, changed)
    with database.service() as sessions:
        named = database.models(sessions.app).compare().differences
    assert [(one.model, one.session_id) for one in named] == [("boundaries", "a")]


def test_an_event_that_cannot_be_read_is_named(database: Database) -> None:
    with database.service() as sessions:
        sessions.create("a")
        turn(sessions, "a")
        database.put_state(2, b"{")
        differences = database.models(sessions.app).compare().differences
    (one,) = (one for one in differences if one.model == "log")
    assert (one.session_id, one.detail) == ("a", "event 1 cannot be read")


def test_one_of_a_session_that_is_not_known_is_named_by_its_notification_too(database: Database) -> None:
    with database.service() as sessions:
        sessions.create("a")
        sessions.create("b")
        database.put_state(2, b"{")
        database.change("DELETE FROM turnlog_sessions WHERE session_id = 'b'")
        differences = database.models(sessions.app).compare().differences
    (one,) = (one for one in differences if one.model == "log")
    assert (one.aggregate_id, one.detail) == (
        aggregate_id("b").hex,
        "event 0 cannot be read (notification id 2)",
    )


def test_a_model_that_does_not_exist_is_refused(sessions: SessionService, database: Database) -> None:
    with pytest.raises(InvalidSettingError, match="view, recall, directory"):
        database.models(sessions.app).rebuild(["summary"])


@pytest.mark.parametrize("kind", [SqliteReadModels, PostgresReadModels])
def test_an_application_elsewhere_is_refused(kind: type[SqliteReadModels] | type[PostgresReadModels]) -> None:
    with SessionService() as sessions, pytest.raises(InvalidSettingError, match="recorder: its read models"):
        kind(sessions.app)
