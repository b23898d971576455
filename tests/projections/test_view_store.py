"""The materialised view: every store the same, and the same as the service says."""

from __future__ import annotations

from uuid import UUID

import pytest
from eventsourcing.persistence import Tracking
from tests.projections.activity import Life, live, turn
from tests.projections.databases import Database

from turnlog.application.projections import (
    MaterialisedViews,
    MemoryViewStore,
    ReadModelBehindError,
    ReadModelOutdatedError,
    ViewProjection,
    ViewStore,
)
from turnlog.application.service import SessionService
from turnlog.domain.errors import SessionNotFoundError
from turnlog.domain.ids import aggregate_id
from turnlog.infrastructure.testing.materialised_view import log_of


def test_a_caught_up_view_is_the_one_that_the_service_tells(
    sessions: SessionService, store: ViewStore
) -> None:
    life = live(sessions, 1, 120)
    stored = MaterialisedViews(sessions, store)
    stored.catch_up()
    assert {name: stored.view(name) for name in life.names} == {
        name: sessions.view(name) for name in life.names
    }
    assert any(sessions.view(name).events[0].synthetic for name in life.names if len(sessions.view(name)))


@pytest.mark.parametrize("seed", range(4))
def test_event_by_event_the_rows_are_those_of_pages(
    sessions: SessionService, store: ViewStore, seed: int
) -> None:
    live(sessions, seed, 60)
    log, at_once = log_of(sessions), MemoryViewStore()
    at_once.apply(log)
    projection = ViewProjection(store)
    for item in log:
        projection.process_event(item.event, Tracking("Sessions", item.position))
    ids = {UUID(str(item.event.originator_id)) for item in log if item.event}
    assert {one: store.view_of(one) for one in ids} == {one: at_once.view_of(one) for one in ids}
    assert store.position() == log[-1].position


def test_a_deleted_session_leaves_no_rows(
    sessions: SessionService, store: ViewStore, database: Database
) -> None:
    sessions.create("a")
    turn(sessions, "a")
    stored = MaterialisedViews(sessions, store)
    stored.catch_up()
    sessions.delete("a")
    stored.catch_up()
    for table in ("turnlog_views", "turnlog_view_messages"):
        assert database.one(f"SELECT count(*) FROM {table}") == 0
    with pytest.raises(SessionNotFoundError):
        stored.view("a")


def test_rows_of_another_rule_are_not_read_and_not_written(
    sessions: SessionService, store: ViewStore, database: Database
) -> None:
    sessions.create("a")
    MaterialisedViews(sessions, store).catch_up()
    database.set_rule("view", 7)
    with pytest.raises(ReadModelOutdatedError, match="turnlog rebuild view"):
        store.view_of(aggregate_id("a"))
    turn(sessions, "a")
    with pytest.raises(ReadModelOutdatedError):
        MaterialisedViews(sessions, store).catch_up()


def test_waiting_for_a_version_that_nobody_applies_says_how_far_the_rows_are(
    sessions: SessionService, store: ViewStore
) -> None:
    sessions.create("a")
    with pytest.raises(ReadModelBehindError, match="at position None, not at 1"):
        MaterialisedViews(sessions, store).wait("a", 0, timeout=0.02)


def test_waiting_for_a_session_that_is_gone_comes_to_an_end(
    sessions: SessionService, store: ViewStore
) -> None:
    sessions.create("a")
    turn(sessions, "a")
    sessions.delete("a")
    stored = MaterialisedViews(sessions, store)
    stored.catch_up()
    stored.wait("a", 2, timeout=60)


def test_two_services_that_catch_up_in_turns_apply_nothing_twice(database: Database) -> None:
    with database.service() as one, database.service() as other:
        life = Life(one, 3)
        with database.view_store() as first, database.view_store() as second:
            for _ in range(30):
                life.step()
                for service, store in ((one, first), (other, second)):
                    MaterialisedViews(service, store).catch_up()
            for name in life.names:
                assert MaterialisedViews(other, second).view(name) == other.view(name)
