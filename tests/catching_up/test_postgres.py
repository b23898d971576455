"""Rows about sessions in PostgreSQL beside a recorder that writes none: caught up, or made afterwards."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from threading import Thread
from typing import Any

import pytest
from psycopg import sql
from tests.postgres.conftest import service_on
from tests.support.postgres import connect, postgres_env

from turnlog.application.erasing import SessionEraser
from turnlog.application.service import SessionService
from turnlog.application.sessions import Sessions
from turnlog.domain.errors import StorageError, UnreadableEventError
from turnlog.domain.events import EventErased
from turnlog.domain.ids import aggregate_id
from turnlog.domain.log import NewEvent
from turnlog.domain.messages import Message
from turnlog.domain.query import EventQuery
from turnlog.domain.session import Session
from turnlog.infrastructure.postgres import PlainPostgresEraser, catching_up

PLAIN = {"APPLICATION_RECORDER_TOPIC": "eventsourcing.postgres:PostgresApplicationRecorder"}
HERON = EventQuery(keywords="heron")


@pytest.fixture
def env() -> Mapping[str, str]:
    return postgres_env()


@pytest.fixture
def plain(env: Mapping[str, str]) -> Iterator[SessionService]:
    """A service on the framework's own recorder, with three sessions."""
    with service_on(env, **PLAIN) as service:
        for name in ("a", "b", "c"):
            service.create(name, metadata={"principal": "ada"})
            service.append_message(name, Message.user(f"a heron in {name}"), event_id=f"id-{name}")
        yield service


def rows(env: Mapping[str, str], statement: str) -> list[tuple[Any, ...]]:
    """What the statement answers in the schema of the store."""
    with connect() as connection:
        connection.execute(sql.SQL("SET search_path TO {}").format(sql.Identifier(env["POSTGRES_SCHEMA"])))
        return connection.execute(statement.encode()).fetchall()


def listed(service: SessionService) -> dict[str, int]:
    return {row.session_id: row.messages for row in service.list_sessions(limit=10_000)}


def stored(service: SessionService, session_id: str) -> list[type]:
    return [type(event) for event in service.app.events.get(aggregate_id(session_id, ""))]


def delete_and_die(service: SessionService, session_id: str) -> None:
    """What is stored when a process dies behind the write of the tombstone."""
    session: object = service.app.repository.get(aggregate_id(session_id, ""))
    assert isinstance(session, Session)
    session.delete(now=session.modified_on)
    service.app.save(session)


def run_at_once(script: str, env: Mapping[str, str]) -> list[int]:
    """How three processes with this script end."""
    command = [sys.executable, "-c", script, json.dumps(dict(env))]
    running = [subprocess.Popen([*command, str(number)]) for number in range(3)]
    return [process.wait() for process in running]


def test_the_capabilities_say_that_who_asks_applies_what_is_missing(plain: SessionService) -> None:
    said = plain.capabilities
    assert (said.event_ids, said.directory, said.recall, said.erases) == (
        "streams",
        "catch-up",
        "catch-up",
        True,
    )


def test_a_tracking_row_says_how_far_the_rows_got(plain: SessionService, env: Mapping[str, str]) -> None:
    assert len(plain.list_sessions()) == 3
    tracked = rows(env, "SELECT notification_id FROM sessions_turnlog_plain_tracking")
    assert tracked == [(plain.app.recorder.max_notification_id(),)]


def test_a_search_indexes_what_is_missing(plain: SessionService, env: Mapping[str, str]) -> None:
    for _ in range(5):
        plain.append_events("a", [NewEvent(message=Message.user("a heron"))] * 220)
    assert len(plain.search_events("a", HERON)) == 1101
    assert rows(env, "SELECT indexed FROM sessions_turnlog_plain_recall_mark") == [(1088,)]


READER = """
import json, sys
from turnlog.application import SessionService
from turnlog.domain import EventQuery, Message

with SessionService(env=json.loads(sys.argv[1])) as sessions:
    for number in range(20):
        sessions.append_message("a", Message.user("a heron by " + sys.argv[2]))
        sessions.list_sessions()
        sessions.search_events("a", EventQuery(keywords="heron"))
"""


def test_processes_that_catch_up_at_once_apply_nothing_twice(
    plain: SessionService, env: Mapping[str, str]
) -> None:
    assert run_at_once(READER, {**env, **PLAIN}) == [0, 0, 0]
    assert listed(plain) == {"a": 61, "b": 1, "c": 1}
    assert len(plain.search_events("a", HERON)) == 61


