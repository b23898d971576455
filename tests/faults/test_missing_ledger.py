"""The table of event ids is gone: it is made anew from the log, and nothing is stored twice."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.projections.databases import Database, PostgresSchema, SqliteFile

from turnlog.application import Sessions, SessionService
from turnlog.domain import Message

SID = "parcel"


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """A database without its ledger."""
    found: Database = SqliteFile(tmp_path / "sessions.db") if request.param == "sqlite" else PostgresSchema()
    with found.service() as service:
        for name in (SID, "kept", "gone"):
            service.create(name)
            service.append_message(name, Message.user("Where is it?"), event_id="question")
        service.append_message(SID, Message.user("And the other one?"), event_id="second")
        service.delete("kept", erase=False)
        service.delete("gone")
    found.change("DROP TABLE turnlog_event_ids")
    return found


def repeats(service: SessionService) -> bool:
    return service.append_message(SID, Message.user("Where is it?"), event_id="question").is_repeat


def test_a_repeat_is_one_as_before(database: Database) -> None:
    with database.service() as service:
        assert repeats(service)
        assert [event.id for event in service.get_events(SID)] == ["question", "second"]


def test_nothing_else_is_made_anew(database: Database) -> None:
    before = database.rows("SELECT position, aggregate_id, version, head FROM turnlog_sessions")
    with database.service() as service:
        assert database.rows("SELECT position, aggregate_id, version, head FROM turnlog_sessions") == before
        assert database.one("SELECT count(*) FROM turnlog_event_ids") == 2
        assert database.models(service.app).compare().is_equal


def test_a_rebuild_makes_the_ledger_too(database: Database) -> None:
    with Sessions(env=dict(database.env)) as app:
        database.models(app).rebuild(["directory"])
    with database.service() as service:
        assert repeats(service)
