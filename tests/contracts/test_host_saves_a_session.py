"""A host that records on a `Session` itself and saves it like any aggregate of its own."""

from __future__ import annotations

from datetime import timedelta
from typing import cast

import pytest
from eventsourcing.persistence import IntegrityError
from tests.contracts.stores import BEGIN, Order, Store

from turnlog.application.service import SessionService
from turnlog.domain.ids import aggregate_id
from turnlog.domain.log import NewEvent
from turnlog.domain.messages import Message
from turnlog.domain.session import Session

HI = NewEvent(message=Message.user("hi"))
HOUR = timedelta(hours=1)


@pytest.fixture
def sessions(host_store: Store) -> SessionService:
    service = host_store.service()
    service.create("s", idle=HOUR)
    return service


def _load(sessions: SessionService) -> Session:
    return cast("Session", sessions.app.repository.get(aggregate_id("s")))


def test_what_it_saves_together_is_stored_together(sessions: SessionService) -> None:
    session, order = _load(sessions), Order("tea")
    session.append(HI, event_id="given", now=BEGIN)
    sessions.app.save(session, order)
    assert sessions.view("s").ids == ("given",)
    assert order.id in sessions.app.repository


def test_a_session_that_moved_on_is_refused(sessions: SessionService) -> None:
    session = _load(sessions)
    sessions.append_message("s", Message.user("first"))
    session.append(HI, event_id="given", now=BEGIN)
    with pytest.raises(IntegrityError):
        sessions.app.save(session)


def test_the_service_goes_on_behind_what_it_saved(sessions: SessionService) -> None:
    sessions.append_message("s", Message.user("first"))
    session = _load(sessions)
    session.append(HI, event_id="given", now=BEGIN)
    sessions.app.save(session)
    assert sessions.append_message("s", Message.user("third")).version == 3


def test_the_directory_shows_what_it_saved(sessions: SessionService) -> None:
    """Also where one save holds a message, which moves an idle expiry, and another expiry behind it."""
    session = _load(sessions)
    session.append(HI, event_id="given", now=BEGIN + HOUR)
    session.extend(BEGIN + 9 * HOUR, now=BEGIN + HOUR)
    sessions.app.save(session)
    (row,), found = sessions.list_sessions(), sessions.find("s")
    assert found is not None
    assert (row.expires_at, row.version, row.messages) == (found.expires_at, found.version, 1)
    assert found.expires_at == BEGIN + 9 * HOUR