def test_who_catches_up_meanwhile_waits_and_applies_nothing_again(
    plain: SessionService, env: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain.list_sessions()
    plain.append_message("a", Message.user("more"))
    others: list[Thread] = []
    apply = catching_up.apply

    def beside_another(*arguments: Any) -> None:
        if not others:
            others.append(Thread(target=plain.list_sessions))
            others[0].start()
            waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%{}%'"
            while others[0].is_alive() and not rows(env, waiting.format(env["POSTGRES_SCHEMA"])):
                pass
        apply(*arguments)

    monkeypatch.setattr(catching_up, "apply", beside_another)
    plain.list_sessions()
    others[0].join()
    assert listed(plain) == {"a": 2, "b": 1, "c": 1}


def test_a_deletion_leaves_no_metadata_in_the_rows(plain: SessionService, env: Mapping[str, str]) -> None:
    plain.list_sessions()
    assert plain.delete("b").erasure == "done"
    assert rows(env, "SELECT count(content) FROM sessions_turnlog_plain_metadata") == [(2,)]
    assert listed(plain) == {"a": 1, "c": 1}


def test_a_sweep_overwrites_what_a_process_left_that_died_behind_the_tombstone(
    plain: SessionService, env: Mapping[str, str]
) -> None:
    delete_and_die(plain, "b")
    with service_on(env, **PLAIN) as other:
        swept = other.sweep()
        assert (swept.completed, swept.pending) == (1, 0)
        assert set(stored(other, "b")[:-1]) == {EventErased}


def test_content_that_is_to_be_kept_is_kept(plain: SessionService) -> None:
    plain.delete("b", erase=False)
    assert plain.sweep().completed == 0
    assert EventErased not in stored(plain, "b")


@pytest.mark.parametrize(
    "settings",
    [
        {"CREATE_TABLE": "no"},
        {"POSTGRES_ENABLE_DB_FUNCTIONS": "yes"},
    ],
    ids=["no tables are to be made", "ids in no order"],
)
def test_where_rows_cannot_be_kept_the_directory_is_in_memory(
    env: Mapping[str, str], settings: dict[str, str]
) -> None:
    service_on(env, **PLAIN).close()
    with connect() as connection:
        schema = sql.Identifier(env["POSTGRES_SCHEMA"])
        connection.execute(sql.SQL("DROP TABLE {}.sessions_turnlog_plain_tracking").format(schema))
    with service_on(env, **PLAIN, **settings) as service:
        service.create("a")
        said = service.capabilities
        assert (said.directory, said.recall, said.erases) == ("memory", "log", False)
        assert listed(service) == {"a": 0}


def test_a_redaction_is_carried_out_before_its_answer(plain: SessionService) -> None:
    plain.search_events("a", HERON)
    assert plain.redact("a", "id-a", reason="asked", by="ada").erasure == "done"
    assert plain.search_events("a", HERON) == ()
    assert b"heron" not in b"".join(
        one.state for one in plain.app.recorder.select_events(aggregate_id("a", ""))
    )


def test_a_deletion_behind_a_redaction_that_was_not_carried_out_is_completed(
    plain: SessionService, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as dying:
        dying.setattr(PlainPostgresEraser, "redact", SessionEraser.erase)  # does nothing
        plain.redact("a", "id-a", reason="asked", by="ada")
    delete_and_die(plain, "a")
    assert plain.sweep().pending == 0
    assert set(stored(plain, "a")[:-1]) == {EventErased}


@pytest.mark.parametrize("kind", ["a role without CREATE", "a read-only connection"])
def test_who_may_not_keep_rows_reads_the_logs(
    plain: SessionService, env: Mapping[str, str], kind: str
) -> None:
    schema, guest = sql.Identifier(env["POSTGRES_SCHEMA"]), "guest_" + env["POSTGRES_SCHEMA"]
    with connect() as connection:
        for statement in (
            "DROP TABLE {schema}.sessions_turnlog_plain_tracking",
            "CREATE ROLE {role} LOGIN",
            "GRANT USAGE ON SCHEMA {schema} TO {role}",
            "GRANT SELECT, INSERT ON {schema}.sessions_events TO {role}",
            "GRANT CREATE ON SCHEMA {schema} TO {role}" if "read-only" in kind else "SELECT 1",
            "ALTER ROLE {role} SET default_transaction_read_only = on" if "read-only" in kind else "SELECT 1",
        ):
            connection.execute(sql.SQL(statement).format(role=sql.Identifier(guest), schema=schema))
    try:
        app = Sessions(env={**env, **PLAIN, "POSTGRES_USER": guest, "CREATE_TABLE": "no"})
        app.env["CREATE_TABLE"] = "yes"  # the framework's own tables are there
        said = SessionService(app).capabilities
        assert (said.directory, said.recall, said.erases) == ("memory", "log", False)
        app.close()
    finally:
        with connect() as connection:
            connection.execute(sql.SQL("DROP OWNED BY {}").format(sql.Identifier(guest)))
            connection.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(guest)))


