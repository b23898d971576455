"""`turnlog redact`."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.infrastructure.cli.conftest import OpenService, Turnlog

from turnlog.domain.messages import Message

WHY = ("--reason", "asked by Ada", "--by", "bob")


@pytest.fixture(autouse=True)
def parcel(open_service: OpenService) -> None:
    with open_service() as sessions:
        sessions.create("parcel", metadata={"title": "Xylophone"})
        sessions.append_message("parcel", Message.user("Where is my xylophone?"), event_id="u1")


def test_nothing_is_removed_without_yes(turnlog: Turnlog) -> None:
    result = turnlog("redact", "parcel", "--event", "u1", *WHY)
    assert (result.status, "--yes" in result.err) == (2, True)
    assert "xylophone" in turnlog("view", "parcel").out


def test_the_content_is_gone_and_the_marker_shown(turnlog: Turnlog, database: Path) -> None:
    result = turnlog("redact", "parcel", "--event", "u1", *WHY, "--yes")
    assert result.status == 0
    assert "Nothing of its content is left" in result.out
    assert "[redacted: asked by Ada]" in turnlog("view", "parcel").out
    assert b"xylophone" not in database.read_bytes()
    assert turnlog("audit", "verify").status == 0


def test_json_says_what_was_done(turnlog: Turnlog) -> None:
    done = turnlog("redact", "parcel", "--event", "u1", *WHY, "--yes", "--cascade", "--json").json
    assert (done["event"], done["erasure"], done["redacted"], done["metadata"]) == ("u1", "done", [1], [])


def test_metadata_in_force_are_refused(turnlog: Turnlog) -> None:
    assert turnlog("redact", "parcel", "--version", 0, *WHY, "--yes").status == 5


def test_an_unknown_event_is_not_found(turnlog: Turnlog) -> None:
    assert turnlog("redact", "parcel", "--event", "u9", *WHY, "--yes").status == 3


@pytest.mark.parametrize("yes", [(), ("--yes",)], ids=["asked", "confirmed"])
def test_an_unknown_event_is_refused_before_anything_is_confirmed(
    turnlog: Turnlog, yes: tuple[str, ...]
) -> None:
    of_version = turnlog("redact", "parcel", "--version", 999, *WHY, *yes)
    assert (of_version.status, "no event at version 999. Check the version." in of_version.err) == (3, True)
    of_id = turnlog("redact", "parcel", "--event", "u9", *WHY, *yes)
    assert (of_id.status, "--version" in of_id.err) == (3, False)
    of_number = turnlog("redact", "parcel", "--event", "43", *WHY, *yes)
    assert (of_number.status, "If it is a version: --version 43." in of_number.err) == (3, True)


def test_the_event_is_named_once(turnlog: Turnlog) -> None:
    assert turnlog("redact", "parcel", *WHY, "--yes").status == 2
    assert turnlog("redact", "parcel", "--event", "u1", "--version", 1, *WHY, "--yes").status == 2


def test_a_legal_hold_is_a_conflict(turnlog: Turnlog) -> None:
    turnlog("hold", "parcel", *WHY)
    assert turnlog("redact", "parcel", "--event", "u1", *WHY, "--yes").status == 4


def test_a_reader_elsewhere_leaves_the_erasure_pending(turnlog: Turnlog, database: Path) -> None:
    with closing(sqlite3.connect(database, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM stored_events").fetchone()
        result = turnlog("redact", "parcel", "--event", "u1", *WHY, "--yes")
        assert (result.status, "turnlog sweep" in result.out) == (4, True)
    assert turnlog("sweep").status == 0


def test_an_export_has_the_marker(turnlog: Turnlog) -> None:
    turnlog("redact", "parcel", "--event", "u1", *WHY, "--yes")
    exported = turnlog("export", "parcel").out
    assert '"redacted":{"reason":"asked by Ada","by":"bob"' in exported
    assert "xylophone" not in exported
