"""What the commands say of a stored event that was damaged."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from tests.contracts.stores import sqlite_env
from tests.infrastructure.cli.conftest import Turnlog

from turnlog.application import SessionService
from turnlog.domain.messages import Message

Damage = Callable[[str, str], None]

READING: tuple[tuple[str, ...], ...] = (
    ("search", "parcel"),
    ("search", "parcel", "--session", "s"),
    ("log", "s"),
    ("view", "s"),
    ("export", "s"),
    ("audit", "timeline", "s"),
    ("audit", "diff", "s", "1", "3"),
)


@pytest.fixture
def damage(database: Path) -> Damage:
    """Sets a column of the event at version 2 of session `s`."""
    with SessionService(env=sqlite_env(database)) as sessions:
        sessions.create(session_id="s")
        for said in ("Where is my parcel?", "The parcel is blue.", "And the parcel is late."):
            sessions.append_message("s", Message.user(said))

    def damage(column: str, value: str) -> None:
        with closing(sqlite3.connect(database)) as connection, connection:
            connection.execute(f"UPDATE stored_events SET {column} = {value} WHERE originator_version = 2")

    return damage


@pytest.mark.parametrize("arguments", READING, ids=" ".join)
def test_a_damaged_event_is_named_and_is_bad_input(
    turnlog: Turnlog, damage: Damage, arguments: tuple[str, ...]
) -> None:
    damage("state", "substr(state, 1, 20)")
    result = turnlog(*arguments)
    assert result.status == 5
    assert "The event at version 2 of" in result.err
    assert "turnlog audit verify" in result.err


def test_a_rebuild_beside_a_damaged_event_names_it(turnlog: Turnlog, damage: Damage) -> None:
    damage("state", "substr(state, 1, 20)")
    result = turnlog("rebuild")
    assert result.status == 1
    assert "s: event 2 cannot be read" in result.err


def test_a_report_of_a_damaged_event_is_not_written(turnlog: Turnlog, damage: Damage, tmp_path: Path) -> None:
    damage("topic", "'turnlog.domain.events:MessageUnheardOf'")
    result = turnlog("report", "s", "-o", tmp_path / "report.html")
    assert (result.status, "version 2 of session 's'" in result.err) == (5, True)
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("state", "x''"),
        ("state", "substr(state, 1, 20)"),
        ("state", "replace(state, 'content', 'kontent')"),
        ("state", "replace(state, 'timestamp', 'thyme')"),
        ("state", 'replace(state, \'"state":"\', \'"state":"?\')'),
        ("topic", "'turnlog.domain.events:MessageUnheardOf'"),
        ("topic", "'nowhere:Nothing'"),
    ],
)
def test_check_lists_what_is_damaged(turnlog: Turnlog, damage: Damage, column: str, value: str) -> None:
    damage(column, value)
    result = turnlog("check", "--json")
    assert (result.status, result.json["log"]["findings"][0]["version"]) == (1, 2)


def test_verify_lists_what_is_damaged(turnlog: Turnlog, damage: Damage) -> None:
    damage("state", "x''")
    result = turnlog("audit", "verify", "s", "--json")
    assert (result.status, result.json["findings"][0]["version"]) == (1, 2)


def test_an_export_to_standard_output_has_what_comes_before_a_damaged_event(
    turnlog: Turnlog, damage: Damage, tmp_path: Path
) -> None:
    damage("state", "substr(state, 1, 20)")
    result = turnlog("export", "s")
    (tmp_path / "s.jsonl").write_text(result.out.replace('"session":"s"', '"session":"again"'), "utf-8")
    turnlog("import", tmp_path / "s.jsonl")
    told = turnlog("view", "again", "--as", "json").json["messages"]
    assert (result.status, [one["parts"][0]["content"] for one in told]) == (5, ["Where is my parcel?"])


def test_an_export_into_a_file_leaves_none_where_an_event_is_damaged(
    turnlog: Turnlog, damage: Damage, tmp_path: Path
) -> None:
    damage("state", "substr(state, 1, 20)")
    result = turnlog("export", "s", "-o", tmp_path / "s.jsonl")
    assert (result.status, list(tmp_path.glob("*.jsonl*"))) == (5, [])


def test_holds_of_a_session_with_a_damaged_event_are_listed(turnlog: Turnlog, damage: Damage) -> None:
    turnlog_hold = ("hold", "s", "--reason", "dispute 17", "--by", "ada")
    damage("state", "substr(state, 1, 20)")
    turnlog(*turnlog_hold)
    assert "dispute 17" in turnlog("holds", "s").out
