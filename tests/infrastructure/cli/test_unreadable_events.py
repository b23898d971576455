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
