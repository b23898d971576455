"""What a call says of an event beside the event itself: it holds, or is refused, and is never ignored."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from turnlog.application import SessionService
from turnlog.domain import EventType, InvalidEventError, Message
from turnlog.domain.log import NewEvent

AUDIT = EventType.of("ACME.AUDIT")
NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


@pytest.fixture
def sessions() -> Iterator[SessionService]:
    """A service in memory with a session."""
    with SessionService() as service:
        service.create("s")
        yield service


@pytest.mark.parametrize(
    "said", [{"event_id": "x"}, {"branch": "b"}, {"occurred_at": NOON}, {"payload": {"n": 1}}], ids=str
)
@pytest.mark.parametrize("event", [NewEvent(type=AUDIT), NewEvent(type=AUDIT, id="y", branch="c")])
def test_what_a_new_event_says_otherwise_is_refused(
    sessions: SessionService, event: NewEvent, said: dict[str, Any]
) -> None:
    with pytest.raises(InvalidEventError, match=next(iter(said))):
        sessions.append_event("s", event, **said)
    assert sessions.version("s") == 0


def test_what_a_new_event_says_too_is_accepted(sessions: SessionService) -> None:
    event = NewEvent(type=AUDIT, payload={"n": 1}, id="x", branch="b", occurred_at=NOON)
    stored = sessions.append_event("s", event, {"n": 1}, event_id="x", branch="b", occurred_at=NOON)
    assert (stored.id, stored.branch, stored.occurred_at) == ("x", "b", NOON)


def test_an_event_of_a_log_keeps_its_own_id(sessions: SessionService) -> None:
    stored = sessions.append_event("s", AUDIT, {"n": 1}, event_id="x")
    with pytest.raises(InvalidEventError, match="event_id"):
        sessions.append_event("s", stored, event_id="y")
    assert sessions.append_event("s", stored).is_repeat


def test_a_message_gets_the_id_that_the_call_says(sessions: SessionService) -> None:
    stored = sessions.append_event("s", Message.user("hi"), event_id="x", branch="b", occurred_at=NOON)
    assert (stored.id, stored.branch, stored.occurred_at) == ("x", "b", NOON)


def test_the_event_that_is_returned_shares_no_payload_with_the_caller(sessions: SessionService) -> None:
    payload: dict[str, Any] = {"rows": [{"n": 1}]}
    stored = sessions.append_event("s", AUDIT, payload)
    payload["rows"][0]["n"] = 2
    assert stored.payload == {"rows": [{"n": 1}]}


def test_the_event_that_is_returned_shares_no_context_with_others(sessions: SessionService) -> None:
    first = sessions.append_message("s", Message.user("one"))
    second = sessions.append_message("s", Message.user("two"))
    assert first.context is not second.context
