"""Erasing behind `eventsourcing-sqlalchemy`, on SQLite and PostgreSQL."""

from __future__ import annotations

import random
import secrets
import string
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import psycopg
import pytest
from eventsourcing.application import Application
from eventsourcing_sqlalchemy.recorders import SQLAlchemyApplicationRecorder
from sqlalchemy import create_engine, event
from sqlalchemy.orm import scoped_session, sessionmaker
from tests.support.conformance_stores import NoTokens
from tests.support.postgres import connect, fresh_schema, server

from turnlog.application.audit import SessionAudit
from turnlog.application.service import SessionService
from turnlog.domain.errors import SessionIdUnavailableError, SessionNotFoundError
from turnlog.domain.events import EventErased, SessionDeleted
from turnlog.domain.ids import aggregate_id
from turnlog.domain.messages import Message
from turnlog.domain.session import Session

RARE = "kestrelheronjackdaw"


class Host(Application[UUID]):
    """A host's application."""


def on_sqlite(path: Path) -> dict[str, str]:
    return {"PERSISTENCE_MODULE": "eventsourcing_sqlalchemy", "SQLALCHEMY_URL": f"sqlite:///{path}"}


def on_postgres() -> dict[str, str]:
    return {
        "PERSISTENCE_MODULE": "eventsourcing_sqlalchemy",
        "SQLALCHEMY_URL": server().replace("postgresql://", "postgresql+psycopg://"),
        "SQLALCHEMY_SCHEMA": fresh_schema(),
    }


def dispose(sessions: SessionService) -> None:
    """Close the engine, which the framework's application leaves open."""
    recorder = sessions.app.recorder
    assert isinstance(recorder, SQLAlchemyApplicationRecorder)
    assert recorder.datastore.engine is not None
    cast("Any", recorder.datastore.engine).dispose()
    sessions.app.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sessions.db"


@pytest.fixture(params=["sqlite", "postgres"])
def sessions(request: pytest.FixtureRequest, path: Path) -> Iterator[SessionService]:
    """A service on each database, with two sessions of three messages."""
    env = on_sqlite(path) if request.param == "sqlite" else on_postgres()
    service = SessionService(Host(env=env), token_estimator=NoTokens())
    fill(service, "gone", "stays")
    yield service
    dispose(service)


def fill(service: SessionService, *names: str) -> None:
    for name in names:
        service.create(name, metadata={"title": RARE})
        for number in range(3):
            service.append_message(name, Message.user(f"{RARE} {number}"), event_id=f"given-{number}")


def stored(service: SessionService, name: str = "gone") -> list[type]:
    return [type(one) for one in service.app.events.get(aggregate_id(name, ""))]


def test_the_capabilities_say_that_such_a_store_erases(sessions: SessionService) -> None:
    assert sessions.capabilities.erases


def test_a_deletion_overwrites_every_event_in_front_of_the_tombstone(sessions: SessionService) -> None:
    assert sessions.delete("gone").erasure == "done"
    assert stored(sessions) == [EventErased] * 4 + [SessionDeleted]
    assert [message.text for message in sessions.get_messages("stays")] == [f"{RARE} {n}" for n in range(3)]


def test_a_deleted_session_is_gone_and_its_id_taken(sessions: SessionService) -> None:
    sessions.delete("gone")
    with pytest.raises(SessionNotFoundError):
        sessions.view("gone")
    with pytest.raises(SessionIdUnavailableError):
        sessions.create("gone")


def test_no_session_is_begun_in_front_of_events_whose_opening_is_gone(sessions: SessionService) -> None:
    recorder: Any = sessions.app.recorder
    table = recorder.events_record_cls.__table__
    with recorder.datastore.engine.begin() as connection:
        lost = (table.c.originator_id == aggregate_id("gone", "")) & (table.c.originator_version == 0)
        assert connection.execute(table.delete().where(lost)).rowcount == 1
    with pytest.raises(SessionIdUnavailableError):
        sessions.create("gone")


def test_with_erase_false_the_content_stays(sessions: SessionService) -> None:
    assert sessions.delete("gone", erase=False).erasure == "kept"
    assert (sessions.sweep().completed, EventErased in stored(sessions)) == (0, False)


def delete_and_die(service: SessionService, name: str = "gone") -> None:
    """What is stored when a process dies behind the write of the tombstone."""
    session: object = service.app.repository.get(aggregate_id(name, ""))
    assert isinstance(session, Session)
    session.delete(now=session.modified_on)
    service.app.save(session)


def test_a_sweep_overwrites_what_a_process_left_that_died_behind_the_tombstone(
    sessions: SessionService,
) -> None:
    delete_and_die(sessions)
    assert sessions.sweep().pending == 0
    assert stored(sessions) == [EventErased] * 4 + [SessionDeleted]


def test_a_redaction_puts_a_marker_over_the_content(sessions: SessionService) -> None:
    event = sessions.get_events("gone")[0]
    assert sessions.redact("gone", event.id, reason="asked", by="bob").erasure == "done"
    assert sessions.get_event("gone", event.id).text == "[redacted: asked]"
    assert SessionAudit(sessions).verify().findings == ()


def test_a_sweep_completes_a_redaction_that_a_process_left(sessions: SessionService) -> None:
    event = sessions.get_events("gone")[0]
    eraser = vars(sessions)["_eraser"]
    vars(eraser)["redact"] = set  # does nothing
    sessions.redact("gone", event.id, reason="asked", by="bob")
    assert sessions.get_event("gone", event.id).redacted is None
    del vars(eraser)["redact"]
    assert sessions.sweep(None).completed == 1
    assert sessions.get_event("gone", event.id).redacted


