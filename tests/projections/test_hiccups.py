"""Followers, runners and feeds of PostgreSQL, whose server ends their connections or says nothing."""

from __future__ import annotations

import re
import threading
from typing import Any, LiteralString

import pytest
from tests.projections.activity import compact, turn
from tests.projections.databases import PostgresSchema
from tests.projections.journals import following, journal
from tests.support.postgres import connect

from turnlog.application.projections import SessionFeed, SupervisedRunner, ViewProjection
from turnlog.application.projections.waiting import poll
from turnlog.application.service import SessionService
from turnlog.application.sessions import Sessions
from turnlog.infrastructure.postgres import PostgresViewStore

pytestmark = pytest.mark.parametrize("database", ["postgres"], indirect=True)


class Connections:
    """The connections of this name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def count(self, what: LiteralString = "pid") -> int:
        """How many there are."""
        selected: LiteralString = f"SELECT {what} FROM pg_stat_activity WHERE application_name = %s"
        with connect() as connection:
            others = connection.execute(selected + " AND pid <> pg_backend_pid()", (self._name,))
            return len(others.fetchall())

    def end(self) -> bool:
        """Let the server end them; whether there were any."""
        return self.count("pg_terminate_backend(pid)") > 0


@pytest.fixture
def connections(
    sessions: SessionService,
    database: PostgresSchema,
    monkeypatch: pytest.MonkeyPatch,
) -> Connections:
    """Those that are opened from here on."""
    name = f"doomed {database.env['POSTGRES_SCHEMA']}"
    monkeypatch.setenv("PGAPPNAME", name)
    return Connections(name)


def newest(sessions: SessionService) -> int | None:
    return sessions.app.recorder.max_notification_id()


def test_a_follower_whose_connections_are_ended_handles_each_position_once(
    sessions: SessionService, database: PostgresSchema, connections: Connections
) -> None:
    with following(database) as runner:
        for number in range(4):
            name = f"s{number}"
            sessions.create(name)
            turn(sessions, name)
            assert poll(connections.end, timeout=60)
            turn(sessions, name)
            compact(sessions, name)
            runner.wait(newest(sessions), timeout=60)
        sessions.delete("s0")
        runner.wait(newest(sessions), timeout=60)
        assert poll(lambda: runner.restarts > 0, timeout=60)
    kinds = ["began", *["message"] * 4, "boundary", *["message"] * 2]
    assert [row[1] for row in journal(database)] == [*kinds * 4, "ended"]
    assert [row[0] for row in journal(database)] == list(range(1, 34))


def test_a_view_whose_connections_are_ended_goes_on(
    sessions: SessionService, database: PostgresSchema, connections: Connections
) -> None:
    sessions.create("a")
    with SupervisedRunner[Any](
        application_class=Sessions,
        projection_class=ViewProjection,
        view_class=PostgresViewStore,
        env=database.env,
    ) as runner:
        for _ in range(3):
            runner.wait(newest(sessions), timeout=60)
            assert poll(connections.end, timeout=60)
            turn(sessions, "a")
        runner.wait(newest(sessions), timeout=60)
    models = database.models(sessions.app)
    comparison = models.compare()
    assert (comparison.differences, comparison.behind["view"]) == ((), 0)


def test_runners_that_are_made_anew_leave_no_connections_behind(
    sessions: SessionService, database: PostgresSchema, connections: Connections
) -> None:
    sessions.create("a")
    with following(database) as runner:
        for _ in range(3):
            runner.wait(newest(sessions), timeout=60)
            before = runner.restarts
            assert poll(connections.end, timeout=60)
            assert poll(lambda before=before: runner.restarts > before, timeout=60)  # type: ignore[misc]
            turn(sessions, "a")
    assert poll(lambda: connections.count() == 0, timeout=60)


def test_a_feed_whose_connections_are_ended_yields_each_entry_once(
    sessions: SessionService, database: PostgresSchema, connections: Connections
) -> None:
    with database.service() as reading, SessionFeed(reading) as feed:
        timer = threading.Timer(60, feed.stop)
        timer.start()
        entries, seen = iter(feed), list[int]()
        for number in range(3):
            sessions.create(f"s{number}")
            turn(sessions, f"s{number}")
            seen.append(next(entries).position)
            assert poll(connections.end, timeout=60)
            turn(sessions, f"s{number}")
            seen += [next(entries).position for _ in range(4)]
        timer.cancel()
    assert seen == list(range(1, 16))


@pytest.fixture
def silent(
    sessions: SessionService,
    database: PostgresSchema,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The server tells nobody of what is appended."""
    functions = database.rows(
        "SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = to_regnamespace(current_schema()) "
        "AND proname LIKE '%turnlog%' AND prosrc LIKE '%NOTIFY %'"
    )
    assert functions
    with connect() as connection:
        for (definition,) in functions:
            connection.execute(re.sub(r"NOTIFY [^;]*;", "", definition).encode())
    monkeypatch.setattr("turnlog.application.projections.nudging.NUDGE", 0.05)


@pytest.mark.usefixtures("silent")
def test_a_follower_to_whom_nothing_is_notified_gets_everything(
    sessions: SessionService, database: PostgresSchema
) -> None:
    sessions.create("a")
    with following(database) as runner:
        runner.wait(newest(sessions), timeout=60)
        turn(sessions, "a")
        runner.wait(newest(sessions), timeout=60)
    assert [row[0] for row in journal(database)] == [1, 2, 3]


@pytest.mark.usefixtures("silent")
def test_a_feed_to_which_nothing_is_notified_yields_everything(sessions: SessionService) -> None:
    sessions.create("a")
    with SessionFeed(sessions) as feed:
        timer = threading.Timer(60, feed.stop)
        timer.start()
        entries = iter(feed)
        first = next(entries).position
        turn(sessions, "a")
        rest = [next(entries).position for _ in range(2)]
        timer.cancel()
    assert [first, *rest] == [1, 2, 3]
