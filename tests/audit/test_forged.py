"""A history that was rewritten as a whole, chain and head included, still has to make sense."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.audit.logs import BEGIN

from turnlog.application.audit import FindingKind, SessionAudit
from turnlog.application.audit.stored import stored_order
from turnlog.application.service import SessionService
from turnlog.domain.chain import GENESIS
from turnlog.domain.compaction import CompactionReason, CompactionResult
from turnlog.domain.entries import entry_of
from turnlog.domain.events import StreamEvent
from turnlog.domain.log import NewEvent
from turnlog.domain.messages import Message
from turnlog.domain.session import Session

Forge = Callable[[list[StreamEvent]], object]


@pytest.fixture
def sessions() -> Iterator[SessionService]:
    """A service in memory."""
    with SessionService() as service:
        yield service


def _history() -> list[StreamEvent]:
    """Version 0 opens, 1 to 4 are messages, 5 is a boundary that keeps 3 and 4, 6 is a message."""
    session = Session.open("a", now=BEGIN)
    for number in range(1, 5):
        session.append(NewEvent(message=Message.user(f"{number}")), event_id=f"m{number}", now=BEGIN)
    said = [entry for event in session.recorded if (entry := entry_of(event, "a"))]
    result = CompactionResult(
        CompactionReason.COMPACTED, covered_events=tuple(said[:2]), preserved_events=tuple(said[2:])
    )
    session.compact(result, boundary_id="b5", summary=(), now=BEGIN)
    session.append(NewEvent(message=Message.user("6")), event_id="m6", now=BEGIN)
    return list(session.recorded)


def _found(sessions: SessionService, forge: Forge) -> list[tuple[FindingKind, int | None]]:
    events = _history()
    forge(events)
    previous = GENESIS
    for event in events:
        vars(event)["chain"] = event.linked_to(previous)
        previous = event.chain
    sessions.app.save(*events)
    return [(finding.kind, finding.version) for finding in SessionAudit(sessions).verify().findings]


def test_a_history_that_was_not_forged_is_whole(sessions: SessionService) -> None:
    assert _found(sessions, lambda _: None) == []


def test_a_state_that_the_events_do_not_lead_to_is_found(sessions: SessionService) -> None:
    def forge(events: list[StreamEvent]) -> None:
        vars(events[3])["state"] = (events[3].state or "").replace("1-3", "2-3")

    assert _found(sessions, forge)[0] == (FindingKind.STATE, 3)


def test_an_anchor_that_is_not_the_newest_is_found(sessions: SessionService) -> None:
    def forge(events: list[StreamEvent]) -> None:
        del vars(events[3])["state"]
        vars(events[3])["anchor"] = 1

    assert _found(sessions, forge)[0] == (FindingKind.STATE, 3)


def test_a_boundary_whose_ranges_are_not_its_ids_is_found(sessions: SessionService) -> None:
    def forge(events: list[StreamEvent]) -> None:
        vars(events[5])["preserved"] = ["m1", "m4"]

    assert _found(sessions, forge) == [(FindingKind.STATE, 5)]


def test_a_time_that_goes_back_is_found(sessions: SessionService) -> None:
    def forge(events: list[StreamEvent]) -> None:
        for event in events[:3]:
            vars(event)["timestamp"] = BEGIN.replace(year=2032)

    assert (FindingKind.STATE, 3) in _found(sessions, forge)


def test_a_content_without_its_salt_is_found(sessions: SessionService) -> None:
    """Such a content is in no commitment, so the chain says nothing about it."""

    def forge(events: list[StreamEvent]) -> None:
        vars(events[2])["commitment"] = "e" * 64
        del vars(events[2])["salt"]

    assert (FindingKind.CHANGED, 2) in _found(sessions, forge)


def test_a_content_that_is_gone_without_a_redaction_is_found(sessions: SessionService) -> None:
    def forge(events: list[StreamEvent]) -> None:
        for name in ("content", "salt"):
            del vars(events[2])[name]
        fields = vars(events[2])
        fields["commitment"] = "e" * 64
        for name in stored_order(events[2]):
            fields[name] = fields.pop(name)

    assert (FindingKind.CONTENT_GONE, 2) in _found(sessions, forge)


def test_a_stream_that_opens_another_session_is_found(sessions: SessionService) -> None:
    def forge(events: list[StreamEvent]) -> None:
        vars(events[0])["session_id"] = "b"

    assert (FindingKind.CHANGED, 0) in _found(sessions, forge)
