from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.infrastructure.cli.conftest import Result, Turnlog
from tests.support.postgres import postgres_env

from turnlog.infrastructure.cli.app import run

RECORDERS = {
    "sqlite": "eventsourcing.sqlite:SQLiteApplicationRecorder",
    "postgres": "eventsourcing.postgres:PostgresApplicationRecorder",
}


@pytest.fixture(params=["rows", "plain-recorder"])
def sqlite(request: pytest.FixtureRequest, tmp_path: Path) -> Mapping[str, str]:
    """The settings of a fresh SQLite file, with rows about sessions and with the framework's recorder."""
    env = {"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": str(tmp_path / "sessions.db")}
    return env if request.param == "rows" else {**env, "APPLICATION_RECORDER_TOPIC": RECORDERS["sqlite"]}


@pytest.fixture(params=["rows", "plain-recorder"])
def postgres(request: pytest.FixtureRequest) -> Mapping[str, str]:
    """The same of a fresh schema of PostgreSQL."""
    env = postgres_env()
    return env if request.param == "rows" else {**env, "APPLICATION_RECORDER_TOPIC": RECORDERS["postgres"]}


@pytest.fixture
def turnlog(capsys: pytest.CaptureFixture[str]) -> Turnlog:
    """Runs a command line in this process."""

    def command(*arguments: object) -> Result:
        capsys.readouterr()
        status = run([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return Result(status, printed.out, printed.err)

    return command
