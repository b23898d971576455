"""The materialised view: every store the same, and the same as the service says."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from uuid import UUID

import pytest
from eventsourcing.persistence import Tracking
from eventsourcing.sqlite import SQLiteDatastore
from tests.projections.activity import Life, compact, live, service_on, turn

from turnlog.application.projections import (
    MaterialisedViews,
    MemoryViewStore,
    ReadModelBehindError,
    ReadModelOutdatedError,
    ViewProjection,
    ViewStore,
)
from turnlog.application.projections.batches import Positioned, pages
from turnlog.application.service import SessionService
from turnlog.domain.errors import SessionNotFoundError
from turnlog.domain.events import Compacted
from turnlog.domain.ids import aggregate_id
from turnlog.infrastructure.sqlite import SqliteViewStore


@pytest.fixture(params=["memory", "sqlite"])
def any_store(request: pytest.FixtureRequest, path: Path) -> Iterator[ViewStore]:
    """A store of each kind."""
    if request.param == "memory":
        yield MemoryViewStore()
        return
    datastore = SQLiteDatastore(str(path))
    store = SqliteViewStore(datastore)
    store.create_table()
    yield store
    datastore.close()


def log_of(sessions: SessionService) -> list[Positioned]:
    return [item for page in pages(sessions.app.recorder, sessions.app.mapper, None) for item in page]


def test_a_caught_up_view_is_the_one_that_the_service_tells(
    sessions: SessionService, any_store: ViewStore
) -> None:
    life = live(sessions, 1, 120)
    stored = MaterialisedViews(sessions, any_store)
    stored.catch_up()
    assert {name: stored.view(name) for name in life.names} == {
        name: sessions.view(name) for name in life.names
    }
    assert any(sessions.view(name).events[0].synthetic for name in life.names if len(sessions.view(name)))


@pytest.mark.parametrize("seed", range(4))
def test_event_by_event_the_rows_are_those_of_pages(
    sessions: SessionService, any_store: ViewStore, seed: int
) -> None:
    live(sessions, seed, 60)
    log, at_once = log_of(sessions), MemoryViewStore()
    at_once.apply(log)
    projection = ViewProjection(any_store)
    for item in log:
        projection.process_event(item.event, Tracking("Sessions", item.position))
    ids = {UUID(str(item.event.originator_id)) for item in log if item.event}
    assert {one: any_store.view_of(one) for one in ids} == {one: at_once.view_of(one) for one in ids}
    assert any_store.position() == log[-1].position


def test_a_boundary_and_its_summary_are_applied_together(
    sessions: SessionService, any_store: ViewStore
) -> None:
    sessions.create("a")
    for _ in range(3):
        turn(sessions, "a")
    compact(sessions, "a")
    projection, key = ViewProjection(any_store), aggregate_id("a")
    for item in log_of(sessions):
        projection.process_event(item.event, Tracking("Sessions", item.position))
        view = any_store.view_of(key)
        assert view is None or view.is_whole
        if isinstance(item.event, Compacted):
            assert view is not None
            assert view.version == item.event.originator_version - 1
    found = any_store.view_of(key)
    assert found is not None
    assert [row.version for row in found.rows] == [e.version for e in sessions.view("a").events]


def test_what_was_applied_before_is_left_out(sessions: SessionService, any_store: ViewStore) -> None:
    sessions.create("a")
    turn(sessions, "a")
    log = log_of(sessions)
    any_store.apply(log)
    any_store.apply(log)
    any_store.apply(log[1:])
    found = any_store.view_of(aggregate_id("a"))
    assert found is not None
    assert [row.version for row in found.rows] == [1, 2]


def test_a_deleted_session_leaves_no_rows(
    sessions: SessionService, store: SqliteViewStore, path: Path
) -> None:
    sessions.create("a")
    turn(sessions, "a")
    stored = MaterialisedViews(sessions, store)
    stored.catch_up()
    sessions.delete("a")
    stored.catch_up()
    with closing(sqlite3.connect(path)) as connection:
        tables = ("turnlog_views", "turnlog_view_messages")
        assert [connection.execute(f"SELECT count(*) FROM {t}").fetchone()[0] for t in tables] == [0, 0]
    with pytest.raises(SessionNotFoundError):
        stored.view("a")


def test_a_session_that_was_erased_before_it_was_followed_has_no_rows(
    sessions: SessionService, any_store: ViewStore
) -> None:
    sessions.create("a")
    turn(sessions, "a")
    sessions.delete("a")
    MaterialisedViews(sessions, any_store).catch_up()
    assert any_store.view_of(aggregate_id("a")) is None


def test_a_session_of_another_does_not_exist_in_a_scope(
    sessions: SessionService, store: SqliteViewStore
) -> None:
    sessions.create("a", metadata={"user.name": "ada"})
    MaterialisedViews(sessions, store).catch_up()
    with pytest.raises(SessionNotFoundError):
        MaterialisedViews(sessions.scoped_to("bob"), store).view("a")


def test_rows_of_another_rule_are_not_read_and_not_written(
    sessions: SessionService, store: SqliteViewStore, path: Path
) -> None:
    sessions.create("a")
    MaterialisedViews(sessions, store).catch_up()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE turnlog_read_models SET rule = 7 WHERE name = 'view'")
    with pytest.raises(ReadModelOutdatedError, match="turnlog rebuild view"):
        store.view_of(aggregate_id("a"))
    turn(sessions, "a")
    with pytest.raises(ReadModelOutdatedError):
        MaterialisedViews(sessions, store).catch_up()


def test_waiting_for_a_version_that_nobody_applies_says_how_far_the_rows_are(
    sessions: SessionService, store: SqliteViewStore
) -> None:
    sessions.create("a")
    with pytest.raises(ReadModelBehindError, match="at position None, not at 1"):
        MaterialisedViews(sessions, store).wait("a", 0, timeout=0.02)


def test_waiting_for_a_session_that_is_gone_comes_to_an_end(
    sessions: SessionService, store: SqliteViewStore
) -> None:
    sessions.create("a")
    turn(sessions, "a")
    sessions.delete("a")
    stored = MaterialisedViews(sessions, store)
    stored.catch_up()
    stored.wait("a", 2, timeout=5)


def test_two_services_that_catch_up_at_once_apply_nothing_twice(path: Path) -> None:
    with service_on(path) as one, service_on(path) as other:
        life = Life(one, 3)
        stores = [SqliteViewStore(SQLiteDatastore(str(path))) for _ in range(2)]
        for store in stores:
            store.create_table()
        for _ in range(30):
            life.step()
            for service, store in zip((one, other), stores, strict=True):
                MaterialisedViews(service, store).catch_up()
        for name in life.names:
            assert MaterialisedViews(other, stores[1]).view(name) == other.view(name)
        for store in stores:
            store.datastore.close()
