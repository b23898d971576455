"""Legal holds, and moving an expiry."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from tests.lifecycle.conftest import Clock
from tests.support.conformance_stores import NoTokens, Store

from turnlog.application.ending import LegalHold
from turnlog.application.service import SessionService
from turnlog.application.sessions import Sessions
from turnlog.domain.errors import (
    InvalidSettingError,
    LegalHoldError,
    SessionNotFoundError,
    UnknownHoldError,
)
from turnlog.domain.messages import Message

SID = "parcel"
FAR = datetime(9999, 1, 1, tzinfo=UTC)


@pytest.fixture
def sessions(store: Store, clock: Clock) -> SessionService:
    """A service with one session."""
    service = SessionService(Sessions(env=dict(store.env)), clock=clock, token_estimator=NoTokens())
    service.create(SID, time_to_live=timedelta(days=10))
    return service


def test_a_session_under_a_hold_is_not_deleted(sessions: SessionService) -> None:
    sessions.hold(SID, "case 7", by="ada")
    with pytest.raises(LegalHoldError):
        sessions.delete(SID)
    assert sessions.find(SID) is not None


def test_a_session_under_a_hold_is_not_swept(sessions: SessionService) -> None:
    sessions.create("other", time_to_live=timedelta(days=10))
    sessions.hold(SID, "case 7", by="ada")
    assert sessions.delete_expired(FAR) == 1
    assert sessions.find(SID) is not None


def test_a_session_under_a_hold_can_be_used(sessions: SessionService) -> None:
    sessions.hold(SID, "case 7", by="ada")
    sessions.append_message(SID, Message.user("hi"))
    assert len(sessions.get_messages(SID)) == 1


def test_a_hold_stays_on_whatever_is_said_meanwhile(sessions: SessionService) -> None:
    sessions.hold(SID, "case 7", by="ada")
    for _ in range(40):
        sessions.append_message(SID, Message.user("hi"))
    with pytest.raises(LegalHoldError):
        sessions.delete(SID)


def test_a_released_session_can_be_deleted(sessions: SessionService) -> None:
    sessions.hold(SID, "case 7", by="ada")
    sessions.release(SID, by="bob")
    assert sessions.delete(SID).erasure == "done"


def test_of_two_holds_the_other_stays_on(sessions: SessionService) -> None:
    one = sessions.hold(SID, "case 7", by="ada")
    two = sessions.hold(SID, "case 8", by="ada")
    sessions.release(SID, one, by="ada")
    with pytest.raises(LegalHoldError) as refused:
        sessions.delete(SID)
    assert refused.value.holds == (two,)


def test_of_two_holds_one_must_be_named(sessions: SessionService) -> None:
    sessions.hold(SID, "case 7", by="ada")
    sessions.hold(SID, "case 8", by="ada")
    with pytest.raises(UnknownHoldError):
        sessions.release(SID, by="ada")


def test_the_holds_that_are_on_are_told_in_their_order(sessions: SessionService, clock: Clock) -> None:
    released = sessions.hold(SID, "case 6", by="ada")
    one = sessions.hold(SID, "case 7", by="ada")
    first = clock.now
    clock.pass_(days=1)
    sessions.append_message(SID, Message.user("hi"))
    two = sessions.hold(SID, "case 8", by="bob")
    sessions.release(SID, released, by="ada")
    assert sessions.holds(SID) == (
        LegalHold(one, "case 7", "ada", first),
        LegalHold(two, "case 8", "bob", clock.now),
    )


def test_a_session_without_a_hold_has_none(sessions: SessionService) -> None:
    assert sessions.holds(SID) == ()


def test_the_holds_of_a_session_that_does_not_exist_are_not_told(sessions: SessionService) -> None:
    with pytest.raises(SessionNotFoundError):
        sessions.holds("other")


def test_a_hold_that_is_not_on_cannot_be_released(sessions: SessionService) -> None:
    with pytest.raises(UnknownHoldError):
        sessions.release(SID, by="ada")


@pytest.mark.parametrize(("reason", "by"), [("", "ada"), (" ", "ada"), ("case 7", ""), ("\ud800", "ada")])
def test_a_hold_needs_a_reason_and_a_name(sessions: SessionService, reason: str, by: str) -> None:
    with pytest.raises(InvalidSettingError):
        sessions.hold(SID, reason, by=by)


# --- moving an expiry


def expiry(sessions: SessionService) -> datetime | None:
    found = sessions.find(SID)
    assert found is not None
    return found.expires_at


def test_by_is_counted_from_the_expiry(sessions: SessionService, clock: Clock) -> None:
    sessions.extend(SID, by=timedelta(days=5))
    assert expiry(sessions) == clock.now + timedelta(days=15)


def test_by_is_counted_from_now_when_the_expiry_is_past(sessions: SessionService, clock: Clock) -> None:
    clock.pass_(days=20)
    sessions.extend(SID, by=timedelta(days=5))
    assert expiry(sessions) == clock.now + timedelta(days=5)


def test_by_leaves_a_session_alone_that_never_expires(sessions: SessionService) -> None:
    sessions.extend(SID, None)
    sessions.extend(SID, by=timedelta(days=5))
    assert expiry(sessions) is None


def test_an_extended_session_is_not_swept_at_its_old_expiry(sessions: SessionService, clock: Clock) -> None:
    sessions.extend(SID, by=timedelta(days=5))
    assert sessions.delete_expired(clock.now + timedelta(days=11)) == 0


def test_by_must_be_positive(sessions: SessionService) -> None:
    with pytest.raises(InvalidSettingError):
        sessions.extend(SID, by=timedelta(0))


def test_one_of_until_and_by_is_needed(sessions: SessionService) -> None:
    with pytest.raises(InvalidSettingError):
        sessions.extend(SID)


def test_until_and_by_exclude_each_other(sessions: SessionService) -> None:
    with pytest.raises(InvalidSettingError):
        sessions.extend(SID, None, by=timedelta(days=1))


def test_by_leads_to_a_time_that_there_is(sessions: SessionService) -> None:
    with pytest.raises(InvalidSettingError):
        sessions.extend(SID, by=timedelta.max)
