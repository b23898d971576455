"""PostgreSQL that refuses or goes away: each error says whether the write happened."""

from __future__ import annotations

import secrets
from collections.abc import Generator, Mapping
from urllib.parse import quote

import psycopg
import pytest
from eventsourcing.persistence import OperationalError
from eventsourcing.postgres import PostgresApplicationRecorder
from psycopg import sql
from tests.infrastructure.cli.conftest import Turnlog
from tests.storage_failures.calls import SID, WRITES, logged, prepare, service
from tests.support.cutting_proxy import CuttingProxy
from tests.support.log_checker import check
from tests.support.postgres import connect, connection_settings, postgres_env, server
from tests.support.stored_rows import read_database

from turnlog.application.service import SessionService
from turnlog.application.storage import storage_errors, writing_errors
from turnlog.domain.errors import (
    SessionNotFoundError,
    StorageDeniedError,
    StorageFullError,
    StorageReadOnlyError,
    StorageUnavailableError,
    WriteUncertainError,
)
from turnlog.domain.messages import Message

_FULL = """
    CREATE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full';
    END $$
"""
_AT_THE_COMMIT = """
    CREATE CONSTRAINT TRIGGER full_disk AFTER INSERT ON {events} DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION {function}()
"""
_AT_ONCE = "CREATE TRIGGER full_disk BEFORE INSERT ON {events} FOR EACH ROW EXECUTE FUNCTION {function}()"


SOME = ("append", "append with an id", "compact", "delete")
"""Writes of which each takes another way to the store."""


def execute(env: Mapping[str, str], *statements: str) -> None:
    """Statements of the owner of the tables."""
    schema = env["POSTGRES_SCHEMA"]
    with connect() as connection:
        for statement in statements:
            connection.execute(
                sql.SQL(statement).format(  # pyright: ignore[reportArgumentType] # a test's own text
                    schema=sql.Identifier(schema),
                    events=sql.Identifier(schema, "sessions_events"),
                    sessions=sql.Identifier(schema, "sessions_turnlog_sessions"),
                    function=sql.Identifier(schema, "refuse"),
                    role=sql.Identifier(_role(env)),
                )
            )


def _role(env: Mapping[str, str]) -> str:
    return f"reader_{env['POSTGRES_SCHEMA']}"


def place_of(reader: Mapping[str, str]) -> str:
    """What the command line calls the database of this user."""
    where = connection_settings()
    user = f"{reader['POSTGRES_USER']}:{reader['POSTGRES_PASSWORD']}"
    place = f"{where['dbname']}?host={quote(where['host'], safe='')}&port={where.get('port', '5432')}"
    return f"postgresql://{user}@/{place}"


@pytest.fixture
def reader(postgres: Mapping[str, str]) -> Generator[Mapping[str, str]]:
    """The settings of a user who has no rights but those that a test grants."""
    prepare(postgres)
    secret = secrets.token_hex(8)
    execute(
        postgres,
        f"CREATE ROLE {{role}} LOGIN PASSWORD '{secret}'",
        "GRANT USAGE ON SCHEMA {schema} TO {role}",
    )
    yield {
        **postgres,
        "POSTGRES_USER": _role(postgres),
        "POSTGRES_PASSWORD": secret,
        "CREATE_TABLE": "no",
    }
    execute(postgres, "DROP OWNED BY {role}", "DROP ROLE {role}")


# --- full


@pytest.mark.parametrize("moment", [_AT_ONCE, _AT_THE_COMMIT], ids=["at-once", "at-the-commit"])
@pytest.mark.parametrize("write", SOME)
def test_a_full_disk_is_told_and_nothing_is_written(
    postgres: Mapping[str, str], moment: str, write: str
) -> None:
    before = prepare(postgres)
    execute(postgres, _FULL, moment)
    with service(postgres) as sessions:
        with pytest.raises(StorageFullError, match=r"No space left.*Nothing was written: make room"):
            WRITES[write](sessions)
        assert sessions.get_events(SID) == before
        assert sessions.find("new") is None
        execute(postgres, "DROP TRIGGER full_disk ON {events}")
        WRITES[write](sessions)
    assert check(read_database(postgres)) == []


# --- rights


@pytest.mark.parametrize("write", WRITES)
def test_a_user_who_may_only_read_is_refused_every_write(reader: Mapping[str, str], write: str) -> None:
    execute(reader, "GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}")
    with service(reader) as sessions:
        before = sessions.get_events(SID)
        with pytest.raises(StorageDeniedError, match=r"permission denied[^\n]*Nothing was written"):
            WRITES[write](sessions)
        assert sessions.get_events(SID) == before
        assert [row.session_id for row in sessions.list_sessions()] == [SID]


