"""Metadata that cannot be read, or are gone, are replaced by whoever says whose the session is."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from tests.projections.databases import Database, PostgresSchema, SqliteFile

from turnlog.application import SessionAudit, SessionService
from turnlog.domain import (
    Message,
    SessionAttributes,
    SessionIdUnavailableError,
    SessionNotFoundError,
    UnreadableEventError,
)

SID, OWNER = "parcel", SessionAttributes.PRINCIPAL_NAME
POSITION = 2
"""The row of the metadata."""


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    return SqliteFile(tmp_path / "sessions.db") if request.param == "sqlite" else PostgresSchema()


def damaged(database: Database) -> None:
    database.put_state(POSITION, b'{"content":')


def gone(database: Database) -> None:
    database.change(f"DELETE FROM stored_events WHERE rowid = {POSITION}")


@pytest.fixture(params=[damaged, gone])
def sessions(request: pytest.FixtureRequest, database: Database) -> SessionService:
    """A service that was started behind the damage."""
    with database.service() as service:
        service.create(SID)
        service.update_metadata(SID, {"title": "Parcel", OWNER: "ada"})
        service.append_message(SID, Message.user("Where is it?"))
    damage: Callable[[Database], None] = request.param
    damage(database)
    return database.service()


@pytest.mark.parametrize(("owner", "left"), [("bob", {OWNER: "bob"}), (None, {})])
def test_new_metadata_that_name_the_owner_replace_them(
    sessions: SessionService, owner: str | None, left: dict[str, str]
) -> None:
    with sessions:
        version = sessions.update_metadata(SID, {"title": "Mine", OWNER: owner})
        found = sessions.find(SID)
        assert found is not None
        assert (found.version, found.metadata) == (version, {"title": "Mine", **left})
        assert [row.metadata for row in sessions.list_sessions()] == [{"title": "Mine", **left}]
        assert [one.version for one in SessionAudit(sessions).verify(SID).findings] == [POSITION - 1]


def test_without_an_owner_nothing_is_written_and_the_error_says_what_is_missing(
    sessions: SessionService,
) -> None:
    with sessions:
        with pytest.raises(UnreadableEventError, match=r"name 'user\.name' replace it") as raised:
            sessions.update_metadata(SID, {"title": "Mine"})
        assert (raised.value.session_id, raised.value.version) == (SID, POSITION - 1)
        assert sessions.version(SID) == POSITION


def written_by(scoped: SessionService) -> list[Callable[[], object]]:
    return [
        lambda: scoped.update_metadata(SID, {"title": "Mine"}),
        lambda: scoped.append_message(SID, Message.user("Mine.")),
        lambda: scoped.extend(SID, by=timedelta(1)),
        lambda: scoped.delete(SID),
    ]


def test_in_a_scope_nobody_knows_whose_it_is(sessions: SessionService) -> None:
    with sessions:
        for principal in ("ada", "bob"):
            scoped = sessions.scoped_to(principal)
            assert scoped.find(SID) is None
            for act in written_by(scoped):
                with pytest.raises(SessionNotFoundError):
                    act()
            with pytest.raises(SessionIdUnavailableError):
                scoped.create(SID)
        assert sessions.version(SID) == POSITION


def test_a_session_whose_opening_is_damaged_is_one_whose_id_is_taken(database: Database) -> None:
    with database.service() as service:
        service.create(SID, metadata={OWNER: "ada"})
        service.append_message(SID, Message.user("Where is it?"))
    database.put_state(1, b'{"content":')
    with database.service() as service:
        for one in (service, service.scoped_to("bob")):
            with pytest.raises(SessionIdUnavailableError):
                one.create(SID)
        with pytest.raises(SessionIdUnavailableError):
            service.scoped_to("bob").find_or_create(SID)


def test_where_versions_were_exchanged_no_owner_is_lost(database: Database) -> None:
    with database.service() as service:
        service.create(SID, metadata={OWNER: "ada"})
        service.update_metadata(SID, {"title": "Parcel"})
        service.append_message(SID, Message.user("Where is it?"))
        service.append_message(SID, Message.user("Hello?"))
    for now, then in ((99, 2), (2, 1), (1, 99)):
        database.change(
            f"UPDATE stored_events SET originator_version = {now} WHERE originator_version = {then}"
        )
    with database.service() as service:
        with pytest.raises(UnreadableEventError, match="another event"):
            service.update_metadata(SID, {"title": "Mine"})
        assert service.version(SID) == 3
