"""Stores on SQLite whose recorder writes no rows about sessions, and what is done where tables are gone."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.projections.activity import FOLLOWABLE, PLAIN, turn
from tests.projections.databases import Database
from tests.projections.test_commands import Turnlog, turnlog

from turnlog.application import SessionService
from turnlog.domain import EventQuery, Message, StorageError

__all__ = ["turnlog"]

pytestmark = pytest.mark.parametrize("database", ["sqlite"], indirect=True)


@pytest.fixture(params=[PLAIN, FOLLOWABLE])
def plain(database: Database, request: pytest.FixtureRequest) -> Database:
    """A store without rows, of which the sessions were listed and searched once."""
    database.env = database.env_with(request.param)
    with database.service() as sessions:
        for name in ("erased", "alpha", "beta"):
            sessions.create(name, metadata={"title": "heron"})
            turn(sessions, name)
        sessions.append_message("alpha", Message.user("a gnu"), event_id="mine")
        sessions.redact("alpha", "mine", reason="r", by="ada")
        sessions.delete("erased")
        told(sessions)
    return database


def told(sessions: SessionService) -> object:
    """What is listed and found."""
    listed = [(row.session_id, row.version, row.metadata) for row in sessions.list_sessions()]
    found = sessions.search_events("beta", EventQuery(keywords="heron"))
    return listed, [event.version for event in found]


def said(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def test_check_names_the_table_that_is_gone_and_rebuild_cures_it(
    plain: Database, turnlog: Turnlog, capsys: pytest.CaptureFixture[str]
) -> None:
    plain.change("DROP TABLE tracking")
    assert turnlog("check", "--json") == 1
    (one,) = said(capsys)["differences"]
    assert (one["model"], one["detail"]) == (
        "directory",
        "its table tracking is gone: run `turnlog rebuild directory`",
    )
    assert turnlog("rebuild", "directory") == 0
    assert turnlog("check") == 0


def test_whoever_lists_begins_anew_where_nobody_knows_how_far_the_rows_got(plain: Database) -> None:
    with plain.service() as sessions:
        before = told(sessions)
    plain.change("DROP TABLE tracking")
    with plain.service() as sessions:
        assert told(sessions) == before
        turn(sessions, "beta")
        assert sessions.sweep().pending == 0
        assert plain.models(sessions.app).compare().is_equal


def test_so_does_whoever_finds_the_table_made_anew_by_others(plain: Database) -> None:
    plain.change("DELETE FROM tracking")
    with plain.service() as sessions:
        assert len(sessions.list_sessions()) == 2


def test_a_service_that_is_open_says_what_to_run(plain: Database) -> None:
    with plain.service() as sessions:
        plain.change("DROP TABLE tracking")
        with pytest.raises(StorageError, match="`turnlog rebuild` makes it anew"):
            sessions.list_sessions()


@pytest.mark.parametrize("table", ["tracking", "turnlog_sessions", "turnlog_metadata", "turnlog_redactions"])
def test_a_recorder_with_rows_makes_them_all_where_some_are_gone(plain: Database, table: str) -> None:
    with plain.service() as sessions:
        before = told(sessions)
    plain.change(f"DROP TABLE {table}")
    plain.env = {**plain.env, "APPLICATION_RECORDER_TOPIC": ""}
    with plain.service() as sessions:
        assert sessions.capabilities.directory == "rows"
        assert told(sessions) == before
        assert plain.models(sessions.app).compare().is_equal
    assert plain.one("SELECT count(*) FROM turnlog_redactions") == 1
