"""What is left of deleted sessions in PostgreSQL, and what keeps it there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from threading import Event, Thread

import pytest
from psycopg import IsolationLevel, sql
from tests.postgres.conftest import service_on
from tests.support.postgres import connect

from turnlog.application.service import SessionService
from turnlog.domain.errors import StorageLockedError
from turnlog.domain.messages import Message
from turnlog.domain.query import EventQuery
from turnlog.infrastructure.postgres import eraser, recall
from turnlog.infrastructure.postgres.recall import BLOCK, PostgresRecallIndex

RARE = "quixotic"


def fill(sessions: SessionService, name: str = "s", messages: int = 2 * BLOCK) -> None:
    """A session that is indexed."""
    sessions.create(name, metadata={"title": RARE})
    for number in range(messages):
        sessions.append_message(name, Message.user(f"{RARE} {number}"), event_id=f"{RARE}-{number}")


def rows(env: Mapping[str, str], table: str) -> int:
    """How many rows a table has."""
    name = sql.Identifier(env["POSTGRES_SCHEMA"], table)
    with connect() as connection:
        found = connection.execute(sql.SQL("SELECT count(*) FROM {}").format(name)).fetchone()
    return int(found[0]) if found else 0


def dead_rows(env: Mapping[str, str]) -> int:
    """How many old rows of events the table still has."""
    with connect() as connection:
        found = connection.execute(
            "SELECT n_dead_tup FROM pg_stat_all_tables WHERE schemaname = %s AND relname = 'sessions_events'",
            (env["POSTGRES_SCHEMA"],),
        ).fetchone()
    return int(found[0]) if found else -1


def test_what_was_derived_from_a_session_goes_with_it(
    env: Mapping[str, str], sessions: SessionService
) -> None:
    fill(sessions)
    tables = [
        "sessions_turnlog_event_ids",
        "sessions_turnlog_sessions",
        "sessions_turnlog_metadata",
        "sessions_turnlog_by_metadata",
        "sessions_turnlog_recall",
        "sessions_turnlog_recall_mark",
    ]
    assert all(rows(env, table) for table in tables)
    sessions.delete("s")
    assert [rows(env, table) for table in tables] == [0] * 6


def test_a_deletion_is_followed_by_a_vacuum(env: Mapping[str, str], sessions: SessionService) -> None:
    fill(sessions)
    assert sessions.delete("s").erasure == "done"
    assert dead_rows(env) == 0


def test_a_reader_that_began_before_the_deletion_keeps_the_erasure_pending(
    env: Mapping[str, str], sessions: SessionService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eraser, "_PATIENCE", 0.1)
    fill(sessions)
    with connect() as reader:
        reader.isolation_level = IsolationLevel.REPEATABLE_READ
        with reader.transaction():
            reader.execute("SELECT 1")
            deletion = sessions.delete("s")
            assert deletion.erasure == "pending"
            assert "transaction of another connection" in (deletion.reason or "")
            assert sessions.sweep().pending == 1
    swept = sessions.sweep()
    assert (swept.completed, swept.pending, swept.reason) == (1, 0, None)
    assert dead_rows(env) == 0


def test_an_older_transaction_that_wrote_and_reads_nothing_keeps_it_pending_too(
    env: Mapping[str, str], sessions: SessionService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eraser, "_PATIENCE", 0.1)
    fill(sessions)
    with connect() as writer:
        with writer.transaction():
            writer.execute("SELECT pg_current_xact_id()")
            assert sessions.delete("s").erasure == "pending"
        assert sessions.sweep().completed == 1
    assert dead_rows(env) == 0


def test_a_purge_waits_no_longer_for_a_lock_than_a_write(env: Mapping[str, str]) -> None:
    with service_on(env, POSTGRES_LOCK_TIMEOUT="1") as sessions, connect() as other:
        fill(sessions)
        sessions.delete("s")
        with other.transaction():
            table = sql.Identifier(env["POSTGRES_SCHEMA"], "sessions_events")
            other.execute("SET LOCAL idle_in_transaction_session_timeout = '20s'")
            other.execute(sql.SQL("LOCK TABLE {} IN EXCLUSIVE MODE").format(table))
            with pytest.raises(StorageLockedError):
                sessions.sweep(timedelta(0))
        assert sessions.sweep(timedelta(0)).purged > 0


def test_a_role_that_may_not_vacuum_leaves_the_erasure_pending(
    env: Mapping[str, str], sessions: SessionService
) -> None:
    fill(sessions)
    role, schema = sql.Identifier("guest_" + env["POSTGRES_SCHEMA"]), sql.Identifier(env["POSTGRES_SCHEMA"])
    with connect() as connection:
        for statement in (
            "CREATE ROLE {role} LOGIN",
            "GRANT USAGE ON SCHEMA {schema} TO {role}",
            "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}",
            "GRANT ALL ON ALL SEQUENCES IN SCHEMA {schema} TO {role}",
        ):
            connection.execute(sql.SQL(statement).format(role=role, schema=schema))
    try:
        guest = "guest_" + env["POSTGRES_SCHEMA"]
        with service_on(env, POSTGRES_USER=guest, CREATE_TABLE="no") as sessions_of_guest:
            deletion = sessions_of_guest.delete("s")
        assert deletion.erasure == "pending"
        assert "VACUUM was not done" in (deletion.reason or "")
        assert sessions.sweep().completed == 1
    finally:
        with connect() as connection:
            connection.execute(sql.SQL("DROP OWNED BY {}").format(role))
            connection.execute(sql.SQL("DROP ROLE {}").format(role))


def test_a_purge_leaves_the_first_event_and_the_tombstone(
    env: Mapping[str, str], sessions: SessionService
) -> None:
    fill(sessions)
    sessions.delete("s")
    assert sessions.sweep(timedelta(0)).purged == 2 * BLOCK
    assert rows(env, "sessions_events") == 2
    assert sessions.find("s") is None
    assert sessions.sweep(timedelta(0)).purged == 0


def test_nothing_is_indexed_of_a_session_that_is_deleted_meanwhile(
    env: Mapping[str, str], sessions: SessionService, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, go_on = Event(), Event()
    as_array = recall._array  # pyright: ignore[reportPrivateUsage]

    def slowly(numbers: Iterable[str]) -> str:
        read.set()
        go_on.wait(60)
        return as_array(numbers)

    monkeypatch.setattr(recall, "_array", slowly)
    writer = Thread(target=fill, args=(sessions, "s", BLOCK))
    writer.start()
    read.wait(60)
    deleter = Thread(target=sessions.delete, args=("s",))
    deleter.start()
    with connect() as connection:
        while (
            deleter.is_alive()
            and not connection.execute(
                "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE %s",
                (f"%{env['POSTGRES_SCHEMA']}%",),
            ).fetchone()
        ):
            pass
    go_on.set()
    writer.join()
    deleter.join()
    assert rows(env, "sessions_turnlog_recall") == 0
    assert rows(env, "sessions_turnlog_recall_mark") == 0


def test_a_session_that_was_indexed_by_nobody_is_found_and_indexed_by_the_next_block(
    env: Mapping[str, str], sessions: SessionService, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError

    with monkeypatch.context() as broken:
        broken.setattr(PostgresRecallIndex, "catch_up", fails)
        fill(sessions, messages=3 * BLOCK)
    assert rows(env, "sessions_turnlog_recall") == 0
    assert len(sessions.search_events("s", EventQuery(keywords=RARE))) == 3 * BLOCK
    for _ in range(BLOCK):
        sessions.append_message("s", Message.user("more"))
    assert rows(env, "sessions_turnlog_recall") == 4
    assert len(sessions.search_events("s", EventQuery(keywords=RARE))) == 3 * BLOCK


def test_an_index_of_another_rule_is_built_anew(
    env: Mapping[str, str], sessions: SessionService, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(sessions)
    monkeypatch.setattr(recall, "RULE", 99)
    assert len(sessions.search_events("s", EventQuery(keywords=RARE))) == 2 * BLOCK
    fill_up = [sessions.append_message("s", Message.user(RARE)) for _ in range(BLOCK)]
    assert len(sessions.search_events("s", EventQuery(keywords=RARE))) == 2 * BLOCK + len(fill_up)
    assert rows(env, "sessions_turnlog_recall") == 3


def test_the_index_narrows_what_is_read(sessions: SessionService) -> None:
    fill(sessions, messages=1)
    for number in range(6 * BLOCK):
        sessions.append_message("s", Message.user(f"of other things {number}"))
    index = sessions.app.recorder.recall  # type: ignore[attr-defined] # pyright: ignore
    (row,) = sessions.list_sessions()
    found = index.candidates([row.aggregate_id], EventQuery(keywords=RARE))  # pyright: ignore
    assert len(found[row.aggregate_id]) < 2 * BLOCK  # pyright: ignore
