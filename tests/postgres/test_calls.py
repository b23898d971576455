"""Appends pass over psycopg's cursors: what a cursor takes care of holds all the same."""

from __future__ import annotations

import signal
import zlib
from collections.abc import Mapping
from dataclasses import replace
from enum import Enum
from typing import Any, ClassVar

import pytest
from eventsourcing.persistence import Compressor, DataError
from psycopg import Connection, sql
from psycopg.pq.abc import PGresult
from tests.postgres.conftest import datastore_of, service_on
from tests.support.postgres import connect

from turnlog.application.service import SessionService
from turnlog.domain.errors import StorageError, StorageLockedError
from turnlog.domain.messages import Message
from turnlog.infrastructure.postgres import PostgresSessionRecorder, calls, tables

HI = Message.user("hi")


def prepared_by(sessions: SessionService) -> set[str]:
    """What is prepared for appends on the one connection that the service has."""
    with datastore_of(sessions).get_connection() as connection:
        rows = connection.execute("SELECT name FROM pg_prepared_statements WHERE name LIKE 'turnlog%'")
        return {row["name"] for row in rows.fetchall()}


def test_each_kind_of_append_is_prepared_once(sessions: SessionService) -> None:
    sessions.create("s")
    for _ in range(3):
        sessions.append_message("s", HI)
        sessions.append_events("s", [HI, HI])
    assert len(prepared_by(sessions)) == 2


def test_what_somebody_dropped_is_prepared_again(sessions: SessionService) -> None:
    sessions.create("s")
    sessions.append_message("s", HI)
    with datastore_of(sessions).get_connection() as connection:
        connection.execute("DEALLOCATE ALL")
    assert sessions.append_message("s", HI).version == 2
    assert sessions.append_message("s", HI).version == 3


