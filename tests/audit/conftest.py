from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.audit.logs import WordCount
from tests.audit.renderers import RENDERERS
from tests.contracts.stores import sqlite_env
from tests.support.postgres import empty, postgres_env

from turnlog.application.audit import SessionAudit
from turnlog.application.service import SessionService
from turnlog.application.sessions import Sessions

SID = "s"


@pytest.fixture(scope="session")
def postgres_app() -> Iterator[Sessions]:
    """An application on PostgreSQL that all tests use, one after the other."""
    with Sessions(env=postgres_env()) as app:
        SessionService(app)
        yield app


@pytest.fixture(params=["memory", "postgres"])
def app(request: pytest.FixtureRequest) -> Iterator[Sessions]:
    """An application that holds nothing yet."""
    if request.param == "postgres":
        shared: Sessions = request.getfixturevalue("postgres_app")
        empty(shared.env["POSTGRES_SCHEMA"])
        yield shared
    else:
        with Sessions() as own:
            yield own


@pytest.fixture
def sessions(app: Sessions) -> Iterator[SessionService]:
    """A service with a session, in memory and on PostgreSQL."""
    with SessionService(app, token_estimator=WordCount()) as service:
        service.create(SID)
        yield service


@pytest.fixture
def audit(sessions: SessionService) -> SessionAudit:
    """Its audit, with the renderers of the tests."""
    return SessionAudit(sessions, renderers=RENDERERS)


@pytest.fixture
def open_file(tmp_path: Path) -> Iterator[Callable[[], SessionService]]:
    """Opens the same SQLite file again and again."""
    opened: list[SessionService] = []

    def open_again() -> SessionService:
        opened.append(SessionService(env=sqlite_env(tmp_path / "sessions.db"), token_estimator=WordCount()))
        return opened[-1]

    yield open_again
    for service in opened:
        service.close()
