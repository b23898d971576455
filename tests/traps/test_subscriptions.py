"""Subscriptions: a notification that is lost, a connection that dies, a queue that is full."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from tests.support.postgres import connect, postgres_env

from turnlog.application.projections import (
    MemoryViewStore,
    SessionProjectionRunner,
    SupervisedRunner,
    ViewProjection,
)
from turnlog.application.projections.waiting import poll
from turnlog.application.service import SessionService
from turnlog.application.sessions import Sessions
from turnlog.domain.messages import Message

IN_MEMORY = {"TURNLOG_VIEW_PERSISTENCE_MODULE": "eventsourcing.popo"}


def newest(sessions: SessionService) -> int | None:
    return sessions.app.recorder.max_notification_id()


def test_on_postgres_a_notification_that_never_comes_does_not_block_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("turnlog.application.projections.nudging.NUDGE", 0.05)
    env = {**postgres_env(), "APPLICATION_RECORDER_TOPIC": "tests.traps.recorders:PostgresSilent"}
    with (
        SessionProjectionRunner(
            application_class=Sessions,
            projection_class=ViewProjection,
            view_class=MemoryViewStore,
            env={**env, **IN_MEMORY},
        ) as runner,
        SessionService(env=env) as sessions,
    ):
        sessions.create("a")
        runner.wait(newest(sessions), timeout=60)
        sessions.create("b")
        runner.wait(newest(sessions), timeout=60)


def test_on_postgres_a_runner_survives_the_end_of_its_connections() -> None:
    env = postgres_env()
    with (
        SupervisedRunner(
            application_class=Sessions,
            projection_class=ViewProjection,
            view_class=MemoryViewStore,
            env={**env, **IN_MEMORY},
        ) as runner,
        SessionService(env=env) as sessions,
    ):
        sessions.create("a")
        runner.wait(newest(sessions), timeout=60)
        assert poll(end_listeners, timeout=60)
        sessions.create("b")
        runner.wait(newest(sessions), timeout=60)
        assert poll(lambda: runner.restarts >= 1, timeout=60)


def end_listeners() -> bool:
    """Let the server end the connections that wait for notifications; whether there were any."""
    with connect() as connection:
        ended = connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE query LIKE 'LISTEN%' AND pid <> pg_backend_pid()"
        ).fetchall()
    return bool(ended)


def test_a_subscription_whose_queue_is_full_can_be_stopped(sessions: SessionService) -> None:
    sessions.create("a")
    before = set(threading.enumerate())
    subscription: Any = sessions.app.recorder.subscribe(gt=0)
    with subscription:
        queue = subscription._notifications_queue
        queue.maxsize = 1
        sessions.create("b")
        sessions.create("c")
        assert poll(lambda: is_waiting_for_room(sessions, queue), timeout=60)
    assert set(threading.enumerate()) - before == set()


def is_waiting_for_room(sessions: SessionService, queue: Any) -> bool:
    """Whether the thread that reads the log waits for room in the queue; if not, there is more to read."""
    waits = bool(queue.not_full._waiters)
    if not waits:
        sessions.append_message("a", Message.user("more"))
    return waits
