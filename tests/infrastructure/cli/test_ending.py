"""How sessions end on the command line: extend, hold, release, delete, sweep."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.infrastructure.cli.conftest import AIRLINE, OpenService, Turnlog

from turnlog.application import SessionService
from turnlog.domain.messages import Message

HOLD = ("--reason", "Case 7", "--by", "ada")


@pytest.fixture
def parcel(open_service: OpenService) -> datetime:
    """A session `parcel` that expires in ten days; when it does."""
    with open_service() as sessions:
        details = sessions.create("parcel", time_to_live=timedelta(days=10), metadata={"title": "Xylophone"})
        sessions.append_message("parcel", Message.user("Where is my xylophone?"))
    assert details.expires_at is not None
    return details.expires_at


@pytest.fixture
def expired(open_service: OpenService) -> None:
    """A session `expired` that has expired."""
    with open_service() as sessions:
        sessions.create("expired", time_to_live=timedelta(microseconds=1))
        sessions.append_message("expired", Message.user("Where is my bag?"))


@pytest.fixture
def reader(database: Path, parcel: datetime) -> Generator[sqlite3.Connection]:
    """Another program that still reads the state in which the session exists."""
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM stored_events").fetchone()
        yield connection


@pytest.fixture
def host(database: Path) -> None:
    """The database of a host application whose recorder keeps no rows of ours, with a session `parcel`."""
    env = {
        "PERSISTENCE_MODULE": "eventsourcing.sqlite",
        "SQLITE_DBNAME": str(database),
        "APPLICATION_RECORDER_TOPIC": "eventsourcing.sqlite:SQLiteApplicationRecorder",
    }
    with SessionService(env=env) as sessions:
        sessions.create("parcel")
        sessions.append_message("parcel", Message.user("Where is my xylophone?"))


def expiry(turnlog: Turnlog) -> datetime | None:
    at = turnlog("sessions", "--json").json[0]["expires_at"]
    return None if at is None else datetime.fromisoformat(at)


def test_extend_by_days_counts_from_the_expiry(turnlog: Turnlog, parcel: datetime) -> None:
    assert turnlog("extend", "parcel", "--days", 30).status == 0

    assert expiry(turnlog) == parcel + timedelta(days=30)


def test_extend_until_a_time_without_offset_is_utc(turnlog: Turnlog, parcel: datetime) -> None:
    result = turnlog("extend", "parcel", "--until", "2040-01-02T03:04")

    assert result.out == "Session parcel expires at 2040-01-02 03:04 UTC.\n"
    assert expiry(turnlog) == datetime(2040, 1, 2, 3, 4, tzinfo=UTC)


def test_extend_never_ends_the_expiry(turnlog: Turnlog, parcel: datetime) -> None:
    result = turnlog("extend", "parcel", "--never", "--json")

    assert (result.json["session"], result.json["expires_at"]) == ("parcel", None)
    assert expiry(turnlog) is None


@pytest.mark.parametrize("option", [("--never",), ("--days", 3)], ids=str)
def test_extend_of_a_session_that_never_expires_has_nothing_to_do(
    turnlog: Turnlog, imported: str, option: tuple[object, ...]
) -> None:
    result = turnlog("extend", imported, *option)

    assert (result.status, "never expires" in result.out) == (1, True)


def test_extend_behind_the_last_year_is_wrong_usage(turnlog: Turnlog, parcel: datetime) -> None:
    turnlog("extend", "parcel", "--until", "9999-12-31")

    assert turnlog("extend", "parcel", "--days", 30).status == 2


def test_hold_says_at_which_version_it_was_placed(turnlog: Turnlog, parcel: datetime) -> None:
    assert "placed at version 2" in turnlog("hold", "parcel", *HOLD).out
    assert turnlog("hold", "parcel", *HOLD, "--json").json == {"session": "parcel", "placed_at": 3}


def test_the_holds_that_are_on_are_listed(turnlog: Turnlog, parcel: datetime) -> None:
    assert turnlog("holds", "parcel").out.strip() == "No legal hold is on session parcel."
    turnlog("hold", "parcel", "--reason", "case\x1b[2J 7", "--by", "ada")

    assert "case␛[2J 7" in turnlog("holds", "parcel").out
    (one,) = turnlog("holds", "parcel", "--json").json
    assert (one["placed_at"], one["by"], one["reason"]) == (2, "ada", "case\x1b[2J 7")


def test_the_holds_of_no_session_are_not_found(turnlog: Turnlog, parcel: datetime) -> None:
    assert turnlog("holds", "other").status == 3


def test_a_session_under_a_hold_is_not_deleted(turnlog: Turnlog, parcel: datetime) -> None:
    turnlog("hold", "parcel", *HOLD)

    result = turnlog("delete", "parcel", "--yes", "--json")

    assert (result.status, result.error["error"], result.error["status"]) == (4, "LegalHoldError", 4)
    assert turnlog("view", "parcel").status == 0


def test_a_session_under_a_hold_is_not_swept(turnlog: Turnlog, expired: None) -> None:
    turnlog("hold", "expired", *HOLD)

    assert turnlog("sweep", "--json").json["expired"] == 0
    assert turnlog("view", "expired").status == 0


def test_a_released_session_can_be_deleted(turnlog: Turnlog, parcel: datetime) -> None:
    turnlog("hold", "parcel", *HOLD)

    assert turnlog("release", "parcel", "--by", "bob").status == 0
    assert turnlog("delete", "parcel", "--yes").status == 0


def test_of_several_holds_one_must_be_named(turnlog: Turnlog, parcel: datetime) -> None:
    for _ in range(2):
        turnlog("hold", "parcel", *HOLD)

    assert turnlog("release", "parcel", "--by", "ada").status == 3
    assert turnlog("release", "parcel", "--by", "ada", "--placed-at", 3).status == 0
    assert turnlog("release", "parcel", "--by", "ada").status == 0


def test_a_hold_that_is_not_on_cannot_be_released(turnlog: Turnlog, parcel: datetime) -> None:
    result = turnlog("release", "parcel", "--by", "ada")

    assert (result.status, "none is on" in result.err) == (3, True)


def test_delete_without_yes_deletes_nothing(turnlog: Turnlog, parcel: datetime) -> None:
    before = turnlog("export", "parcel").out

    result = turnlog("delete", "parcel")

    assert (result.status, "--yes" in result.err) == (2, True)
    assert turnlog("export", "parcel").out == before


def test_a_deleted_session_is_not_found(turnlog: Turnlog, parcel: datetime) -> None:
    assert turnlog("delete", "parcel", "--yes").status == 0

    assert turnlog("log", "parcel").status == 3
    assert turnlog("sessions", "--json").json == []


def test_delete_erases_and_says_so(turnlog: Turnlog, database: Path, parcel: datetime) -> None:
    result = turnlog("delete", "parcel", "--yes")

    assert (result.status, f"Nothing of it is left in {database}" in result.out) == (0, True)
    for file in database.parent.glob("turnlog.db*"):
        assert b"ylophone" not in file.read_bytes()


def test_delete_as_json_says_what_became_of_the_content(turnlog: Turnlog, parcel: datetime) -> None:
    deleted = turnlog("delete", "parcel", "--yes", "--json").json

    assert deleted == {"deleted": "parcel", "erasure": "done", "reason": None}


def test_a_reader_elsewhere_makes_the_erasure_pending_with_status_4(
    turnlog: Turnlog, reader: sqlite3.Connection
) -> None:
    result = turnlog("delete", "parcel", "--yes")

    assert (result.status, "pending" in result.out, "turnlog sweep" in result.out) == (4, True, True)
    assert turnlog("view", "parcel").status == 3


def test_a_sweep_completes_an_erasure_that_was_pending(turnlog: Turnlog, reader: sqlite3.Connection) -> None:
    turnlog("delete", "parcel", "--yes")
    reader.execute("ROLLBACK")

    result = turnlog("sweep", "--json")

    assert (result.status, result.json["completed"], result.json["pending"]) == (0, 1, 0)


def test_a_sweep_that_leaves_an_erasure_pending_says_why_with_status_4(
    turnlog: Turnlog, reader: sqlite3.Connection
) -> None:
    turnlog("delete", "parcel", "--yes")

    result = turnlog("sweep")

    assert (result.status, "Another connection" in result.out) == (4, True)


def test_a_session_in_the_database_of_a_host_is_erased(turnlog: Turnlog, host: None) -> None:
    assert turnlog("delete", "parcel", "--yes", "--json").json["erasure"] == "done"
    assert turnlog("view", "parcel").status == 3


def test_a_sweep_of_the_database_of_a_host_is_done(turnlog: Turnlog, host: None) -> None:
    result = turnlog("sweep", "--json")

    assert (result.status, result.json["pending"], result.json["erasure"]) == (0, 0, "done")


def test_a_host_is_read_when_its_rows_were_caught_up(turnlog: Turnlog, host: None) -> None:
    turnlog("sweep")

    assert [row["id"] for row in turnlog("sessions", "--json").json] == ["parcel"]
    assert turnlog("delete", "parcel", "--yes").status == 0
    assert turnlog("sessions", "--json").json == []


def test_a_sweep_deletes_what_has_expired_and_nothing_else(
    turnlog: Turnlog, expired: None, parcel: datetime
) -> None:
    result = turnlog("sweep", "--json")

    assert (result.status, result.json["expired"]) == (0, 1)
    assert [row["id"] for row in turnlog("sessions", "--json").json] == ["parcel"]


def test_a_sweep_with_nothing_to_do_is_done(turnlog: Turnlog, parcel: datetime) -> None:
    result = turnlog("sweep", "--json")

    assert (result.status, result.json["expired"], result.json["purged"]) == (0, 0, 0)


def test_a_sweep_keeps_for_thirty_days_what_stands_for_erased_events(
    turnlog: Turnlog, parcel: datetime
) -> None:
    turnlog("delete", "parcel", "--yes")

    assert turnlog("sweep", "--json").json["purged"] == 0
    assert turnlog("sweep", "--purge", 0, "--json").json["purged"] == 1


def test_the_id_of_a_purged_session_is_not_available(turnlog: Turnlog, imported: str) -> None:
    turnlog("delete", imported, "--yes")
    turnlog("sweep", "--purge", 0)

    assert turnlog("import", AIRLINE).status == 4


def test_a_session_that_is_exported_and_imported_has_neither_expiry_nor_holds_until_they_are_set(
    turnlog: Turnlog, open_service: OpenService, tmp_path: Path
) -> None:
    with open_service() as sessions:
        sessions.create("parcel", time_to_live=timedelta(days=3))
        sessions.append_message("parcel", Message.user("Where is it?"))
    turnlog("hold", "parcel", "--reason", "dispute 17", "--by", "ada")
    exported = turnlog("export", "parcel").out.replace('"session":"parcel"', '"session":"again"')
    (tmp_path / "again.jsonl").write_text(exported, encoding="utf-8")

    turnlog("import", tmp_path / "again.jsonl")

    assert turnlog("sessions", "--json").json[0]["expires_at"] is None
    assert turnlog("holds", "again", "--json").json == []
    turnlog("extend", "again", "--until", "2999-01-31T12:00")
    turnlog("hold", "again", "--reason", "dispute 17", "--by", "ada")
    assert turnlog("sessions", "--json").json[0]["expires_at"].startswith("2999-01-31T12:00")
    assert [one["reason"] for one in turnlog("holds", "again", "--json").json] == ["dispute 17"]
