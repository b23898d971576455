from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.projections.databases import DATABASES, Database

from turnlog.application.service import SessionService


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sessions.db"


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """Each database, empty."""
    return DATABASES[request.param](tmp_path)


@pytest.fixture
def sessions(database: Database) -> Iterator[SessionService]:
    """A service on the database, with rows in the transaction of the events."""
    with database.service() as service:
        yield service


@pytest.fixture
def store(database: Database, sessions: SessionService) -> Iterator[Any]:
    """A view store in the same database."""
    with database.view_store() as store:
        yield store
