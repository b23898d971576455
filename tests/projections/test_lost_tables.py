"""Any table of a read model was dropped: `check` names it, says what to run, and verifies the log."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from tests.projections.activity import turn
from tests.projections.databases import DATABASES, Database, SqliteFile
from tests.projections.test_commands import Turnlog, turnlog

from turnlog.application import SessionService
from turnlog.application.projections import MaterialisedViews
from turnlog.domain.errors import StorageError
from turnlog.domain.messages import Message
from turnlog.domain.query import EventQuery

__all__ = ["turnlog"]

SHARED = {
    "turnlog_sessions": "directory",
    "turnlog_metadata": "directory",
    "turnlog_session_metadata": "directory",
    "turnlog_recall_mark": "recall",
    "turnlog_erasures": "erasures",
    "turnlog_redactions": "erasures",
    "turnlog_event_ids": "ledger",
    "turnlog_view_messages": "view",
}
ONE_ONLY = {"turnlog_recall_parts": "recall", "turnlog_recall": "recall", "turnlog_ended": "directory"}


CASES = [
    *((database, table) for database in DATABASES for table in SHARED),
    ("sqlite", "turnlog_recall_parts"),
    ("postgres", "turnlog_recall"),
    ("postgres", "turnlog_ended"),
]


@pytest.mark.parametrize(("database", "table"), CASES, indirect=["database"])
def test_check_names_it_and_rebuild_makes_it_anew(
    database: Database, turnlog: Turnlog, capsys: pytest.CaptureFixture[str], table: str
) -> None:
    model = {**SHARED, **ONE_ONLY}[table]
    with database.service() as sessions:
        for name in ("erased", "purged", "parcel"):
            sessions.create(name, metadata={"title": "heron"})
            turn(sessions, name)
        sessions.delete("erased")
        sessions.delete("purged")
        sessions.sweep(purge_after=timedelta(0))
    assert turnlog("rebuild", "view") == 0
    database.change(f"DROP TABLE {table}")
    capsys.readouterr()
    assert turnlog("check", "--json") == 1
    found = json.loads(capsys.readouterr().out)
    (one,) = found["differences"]
    dropped = database.named(table)
    advice = "turnlog rebuild" if model == "erasures" else f"turnlog rebuild {model}"
    assert (one["model"], one["detail"]) == (model, f"its table {dropped} is gone: run `{advice}`")
    assert (found["log"]["sessions"], found["log"]["findings"]) == (3, [])
    assert turnlog(*advice.split()[1:]) == 0
    assert turnlog("check") == 0
    with database.service() as sessions:
        turn(sessions, "parcel", "a late heron")
        assert sessions.search_events("parcel", EventQuery(keywords="late heron"))
    assert turnlog("check") == 0


def tracking_of_view(database: Database) -> str:
    return "tracking" if isinstance(database, SqliteFile) else "turnlog_view_tracking"


def assert_followed(database: Database, sessions: SessionService) -> None:
    """The materialised view catches up, and is the one that the session has."""
    with database.view_store() as store:
        views = MaterialisedViews(sessions, store)
        views.catch_up()
        assert views.view("parcel") == sessions.view("parcel")


@pytest.mark.parametrize("keeps_rows", [True, False])
def test_a_view_is_not_put_behind_itself_where_its_position_is_gone(
    database: Database, turnlog: Turnlog, capsys: pytest.CaptureFixture[str], keeps_rows: bool
) -> None:
    tracking = tracking_of_view(database)
    with database.service(None if keeps_rows else database.plain_recorder) as sessions:
        sessions.create("parcel")
        turn(sessions, "parcel")
        assert_followed(database, sessions)
        database.change(f"DROP TABLE {tracking}")
        assert turnlog("check", "--json") == 1
        differences = json.loads(capsys.readouterr().out)["differences"]
        assert ("view", f"its table {tracking} is gone: run `turnlog rebuild view`") in [
            (one["model"], one["detail"]) for one in differences
        ]
        assert_followed(database, sessions)
    assert turnlog("check") == 0


@pytest.mark.parametrize("keeps_rows", [True, False])
def test_a_rebuild_makes_the_position_of_the_view_anew(
    database: Database, turnlog: Turnlog, keeps_rows: bool
) -> None:
    tracking = tracking_of_view(database)
    with database.service(None if keeps_rows else database.plain_recorder) as sessions:
        sessions.create("parcel")
        turn(sessions, "parcel")
        assert_followed(database, sessions)
        database.change(f"DROP TABLE {tracking}")
        assert turnlog("rebuild", "view") == 0
        turn(sessions, "parcel")
        assert_followed(database, sessions)


@pytest.mark.parametrize(
    ("table", "is_told"),
    [("turnlog_sessions", True), ("turnlog_metadata", True), ("turnlog_event_ids", False), (None, False)],
)
def test_check_says_what_it_could_not_verify(
    database: Database,
    turnlog: Turnlog,
    capsys: pytest.CaptureFixture[str],
    table: str | None,
    is_told: bool,
) -> None:
    with database.service() as sessions:
        turn(sessions, sessions.create("parcel").id)
    if table is not None:
        database.change(f"DROP TABLE {table}")
    note = "not verified: whether newest events, or sessions as a whole, are gone"
    turnlog("check")
    assert (note in capsys.readouterr().out) is is_told
    turnlog("check", "--json")
    notes: list[str] = json.loads(capsys.readouterr().out)["log"]["notes"]
    assert any(one.startswith(note) for one in notes) is is_told


def test_check_names_all_that_are_gone(
    database: Database, turnlog: Turnlog, capsys: pytest.CaptureFixture[str]
) -> None:
    with database.service() as sessions:
        turn(sessions, sessions.create("parcel").id)
    gone = {"turnlog_sessions": "directory", "turnlog_erasures": "erasures", "turnlog_event_ids": "ledger"}
    database.change(*(f"DROP TABLE {table}" for table in gone))
    assert turnlog("check", "--json") == 1
    found = json.loads(capsys.readouterr().out)
    assert sorted(one["model"] for one in found["differences"]) == sorted(gone.values())


@pytest.mark.parametrize("database", ["postgres"], indirect=True)
@pytest.mark.parametrize("table", ["turnlog_recall", "turnlog_recall_mark"])
def test_a_writer_that_cannot_index_says_what_searches_miss(
    database: Database, caplog: pytest.LogCaptureFixture, table: str
) -> None:
    with database.service() as sessions:
        sessions.create("parcel")
        database.change(f"DROP TABLE {table}")
        sessions.append_events("parcel", [Message.user("heron")] * 16)
        assert [record.getMessage() for record in caplog.records] == [
            "Messages could not be indexed, and searches miss a table, which `turnlog rebuild recall` makes "
            "anew: ProgrammingError"
        ]
        with pytest.raises(StorageError, match=database.named(table)):
            sessions.search_events("parcel", EventQuery(keywords="heron"))


@pytest.mark.parametrize("database", ["postgres"], indirect=True)
def test_a_writer_that_cannot_index_for_another_reason_says_that_searches_read(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    with database.service() as sessions:
        sessions.create("parcel")
        database.change("ALTER TABLE turnlog_recall ADD CHECK (false) NOT VALID")
        sessions.append_events("parcel", [Message.user("heron")] * 16)
        assert [record.getMessage() for record in caplog.records] == [
            "Messages could not be indexed, searches read them: IntegrityError"
        ]
        assert len(sessions.search_events("parcel", EventQuery(keywords="heron"))) == 16