@pytest.mark.parametrize("postgres", ["plain-recorder"], indirect=True)
def test_a_refusal_that_comes_before_all_was_sent_is_told_too(reader: Mapping[str, str]) -> None:
    execute(reader, "GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}")
    late = {**reader, "APPLICATION_RECORDER_TOPIC": "tests.traps.recorders:PostgresLate"}
    refused = pytest.raises(StorageDeniedError, match=r"permission denied[^\n]*Nothing was written")
    with service(late) as sessions, refused:
        WRITES["append"](sessions)


def test_a_user_without_rights_reads_nothing(reader: Mapping[str, str]) -> None:
    with pytest.raises(StorageDeniedError, match="permission denied"), service(reader) as sessions:
        sessions.view(SID)


def test_a_user_who_may_not_make_tables_is_told_so(reader: Mapping[str, str]) -> None:
    with pytest.raises(StorageDeniedError, match="Nothing was written"):
        service({**reader, "CREATE_TABLE": "yes"})


@pytest.mark.parametrize("write", SOME)
def test_where_transactions_only_read_every_write_is_refused(reader: Mapping[str, str], write: str) -> None:
    execute(
        reader,
        "GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO {role}",
        "GRANT ALL ON ALL SEQUENCES IN SCHEMA {schema} TO {role}",
        "ALTER ROLE {role} SET default_transaction_read_only = on",
    )
    with service(reader) as sessions:
        before = sessions.get_events(SID)
        with pytest.raises(StorageReadOnlyError, match=r"read-only transaction[^\n]*Nothing was written"):
            WRITES[write](sessions)
        assert sessions.get_events(SID) == before


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (("log", SID), 0),
        (("sessions",), 0),
        (("extend", SID, "--never"), 5),
        (("delete", SID, "--yes"), 5),
    ],
    ids=str,
)
def test_the_command_line_says_what_a_user_may_not_do(
    reader: Mapping[str, str],
    turnlog: Turnlog,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
    status: int,
) -> None:
    execute(reader, "GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}")
    monkeypatch.setenv("POSTGRES_SCHEMA", reader["POSTGRES_SCHEMA"])
    result = turnlog(*command, "--db", place_of(reader))
    assert (result.status, "Nothing was written" in result.err) == (status, status == 5), result.err
    assert len(result.err.splitlines()) <= 1


