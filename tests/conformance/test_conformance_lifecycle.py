"""Scenarios 31 to 38 of `cases/concurrency_cases.md`: expiry and deletion, on every store."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from threading import Barrier
from typing import TypeVar

import pytest
from tests.support.conformance_stores import Store

from turnlog.application.service import SessionService
from turnlog.domain.errors import SessionNotFoundError
from turnlog.domain.messages import Message

SID = "conversation"
PATIENCE = 60.0
"""Seconds after which a scenario counts as stuck."""

ROUNDS = 10
"""How often a race is run."""

T = TypeVar("T")


def at_once(*actions: Callable[[], T]) -> list[T]:
    """What the actions return; they begin at the same moment, each in a thread."""
    barrier = Barrier(len(actions))

    def run(action: Callable[[], T]) -> T:
        barrier.wait(PATIENCE)
        return action()

    with ThreadPoolExecutor(len(actions)) as pool:
        return [future.result(PATIENCE) for future in [pool.submit(run, action) for action in actions]]


def now() -> datetime:
    return datetime.now(UTC)


def expired(service: SessionService, session_id: str) -> None:
    """A session of one message that expired a second ago."""
    service.create(session_id)
    service.append_message(session_id, Message.user("Where is my parcel?"))
    service.extend(session_id, now() - timedelta(seconds=1))


def test_conformance_scenario_31_only_expired_sessions_go(store: Store) -> None:
    sessions = store.service()
    sessions.create("lives", time_to_live=timedelta(hours=1))
    expired(sessions, "expired")
    assert sessions.delete_expired(now()) == 1
    assert sessions.find("lives") is not None
    assert sessions.find("expired") is None


def test_conformance_scenario_32_no_sessions_at_all(store: Store) -> None:
    assert store.service().delete_expired(now()) == 0


def test_conformance_scenario_33_a_session_without_an_expiry_stays(store: Store) -> None:
    sessions = store.service()
    sessions.create(SID, time_to_live=None)
    assert sessions.delete_expired(datetime(9999, 1, 1, tzinfo=UTC)) == 0
    assert sessions.find(SID) is not None


def test_conformance_scenario_34_deletion_takes_the_events_along(store: Store) -> None:
    sessions = store.service()
    sessions.create(SID)
    said = sessions.append_message(SID, Message.user("Where is my parcel?"))
    sessions.delete(SID)
    assert sessions.find(SID) is None
    assert sessions.get_events(SID) == ()
    with pytest.raises(SessionNotFoundError):
        sessions.get_event(SID, said.id)


@pytest.mark.parametrize("number", range(ROUNDS))
def test_conformance_scenario_35_extended_while_being_swept(store: Store, number: int) -> None:
    saver, sweeper = store.service(), store.service()
    expired(saver, SID)
    log = saver.get_events(SID)

    def save() -> int:
        try:
            saver.extend(SID, now() + timedelta(hours=1))
        except SessionNotFoundError:
            return 0
        return 1

    survived, swept = at_once(save, lambda: sweeper.delete_expired(now()))
    assert (survived, swept) in ((1, 0), (0, 1))
    assert saver.get_events(SID) == sweeper.get_events(SID) == (log if survived else ())


@pytest.mark.parametrize("number", range(ROUNDS))
def test_conformance_scenario_36_two_sweeps_at_once(store: Store, number: int) -> None:
    one, two = store.service(), store.service()
    names = [f"{SID}-{place}" for place in range(10)]
    for name in names:
        expired(one, name)
    counts = at_once(lambda: one.delete_expired(now()), lambda: two.delete_expired(now()))
    assert sum(counts) == 10
    assert [one.find(name) for name in names] == [None] * 10


def test_conformance_scenario_37_the_default_time_to_live_is_60_days(store: Store) -> None:
    made = store.service().create(SID)
    assert made.expires_at == made.created_at + timedelta(days=60)


def test_conformance_scenario_38_an_expired_session_can_be_used_until_it_is_swept(store: Store) -> None:
    sessions = store.service()
    expired(sessions, SID)
    sessions.append_message(SID, Message.assistant("In Lund."))
    assert [message.text for message in sessions.get_messages(SID)] == ["Where is my parcel?", "In Lund."]
    assert sessions.delete_expired(now()) == 1
