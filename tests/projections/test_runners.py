"""Runners that follow the log: the framework's, ours, and the one that survives what a database does."""

from __future__ import annotations

import signal
import threading
from collections.abc import Sequence
from typing import Any, cast

import pytest
from eventsourcing.persistence import OperationalError
from eventsourcing.projection import ProjectionRunner
from tests.projections.activity import compact, live, turn
from tests.projections.databases import Database, PostgresSchema
from tests.projections.processes import finish, worker
from tests.support.postgres import listeners

from turnlog.application.projections import (
    MaterialisedViews,
    MemoryViewStore,
    ProjectionStoppedError,
    SessionProjectionRunner,
    SupervisedRunner,
    ViewProjection,
)
from turnlog.application.projections.batches import Positioned
from turnlog.application.projections.waiting import poll
from turnlog.application.service import SessionService
from turnlog.application.sessions import Sessions
from turnlog.domain.messages import Message


def running(database: Database, view_class: type[Any] | None = None) -> SupervisedRunner[Any]:
    return SupervisedRunner(
        application_class=Sessions,
        projection_class=ViewProjection,
        view_class=view_class or database.view_class,
        env=database.env,
    )


def newest(sessions: SessionService) -> int | None:
    return sessions.app.recorder.max_notification_id()


def tracked(database: Database) -> int | None:
    with database.view_store() as store:
        return cast("int | None", store.position())


def agree(database: Database, sessions: SessionService, names: Sequence[str]) -> bool:
    with database.view_store() as store:
        stored = MaterialisedViews(sessions, store)
        return all(stored.view(name) == sessions.view(name) for name in names)


def test_the_frameworks_runner_follows_a_database(sessions: SessionService, database: Database) -> None:
    on_postgres = isinstance(database, PostgresSchema)
    before = listeners() if on_postgres else set[int]()
    sessions.create("a")
    with ProjectionRunner(
        application_class=Sessions,
        projection_class=ViewProjection,
        view_class=cast("Any", database.view_class),
        env=database.env,
    ) as runner:
        if on_postgres:  # the framework's runner misses what comes between its first look and its LISTEN
            assert poll(lambda: bool(listeners() - before), timeout=60)
        turn(sessions, "a")
        runner.wait(newest(sessions), timeout=60)
        assert MaterialisedViews(sessions, runner.view).view("a") == sessions.view("a")


def test_our_runner_follows_an_application_in_memory() -> None:
    with SessionProjectionRunner(
        application_class=Sessions, projection_class=ViewProjection, view_class=MemoryViewStore
    ) as runner:
        sessions = SessionService(runner.app)
        sessions.create("a")
        turn(sessions, "a")
        runner.wait(newest(sessions), timeout=60)
        assert MaterialisedViews(sessions, runner.view).view("a") == sessions.view("a")


def test_what_was_there_before_is_applied_in_pages(sessions: SessionService, database: Database) -> None:
    sizes: list[int] = []

    class Watched(database.view_class):  # type: ignore[misc,name-defined] # whichever it is
        def apply(self, batch: Sequence[Positioned]) -> None:
            sizes.append(len(batch))
            super().apply(batch)

    life = live(sessions, 5, 120)
    with running(database, Watched) as runner:
        runner.wait(newest(sessions), timeout=60)
    assert sizes == [newest(sessions)]
    assert agree(database, sessions, life.names)


def test_an_append_is_read_by_waiting_for_its_version(sessions: SessionService, database: Database) -> None:
    sessions.create("a")
    with running(database) as runner, database.view_store() as store:
        runner.wait(newest(sessions), timeout=60)
        stored = MaterialisedViews(sessions, store)
        for number in range(20):
            version = sessions.append_message("a", Message.user(f"heron {number}")).version
            assert stored.view("a", at_least=version, timeout=60).version == version


def test_an_append_is_read_in_another_process(sessions: SessionService, database: Database) -> None:
    sessions.create("a")
    with worker("follow", database) as process, database.view_store() as store:
        version = sessions.append_message("a", Message.user("heron")).version
        stored = MaterialisedViews(sessions, store)
        assert stored.view("a", at_least=version, timeout=60) == sessions.view("a")
        assert finish(process) == 0


def test_waiting_asks_at_once_and_not_after_a_sleep() -> None:
    asked = iter([True])
    assert poll(lambda: next(asked), timeout=0)


def test_several_runners_apply_every_event_once(sessions: SessionService, database: Database) -> None:
    live(sessions, 2, 20)
    with running(database) as one, running(database) as other, worker("follow", database) as process:
        for number in range(5):
            sessions.create(f"b{number}")
            turn(sessions, f"b{number}")
            turn(sessions, f"b{number}")
            compact(sessions, f"b{number}")
        for runner in (one, other):
            runner.wait(newest(sessions), timeout=60)
        assert (one.restarts, other.restarts) == (0, 0)
        assert finish(process) == 0
    assert agree(database, sessions, [f"b{number}" for number in range(5)])


