"""Two events of a session had their versions exchanged by hand: a rebuild and a check say the same of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.projections.databases import Database
from tests.projections.test_commands import Turnlog, turnlog
from tests.projections.test_damaged_logs import two

from turnlog.application.projections import replaying

__all__ = ["turnlog", "two"]


def swap(database: Database, *versions: int) -> None:
    """Exchange two versions of the first session."""
    put(database, 99, versions[0] + 1)
    put(database, versions[0], versions[1] + 1)
    put(database, versions[1], versions[0] + 1)


def put(database: Database, version: int, position: int) -> None:
    database.change(f"UPDATE stored_events SET originator_version = {version} WHERE rowid = {position}")


@pytest.mark.parametrize("page", [1, 2, 1000])
@pytest.mark.parametrize("versions", [(2, 3), (3, 4), (1, 4), (1, 3), (0, 1)])
def test_both_name_the_same_events_and_say_what_to_do(
    two: Database,
    turnlog: Turnlog,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    versions: tuple[int, int],
    page: int,
) -> None:
    monkeypatch.setattr(replaying, "PAGE", page)

    def run(command: str) -> Any:
        assert turnlog(command, "--json") == 1
        return json.loads(capsys.readouterr().out)

    swap(two, *versions)
    for number in range(2):
        checked, rebuilt = run("check"), run("rebuild")
        named = [one["version"] for one in checked["log"]["findings"]]
        assert sorted(one["version"] for one in rebuilt["broken_links"]) == named
        assert rebuilt["missing_events"] == []
        if number == 1:
            assert {one["model"] for one in checked["differences"]} <= {"boundaries"}
    for command in ("check", "rebuild"):
        turnlog(command)
        told = capsys.readouterr()
        assert "no rebuild repairs the log" in told.out + told.err


def test_a_session_that_is_told_by_the_log_in_another_order_is_listed_in_that_of_its_versions(
    two: Database, turnlog: Turnlog
) -> None:
    swap(two, 3, 4)
    assert turnlog("rebuild") == 1
    assert two.one("SELECT version FROM turnlog_sessions WHERE session_id = 'alpha'") == 4
    for version, position in ((99, 4), (4, 5), (3, 4)):
        put(two, version, position)
    assert turnlog("rebuild") == 1  # the row told of another event
    assert turnlog("check") == turnlog("rebuild") == 0
