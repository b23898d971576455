from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.conformance_stores import NoTokens
from tests.support.postgres import postgres_env

from turnlog.application.service import SessionService
from turnlog.infrastructure.sqlite import recall


def on_sqlite(path: Path | str, **env: str) -> SessionService:
    """A service on this file, with an application of its own."""
    values = {"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": str(path), **env}
    return SessionService(env=values, token_estimator=NoTokens())


def without_rows(path: Path) -> SessionService:
    """A service on this file with the framework's own recorder."""
    return on_sqlite(path, APPLICATION_RECORDER_TOPIC="eventsourcing.sqlite:SQLiteApplicationRecorder")


@pytest.fixture(
    params=[
        "memory",
        "sqlite",
        "sqlite in memory",
        "sqlite without rows",
        "sqlite without fts",
        "postgres",
        "postgres without rows",
    ]
)
def sessions(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Any]:
    """A service on a store of each kind: an index, or logs that are read."""
    match request.param:
        case "memory":
            service = SessionService(token_estimator=NoTokens())
        case "sqlite":
            service = on_sqlite(tmp_path / "sessions.db")
        case "sqlite in memory":
            service = on_sqlite(":memory:")
        case "sqlite without rows":
            service = without_rows(tmp_path / "sessions.db")
        case "postgres":
            service = SessionService(env=postgres_env(), token_estimator=NoTokens())
        case "postgres without rows":
            plain = {"APPLICATION_RECORDER_TOPIC": "eventsourcing.postgres:PostgresApplicationRecorder"}
            service = SessionService(env={**postgres_env(), **plain}, token_estimator=NoTokens())
        case _:
            monkeypatch.setattr(recall, "is_supported", lambda: False)
            service = on_sqlite(tmp_path / "sessions.db")
    with service:
        yield service


@pytest.fixture
def indexed(tmp_path: Path) -> Iterator[SessionService]:
    """A service on an SQLite file with the index."""
    with on_sqlite(tmp_path / "sessions.db") as service:
        yield service