def test_a_runner_that_is_killed_goes_on_from_its_tracking_row(
    sessions: SessionService, database: Database
) -> None:
    life = live(sessions, 4, 60)
    before = 0
    for _ in range(3):
        with worker("follow", database, "slow") as process:
            assert process.stdout is not None
            for line in process.stdout:
                if line.strip().isdigit() and int(line) > before + 5:
                    break
            process.send_signal(signal.SIGKILL)
            assert process.wait(60) == -signal.SIGKILL
        now = tracked(database)
        assert now is not None
        assert before < now <= (newest(sessions) or 0)
        before = now
    with running(database) as runner:
        runner.wait(newest(sessions), timeout=60)
    assert agree(database, sessions, life.names)


def test_it_survives_a_database_that_fails_for_a_while(sessions: SessionService, database: Database) -> None:
    sessions.create("a")
    failures = iter([True, True, False])

    class Hiccups(database.view_class):  # type: ignore[misc,name-defined] # whichever it is
        def apply(self, batch: Sequence[Positioned]) -> None:
            if next(failures, False):
                raise OperationalError("disk I/O error")
            super().apply(batch)

    with running(database, Hiccups) as runner:
        runner.wait(newest(sessions), timeout=60)
        turn(sessions, "a")
        runner.wait(newest(sessions), timeout=60)
        assert runner.restarts == 2
    assert agree(database, sessions, ["a"])


def test_it_survives_a_subscription_that_fails(sessions: SessionService, database: Database) -> None:
    sessions.create("a")
    with running(database) as runner:
        runner.wait(newest(sessions), timeout=60)
        current: Any = vars(runner)["_runner"]
        inner = current._subscription.subscription
        inner._thread_error = OperationalError("the connection is lost")
        inner.stop()
        turn(sessions, "a")
        runner.wait(newest(sessions), timeout=60)
        assert runner.restarts == 1
    assert agree(database, sessions, ["a"])


def test_a_handler_that_fails_stops_it_and_is_not_passed_over(
    sessions: SessionService, database: Database
) -> None:
    sessions.create("a")

    class Broken(database.view_class):  # type: ignore[misc,name-defined] # whichever it is
        def apply(self, batch: Sequence[Positioned]) -> None:
            raise KeyError(f"a mistake in the code for {len(batch)} events")

    runner = running(database, Broken)
    with pytest.raises(ProjectionStoppedError) as raised:
        runner.run_forever(timeout=60)
    runner.stop()
    assert isinstance(raised.value.__cause__, KeyError)
    assert "stopped in front of the first position" in str(raised.value)
    assert tracked(database) is None


def test_a_lost_notification_does_not_block_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnlog.application.projections.nudging.NUDGE", 0.05)
    with SessionProjectionRunner(
        application_class=Sessions, projection_class=ViewProjection, view_class=MemoryViewStore
    ) as runner:
        recorder: Any = runner.app.recorder
        recorder._listeners.clear()  # from here on nobody is told
        sessions = SessionService(runner.app)
        sessions.create("a")
        runner.wait(newest(sessions), timeout=60)


def test_a_store_that_is_asked_for_its_position_is_not_closed_meanwhile(
    sessions: SessionService, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed, was_closed = threading.Event(), list[bool]()
    stoppers: list[threading.Thread] = []

    def close(view: Any) -> None:
        closed.set()
        view.datastore.close()

    class Asked(database.view_class):  # type: ignore[misc,name-defined] # whichever it is
        def max_tracking_id(self, application_name: str) -> int | None:
            if threading.current_thread() is threading.main_thread() and stoppers and not was_closed:
                stoppers[0].start()
                was_closed.append(closed.wait(0.2))
            position: int | None = super().max_tracking_id(application_name)
            return position

    monkeypatch.setattr("turnlog.application.projections.running._close", close)
    sessions.create("a")
    with running(database, Asked) as runner:
        runner.wait(newest(sessions), timeout=60)
        stoppers.append(threading.Thread(target=runner.stop))
        runner.wait(newest(sessions), timeout=60)
        stoppers[0].join()
    assert was_closed == [False]
    assert closed.is_set()


def test_nothing_is_left_running(sessions: SessionService, database: Database) -> None:
    sessions.create("a")
    before = set(threading.enumerate())
    with running(database) as runner:
        runner.wait(newest(sessions), timeout=60)
    assert set(threading.enumerate()) - before == set()
