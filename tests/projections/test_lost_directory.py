"""Tables of the directory were dropped: that is said, and nothing is listed as if it were all."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from tests.projections.activity import FOLLOWABLE, PLAIN, live, turn
from tests.projections.databases import DATABASES, Database, SqliteFile
from tests.projections.test_commands import Turnlog, turnlog
from tests.projections.test_rebuilding import ROWS, found

from turnlog.application import Sessions, SessionService
from turnlog.application.projections import ReadModelOutdatedError
from turnlog.domain.errors import StorageError

__all__ = ["turnlog"]

on_sqlite = pytest.mark.parametrize("database", ["sqlite"], indirect=True)

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
def test_every_process_is_told_to_rebuild_it(database: Database, names: Sequence[str], table: str) -> None:
    database.change(f"DROP TABLE {table}")
    for _ in range(2):
        with pytest.raises(ReadModelOutdatedError, match=GONE) as told:
            database.service()
        assert (told.value.name, told.value.found) == ("directory", 0)


def test_whoever_only_reads_is_told_too(database: Database, names: Sequence[str], turnlog: Turnlog) -> None:
    database.change("DROP TABLE turnlog_sessions")
    before = database.tables()
    for arguments in (("sessions",), ("search", "heron"), ("view", "parcel"), ("log", "@last")):
        assert turnlog(*arguments) == 5
    assert database.tables() == before


def test_the_command_line_says_what_to_do(
    database: Database, names: Sequence[str], turnlog: Turnlog, capsys: pytest.CaptureFixture[str]
) -> None:
    database.change("DROP TABLE turnlog_sessions")
    assert turnlog("sessions") == 5
    assert "turnlog rebuild directory" in capsys.readouterr().err
    assert turnlog("rebuild", "directory") == 0
    assert turnlog("sessions") == 0
    assert "parcel" in capsys.readouterr().out


@pytest.mark.parametrize("is_opened_first", [False, True])
def test_check_names_it_alone(
    database: Database,
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
    table = database.named("turnlog_sessions")
    named = f"its table {table} is gone: run `turnlog rebuild directory`"
    said = "its table is gone: run `turnlog rebuild directory`" if is_opened_first else named
    assert (one["model"], one["detail"]) == ("directory", said)


def test_a_rebuild_lists_and_finds_all_that_is_in_the_log(database: Database, names: Sequence[str]) -> None:
    with database.service() as sessions:
        listed = {row.session_id: row for row in sessions.list_sessions()}
        searched = found(sessions, list(names))
    database.change("DROP TABLE turnlog_sessions")
    with Sessions(env=dict(database.env)) as app:
        database.models(app).rebuild(["directory"])
    with database.service() as sessions:
        again = {row.session_id: row for row in sessions.list_sessions()}
        assert set(again) == set(listed) == set(names)
        assert {row.modified_at for row in again.values()} == {row.modified_at for row in listed.values()}
        assert found(sessions, list(names)) == searched
        turn(sessions, "parcel", "a late heron")
        assert set(found(sessions, list(names))["parcel"]) > set(searched["parcel"])
        assert database.models(sessions.app).compare().differences == ()
    assert any(searched.values())


def test_what_is_indexed_under_a_place_that_changes_is_still_found(database: Database) -> None:
    with database.service() as sessions:
        for name in ("erased", "zebra", "gnu"):
            sessions.create(name)
            turn(sessions, name, f"a heron and a {name}")
        sessions.delete("erased")
        database.models(sessions.app).rebuild(["recall"])
    database.change("DROP TABLE turnlog_sessions")
    with Sessions(env=dict(database.env)) as app:
        database.models(app).rebuild(["directory"])
    with database.service() as sessions:
        assert found(sessions, ["zebra", "gnu"]) == {"zebra": [1, 2], "gnu": [1, 2]}


def test_what_a_rebuild_makes_is_what_was_there(database: Database) -> None:
    with database.service() as sessions:
        sessions.create("parcel", metadata={"title": "heron"})
        turn(sessions, "parcel")
    engine = "sqlite" if isinstance(database, SqliteFile) else "postgres"
    before = [database.rows(select) for select in ROWS[engine][:2]]
    database.change("DROP TABLE turnlog_sessions")
    with Sessions(env=dict(database.env)) as app:
        database.models(app).rebuild(["directory"])
    assert [database.rows(select) for select in ROWS[engine][:2]] == before


@on_sqlite
@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("recorder", [PLAIN, FOLLOWABLE])
def test_one_that_catches_up_does_so_from_the_beginning(
    database: Database, recorder: str, table: str
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
        assert database.models(sessions.app).compare().differences == ()
    assert any(searched.values())


@pytest.mark.parametrize(
    ("database", "tables"),
    [
        *((database, ("sessions",)) for database in DATABASES),
        *((database, ("sessions", "event_ids")) for database in DATABASES),
        ("sqlite", (*TABLES, "turnlog_event_ids", "turnlog_erasures", "turnlog_redactions")),
        ("postgres", ("sessions", "event_ids", "ended")),
        ("postgres", ("ended",)),
    ],
    indirect=["database"],
)
def test_what_remains_tells_that_rows_are_kept(
    database: Database,
    names: Sequence[str],
    turnlog: Turnlog,
    capsys: pytest.CaptureFixture[str],
    tables: Sequence[str],
) -> None:
    before = database.tables()
    database.change(*(f"DROP TABLE turnlog_{table.removeprefix('turnlog_')}" for table in tables))
    assert turnlog("sessions") == 5
    assert "turnlog rebuild directory" in capsys.readouterr().err
    assert turnlog("rebuild") == 0
    assert turnlog("check") == 0
    assert "ledger: nothing differs" in capsys.readouterr().out
    with database.service() as sessions:
        turn(sessions, "parcel", "a late heron")
    assert turnlog("check") == 0
    assert not [name for name in database.tables() ^ before if "turnlog_recall_" not in name]


@pytest.mark.parametrize("others", [(), ("turnlog_event_ids",)])
def test_whoever_writes_no_rows_is_refused_as_before(
    database: Database, names: Sequence[str], others: Sequence[str]
) -> None:
    database.change(*(f"DROP TABLE {table}" for table in ("turnlog_sessions", *others)))
    with Sessions(env=database.env_with(database.plain_recorder)) as app, pytest.raises(StorageError):
        SessionService(app)


def test_a_database_without_sessions_gets_its_tables(database: Database) -> None:
    database.service().close()
    database.change("DROP TABLE turnlog_sessions")
    with database.service() as sessions:
        sessions.create("parcel")
        assert [row.session_id for row in sessions.list_sessions()] == ["parcel"]
