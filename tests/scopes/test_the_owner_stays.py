"""New metadata replace the former ones, but the session stays its owner's unless they say otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.contracts.stores import STORES

from turnlog.application.service import SessionService
from turnlog.domain.attributes import SessionAttributes
from turnlog.domain.errors import InvalidSettingError

SID = "s"
NAME = SessionAttributes.PRINCIPAL_NAME


@pytest.fixture(params=("memory", "sqlite", "postgres"))
def sessions(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SessionService]:
    """A store that holds a session of ada."""
    name: str = request.param
    service = STORES[name](tmp_path).service()
    service.scoped_to("ada").create(SID, metadata={"title": "old", "mood": "fine"})
    with service:
        yield service


def metadata(sessions: SessionService) -> dict[str, Any]:
    """What is stored with the session now."""
    found = sessions.find(SID)
    assert found is not None
    return dict(found.metadata)


def test_metadata_that_name_no_owner_keep_the_one_there_is(sessions: SessionService) -> None:
    sessions.update_metadata(SID, {"title": "new"})
    assert metadata(sessions) == {"title": "new", NAME: "ada"}


def test_the_owner_still_finds_the_session(sessions: SessionService) -> None:
    sessions.update_metadata(SID, {"title": "new"})
    ada = sessions.scoped_to("ada")
    assert ada.find(SID) is not None
    assert [row.session_id for row in ada.list_sessions()] == [SID]


def test_another_owner_can_be_named(sessions: SessionService) -> None:
    sessions.update_metadata(SID, {NAME: "eve"})
    assert (metadata(sessions), sessions.scoped_to("ada").find(SID)) == ({NAME: "eve"}, None)


def test_none_takes_the_owner_away(sessions: SessionService) -> None:
    sessions.update_metadata(SID, {NAME: None, "title": "free"})
    assert (metadata(sessions), sessions.scoped_to("ada").find(SID)) == ({"title": "free"}, None)


def test_in_a_scope_none_does_not_take_the_owner_away(sessions: SessionService) -> None:
    with pytest.raises(InvalidSettingError, match=NAME):
        sessions.scoped_to("ada").update_metadata(SID, {NAME: None})
    assert metadata(sessions)[NAME] == "ada"


def test_a_session_of_nobody_stays_nobodys(sessions: SessionService) -> None:
    sessions.create("free", metadata={"title": "old"})
    sessions.update_metadata("free", {"title": "new"})
    found = sessions.find("free")
    assert found is not None
    assert found.metadata == {"title": "new"}
