"""Redactions and deletions that a process left undone, and whose events are gone: no other waits for them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from tests.catching_up.test_sqlalchemy import Host, dispose, on_postgres, on_sqlite
from tests.projections.activity import PLAIN
from tests.projections.databases import PLAIN_POSTGRES, PostgresSchema, SqliteFile
from tests.support.conformance_stores import NoTokens

from turnlog.application import SessionService
from turnlog.application.audit import SessionAudit
from turnlog.domain import ErasureTargetError, Message, UnreadableEventError
from turnlog.domain.events import SessionDeleted
from turnlog.domain.ids import aggregate_id
from turnlog.infrastructure.cli.app import run

WHY: Any = {"reason": "asked", "by": "ada"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sessions.db"


@pytest.fixture(params=["sqlite", "postgres", "sqlalchemy on sqlite", "sqlalchemy on postgres"])
def sessions(request: pytest.FixtureRequest, path: Path) -> Iterator[SessionService]:
    """A store without rows, of two sessions with a message each whose redaction was not carried out."""
    if request.param.startswith("sqlalchemy"):
        env = on_sqlite(path) if request.param.endswith("sqlite") else on_postgres()
        service = SessionService(Host(env=env), token_estimator=NoTokens())
    else:
        is_file = request.param == "sqlite"
        database = SqliteFile(path) if is_file else PostgresSchema()
        service = database.service(PLAIN if is_file else PLAIN_POSTGRES)
    for name in ("alpha", "beta"):
        service.create(name)
        for number in range(2):
            service.append_message(name, Message.user(f"heron {number}"), event_id=f"m{number}")
    undone(service, lambda: [service.redact(name, "m0", **WHY) for name in ("alpha", "beta")])
    yield service
    if request.param.startswith("sqlalchemy"):
        dispose(service)
    else:
        service.close()


def undone(service: SessionService, action: Any) -> None:
    """Write what is to be erased, and leave it undone, as a process that dies then."""
    eraser = vars(service)["_eraser"]
    undo: dict[str, object] = {"redact": id, "erase": id, "complete": tuple}
    for name, nothing in undo.items():
        vars(eraser)[name] = nothing
    action()
    for name in undo:
        del vars(eraser)[name]


def change(service: SessionService, statement: str, name: str = "alpha", version: int = 1) -> None:
    """Change one event past everything."""
    recorder: Any = service.app.recorder
    table = recorder.events_table_name
    if schema := getattr(recorder, "schema_name", None) or getattr(recorder.datastore, "schema", None):
        table = f"{schema}.{table}"
    is_alchemy = "sqlalchemy" in type(recorder).__module__
    with recorder.datastore.transaction(commit=True) as transaction:
        is_blob = is_alchemy and transaction.connection().dialect.name == "sqlite"
        where = (
            f"originator_id = {'x' * is_blob}'{aggregate_id(name).hex}' AND originator_version = {version}"
        )
        said = f"{statement.format(table=table)} WHERE {where}"
        transaction.execute(text(said) if is_alchemy else said)


DELETE = "DELETE FROM {table}"


def stored(service: SessionService, name: str) -> bytes:
    """All that is stored of the session."""
    found = service.app.recorder.select_events(aggregate_id(name))
    return b"".join(event.state for event in found if event.topic != SessionDeleted.TOPIC)


def test_a_sweep_erases_all_else_and_tells_of_it(sessions: SessionService) -> None:
    change(sessions, DELETE)
    for _ in range(2):
        swept = sessions.sweep()
        (failure,) = swept.failures
        assert isinstance(failure, ErasureTargetError)
        assert (failure.aggregate_id, failure.version) == (aggregate_id("alpha").hex, 1)
        assert (swept.pending, swept.reason) == (1, str(failure))
    assert sessions.get_event("beta", "m0").redacted
    assert [one.version for one in SessionAudit(sessions).verify().findings] == [1]
    assert sessions.redact("beta", "m1", **WHY).erasure == "done"
    assert sessions.delete("beta").erasure == "done"


def test_an_event_that_cannot_be_read_is_told_too(sessions: SessionService) -> None:
    change(sessions, "UPDATE {table} SET state = '\\x00'")
    (failure,) = sessions.sweep().failures
    assert isinstance(failure, UnreadableEventError)
    assert sessions.get_event("beta", "m0").redacted


def test_another_event_in_its_place_stays_as_it_is(sessions: SessionService) -> None:
    change(sessions, DELETE)
    change(sessions, "UPDATE {table} SET originator_version = 1", version=2)
    (failure,) = sessions.sweep().failures
    assert "is not the one that was redacted" in str(failure)
    assert sessions.get_event("beta", "m0").redacted


def test_it_waits_no_longer_when_the_session_is_deleted(sessions: SessionService) -> None:
    change(sessions, DELETE)
    assert sessions.sweep().pending == 1
    assert sessions.delete("alpha").erasure == "done"
    swept = sessions.sweep()
    assert (swept.pending, swept.failures) == (0, ())


def test_it_is_carried_out_when_the_event_is_back(sessions: SessionService) -> None:
    change(sessions, "UPDATE {table} SET originator_version = 77")
    assert sessions.sweep().pending == 1
    change(sessions, "UPDATE {table} SET originator_version = 1", version=77)
    assert sessions.sweep().pending == 0
    assert sessions.get_event("alpha", "m0").redacted


@pytest.mark.parametrize("sessions", ["sqlalchemy on sqlite", "sqlalchemy on postgres"], indirect=True)
def test_a_redaction_that_is_gone_itself_is_not_known_of(sessions: SessionService) -> None:
    change(sessions, DELETE, version=3)
    assert sessions.sweep().pending == 0
    assert sessions.get_event("beta", "m0").redacted


CATCHING_UP = pytest.mark.parametrize("sessions", ["sqlite", "postgres"], indirect=True)
MOVE = "UPDATE {table} SET originator_version = "


@CATCHING_UP
@pytest.mark.parametrize("deletes", [False, True])
def test_what_asks_for_it_is_waited_for_until_it_is_back(sessions: SessionService, deletes: bool) -> None:
    version = 3 + deletes
    if deletes:
        undone(sessions, lambda: sessions.delete("alpha"))
    sessions.list_sessions()
    change(sessions, f"{MOVE} 77", version=version)
    for _ in range(2):
        swept = sessions.sweep()
        assert swept.pending == 1
        (failure,) = swept.failures
        assert isinstance(failure, ErasureTargetError)
        assert failure.version == version
    assert sessions.get_event("beta", "m0").redacted
    change(sessions, f"{MOVE} {version}", version=77)
    assert sessions.sweep().pending == 0
    assert b"heron 0" not in stored(sessions, "alpha")


@CATCHING_UP
def test_a_redaction_that_is_gone_is_waited_for_until_the_session_is_deleted(
    sessions: SessionService,
) -> None:
    sessions.list_sessions()
    change(sessions, DELETE, version=3)
    assert sessions.sweep().pending == 1
    assert sessions.delete("alpha").erasure == "done"
    assert (sessions.sweep().pending, b"heron" in stored(sessions, "alpha")) == (0, False)


@CATCHING_UP
def test_a_session_that_is_deleted_and_kept_in_its_place_is_kept(sessions: SessionService) -> None:
    undone(sessions, lambda: sessions.delete("alpha"))
    sessions.list_sessions()
    change(sessions, DELETE, version=4)
    assert sessions.delete("alpha", erase=False).version == 4
    assert sessions.sweep().pending == 1
    assert b"heron 1" in stored(sessions, "alpha")


@CATCHING_UP
def test_a_tombstone_that_cannot_be_read_keeps_no_redaction_waiting(sessions: SessionService) -> None:
    undone(sessions, lambda: sessions.delete("alpha"))
    sessions.list_sessions()
    change(sessions, "UPDATE {table} SET state = '\\x00'", version=4)
    (failure,) = sessions.sweep().failures
    assert isinstance(failure, UnreadableEventError)
    found = stored(sessions, "alpha")
    assert (b"heron 0" in found, b"heron 1" in found) == (False, True)


@CATCHING_UP
def test_a_session_that_was_lost_as_a_whole_is_deleted_again(sessions: SessionService) -> None:
    for again in ("first", "second"):
        sessions.delete("alpha")
        sessions.append_message("beta", Message.user("behind it"))
        sessions.list_sessions()
        for version in range(9):
            change(sessions, DELETE, version=version)
        sessions.create("alpha")
        sessions.append_events("alpha", [Message.user("secret")] * 4)
        sessions.append_message("alpha", Message.user("crane"), event_id=again)
        assert sessions.redact("alpha", again, **WHY).erasure == "done"
        assert {one.session_id for one in sessions.list_sessions()} == {"alpha", "beta"}
    assert sessions.delete("alpha").erasure == "done"
    assert (sessions.sweep().pending, b"secret" in stored(sessions, "alpha")) == (0, False)
    assert [one.session_id for one in sessions.list_sessions()] == ["beta"]
    assert sessions.redact("beta", "m1", **WHY).erasure == "done"


@pytest.mark.parametrize("sessions", ["sqlite"], indirect=True)
def test_the_commands_name_it(
    sessions: SessionService, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(sessions, DELETE)
    assert run(["sweep", "--json", "--db", str(path)]) == 4
    found = json.loads(capsys.readouterr().out)
    (failure,) = found["failures"]
    assert (found["pending"], found["reason"]) == (1, failure)
    assert run(["sweep", "--db", str(path)]) == 4
    assert capsys.readouterr().out.count("`turnlog check` names the session") == 1
    assert run(["check", "--db", str(path)]) == 1
    assert f"{aggregate_id('alpha').hex}  event 1 is missing" in capsys.readouterr().out


@pytest.mark.parametrize("sessions", ["sqlite", "postgres"], indirect=True)
def test_a_recorder_with_rows_starts_beside_it(
    sessions: SessionService, caplog: pytest.LogCaptureFixture
) -> None:
    change(sessions, DELETE)
    env = {name: value for name, value in sessions.app.env.items() if name != "APPLICATION_RECORDER_TOPIC"}
    with caplog.at_level("WARNING", logger="turnlog"), SessionService(env=env) as other:
        assert other.get_event("beta", "m0").redacted
        assert other.sweep().pending == 0
    assert "version 1 of aggregate" in caplog.text
