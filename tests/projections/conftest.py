from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from eventsourcing.sqlite import SQLiteDatastore
from tests.projections.activity import service_on

from turnlog.application.service import SessionService
from turnlog.infrastructure.sqlite import SqliteViewStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sessions.db"


@pytest.fixture
def sessions(path: Path) -> Iterator[SessionService]:
    """A service on a file, with rows in the transaction of the events."""
    with service_on(path) as service:
        yield service


@pytest.fixture
def store(path: Path, sessions: SessionService) -> Iterator[SqliteViewStore]:
    """A view store in the same file."""
    datastore = SQLiteDatastore(str(path))
    store = SqliteViewStore(datastore)
    store.create_table()
    yield store
    datastore.close()