@pytest.mark.parametrize("postgres", ["rows"], indirect=True)
@pytest.mark.parametrize("command", [("sessions",), ("search", "parcel"), ("check",)], ids=str)
def test_who_may_not_read_the_list_of_sessions_is_told_that(
    reader: Mapping[str, str], turnlog: Turnlog, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    execute(
        reader,
        "GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}",
        "REVOKE SELECT ON {sessions} FROM {role}",
    )
    monkeypatch.setenv("POSTGRES_SCHEMA", reader["POSTGRES_SCHEMA"])
    result = turnlog(*command, "--db", place_of(reader))
    assert result.status == 5
    assert "permission denied for table sessions_turnlog_sessions" in result.err


@pytest.mark.parametrize("postgres", ["rows"], indirect=True)
@pytest.mark.parametrize(
    ("table", "command"),
    [("recall_mark", "search"), ("recall", "search")],
)
def test_who_reads_is_told_what_to_do_where_a_table_is_missing(
    postgres: Mapping[str, str],
    turnlog: Turnlog,
    monkeypatch: pytest.MonkeyPatch,
    table: str,
    command: str,
) -> None:
    prepare(postgres)
    execute(postgres, f"DROP TABLE {{schema}}.sessions_turnlog_{table}")
    monkeypatch.setenv("POSTGRES_SCHEMA", postgres["POSTGRES_SCHEMA"])
    asked = (command, *(["parcel"] if command == "search" else []), "--db", server())
    result = turnlog(*asked)
    assert result.status == 5
    assert f"sessions_turnlog_{table}" in result.err
    assert "`turnlog rebuild` makes it anew" in result.err
    assert turnlog("rebuild", "--db", server()).status == 0
    assert turnlog(*asked).status in (0, 1)  # it may be that nothing is found


# --- the network


@pytest.fixture
def proxy() -> Generator[CuttingProxy]:
    """A proxy in front of the server."""
    with CuttingProxy() as running:
        yield running


def through(proxy: CuttingProxy, postgres: Mapping[str, str], **settings: str) -> SessionService:
    """A service behind the proxy."""
    where = {
        name: proxy.env(postgres["POSTGRES_SCHEMA"])[name] for name in ("POSTGRES_HOST", "POSTGRES_PORT")
    }
    return service({**postgres, **where, **settings})


def wait_at_most(sessions: SessionService, seconds: float) -> None:
    """Let callers wait so long for a connection."""
    recorder = sessions.app.recorder
    assert isinstance(recorder, PostgresApplicationRecorder)
    recorder.datastore.pool.timeout = seconds


@pytest.mark.parametrize("command", ["MessageAppended", "COMMIT"])
@pytest.mark.parametrize("moment", ["before", "behind"])
def test_an_append_that_was_cut_off_is_there_once(
    postgres: Mapping[str, str], proxy: CuttingProxy, command: str, moment: str
) -> None:
    prepare(postgres)
    with through(proxy, postgres) as sessions:
        cut = proxy.cut_before if moment == "before" else proxy.cut_behind
        cut(command)
        stored = sessions.append_message(SID, Message.user("new"), event_id="new")
        assert not stored.is_repeat
    assert [event.id for event in logged(postgres)] == ["e0", "e1", "e2", "new"]
    assert check(read_database(postgres)) == []


@pytest.mark.parametrize("postgres", ["rows"], indirect=True)
@pytest.mark.parametrize("write", ["append", "delete"])
@pytest.mark.parametrize("moment", ["before", "behind"])
def test_a_write_of_which_nobody_knows_is_not_said_to_be_lost(
    postgres: Mapping[str, str], proxy: CuttingProxy, write: str, moment: str
) -> None:
    prepare(postgres)
    command = "MessageAppended" if write == "append" else "COMMIT"
    with through(proxy, postgres) as sessions:
        wait_at_most(sessions, 0.5)
        cut = proxy.cut_before if moment == "before" else proxy.cut_behind
        cut(command, for_good=True)
        with pytest.raises(WriteUncertainError, match="nobody knows"):
            WRITES[write](sessions)
        assert proxy.cuts == 1
    assert check(read_database(postgres)) == []


def test_the_error_of_a_connection_that_broke_is_for_a_reader_another_than_for_a_writer(
    proxy: CuttingProxy,
) -> None:
    env = proxy.env()
    connection = psycopg.connect(
        host=env["POSTGRES_HOST"],
        port=env["POSTGRES_PORT"],
        dbname=env["POSTGRES_DBNAME"],
        user=env["POSTGRES_USER"],
        password=env["POSTGRES_PASSWORD"],
    )
    proxy.cut_behind("SELECT 1")
    with pytest.raises(psycopg.OperationalError) as broken:
        connection.execute("SELECT 1")
    connection.close()
    with pytest.raises(StorageUnavailableError, match="does not answer"), storage_errors():
        raise OperationalError(broken.value) from broken.value
    with pytest.raises(WriteUncertainError, match="nobody knows"), writing_errors():
        raise OperationalError(broken.value) from broken.value


@pytest.mark.parametrize("postgres", ["rows"], indirect=True)
def test_who_asks_when_the_server_is_back_is_answered(
    postgres: Mapping[str, str], proxy: CuttingProxy
) -> None:
    prepare(postgres)
    with through(proxy, postgres) as sessions:
        wait_at_most(sessions, 0.5)
        proxy.cut_all(for_good=True)
        with pytest.raises(StorageUnavailableError):
            sessions.find(SID)
        proxy.come_back()
        wait_at_most(sessions, 60)
        assert sessions.append_message(SID, Message.user("new")).version == 4


def test_a_pool_tries_again_to_connect_within_the_time_that_callers_wait(
    proxy: CuttingProxy,
) -> None:
    with through(proxy, postgres_env(), POSTGRES_CONNECT_TIMEOUT="40") as sessions:
        recorder = sessions.app.recorder
        assert isinstance(recorder, PostgresApplicationRecorder)
        pool = recorder.datastore.pool
        assert pool.reconnect_timeout == pool.timeout == 40


def test_a_deletion_that_was_cut_off_is_known_when_the_server_is_back(
    postgres: Mapping[str, str], proxy: CuttingProxy
) -> None:
    prepare(postgres)
    with through(proxy, postgres) as sessions:
        proxy.cut_behind("SessionDeleted")
        sessions.delete(SID)
        with pytest.raises(SessionNotFoundError):
            sessions.delete(SID)
        assert sessions.sweep().pending == 0
    assert check(read_database(postgres), is_swept=True) == []
