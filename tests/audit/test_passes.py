"""Passes that wrote nothing are kept beside the session, where that is switched on."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.audit.conftest import SID
from tests.audit.logs import PLAIN, SUMMARIZED, WordCount, say_turns
from tests.contracts.stores import sqlite_env

from turnlog.application.audit import FindingKind, SessionAudit
from turnlog.application.passes import passes_id
from turnlog.application.service import SessionService
from turnlog.application.sessions import Sessions
from turnlog.domain.compaction import CompactionRequest
from turnlog.domain.ids import aggregate_id
from turnlog.domain.summarizing import PromptSummarizer
from turnlog.domain.window import CompactionWindow, WindowCompactionStrategy

BLANK = WindowCompactionStrategy(CompactionWindow.last_turns(1), summarizer=PromptSummarizer(lambda _: " "))


class ModelDownError(Exception):
    """What a summarizer raises."""


def _fails(_: object) -> str:
    raise ModelDownError("the secret parcel")


FAILING = WindowCompactionStrategy(CompactionWindow.last_turns(1), summarizer=PromptSummarizer(_fails))


@pytest.fixture
def keeping(app: Sessions) -> Iterator[SessionService]:
    """A service that keeps passes."""
    with SessionService(app, token_estimator=WordCount(), keep_passes=True) as service:
        service.create(SID)
        say_turns(service, SID, 0, 3)
        yield service


def test_a_declined_pass_is_kept_with_its_reason_and_its_rules(keeping: SessionService) -> None:
    keeping.compact(SID, lambda _: True, BLANK)
    (found,) = SessionAudit(keeping).passes(SID)
    assert (found.reason, found.session_version, found.tokens_before) == ("summary was blank", 6, 12)
    assert found.strategy == "window of the last 1 turns with PromptSummarizer"


def test_a_failed_pass_is_kept_without_what_was_said(keeping: SessionService) -> None:
    with pytest.raises(ModelDownError):
        keeping.compact(SID, None, FAILING)
    (found,) = SessionAudit(keeping).passes(SID)
    assert (found.reason, found.error) == ("failed", "ModelDownError")
    assert "parcel" not in str(found)


def test_an_overtaken_pass_is_kept(keeping: SessionService) -> None:
    def slow(_: object) -> str:
        say_turns(keeping, SID, 5, 1)
        return "short"

    window = CompactionWindow.last_turns(1)
    keeping.compact(SID, None, WindowCompactionStrategy(window, summarizer=PromptSummarizer(slow)))
    assert [found.reason for found in SessionAudit(keeping).passes(SID)] == [
        "lost the race against another writer"
    ]


def test_a_trigger_that_does_not_fire_is_no_pass(keeping: SessionService) -> None:
    def never(_: CompactionRequest) -> bool:
        return False

    keeping.compact(SID, never, PLAIN)
    assert SessionAudit(keeping).passes(SID) == ()


def test_a_pass_that_compacted_is_in_the_log_alone(keeping: SessionService) -> None:
    keeping.compact(SID, None, SUMMARIZED)
    assert SessionAudit(keeping).passes(SID) == ()


def test_passes_leave_version_log_and_listing_as_they_were(keeping: SessionService) -> None:
    before = (keeping.version(SID), keeping.get_events(SID), keeping.list_sessions())
    keeping.compact(SID, None, BLANK)
    assert (keeping.version(SID), keeping.get_events(SID), keeping.list_sessions()) == before


def test_nothing_is_kept_unless_it_is_switched_on(sessions: SessionService) -> None:
    say_turns(sessions, SID, 0, 3)
    sessions.compact(SID, None, BLANK)
    assert SessionAudit(sessions).passes(SID) == ()


def test_passes_are_verified_with_their_session(tmp_path: Path) -> None:
    file = tmp_path / "passes.db"
    with SessionService(env=sqlite_env(file), keep_passes=True) as sessions:
        sessions.create(SID)
        say_turns(sessions, SID, 0, 2)
        for _ in range(3):
            sessions.compact(SID, None, BLANK)
        assert SessionAudit(sessions).verify().is_whole
        assert SessionAudit(sessions).verify(SID).is_whole
    stream = passes_id(aggregate_id(SID))
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(
            "UPDATE stored_events SET state = replace(CAST(state AS TEXT), 'blank', 'fine') "
            "WHERE originator_id = ? AND originator_version = 1",
            (stream.hex,),
        )
    with SessionService(env=sqlite_env(file)) as sessions:
        for found in (SessionAudit(sessions).verify(), SessionAudit(sessions).verify(SID)):
            assert [(one.kind, one.version) for one in found.findings] == [(FindingKind.CHANGED, 1)]


def test_a_pass_that_cannot_be_kept_fails_nobody(
    keeping: SessionService, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    save: Callable[..., Any] = keeping.app.save

    def refusing(*saved: Any) -> Any:
        if any(getattr(one, "type", None) == "COMPACTION_SKIPPED" for one in saved):
            raise OSError("disk full")
        return save(*saved)

    monkeypatch.setattr(keeping.app, "save", refusing)
    assert keeping.compact(SID, None, BLANK).is_unchanged
    assert "could not be kept: OSError" in caplog.text
