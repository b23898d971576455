"""A store that several processes share, on each of the two databases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.contracts.stores import sqlite_env
from tests.support.postgres import postgres_env

from turnlog.application.service import SessionService

PLAIN = {
    "eventsourcing.sqlite": "eventsourcing.sqlite:SQLiteApplicationRecorder",
    "eventsourcing.postgres": "eventsourcing.postgres:PostgresApplicationRecorder",
}
"""The framework's own recorders, which write no rows about sessions."""


def plain(env: Mapping[str, str]) -> dict[str, str]:
    """The settings of a process with the framework's own recorder on the same database."""
    return {**env, "APPLICATION_RECORDER_TOPIC": PLAIN[env["PERSISTENCE_MODULE"]]}


@pytest.fixture(params=["sqlite", "postgres"])
def env(request: pytest.FixtureRequest, tmp_path: Path) -> Mapping[str, str]:
    """The settings of a fresh store."""
    return postgres_env() if request.param == "postgres" else sqlite_env(tmp_path / "sessions.db")


@pytest.fixture
def sessions(env: Mapping[str, str]) -> Iterator[SessionService]:
    """A service with rows about sessions on the store."""
    with SessionService(env=env) as service:
        yield service
