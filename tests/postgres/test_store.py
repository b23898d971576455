"""What PostgreSQL makes of our tables: starting, odd texts, large ones, what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from eventsourcing.persistence import IntegrityError
from psycopg import sql
from tests.contracts.stores import Shop
from tests.postgres.conftest import service_on
from tests.support.postgres import connect

from turnlog.application.erasing import BackupError
from turnlog.application.service import SessionService
from turnlog.domain.errors import InvalidSettingError, StorageError, StorageLockedError
from turnlog.domain.messages import Message
from turnlog.domain.query import EventQuery
from turnlog.infrastructure.postgres.recall import BLOCK, MAX_INDEXED

PLAIN = "eventsourcing.postgres:PostgresApplicationRecorder"

OPEN = """
import json, sys
from turnlog.application.service import SessionService
env = json.loads(sys.argv[1])
sys.stdin.read()
with SessionService(env=env) as sessions:
    sessions.find_or_create("s")
"""


def test_processes_that_start_at_once_all_find_the_tables(env: Mapping[str, str]) -> None:
    command = [sys.executable, "-c", OPEN, json.dumps(dict(env))]
    running = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(6)
    ]
    errors = [process.communicate("go")[1] for process in running]
    assert [process.returncode for process in running] == [0] * 6, errors


def test_threads_that_open_a_new_store_at_once_all_find_the_tables(env: Mapping[str, str]) -> None:
    def open_and_create(name: int) -> None:
        with service_on(env) as sessions:
            sessions.create(str(name))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(open_and_create, range(8)))
    with service_on(env) as sessions:
        assert len(sessions.list_sessions()) == 8


def test_functions_of_the_frameworks_that_skip_the_rows_are_refused(env: Mapping[str, str]) -> None:
    with pytest.raises(InvalidSettingError, match="POSTGRES_ENABLE_DB_FUNCTIONS"):
        service_on(env, POSTGRES_ENABLE_DB_FUNCTIONS="y")


def test_a_recorder_without_rows_is_refused_where_rows_are(env: Mapping[str, str]) -> None:
    service_on(env).close()
    with pytest.raises(StorageError, match="PostgresSessionRecorder"):
        service_on(env, APPLICATION_RECORDER_TOPIC=PLAIN)


def test_a_database_without_our_tables_says_so(env: Mapping[str, str]) -> None:
    with (
        service_on(env, CREATE_TABLE="no") as sessions,
        pytest.raises(StorageError, match="The tables of turnlog are not in this database"),
    ):
        sessions.find("s")


def test_a_schema_that_does_not_exist_says_so(env: Mapping[str, str]) -> None:
    with pytest.raises(StorageError, match='schema "nowhere" does not exist'):
        service_on(env, POSTGRES_SCHEMA="nowhere")


def test_an_append_that_waits_for_the_lock_for_too_long_says_that_nothing_was_written(
    env: Mapping[str, str],
) -> None:
    with service_on(env, POSTGRES_LOCK_TIMEOUT="1") as sessions, connect() as other:
        sessions.create("s")
        with other.transaction():
            table = sql.Identifier(env["POSTGRES_SCHEMA"], "sessions_events")
            other.execute(sql.SQL("LOCK TABLE {} IN EXCLUSIVE MODE").format(table))
            with pytest.raises(StorageLockedError, match="nothing was written"):
                sessions.create("t")
        assert sessions.find("t") is None


def test_two_applications_in_one_schema_have_sessions_of_their_own(env: Mapping[str, str]) -> None:
    recorder = "turnlog.infrastructure.postgres:PostgresSessionRecorder"
    with Shop(env={**env, "APPLICATION_RECORDER_TOPIC": recorder}) as shop, service_on(env) as sessions:
        of_the_shop = SessionService(shop)
        of_the_shop.create("s")
        assert sessions.find("s") is None
        assert sessions.create("s").id == "s"
        assert of_the_shop.append_message("s", Message.user("hi"), event_id="one").version == 1
        assert [row.messages for row in sessions.list_sessions()] == [0]


@pytest.mark.parametrize("text", ["nul \0 in it", "lone \ud800 surrogate", "漢字 🙂 ü", "\\x00 \\u0000"])
def test_text_comes_back_as_it_was_and_is_found(sessions: SessionService, text: str) -> None:
    sessions.create("s", metadata={"title": text})
    for number in range(2 * BLOCK):
        sessions.append_message("s", Message.user(f"{text} {number}"))
    assert sessions.get_messages("s")[3].text == f"{text} 3"
    assert len(sessions.search_events("s", EventQuery(keywords=text))) == 2 * BLOCK
    assert [row.session_id for row in sessions.find_by_metadata({"title": text})] == ["s"]


@pytest.mark.parametrize("size", [1_000_000, 50_000_000])
def test_a_message_of_any_size_is_taken_and_found(sessions: SessionService, size: int) -> None:
    sessions.create("s")
    large = "needle " + "hay " * (size // 4)
    sessions.append_message("s", Message.user(large))
    for number in range(BLOCK):
        sessions.append_message("s", Message.user(f"small {number}"))
    found = sessions.search_events("s", EventQuery(keywords="needle"))
    assert [event.version for event in found] == [1]
    assert found[0].text == large


def test_a_text_of_more_different_trigrams_than_are_indexed_is_found(sessions: SessionService) -> None:
    sessions.create("s")
    assert MAX_INDEXED > 90_000
    sessions.append_message("s", Message.user("".join(map(chr, range(0x4E00, 0x9000))) * 2 + " needle"))
    for number in range(BLOCK):
        sessions.append_message("s", Message.user(f"small {number}"))
    assert len(sessions.search_events("s", EventQuery(keywords="needle"))) == 1


def test_a_backup_names_the_tool_for_it(sessions: SessionService, tmp_path: Path) -> None:
    with pytest.raises(BackupError, match="pg_dump"):
        sessions.backup(tmp_path / "copy")


def test_nothing_is_written_behind_what_was_purged(sessions: SessionService) -> None:
    sessions.create("s")
    sessions.append_message("s", Message.user("hi"))
    stale: Any = sessions.app.repository.get(sessions.list_sessions()[0].aggregate_id)
    sessions.delete("s")
    assert sessions.sweep(timedelta(0)).purged == 1
    stale.update_metadata({"late": True}, now=datetime.now(UTC))
    with pytest.raises(IntegrityError):
        sessions.app.save(stale)


@pytest.mark.parametrize("events", [1, 2])
def test_events_for_a_deleted_session_are_refused_whatever_their_version(
    sessions: SessionService, events: int
) -> None:
    sessions.create("s")
    sessions.append_message("s", Message.user("hi"))
    aggregate_id = sessions.list_sessions()[0].aggregate_id
    recorder = sessions.app.recorder
    message = recorder.select_events(aggregate_id)[1]
    sessions.delete("s")
    late = [replace(message, originator_version=90 + number) for number in range(events)]
    with pytest.raises(IntegrityError):
        recorder.insert_events(late)
    assert len(recorder.select_events(aggregate_id, gt=80)) == 0