# --- rows for what was stored without


@pytest.mark.parametrize("asked", [True, False], ids=["caught up", "never asked"])
def test_a_recorder_with_rows_makes_those_of_what_is_stored(
    plain: SessionService, env: Mapping[str, str], asked: bool
) -> None:
    if asked:
        assert len(plain.list_sessions()) == 3
        plain.search_events("a", HERON)
    plain.append_message("a", Message.user("more"))
    plain.delete("b")
    with service_on(env) as sessions:
        assert sessions.capabilities.directory == "rows"
        assert listed(sessions) == {"a": 2, "c": 1}
        assert len(sessions.search_all(HERON)) == 2
        assert rows(env, "SELECT pending FROM sessions_turnlog_erasures") == [(False,)]
        assert [erased.aggregate_id for erased in sessions.app.recorder.eraser.erased()] == [  # type: ignore[attr-defined] # pyright: ignore
            aggregate_id("b", "")
        ]
    assert (
        rows(env, "SELECT 1 FROM pg_tables WHERE tablename LIKE '%plain%' AND schemaname = current_schema")
        == []
    )


def test_a_repeat_of_what_was_stored_without_rows_is_known(
    plain: SessionService, env: Mapping[str, str]
) -> None:
    with service_on(env) as sessions:
        assert sessions.append_message("a", Message.user("a heron in a"), event_id="id-a").is_repeat


def test_a_deletion_that_was_not_completed_without_rows_is_completed(
    plain: SessionService, env: Mapping[str, str]
) -> None:
    delete_and_die(plain, "b")
    with service_on(env) as sessions:
        assert set(stored(sessions, "b")[:-1]) == {EventErased}
        assert (sessions.sweep().completed, listed(sessions)) == (1, {"a": 1, "c": 1})


def test_what_is_stored_is_indexed_when_its_rows_are_made(
    plain: SessionService, env: Mapping[str, str]
) -> None:
    plain.append_events("c", [NewEvent(message=Message.user(f"a heron {n}")) for n in range(40)])
    with service_on(env) as sessions:
        assert rows(env, "SELECT indexed FROM sessions_turnlog_recall_mark") == [(32,)]
        assert len(sessions.search_events("c", HERON)) == 41


STARTER = """
import json, sys
from turnlog.application import SessionService
from turnlog.domain import Message

with SessionService(env=json.loads(sys.argv[1])) as sessions:
    sessions.append_message("a", Message.user("a heron by " + sys.argv[2]), event_id="start-" + sys.argv[2])
"""


def test_processes_that_start_at_once_make_the_rows_once(
    plain: SessionService, env: Mapping[str, str]
) -> None:
    for _ in range(6):
        plain.append_events("b", [NewEvent(message=Message.user("word"))] * 250)
    assert run_at_once(STARTER, env) == [0, 0, 0]
    with service_on(env) as sessions:
        assert listed(sessions) == {"a": 4, "b": 1501, "c": 1}
    assert rows(env, "SELECT count(*) FROM sessions_turnlog_event_ids") == [(6,)]


def test_an_old_reader_says_that_it_must_start_anew(plain: SessionService, env: Mapping[str, str]) -> None:
    plain.list_sessions()
    with service_on(env) as sessions:
        with pytest.raises(StorageError, match="SessionRows"):
            plain.list_sessions()
        assert listed(sessions)["a"] == 1


def test_rows_that_cannot_be_made_are_not_made_in_part(plain: SessionService, env: Mapping[str, str]) -> None:
    rows(
        env,
        r"UPDATE sessions_events SET state = '\x00' RETURNING 1",
    )
    with pytest.raises(UnreadableEventError, match="version 0 "):
        service_on(env)
    assert rows(env, "SELECT to_regclass('sessions_turnlog_sessions')") == [(None,)]
