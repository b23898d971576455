from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.support.postgres import postgres_env

STORES: Mapping[str, str | None] = {
    "sqlite": None,
    "sqlite-plain-recorder": "eventsourcing.sqlite:SQLiteApplicationRecorder",
    "postgres": None,
    "postgres-plain-recorder": "eventsourcing.postgres:PostgresApplicationRecorder",
}
"""The stores that processes can share; by name the recorder where it is the framework's own."""


@pytest.fixture(params=STORES)
def env(request: pytest.FixtureRequest, tmp_path: Path) -> Mapping[str, str]:
    """The settings of a fresh store of each kind."""
    name = str(request.param)
    recorder = STORES[name]
    plain = {} if recorder is None else {"APPLICATION_RECORDER_TOPIC": recorder}
    if name.startswith("postgres"):
        return {**postgres_env(), **plain}
    file = tmp_path / "sessions.db"
    return {"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": str(file), **plain}
