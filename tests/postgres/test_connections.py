"""Connections that die, are cut at the worst moment, or are not to be had."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Event, Thread
from typing import Any

import psycopg
import psycopg_pool
import pytest
from eventsourcing.postgres import PostgresApplicationRecorder
from tests.postgres.conftest import datastore_of, service_on
from tests.projections.databases import PLAIN_POSTGRES
from tests.support.cutting_proxy import CuttingProxy
from tests.support.postgres import connect

from turnlog.application.projections.waiting import poll
from turnlog.application.service import SessionService
from turnlog.application.sessions import Sessions
from turnlog.domain.errors import (
    StorageClosedError,
    StorageError,
    StorageUnavailableError,
    WriteUncertainError,
)
from turnlog.domain.messages import Message
from turnlog.infrastructure.cli.app import run
from turnlog.infrastructure.cli.settings import Status
from turnlog.infrastructure.postgres import PostgresReadModels
from turnlog.infrastructure.postgres.pool import one_line

HI = Message.user("hi")


@pytest.mark.parametrize("event_id", [None, "given"])
def test_an_append_whose_answer_was_lost_behind_the_commit_is_stored_once_and_said_to_be(
    proxy: CuttingProxy, event_id: str | None
) -> None:
    with service_on(proxy.env()) as sessions:
        sessions.create("s")
        proxy.cut_behind("MessageAppended")
        stored = sessions.append_message("s", HI, event_id=event_id)
        assert proxy.cuts == 1
        assert [event.id for event in sessions.get_events("s")] == [stored.id]
        assert not stored.is_repeat


def test_a_session_whose_opening_was_answered_by_a_cut_is_created_once(proxy: CuttingProxy) -> None:
    with service_on(proxy.env()) as sessions:
        proxy.cut_behind("SessionOpened")
        assert sessions.create("s").id == "s"
        assert proxy.cuts == 1


@pytest.mark.parametrize("command", ["SessionDeleted", "COMMIT"])
def test_a_deletion_that_was_answered_by_a_cut_is_done(proxy: CuttingProxy, command: str) -> None:
    with service_on(proxy.env()) as sessions:
        sessions.create("s")
        sessions.append_message("s", HI)
        proxy.cut_behind(command)
        assert sessions.delete("s").erasure == "done"
        assert proxy.cuts == 1
        assert sessions.find("s") is None


def test_connections_that_died_between_two_calls_are_noticed(proxy: CuttingProxy) -> None:
    with service_on(proxy.env(), POSTGRES_POOL_SIZE="5") as sessions:
        sessions.create("s")
        proxy.cut_all()
        sessions.append_message("s", HI)
        proxy.cut_all()
        assert len(sessions.view("s").ids) == 1
        assert [row.session_id for row in sessions.list_sessions()] == ["s"]


def end_connection_of(sessions: SessionService) -> None:
    """Let the server end the one that it has, and wait until it is dead."""
    with datastore_of(sessions).get_connection() as own:
        pid = own.info.backend_pid
    with connect() as connection:
        connection.execute("SELECT pg_terminate_backend(%s, 60000)", (pid,))


def test_a_connection_that_the_server_ended_is_replaced(sessions: SessionService) -> None:
    sessions.create("s")
    end_connection_of(sessions)
    assert sessions.append_message("s", HI).version == 1


def test_a_write_whose_outcome_nobody_can_look_up_is_said_to_be_uncertain(proxy: CuttingProxy) -> None:
    with service_on(proxy.env()) as sessions:
        sessions.create("s")
        datastore_of(sessions).pool.timeout = 0.5
        proxy.cut_all(for_good=True)
        with pytest.raises(WriteUncertainError, match="nobody knows"):
            sessions.append_message("s", HI)


def test_a_pool_that_is_used_up_refuses_within_its_time(env: Mapping[str, str]) -> None:
    with service_on(env, POSTGRES_MAX_OVERFLOW="0") as sessions:
        sessions.create("s")
        pool = datastore_of(sessions).pool
        pool.timeout = 0.1
        taken, done = Event(), Event()

        def keep_the_only_connection() -> None:
            with datastore_of(sessions).get_connection():
                taken.set()
                done.wait(60)

        keeper = Thread(target=keep_the_only_connection)
        keeper.start()
        assert taken.wait(60)
        with pytest.raises(StorageUnavailableError, match="Nothing was written"):
            sessions.append_message("s", HI)
        assert pool.get_stats()["requests_errors"] == 1, "the framework would have tried ten times"
        done.set()
        keeper.join()
        pool.timeout = 60
        assert sessions.append_message("s", HI).version == 1


def test_a_pool_that_is_full_of_waiting_callers_refuses_at_once(env: Mapping[str, str]) -> None:
    with service_on(env, POSTGRES_MAX_OVERFLOW="0", POSTGRES_MAX_WAITING="1") as sessions:
        datastore = datastore_of(sessions)
        with datastore.get_connection():
            waiter = Thread(target=lambda: sessions.find("s"))
            waiter.start()
            while not datastore.pool.get_stats().get("requests_waiting"):
                pass
            pool: Any = datastore.pool
            pool._failure = psycopg.OperationalError("no such host")  # of a try long ago
            with pytest.raises(StorageUnavailableError, match="POSTGRES_MAX_WAITING") as refused:
                sessions.find("s")
        waiter.join()
    assert "no such host" not in str(refused.value)
    assert isinstance(refused.value.__cause__, psycopg_pool.TooManyRequests)


def test_who_comes_while_the_pool_gives_up_to_connect_gets_the_next_connection(
    env: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with service_on(env, POSTGRES_MAX_OVERFLOW="0") as sessions:
        sessions.create("s")
        pool: Any = datastore_of(sessions).pool
        connected = pool._connect
        failures = iter([True, True])  # then the pool gives up

        def fail_while_somebody_waits(timeout: float | None = None) -> object:
            if not next(failures, False):
                return connected(timeout)
            assert poll(lambda: bool(pool.get_stats().get("requests_waiting")), timeout=60)
            raise psycopg.OperationalError("the server is down")

        monkeypatch.setattr(pool, "_connect", fail_while_somebody_waits)
        monkeypatch.setattr(pool, "reconnect_timeout", 0.0)
        end_connection_of(sessions)
        assert sessions.append_message("s", HI).version == 1
        assert next(failures, None) is None


def test_a_worker_of_the_pool_that_finds_it_unused_can_close_it(env: Mapping[str, str]) -> None:
    """As the garbage collector does, in whichever thread it runs."""
    with service_on(env) as sessions:
        pool: Any = datastore_of(sessions).pool
        pool.open()
        said: list[BaseException] = []
        done = Event()

        class Close:
            def run(self) -> None:
                try:
                    pool.close()
                except BaseException as error:
                    said.append(error)
                done.set()

        pool.run_task(Close())
        assert done.wait(60)
        assert said == []
        assert poll(lambda: pool.closed, timeout=60)


def test_a_pool_that_is_replaced_is_closed_and_who_has_a_connection_of_it_may_finish(
    env: Mapping[str, str],
) -> None:
    with Sessions(env={**env, "APPLICATION_RECORDER_TOPIC": PLAIN_POSTGRES}) as app:
        recorder = app.recorder
        assert isinstance(recorder, PostgresApplicationRecorder)
        before = recorder.datastore.pool
        with recorder.datastore.get_connection() as own:
            PostgresReadModels(app).lost()
            assert recorder.datastore.pool is not before
            assert before.closed
            assert own.execute("SELECT 1 AS one").fetchall() == [{"one": 1}]
        assert own.closed


def test_a_closed_service_says_so(env: Mapping[str, str]) -> None:
    sessions = service_on(env)
    sessions.close()
    with pytest.raises(StorageError, match="was closed"):
        sessions.find("s")


@pytest.mark.parametrize("recorder", ["plain", "rows"])
def test_read_models_of_a_closed_application_say_so(env: Mapping[str, str], recorder: str) -> None:
    plain = {"APPLICATION_RECORDER_TOPIC": PLAIN_POSTGRES} if recorder == "plain" else {}
    app = Sessions(env={**env, **plain})
    models = PostgresReadModels(app)
    app.close()
    for ask in (models.log_size, models.present, models.compare, lambda: models.rebuild(["directory"])):
        with pytest.raises(StorageClosedError):
            ask()


def test_nothing_is_uncertain_of_what_a_closed_plain_recorder_was_to_write(env: Mapping[str, str]) -> None:
    sessions = service_on(env, APPLICATION_RECORDER_TOPIC=PLAIN_POSTGRES)
    sessions.create("s")
    sessions.close()
    with pytest.raises(StorageClosedError):
        sessions.append_message("s", HI)


def test_who_needs_one_connection_at_a_time_keeps_to_the_one_used_last(env: Mapping[str, str]) -> None:
    with service_on(env, POSTGRES_POOL_SIZE="2", POSTGRES_MAX_OVERFLOW="0") as sessions:
        store = datastore_of(sessions)
        store.pool.wait()
        with store.get_connection() as one, store.get_connection() as other:
            assert one.info.backend_pid != other.info.backend_pid
            last = one.info.backend_pid  # is returned behind the other
        for _ in range(3):
            with store.get_connection() as again:
                assert again.info.backend_pid == last


def test_a_server_that_cannot_be_reached_is_an_error_with_what_the_driver_said(
    env: Mapping[str, str],
) -> None:
    nobody = {"POSTGRES_HOST": "127.0.0.1", "POSTGRES_PORT": "1", "POSTGRES_CONNECT_TIMEOUT": "1"}
    with pytest.raises(StorageUnavailableError, match=r"refused\. Is .*connections\? Nothing") as caught:
        service_on(env, **nobody)
    assert "\n" not in str(caught.value)
    assert "in use" not in str(caught.value)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("FATAL:  no such user.\n\tIs it spelled right?\n", "FATAL: no such user. Is it spelled right?"),
        ("refused\n\tIs the server running?", "refused. Is the server running?"),
        ("refused.\nAll failures were:\n- host: a", "refused. All failures were: - host: a."),
        ("", ""),
    ],
)
def test_what_a_driver_says_on_several_lines_is_said_in_sentences_on_one(said: str, told: str) -> None:
    assert one_line(psycopg.OperationalError(said)) == told


def test_the_command_line_says_it_in_sentences_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--db", "postgresql://x@127.0.0.1:1/x", "sessions"]) == Status.UNREACHABLE
    assert capsys.readouterr().err.endswith("connections?\n")


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_transactions_see_what_was_committed_while_they_waited_whatever_the_role_has(
    env: Mapping[str, str], monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    monkeypatch.setenv("PGOPTIONS", f"-c default_transaction_isolation={level.replace(' ', chr(92) + ' ')}")
    with service_on(env) as sessions, datastore_of(sessions).get_connection() as connection:
        (shown,) = connection.execute("SHOW transaction_isolation").fetchall()
        assert dict(shown) == {"transaction_isolation": "read committed"}
