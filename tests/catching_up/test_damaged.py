"""Rows that are caught up beside events that cannot be read: they go on, and the events are named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from eventsourcing.application import Application
from tests.projections.databases import DATABASES, RECORDERS, Database, PostgresSchema

from turnlog.application import SessionService
from turnlog.domain.errors import UnreadableEventError
from turnlog.domain.ids import aggregate_id
from turnlog.domain.messages import Message
from turnlog.domain.query import EventQuery

CASES = [(engine, one) for engine in RECORDERS for one in RECORDERS[engine] if one is not None]

DAMAGED = b"\x00"


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0]}-{case[1].partition(':')[2]}")
def plain(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Database, str]:
    """Each database with a recorder that writes no rows."""
    engine, recorder = request.param
    return DATABASES[engine](tmp_path), recorder


def fill(sessions: SessionService, *names: str) -> None:
    for name in names:
        sessions.create(name, metadata={"title": name})
        for number in range(3):
            sessions.append_message(name, Message.user(f"{name} heron {number}"))


def position(database: Database, name: str, version: int) -> int:
    """Where the event is in the log."""
    key = aggregate_id(name)
    shown = str(key) if isinstance(database, PostgresSchema) else key.hex
    found: int = database.one(
        f"SELECT rowid FROM stored_events WHERE originator_id = '{shown}' AND originator_version = {version}"
    )
    return found


def listed(sessions: SessionService) -> dict[str, int]:
    return {row.session_id: row.messages for row in sessions.list_sessions()}


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_listing_goes_on_and_names_the_event(
    plain: tuple[Database, str], caplog: pytest.LogCaptureFixture, version: int
) -> None:
    database, recorder = plain
    with database.service(recorder) as sessions:
        fill(sessions, "alpha")
        assert listed(sessions) == {"alpha": 3}
        fill(sessions, "beta")
        database.put_state(position(database, "beta", version), DAMAGED)
        with caplog.at_level("WARNING", logger="turnlog"):
            assert listed(sessions) == {"alpha": 3, "beta": 3}
        assert f"The event at version {version}" in caplog.text
        fill(sessions, "gamma")
        assert listed(sessions) == {"alpha": 3, "beta": 3, "gamma": 3}
        assert len(sessions.search_events("gamma", EventQuery(keywords="heron"))) == 3
        with pytest.raises(UnreadableEventError):
            sessions.search_events("beta", EventQuery(keywords="heron"))


@pytest.mark.parametrize("version", [0, 1, 3])
def test_check_names_it_and_nothing_else(plain: tuple[Database, str], version: int) -> None:
    database, recorder = plain
    with database.service(recorder) as sessions:
        fill(sessions, "alpha", "beta")
        database.put_state(position(database, "beta", version), DAMAGED)
        listed(sessions)
        found = database.models(sessions.app).compare().differences
        (one,) = found
        assert one.model == "log"
        assert one.detail.startswith(f"event {version} cannot be read")


@pytest.mark.parametrize("version", [0, 1, 3])
def test_a_listing_in_memory_goes_on_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, version: int
) -> None:
    database, recorder = DATABASES["sqlite"](tmp_path), RECORDERS["sqlite"][1]
    Application[UUID](env=database.env_with(recorder)).close()
    env = {**database.env_with(recorder), "CREATE_TABLE": "no"}
    with SessionService(env=env) as sessions:
        fill(sessions, "beta", "alpha")
        assert sessions.capabilities.directory == "memory"
        places = [position(database, "beta", version), position(database, "alpha", 2)]
        for place in places:
            database.put_state(place, DAMAGED)
    with SessionService(env=env) as sessions, caplog.at_level("WARNING", logger="turnlog"):
        assert listed(sessions) == ({"alpha": 3} if version == 0 else {"alpha": 3, "beta": 3})
        assert f"The event at version {version}" in caplog.text
        fill(sessions, "gamma")
        assert listed(sessions)["gamma"] == 3
    for place in range(1, 13):
        database.put_state(place, DAMAGED)
    with SessionService(env=env) as sessions, pytest.raises(UnreadableEventError):
        listed(sessions)


def test_one_that_is_alone_behind_what_was_caught_up_is_passed_over(plain: tuple[Database, str]) -> None:
    database, recorder = plain
    with database.service(recorder) as sessions:
        fill(sessions, "alpha")
        assert listed(sessions) == {"alpha": 3}
        sessions.append_message("alpha", Message.user("a heron"))
        database.put_state(position(database, "alpha", 4), DAMAGED)
        assert listed(sessions) == {"alpha": 4}


def test_where_nothing_can_be_read_nothing_is_passed_over(plain: tuple[Database, str]) -> None:
    database, recorder = plain
    with database.service(recorder) as sessions:
        fill(sessions, "alpha", "beta")
        states = database.rows("SELECT rowid, state FROM stored_events")
        for place, _ in states:
            database.put_state(place, DAMAGED)
        with pytest.raises(UnreadableEventError):
            listed(sessions)
        for place, state in states:
            database.put_state(place, state)
        assert listed(sessions) == {"alpha": 3, "beta": 3}


def test_metadata_of_another_kind_stop_nothing(plain: tuple[Database, str]) -> None:
    database, recorder = plain
    with database.service(recorder) as sessions:
        fill(sessions, "alpha", "beta")
        place = position(database, "beta", 0)
        ((state,),) = database.rows(f"SELECT state FROM stored_events WHERE rowid = {place}")
        fields: dict[str, Any] = json.loads(state)
        database.put_state(place, json.dumps(fields | {"content": "[7"}).encode())
        assert listed(sessions) == {"alpha": 3}


def test_what_a_newer_version_wrote_is_waited_for(plain: tuple[Database, str]) -> None:
    database, recorder = plain
    with database.service(recorder) as sessions:
        fill(sessions, "alpha", "beta")
        place = position(database, "beta", 3)
        topic = database.one(f"SELECT topic FROM stored_events WHERE rowid = {place}")
        database.change(
            f"UPDATE stored_events SET topic = 'turnlog.domain.events:Later' WHERE rowid = {place}"
        )
        with pytest.raises(UnreadableEventError):
            listed(sessions)
        database.change(f"UPDATE stored_events SET topic = '{topic}' WHERE rowid = {place}")
        assert listed(sessions) == {"alpha": 3, "beta": 3}


def test_a_rebuild_brings_in_what_a_restored_event_holds(plain: tuple[Database, str]) -> None:
    database, recorder = plain
    with database.service(recorder) as sessions:
        fill(sessions, "alpha", "beta")
        place = position(database, "beta", 0)
        ((state,),) = database.rows(f"SELECT state FROM stored_events WHERE rowid = {place}")
        database.put_state(place, DAMAGED)
        assert listed(sessions) == {"alpha": 3}
        database.put_state(place, state)
        models = database.models(sessions.app)
        assert {one.session_id for one in models.compare().differences} == {"beta"}
        models.rebuild()
        assert listed(sessions) == {"alpha": 3, "beta": 3}
        assert models.compare().differences == ()


def test_rows_that_are_written_from_then_on_are_the_same(plain: tuple[Database, str]) -> None:
    database, recorder = plain
    with database.service(recorder) as sessions:
        fill(sessions, "alpha", "beta")
    database.put_state(position(database, "beta", 3), DAMAGED)
    with database.service() as sessions:
        assert listed(sessions) == {"alpha": 3, "beta": 3}
        found = database.models(sessions.app).compare().differences
        assert [one.model for one in found] == ["log"]
