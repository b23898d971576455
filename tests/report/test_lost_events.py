"""A page of a session that lost events says so, at its top and where they stood."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.contracts.stores import sqlite_env
from tests.report.conftest import OpenReport
from tests.report.test_writing import Elements

from turnlog.application import SessionService
from turnlog.application.audit import LostEvents
from turnlog.domain import Message
from turnlog.infrastructure.report import write_report

ORDER = """[...document.querySelectorAll("#log .entry h3")].map((node) => node.textContent)"""


@pytest.fixture
def sessions(tmp_path: Path) -> Iterator[SessionService]:
    """Session `gap` lost event 2 and `end` its two newest of four messages; `whole` has all."""
    file = tmp_path / "sessions.db"
    with SessionService(env=sqlite_env(file)) as service:
        for name in ("gap", "end", "whole"):
            service.create(name)
            for number in range(1, 5):
                said = Message.user if number % 2 else Message.assistant
                service.append_message(name, said(f"{name} {number}"))
        with closing(sqlite3.connect(file)) as connection, connection:
            delete = """DELETE FROM stored_events WHERE replace(originator_id, '-', '') =
                (SELECT lower(hex(aggregate_id)) FROM turnlog_sessions WHERE session_id = ?)
                AND originator_version"""
            assert connection.execute(f"{delete} = 2", ("gap",)).rowcount == 1
            assert connection.execute(f"{delete} > 2", ("end",)).rowcount == 2
        yield service


def test_the_page_names_what_is_missing(sessions: SessionService, tmp_path: Path) -> None:
    written = write_report(sessions, "gap", tmp_path / "gap.html")
    assert written.lost == (LostEvents(2, 2),)
    page = written.files[0].read_text("utf-8")
    assert "Of what was recorded, event 2 is missing." in page
    assert json.loads(Elements(page).texts["script"][0])["lost"] == [{"v": 2, "what": "Event 2 is missing."}]


def test_the_page_of_a_whole_log_has_no_such_notice(sessions: SessionService, tmp_path: Path) -> None:
    written = write_report(sessions, "whole", tmp_path / "whole.html")
    assert written.lost == ()
    assert 'class="damage"' not in written.files[0].read_text("utf-8")


def test_each_part_has_the_notice_and_its_own_gaps(sessions: SessionService, tmp_path: Path) -> None:
    gaps = {}
    for name in ("gap", "end"):
        written = write_report(sessions, name, tmp_path / f"{name}.html", messages_of_part=1)
        pages = [file.read_text("utf-8") for file in written.files]
        assert all("The log is not whole" in page for page in pages)
        gaps[name] = [json.loads(Elements(page).texts["script"][0])["lost"] for page in pages]
    assert gaps["gap"] == [[{"v": 2, "what": "Event 2 is missing."}], [], []]
    assert gaps["end"] == [[], [{"v": 3, "what": "Events 3 and 4 are missing."}]]


@pytest.mark.parametrize(
    ("session_id", "order"),
    [
        ("gap", ["User", "Event 2 is missing.", "User", "Assistant"]),
        ("end", ["User", "Assistant", "Events 3 and 4 are missing."]),
        ("whole", ["User", "Assistant", "User", "Assistant"]),
    ],
)
def test_a_gap_stands_in_the_conversation_where_the_event_was(
    open_report: OpenReport, session_id: str, order: list[str]
) -> None:
    page = open_report(session_id)
    assert page.run(ORDER) == order
    assert not page.events("Runtime.exceptionThrown", "Log.entryAdded")


def test_a_reader_of_the_screen_finds_the_notice_as_a_region(open_report: OpenReport) -> None:
    page = open_report("gap")
    found = {
        (node["role"]["value"], node.get("name", {}).get("value"))
        for node in page.send("Accessibility.getFullAXTree")["nodes"]
        if not node["ignored"]
    }
    assert {("region", "The log is not whole"), ("heading", "The log is not whole")} <= found
    assert page.run("document.querySelector('.damage').checkVisibility()")
