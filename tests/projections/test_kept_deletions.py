"""The content of a deleted session is kept: the index forgets it, and does not learn of it later."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.projections.activity import turn
from tests.projections.databases import DATABASES, RECORDERS, Database

from turnlog.application import SessionService
from turnlog.domain.query import EventQuery

CASES = [(engine, recorder) for engine in RECORDERS for recorder in RECORDERS[engine]]


def many(sessions: SessionService, name: str, word: str, turns: int) -> None:
    for number in range(turns):
        turn(sessions, name, f"{word} {number}")


def found(sessions: SessionService, word: str) -> set[str]:
    return {hit.session_id for hit in sessions.search_all(EventQuery(keywords=word))}


@pytest.mark.parametrize(("engine", "recorder"), CASES)
@pytest.mark.parametrize("is_indexed", [False, True])
def test_nothing_differs_behind_it(
    tmp_path: Path, engine: str, recorder: str | None, is_indexed: bool
) -> None:
    database = DATABASES[engine](tmp_path)
    with database.service(recorder) as sessions:
        for name in ("parcel", "kept"):
            sessions.create(name)
        many(sessions, "kept", "zebra", 20)
        if is_indexed:
            many(sessions, "parcel", "heron", 70)
            assert found(sessions, "zebra") == {"kept"}
        sessions.delete("kept", erase=False)
        many(sessions, "parcel", "gnu", 70)
        assert found(sessions, "gnu") == {"parcel"}
        assert database.models(sessions.app).compare().differences == ()
        database.models(sessions.app).rebuild(["recall"])
        assert database.models(sessions.app).compare().differences == ()


@pytest.mark.parametrize(("engine", "recorder"), [one for one in CASES if one[1] is not None])
def test_nothing_differs_where_rows_are_written_from_then_on(
    tmp_path: Path, engine: str, recorder: str
) -> None:
    database = DATABASES[engine](tmp_path)
    with database.service(recorder) as sessions:
        for name in ("parcel", "kept", "erased"):
            sessions.create(name)
            many(sessions, name, "zebra", 70)
        assert found(sessions, "zebra") == {"parcel", "kept", "erased"}
        sessions.delete("kept", erase=False)
        sessions.delete("erased")
    with database.service() as sessions:
        many(sessions, "parcel", "gnu", 70)
        assert found(sessions, "zebra") == {"parcel"}
        assert database.models(sessions.app).compare().differences == ()


def test_a_redaction_in_front_of_it_changes_nothing_of_that(database: Database) -> None:
    """The part of the index that both sessions share is made anew for the redaction."""
    with database.service() as sessions:
        for name in ("parcel", "kept"):
            sessions.create(name)
            many(sessions, name, "zebra", 2)
        sessions.redact("parcel", 1, reason="asked", by="ada")
        many(sessions, "parcel", "heron", 70)
        sessions.delete("kept", erase=False)
        assert database.models(sessions.app).compare().differences == ()
        database.models(sessions.app).rebuild(["recall"])
        assert database.models(sessions.app).compare().differences == ()
