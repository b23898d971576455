"""Tables of the directory were dropped from a file: that is said, and nothing is listed as if it were all."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from tests.projections.activity import FOLLOWABLE, PLAIN, live, turn
from tests.projections.databases import Database, SqliteFile
from tests.projections.test_commands import Turnlog, turnlog
from tests.projections.test_rebuilding import ROWS, found

from turnlog.application import Sessions
from turnlog.application.projections import ReadModelOutdatedError
from turnlog.infrastructure.sqlite import SqliteReadModels

__all__ = ["turnlog"]

pytestmark = pytest.mark.parametrize("database", ["sqlite"], indirect=True)

TABLES = ("turnlog_sessions", "turnlog_metadata", "turnlog_session_metadata")
GONE = "'directory' is gone.*turnlog rebuild directory"


@pytest.fixture
def names(database: Database) -> Sequence[str]:
    """Sessions, some of which are erased, that had another place in the directory than a new one gives."""
    with database.service() as sessions:
        for name in ("erased", "parcel"):
            sessions.create(name)
            turn(sessions, name)
        sessions.delete("erased")
        return [*live(sessions, 1, 60).names, "parcel"]


@pytest.mark.parametrize("table", TABLES)
def test_every_process_is_told_to_rebuild_it(database: SqliteFile, names: Sequence[str], table: str) -> None:
    database.change(f"DROP TABLE {table}")
    for _ in range(2):
        with pytest.raises(ReadModelOutdatedError, match=GONE) as told:
            database.service()
        assert (told.value.name, told.value.found) == ("directory", 0)


def test_whoever_only_reads_is_told_too(database: SqliteFile, names: Sequence[str], turnlog: Turnlog) -> None:
    database.change("DROP TABLE turnlog_sessions")
    before = database.tables()
    for arguments in (("sessions",), ("search", "heron"), ("view", "parcel"), ("log", "@last")):
        assert turnlog(*arguments) == 5
    assert database.tables() == before


def test_the_command_line_says_what_to_do(
    database: SqliteFile, names: Sequence[str], turnlog: Turnlog, capsys: pytest.CaptureFixture[str]
) -> None:
    database.change("DROP TABLE turnlog_sessions")
    assert turnlog("sessions") == 5
    assert "turnlog rebuild directory" in capsys.readouterr().err
    assert turnlog("rebuild", "directory") == 0
    assert turnlog("sessions") == 0
    assert "parcel" in capsys.readouterr().out


@pytest.mark.parametrize("is_opened_first", [False, True])
def test_check_names_it_alone(
    database: SqliteFile,
    names: Sequence[str],
    turnlog: Turnlog,
    capsys: pytest.CaptureFixture[str],
    is_opened_first: bool,
) -> None:
    database.change("DROP TABLE turnlog_sessions")
    if is_opened_first:
        Sessions(env=dict(database.env)).close()
    assert turnlog("check", "--json") == 1
    (one,) = json.loads(capsys.readouterr().out)["differences"]
    assert (one["model"], one["detail"]) == ("directory", "its table is gone: rebuild it")


def test_a_rebuild_lists_and_finds_all_that_is_in_the_log(database: SqliteFile, names: Sequence[str]) -> None:
    with database.service() as sessions:
        listed = {row.session_id: row for row in sessions.list_sessions()}
        searched = found(sessions, list(names))
    database.change("DROP TABLE turnlog_sessions")
    with Sessions(env=dict(database.env)) as app:
        SqliteReadModels(app).rebuild(["directory"])
    with database.service() as sessions:
        again = {row.session_id: row for row in sessions.list_sessions()}
        assert set(again) == set(listed) == set(names)
        assert {row.modified_at for row in again.values()} == {row.modified_at for row in listed.values()}
        assert found(sessions, list(names)) == searched
        turn(sessions, "parcel", "a late heron")
        assert set(found(sessions, list(names))["parcel"]) > set(searched["parcel"])
        assert SqliteReadModels(sessions.app).compare().differences == ()
    assert any(searched.values())


def test_what_is_indexed_under_a_place_that_changes_is_still_found(database: SqliteFile) -> None:
    with database.service() as sessions:
        for name in ("erased", "zebra", "gnu"):
            sessions.create(name)
            turn(sessions, name, f"a heron and a {name}")
        sessions.delete("erased")
        SqliteReadModels(sessions.app).rebuild(["recall"])
    database.change("DROP TABLE turnlog_sessions")
    with Sessions(env=dict(database.env)) as app:
        SqliteReadModels(app).rebuild(["directory"])
    with database.service() as sessions:
        assert found(sessions, ["zebra", "gnu"]) == {"zebra": [1, 2], "gnu": [1, 2]}


def test_what_a_rebuild_makes_is_what_was_there(database: SqliteFile) -> None:
    with database.service() as sessions:
        sessions.create("parcel", metadata={"title": "heron"})
        turn(sessions, "parcel")
    before = [database.rows(select) for select in ROWS["sqlite"][:2]]
    database.change("DROP TABLE turnlog_sessions")
    with Sessions(env=dict(database.env)) as app:
        SqliteReadModels(app).rebuild(["directory"])
    assert [database.rows(select) for select in ROWS["sqlite"][:2]] == before


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("recorder", [PLAIN, FOLLOWABLE])
def test_one_that_catches_up_does_so_from_the_beginning(
    database: SqliteFile, recorder: str, table: str
) -> None:
    with database.service(recorder) as sessions:
        for name in ("erased", "parcel"):
            sessions.create(name)
            turn(sessions, name)
        sessions.delete("erased")
        names = live(sessions, 1, 60).names
        listed = {row.session_id: row.messages for row in sessions.list_sessions()}
        searched = found(sessions, names)
    database.change(f"DROP TABLE {table}")
    with database.service(recorder) as sessions:
        assert {row.session_id: row.messages for row in sessions.list_sessions()} == listed
        assert found(sessions, names) == searched
        sessions.sweep()
        assert SqliteReadModels(sessions.app).compare().differences == ()
    assert any(searched.values())


def test_a_file_without_sessions_gets_its_tables(database: SqliteFile) -> None:
    database.service().close()
    database.change("DROP TABLE turnlog_sessions")
    with database.service() as sessions:
        sessions.create("parcel")
        assert [row.session_id for row in sessions.list_sessions()] == ["parcel"]