def test_sweeps_at_once_complete_each_erasure_once() -> None:
    env = on_postgres()
    services = [SessionService(Host(env=env), token_estimator=NoTokens()) for _ in range(4)]
    for _ in range(3):
        names = [secrets.token_hex(4) for _ in range(4)]
        fill(services[0], *names)
        for name in names:
            delete_and_die(services[0], name)
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(SessionService.sweep, services))
        assert {stored(services[0], name)[0] for name in names} == {EventErased}
    for service in services:
        dispose(service)


def test_no_stub_is_purged(sessions: SessionService) -> None:
    sessions.delete("gone")
    assert sessions.sweep(purge_after=None).purged == 0
    assert len(stored(sessions)) == 5


def test_on_postgres_an_older_transaction_makes_the_erasure_pending(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnlog.infrastructure.sqlalchemy.cleaning._PATIENCE", 0.1)
    service = SessionService(Host(env=on_postgres()), token_estimator=NoTokens())
    fill(service, "gone")
    with psycopg.connect(server()) as reader:
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT count(*) FROM pg_class")
        deletion = service.delete("gone")
        assert (deletion.erasure, "sweep" in (deletion.reason or "")) == ("pending", True)
    assert service.sweep().pending == 0
    dispose(service)


def test_on_postgres_a_transaction_that_wrote_makes_it_pending_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnlog.infrastructure.sqlalchemy.cleaning._PATIENCE", 0.1)
    service = SessionService(Host(env=on_postgres()), token_estimator=NoTokens())
    fill(service, "gone")
    with psycopg.connect(server()) as writer:
        writer.execute("SELECT pg_current_xact_id()")
        assert service.delete("gone").erasure == "pending"
    assert service.sweep().pending == 0
    dispose(service)


def test_on_postgres_no_dead_row_is_left() -> None:
    env = on_postgres()
    service = SessionService(Host(env=env), token_estimator=NoTokens())
    fill(service, "gone", "stays")
    service.delete("gone")
    table = f"'{env['SQLALCHEMY_SCHEMA']}.host_events'"
    with connect() as connection:
        connection.execute("SELECT pg_stat_force_next_flush()")
        vacuumed = f"SELECT n_dead_tup, vacuum_count FROM pg_stat_all_tables WHERE relid = {table}::regclass"
        assert connection.execute(cast("Any", vacuumed)).fetchall() == [(0, 1)]
    dispose(service)


# --- bytes in a file


class Told:
    """A session of words that occur nowhere else."""

    def __init__(self, number: int) -> None:
        self.id = f"session-{number}"
        self.dice = random.Random(number)
        self.words: list[str] = []

    def text(self) -> str:
        words = [
            "".join(self.dice.choices(string.ascii_letters, k=12))
            for _ in range(self.dice.choice((1, 9, 90)))
        ]
        self.words += words
        return " ".join(words)

    def left_in(self, path: Path) -> list[str]:
        files = (path.with_name(path.name + end) for end in ("", "-wal", "-journal"))
        found = b"".join(file.read_bytes() for file in files if file.exists())
        return [word for word in self.words if word.encode() in found]


def insecure(connection: Any, _: object) -> None:
    connection.execute("PRAGMA secure_delete = OFF")


@pytest.mark.parametrize("seed", range(3))
def test_on_sqlite_no_word_of_a_deleted_session_is_left(path: Path, seed: int) -> None:
    service = SessionService(Host(env=on_sqlite(path)), token_estimator=NoTokens())
    engine = cast("Any", service.app.recorder).datastore.engine
    engine.dispose()
    event.listen(engine, "connect", insecure)
    dice = random.Random(seed)
    tolds = [Told(100 * seed + number) for number in range(30)]
    for told in tolds:
        service.create(told.id, metadata={"title": told.text()})
    for _ in range(120):
        told = dice.choice(tolds)
        service.append_message(told.id, Message.user(told.text()))
    left: dict[str, list[str]] = {}
    for told in [*tolds[20:24], *tolds[:4]]:
        assert service.delete(told.id).erasure == "done"
        left[told.id] = told.left_in(path)
    assert left == {name: [] for name in left}
    dispose(service)


# --- an application's own session


@pytest.fixture
def shared(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SessionService]:
    """A service in the transactions of an application that owns the session."""
    engine = create_engine(f"sqlite:///{path}")
    own = scoped_session(sessionmaker(bind=engine))
    monkeypatch.setattr(f"{__name__}.OWN", own, raising=False)
    topic = f"{__name__}:own_session"
    env = {"PERSISTENCE_MODULE": "eventsourcing_sqlalchemy", "SQLALCHEMY_SCOPED_SESSION_TOPIC": topic}
    service = SessionService(Host(env=env), token_estimator=NoTokens())
    fill(service, "gone")
    own.commit()
    yield service
    own.remove()
    engine.dispose()
    service.app.close()


OWN: Any = None


def own_session() -> Any:
    """The session of the application, as the framework's module asks for it."""
    return OWN


def test_in_a_transaction_of_the_applications_own_the_erasure_is_pending(shared: SessionService) -> None:
    deletion = shared.delete("gone")
    assert (deletion.erasure, "commit" in (deletion.reason or "")) == ("pending", True)
    OWN.rollback()
    assert shared.find("gone") is not None


def test_a_sweep_completes_it_when_that_is_committed(shared: SessionService, path: Path) -> None:
    shared.delete("gone")
    OWN.commit()
    OWN.remove()
    swept = shared.sweep()
    OWN.commit()
    assert (swept.pending, swept.reason) == (0, None)
    assert RARE.encode() not in path.read_bytes()
