"""Whatever stands in a field of a stored event, `verify` and `check` list it and `rebuild` names it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.projections.databases import Database, PostgresSchema, SqliteFile

from turnlog.application import SessionAudit, SessionService
from turnlog.domain import CompactionWindow, Message, TurnCountTrigger, WindowCompactionStrategy
from turnlog.domain.errors import UnreadableEventError
from turnlog.domain.events import Compacted

SID = "parcel"
POSITION = 4
"""The row of a message in the middle."""


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    return SqliteFile(tmp_path / "sessions.db") if request.param == "sqlite" else PostgresSchema()


@pytest.fixture
def sessions(database: Database) -> Iterator[SessionService]:
    """A session of more messages than one block of the index, one of them redacted."""
    with database.service() as service:
        service.create(SID)
        service.append_events(SID, [Message.user(f"heron {number}") for number in range(140)])
        service.redact(SID, service.get_event(SID, 9).id, reason="asked for", by="ada")
        database.models(service.app).rebuild()
        yield service


@pytest.fixture
def fields(sessions: SessionService) -> dict[str, object]:
    (row,) = sessions.app.recorder.select_notifications(POSITION, 1)
    found: dict[str, object] = json.loads(row.state)
    return found


NO_OBJECTS = [b"[1]", b"null", b""]
DAMAGED: list[tuple[str, object]] = [("event_id", None), ("event_id", [1]), ("role", 10**30), ("content", [])]


def listed(database: Database, sessions: SessionService) -> None:
    found = SessionAudit(sessions).verify(SID).findings
    assert [one.version for one in found] == [POSITION - 1]
    assert "log" in {one.model for one in database.models(sessions.app).compare().differences}


@pytest.mark.parametrize("state", [*NO_OBJECTS, b"{}"])
def test_an_event_without_fields_is_listed(
    database: Database, sessions: SessionService, state: bytes
) -> None:
    database.put_state(POSITION, state)
    listed(database, sessions)


@pytest.mark.parametrize(("name", "value"), DAMAGED)
def test_a_field_of_another_kind_is_listed(
    database: Database, sessions: SessionService, fields: dict[str, object], name: str, value: object
) -> None:
    database.put_state(POSITION, json.dumps({**fields, name: value}).encode())
    listed(database, sessions)


@pytest.mark.parametrize(("name", "value"), DAMAGED)
def test_a_rebuild_names_the_event_with_such_a_field(
    database: Database, sessions: SessionService, fields: dict[str, object], name: str, value: object
) -> None:
    database.put_state(POSITION, json.dumps({**fields, name: value}).encode())
    models = database.models(sessions.app)
    models.rebuild()
    assert [version for _, version in models.unreadable_events()] == [3]


def boundary_without_state(database: Database) -> None:
    """A session whose boundary, at version 5, carries no view; what is behind it is no entry."""
    with database.service() as service:
        service.create(SID)
        for number in range(2):
            service.append_events(SID, [Message.user(f"heron {number}"), Message.assistant("a bird")])
        service.compact(SID, TurnCountTrigger(1), WindowCompactionStrategy(CompactionWindow.last_turns(1)))
        service.update_metadata(SID, {"title": "heron"})
        service.append_message(SID, Message.user("and now?"))
        (row,) = service.app.recorder.select_notifications(6, 1)
    assert row.topic == Compacted.TOPIC
    database.put_state(6, json.dumps({**json.loads(row.state), "state": None}).encode())


@pytest.mark.parametrize("version", [1, 3])
def test_an_explanation_names_a_boundary_without_its_state(database: Database, version: int) -> None:
    boundary_without_state(database)
    with database.service() as service, pytest.raises(UnreadableEventError) as told:
        SessionAudit(service).explain(SID, service.get_event(SID, version).id)
    assert (told.value.session_id, told.value.version) == (SID, 5)


def test_so_do_views_and_what_differs_between_them(database: Database) -> None:
    boundary_without_state(database)
    with database.service() as service:
        audit = SessionAudit(service)
        for ask in (lambda: audit.view_at(SID), lambda: audit.diff(SID, 3, 7)):
            with pytest.raises(UnreadableEventError, match="at version 5 "):
                ask()
