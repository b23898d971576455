"""Settings that name a database without saying that it is to be used."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from turnlog.application import SessionService


@pytest.mark.parametrize("name", ["SQLITE", "POSTGRES"])
def test_a_database_that_is_named_and_not_used_is_warned_of_in_one_line(
    caplog: pytest.LogCaptureFixture, name: str
) -> None:
    with caplog.at_level(logging.WARNING, "turnlog"):
        SessionService(env={f"{name}_DBNAME": "sessions"}).close()
    (record,) = caplog.records
    assert record.name == "turnlog"
    assert f"PERSISTENCE_MODULE=eventsourcing.{name.lower()}" in record.message


@pytest.mark.parametrize("module", ["eventsourcing.sqlite", "eventsourcing.popo"])
def test_who_says_what_is_to_be_used_is_not_warned(
    caplog: pytest.LogCaptureFixture, tmp_path: Path, module: str
) -> None:
    env = {"PERSISTENCE_MODULE": module, "SQLITE_DBNAME": str(tmp_path / "sessions.db")}
    with caplog.at_level(logging.WARNING, "turnlog"):
        SessionService(env=env).close()
        SessionService().close()
    assert caplog.records == []
