from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.audit.logs import WordCount
from tests.audit.renderers import RENDERERS
from tests.contracts.stores import sqlite_env

from turnlog.application.audit import SessionAudit
from turnlog.application.service import SessionService

SID = "s"


@pytest.fixture
def sessions() -> Iterator[SessionService]:
    """A service in memory."""
    with SessionService(token_estimator=WordCount()) as service:
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
