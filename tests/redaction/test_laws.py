"""Laws over random logs of several branches, of which random events are redacted between random passes."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.branches.random_logs import conversations
from tests.contracts.stores import WordCount, sqlite_env
from tests.laws.profiles import effort

from turnlog.application.audit import SessionAudit
from turnlog.application.service import SessionService
from turnlog.domain.chain import commitment
from turnlog.domain.errors import NotRedactableError
from turnlog.domain.log import NewEvent, SessionEvent
from turnlog.domain.messages import Message
from turnlog.domain.view import project, replay
from turnlog.domain.window import CompactionWindow, WindowCompactionStrategy

SID = "s"
WHY: Any = {"reason": "asked", "by": "bob"}


class Lived:
    """Two sessions with the same log, of which one has contents redacted on its way."""

    def __init__(self, events: list[NewEvent], seed: int) -> None:
        self.dice = random.Random(seed)
        self.plain = SessionService(token_estimator=WordCount())
        self.redacted = SessionService(token_estimator=WordCount())
        self.gone: set[int] = set()
        for service in (self.plain, self.redacted):
            service.create(SID)
        for place, event in enumerate(events):
            named = NewEvent(event.message, id=f"e{place}", branch=event.branch)
            for service in (self.plain, self.redacted):
                service.append_events(SID, [named])
            if self.dice.random() < 0.2:
                self.redact()
            if self.dice.random() < 0.2:
                self.compact()
        self.redact()

    def redact(self) -> None:
        event = self.dice.choice(self.redacted.get_events(SID))
        try:
            done = self.redacted.redact(SID, event.version, **WHY, cascade=self.dice.random() < 0.3)
        except NotRedactableError:
            return
        self.gone.update(done.redacted)

    def compact(self) -> None:
        turns = self.dice.choice((1, 2))
        strategy = WindowCompactionStrategy(CompactionWindow.last_turns(turns))
        for service in (self.plain, self.redacted):
            service.compact(SID, None, strategy)

    def messages(self, service: SessionService) -> list[SessionEvent]:
        return [event for event in service.get_events(SID) if event.message]


LIVED: Any = {"events": conversations(), "seed": st.integers(0, 2**32)}


@given(**LIVED)
@effort(40, 2000)
def test_a_verification_finds_nothing(events: list[NewEvent], seed: int) -> None:
    lived = Lived(events, seed) if events else None
    assert lived is None or SessionAudit(lived.redacted).verify().findings == ()


@given(**LIVED)
@effort(40, 2000)
def test_a_projection_is_a_replay_is_the_view(events: list[NewEvent], seed: int) -> None:
    if not events:
        return
    lived = Lived(events, seed)
    log = lived.redacted.get_events(SID)
    assert project(log).ids == replay(log).ids == lived.redacted.view(SID).ids


@given(**LIVED)
@effort(40, 2000)
def test_views_have_the_ids_that_they_have_without_redactions(events: list[NewEvent], seed: int) -> None:
    if not events:
        return
    lived = Lived(events, seed)
    assert lived.redacted.view(SID).ids == lived.plain.view(SID).ids


@given(**LIVED)
@effort(40, 2000)
def test_what_was_not_redacted_is_as_it_was(events: list[NewEvent], seed: int) -> None:
    if not events:
        return
    lived = Lived(events, seed)
    for before, now in zip(lived.messages(lived.plain), lived.messages(lived.redacted), strict=True):
        assert (before.id, before.role, before.branch) == (now.id, now.role, now.branch)
        if now.redacted is None:
            assert before.message == now.message
        assert (now.redacted is not None) == (now.version in lived.gone)


# --- tampering is not taken for a redaction


@pytest.fixture
def redacted() -> SessionService:
    sessions = SessionService()
    sessions.create(SID)
    for place in range(3):
        sessions.append_message(SID, Message.user(f"word {place}"), event_id=f"e{place}")
    sessions.redact(SID, "e1", **WHY)
    return sessions


def found(sessions: SessionService, version: int, change: Callable[[dict[str, Any]], object]) -> list[Any]:
    """What is found when somebody changes the stored fields of this event."""
    recorder: Any = sessions.app.recorder
    stored = recorder._stored_events
    place = next(place for place, row in enumerate(stored) if row.originator_version == version)
    fields = json.loads(stored[place].state)
    change(fields)
    state = json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()
    stored[place] = replace(stored[place], state=state)
    return [one.version for one in SessionAudit(sessions).verify().findings]


def test_a_changed_marker_is_found(redacted: SessionService) -> None:
    marker = '{"redacted":{"at":"2031-05-01T08:00:00+00:00","by":"eve","reason":"x","version":4}}'
    assert found(redacted, 2, lambda fields: fields.update(content=marker)) == [2]


def test_a_content_that_was_taken_away_without_a_redaction_is_found(redacted: SessionService) -> None:
    def take(fields: dict[str, Any]) -> None:
        content, salt = fields["content"], fields["salt"]
        kept = {name: value for name, value in fields.items() if name != "salt"}
        fields.clear()
        for name, value in kept.items():
            fields[name] = value
            if name == "content":
                fields["commitment"] = commitment(salt, content)

    assert found(redacted, 3, take) == [3]


def test_another_commitment_is_found(redacted: SessionService) -> None:
    assert found(redacted, 2, lambda fields: fields.update(commitment="0" * 64)) == [2]


def test_a_redaction_that_was_changed_is_found(redacted: SessionService) -> None:
    assert 4 in found(redacted, 4, lambda fields: fields.update(by="eve"))


def test_a_content_that_came_back_is_noted(tmp_path: Path) -> None:
    with SessionService(env=sqlite_env(tmp_path / "s.db")) as sessions:
        sessions.create(SID)
        sessions.append_message(SID, Message.user("word"), event_id="e0")
        with closing(sqlite3.connect(tmp_path / "s.db")) as other:
            other.execute("CREATE TABLE kept AS SELECT * FROM stored_events")
            other.commit()
            sessions.redact(SID, "e0", **WHY)
            other.execute(
                "UPDATE stored_events SET state = (SELECT state FROM kept WHERE originator_version = 1) "
                "WHERE originator_version = 1"
            )
            other.commit()
        verified = SessionAudit(sessions).verify()
        assert (verified.findings, len(verified.notes)) == ((), 1)