def test_who_was_interrupted_while_it_was_prepared_can_go_on(
    sessions: SessionService, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = calls._answer  # pyright: ignore[reportPrivateUsage] # the server did it, and nobody was told

    def interrupted(connection: Connection[Any]) -> PGresult:
        answer(connection)
        raise KeyboardInterrupt

    sessions.create("s")
    with monkeypatch.context() as patched:
        patched.setattr(calls, "_answer", interrupted)
        with pytest.raises(KeyboardInterrupt):
            sessions.append_message("s", HI)
    assert sessions.append_message("s", HI).version == 1
    assert sessions.append_message("s", HI).version == 2


class _Bytes(Compressor):
    """Compresses to another kind of bytes than `bytes`, as some libraries do."""

    kind: ClassVar[Any]

    def compress(self, data: bytes) -> bytes:
        compressed: bytes = self.kind(zlib.compress(data))
        return compressed

    def decompress(self, data: bytes) -> bytes:
        return zlib.decompress(data)


class ToBytearray(_Bytes):
    kind = bytearray


class ToMemoryview(_Bytes):
    kind = memoryview


@pytest.mark.parametrize("compressor", [ToBytearray, ToMemoryview])
def test_whatever_kind_of_bytes_a_compressor_gives_is_stored(
    env: Mapping[str, str], compressor: type[_Bytes]
) -> None:
    topic = f"{__name__}:{compressor.__name__}"
    with service_on(env, COMPRESSOR_TOPIC=topic) as sessions:
        sessions.create("s")
        sessions.append_message("s", HI)
        sessions.append_events("s", [HI, HI])
    with service_on(env, COMPRESSOR_TOPIC=topic) as again:
        assert [event.text for event in again.get_events("s")] == ["hi", "hi", "hi"]


class Known(str, Enum):  # noqa: UP042 - `str` of a member is its name
    """Ids as an application may have them."""

    QUESTION = "question"


def test_an_id_from_an_enumeration_is_its_value(sessions: SessionService) -> None:
    sessions.create("s")
    sessions.append_message("s", HI, event_id=Known.QUESTION)
    assert sessions.append_message("s", HI, event_id="question").is_repeat
    assert not sessions.append_message("s", HI, event_id="Known.QUESTION").is_repeat


def test_nothing_is_prepared_where_the_pool_forbids_it(sessions: SessionService) -> None:
    with datastore_of(sessions).get_connection() as connection:
        connection.execute("DEALLOCATE ALL")
        connection.prepare_threshold = None
    sessions.create("s")
    sessions.append_message("s", HI)
    sessions.append_events("s", [HI, HI])
    assert sessions.version("s") == 3
    assert prepared_by(sessions) == set()


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_ids_are_stored_as_they_are_whatever_the_clients_encoding_is(
    sessions: SessionService, encoding: str
) -> None:
    with datastore_of(sessions).get_connection() as connection:
        connection.execute(sql.SQL("SET client_encoding TO {}").format(encoding))
    sessions.create("séance")
    sessions.append_message("séance", Message.user("Где?"), event_id="één")
    sessions.append_events("séance", [HI, HI])
    with datastore_of(sessions).get_connection() as connection:
        connection.execute("SET client_encoding TO 'UTF8'")
    assert sessions.append_message("séance", Message.user("Где?"), event_id="één").is_repeat
    assert sessions.get_events("séance")[0].id == "één"


def test_who_interrupts_an_append_that_waits_has_stored_nothing(sessions: SessionService) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    sessions.create("s")
    table = sql.Identifier(datastore_of(sessions).schema, "sessions_events")
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with connect() as other, other.transaction():
            other.execute(sql.SQL("LOCK TABLE {} IN EXCLUSIVE MODE").format(table))
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            with pytest.raises(KeyboardInterrupt):
                sessions.append_message("s", HI)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert sessions.version("s") == 0
    assert sessions.append_message("s", HI).version == 1


def test_who_waits_for_longer_than_is_allowed_is_told(env: Mapping[str, str]) -> None:
    with service_on(env, POSTGRES_LOCK_TIMEOUT="1") as sessions:
        sessions.create("s")
        table = sql.Identifier(datastore_of(sessions).schema, "sessions_events")
        with connect() as other, other.transaction():
            other.execute(sql.SQL("LOCK TABLE {} IN EXCLUSIVE MODE").format(table))
            with pytest.raises(StorageLockedError):
                sessions.append_message("s", HI)
        assert sessions.append_message("s", HI).version == 1


def test_a_missing_function_is_said_to_be_missing(sessions: SessionService) -> None:
    sessions.create("s")
    recorder = sessions.app.recorder
    assert isinstance(recorder, PostgresSessionRecorder)
    names = tables.of_recorder(recorder)
    with connect() as connection:
        connection.execute(sql.SQL("DROP FUNCTION {}").format(names.names["append_one"]))
    with pytest.raises(StorageError, match="CREATE_TABLE=yes"):
        sessions.append_message("s", HI)


def test_a_database_with_functions_of_another_form_gets_those_of_ours_beside_them(
    env: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "FORM", tables.FORM - 1)
    with service_on(env) as former:
        former.create("s")
        former.append_message("s", HI)
        monkeypatch.undo()
        with service_on(env) as sessions:
            assert sessions.append_message("s", HI).version == 2
            assert former.append_message("s", HI).version == 3
            assert sessions.append_events("s", [HI, HI])[-1].version == 5
            assert [row.version for row in sessions.list_sessions()] == [5]
            assert sessions.delete("s").erasure == "done"


def test_a_nul_in_an_id_is_refused_not_cut_off(sessions: SessionService) -> None:
    sessions.create("s")
    sessions.append_message("s", HI, event_id="given")
    recorder = sessions.app.recorder
    assert isinstance(recorder, PostgresSessionRecorder)
    *_, said = recorder.select_events(next(recorder.recorded_sessions()))
    damaged = replace(said, originator_version=2, state=said.state.replace(b"given", b"gi\\u0000ven"))
    with pytest.raises(DataError, match="0x00"):
        recorder.insert_events([damaged])
    assert sessions.version("s") == 1
