"""Subscriptions on SQLite, within a process and across processes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest
from eventsourcing.application import Application
from eventsourcing.persistence import StoredEvent
from eventsourcing.projection import ApplicationSubscription
from tests.projections.activity import FOLLOWABLE, PLAIN, env_of, service_on, turn
from tests.projections.databases import SqliteFile
from tests.projections.processes import worker

from turnlog.application.projections import (
    MemoryFollowerStore,
    NoSubscriptionsError,
    SessionFeed,
    SessionFollower,
    SupervisedRunner,
)
from turnlog.application.service import SessionService
from turnlog.application.sessions import Sessions
from turnlog.domain.messages import Message
from turnlog.infrastructure.sqlite.subscribing import SqliteSubscription


@pytest.fixture
def sessions(path: Path) -> Iterator[SessionService]:
    """A service on a file."""
    with service_on(path) as service:
        yield service


@pytest.fixture
def stopper() -> Iterator[list[ApplicationSubscription[UUID]]]:
    """Subscriptions that are stopped at the end, so that a test that waits in vain fails in time."""
    held: list[ApplicationSubscription[UUID]] = []

    def stop() -> None:
        for subscription in held:
            subscription.stop()

    timer = threading.Timer(60, stop)
    timer.start()
    yield held
    timer.cancel()
    for subscription in held:
        subscription.stop()


def subscribed(
    service: SessionService, held: list[ApplicationSubscription[UUID]], gt: int | None = None
) -> ApplicationSubscription[UUID]:
    subscription = ApplicationSubscription(service.app, gt=gt)
    held.append(subscription)
    return subscription


def test_it_yields_what_was_recorded_and_then_what_is_recorded(
    sessions: SessionService, stopper: list[ApplicationSubscription[UUID]]
) -> None:
    sessions.create("a")
    with subscribed(sessions, stopper) as subscription:
        first = next(subscription)
        sessions.append_message("a", Message.user("heron"))
        second = next(subscription)
    assert [tracking.notification_id for _, tracking in (first, second)] == [1, 2]


def test_it_begins_behind_the_position_that_is_given(
    sessions: SessionService, stopper: list[ApplicationSubscription[UUID]]
) -> None:
    sessions.create("a")
    turn(sessions, "a")
    with subscribed(sessions, stopper, gt=2) as subscription:
        assert next(subscription)[1].notification_id == 3


def test_it_sees_what_another_process_records(
    sessions: SessionService, path: Path, stopper: list[ApplicationSubscription[UUID]]
) -> None:
    sessions.create("a")
    with (
        subscribed(sessions, stopper) as subscription,
        worker("append", SqliteFile(path), "a", 50) as process,
    ):
        seen = [next(subscription)[1].notification_id for _ in range(51)]
        assert process.wait(60) == 0
    assert seen == list(range(1, 52))


def test_it_sees_what_was_written_without_any_notification(
    sessions: SessionService, path: Path, stopper: list[ApplicationSubscription[UUID]]
) -> None:
    with service_on(path) as other, subscribed(sessions, stopper) as subscription:
        other.create("a")
        assert next(subscription)[1].notification_id == 1


def test_a_subscription_in_shared_memory_sees_the_writes_of_its_process(
    stopper: list[ApplicationSubscription[UUID]],
) -> None:
    env = {"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": ":memory:"}
    with SessionService(env=env) as sessions, subscribed(sessions, stopper) as subscription:
        sessions.create("a")
        assert next(subscription)[1].notification_id == 1


def test_a_host_gets_subscriptions_without_rows_about_sessions(
    path: Path, stopper: list[ApplicationSubscription[UUID]]
) -> None:
    with service_on(path, FOLLOWABLE) as sessions, subscribed(sessions, stopper) as subscription:
        sessions.create("a")
        assert next(subscription)[1].notification_id == 1
        assert sessions.capabilities.directory == "catch-up"


def test_the_frameworks_own_recorder_still_has_none(path: Path) -> None:
    with service_on(path, PLAIN) as sessions, pytest.raises(NotImplementedError):
        sessions.app.recorder.subscribe()


def test_topics_narrow_what_is_yielded(
    sessions: SessionService, stopper: list[ApplicationSubscription[UUID]]
) -> None:
    sessions.create("a")
    turn(sessions, "a")
    sessions.delete("a")
    topics = ("turnlog.domain.events:SessionDeleted",)
    subscription = ApplicationSubscription(sessions.app, topics=topics)
    stopper.append(subscription)
    with subscription:
        assert next(subscription)[1].notification_id == 4


def test_many_writers_in_many_threads_are_seen_once_each_and_in_order(
    path: Path, stopper: list[ApplicationSubscription[UUID]]
) -> None:
    app = Application[UUID](env_of(path, FOLLOWABLE))
    total = 200

    def write(number: int) -> None:
        for version in range(total // 4):
            app.recorder.insert_events([StoredEvent(UUID(int=number), version, "host:Thing", b"{}")])

    subscription = app.recorder.subscribe()
    timer = threading.Timer(60, subscription.stop)
    timer.start()
    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    with subscription:
        for thread in threads:
            thread.start()
        seen = [next(subscription).id for _ in range(total)]
    timer.cancel()
    for thread in threads:
        thread.join()
    app.close()
    assert isinstance(subscription, SqliteSubscription)
    assert seen == list(range(1, total + 1))
    assert not stopper


def plain_env(path: Path) -> dict[str, str]:
    """An SQLite store with the framework's own recorder."""
    return {**env_of(path), "APPLICATION_RECORDER_TOPIC": PLAIN}


def test_a_feed_on_a_recorder_without_subscriptions_names_what_has_them(tmp_path: Path) -> None:
    with (
        SessionService(env=plain_env(tmp_path / "s.db")) as sessions,
        pytest.raises(NoSubscriptionsError, match="SessionRows or SqliteSubscriptions"),
    ):
        SessionFeed(sessions)


class _Nothing(SessionFollower[list[str]]):
    """A follower that does nothing."""


def test_a_runner_on_a_recorder_without_subscriptions_says_the_same(tmp_path: Path) -> None:
    runner = SupervisedRunner[Any](
        application_class=Sessions,
        projection_class=cast("Any", _Nothing),
        view_class=MemoryFollowerStore,
        env={
            **plain_env(tmp_path / "s.db"),
            "_NOTHING_PERSISTENCE_MODULE": "eventsourcing.popo",
        },
    )
    with pytest.raises(NoSubscriptionsError):
        runner.run_forever(timeout=60)
    assert runner.restarts == 0
