"""Deleting a session, on every store."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from eventsourcing.application import Application
from eventsourcing.persistence import ApplicationRecorder, Notification, StoredEvent, Subscription
from eventsourcing.popo import POPOApplicationRecorder
from tests.support.conformance_stores import NoTokens, Store

from turnlog.application.erasing import ErasureUnsupportedError
from turnlog.application.service import SessionService
from turnlog.domain.errors import SessionIdUnavailableError, SessionNotFoundError
from turnlog.domain.events import EventErased, MessageAppended, SessionDeleted, StreamEvent
from turnlog.domain.ids import aggregate_id
from turnlog.domain.log import NewEvent
from turnlog.domain.messages import Message
from turnlog.domain.session import Session

SID = "parcel"
STREAM = aggregate_id(SID, "")


@pytest.fixture
def sessions(store: Store) -> SessionService:
    """A service with a session of three messages."""
    service = store.service()
    service.create(SID, metadata={"title": "a parcel"})
    service.append_message(SID, Message.user("Where is it?"))
    service.append_message(SID, Message.assistant("In Lund."))
    service.append_message(SID, Message.user("Thanks."), event_id="given")
    return service


def stored(app: Application[UUID]) -> list[StreamEvent]:
    """The events of the stream as anybody reads them."""
    return list(app.events.get(STREAM))  # type: ignore[arg-type] # the framework does not know our events


def test_a_deleted_session_is_gone_for_every_reader(sessions: SessionService) -> None:
    sessions.view(SID)
    sessions.delete(SID)
    assert (sessions.find(SID), sessions.get_events(SID), sessions.version(SID)) == (None, (), 0)
    assert sessions.list_sessions() == []
    with pytest.raises(SessionNotFoundError):
        sessions.view(SID)


def test_every_event_in_front_of_the_tombstone_is_a_stub(sessions: SessionService) -> None:
    sessions.delete(SID)
    *stubs, tombstone = stored(sessions.app)
    assert {type(event) for event in stubs} == {EventErased}
    assert isinstance(tombstone, SessionDeleted)


def test_a_stub_says_nothing_but_its_place_and_when_the_session_was_deleted(sessions: SessionService) -> None:
    sessions.delete(SID)
    *stubs, tombstone = stored(sessions.app)
    assert [vars(event) for event in stubs] == [
        {
            "originator_id": STREAM,
            "originator_version": version,
            "timestamp": tombstone.timestamp,
            "chain": "",
        }
        for version in range(4)
    ]


def test_the_result_says_that_nothing_is_left(sessions: SessionService) -> None:
    deletion = sessions.delete(SID)
    assert (deletion.session_id, deletion.version, deletion.erasure, deletion.reason) == (
        SID,
        4,
        "done",
        None,
    )


def test_with_erase_false_the_content_stays_in_the_store(sessions: SessionService) -> None:
    deletion = sessions.delete(SID, erase=False)
    assert deletion.erasure == "kept"
    assert isinstance(stored(sessions.app)[1], MessageAppended)


def test_with_erase_false_the_session_is_gone_all_the_same(sessions: SessionService) -> None:
    sessions.delete(SID, erase=False)
    assert (sessions.find(SID), sessions.get_events(SID)) == (None, ())


def test_the_framework_loads_an_erased_stream_as_a_deleted_session(sessions: SessionService) -> None:
    sessions.delete(SID)
    loaded: object = sessions.app.repository.get(STREAM)
    assert isinstance(loaded, Session)
    assert (loaded.version, loaded.is_deleted) == (4, True)


def test_a_replay_of_an_erased_stream_is_a_deleted_session(sessions: SessionService) -> None:
    sessions.delete(SID)
    session = None
    for event in stored(sessions.app):
        session = event.mutate(session)
    assert session is not None
    assert (session.version, session.is_deleted) == (4, True)


def test_a_repository_gives_an_erased_version_as_deleted(sessions: SessionService) -> None:
    sessions.delete(SID)
    loaded: object = sessions.app.repository.get(STREAM, version=2)
    assert isinstance(loaded, Session)
    assert (loaded.version, loaded.is_deleted) == (2, True)


def test_a_follower_can_read_every_notification(sessions: SessionService) -> None:
    sessions.delete(SID)
    notifications = sessions.app.notification_log.select(1, 10)
    events = [sessions.app.mapper.to_domain_event(one) for one in notifications]
    assert isinstance(events[-1], SessionDeleted)


def test_a_reader_that_begins_later_lists_no_deleted_session(store: Store, sessions: SessionService) -> None:
    sessions.delete(SID)
    assert store.service().list_sessions() == []


def test_the_id_is_not_used_again(sessions: SessionService) -> None:
    sessions.delete(SID)
    with pytest.raises(SessionIdUnavailableError):
        sessions.create(SID)


def test_a_second_delete_finds_no_session(sessions: SessionService) -> None:
    sessions.delete(SID)
    with pytest.raises(SessionNotFoundError):
        sessions.delete(SID)


def test_another_service_with_a_remembered_view_serves_nothing(
    store: Store, sessions: SessionService
) -> None:
    other = store.service()
    assert len(other.view(SID).ids) == 3
    other.append_message(SID, Message.user("Bye."))
    sessions.delete(SID)
    with pytest.raises(SessionNotFoundError):
        other.view(SID)


def test_the_texts_that_another_service_remembered_are_dropped(
    store: Store, sessions: SessionService
) -> None:
    other = store.service()
    other.view(SID)
    sessions.delete(SID)
    assert other.find(SID) is None
    assert other._streams._known.get((STREAM, None)) is None  # pyright: ignore[reportPrivateUsage] # it has no public face


def test_a_writer_with_a_remembered_state_does_not_write_into_the_stream(
    store: Store, sessions: SessionService
) -> None:
    other = store.service()
    other.append_message(SID, Message.user("Bye."))
    sessions.delete(SID)
    with pytest.raises(SessionNotFoundError):
        other.append_message(SID, Message.user("Still there?"))


def test_a_repeat_of_a_given_id_is_not_answered_from_the_ledger(sessions: SessionService) -> None:
    sessions.delete(SID)
    with pytest.raises(SessionNotFoundError):
        sessions.append_message(SID, Message.user("Thanks."), event_id="given")


def test_a_log_that_is_erased_while_it_is_read_breaks_off_with_an_error(sessions: SessionService) -> None:
    sessions.append_events(SID, [NewEvent(message=Message.user("again"))] * 600)
    entries = sessions.iter_events(SID)
    next(entries)
    sessions.delete(SID)
    with pytest.raises(SessionNotFoundError):
        list(entries)


def test_a_session_that_a_host_deletes_and_saves_is_gone(store: Store) -> None:
    service = store.service()
    service.create(SID)
    session: object = service.app.repository.get(STREAM)
    assert isinstance(session, Session)
    session.delete(now=session.modified_on)
    service.app.save(session)
    assert service.find(SID) is None


class OtherRecorder(ApplicationRecorder):
    """Keeps events where nothing can overwrite them."""

    def __init__(self) -> None:
        self._kept = POPOApplicationRecorder()

    def insert_events(self, stored_events: Sequence[StoredEvent], **kwargs: Any) -> Sequence[int] | None:
        return self._kept.insert_events(stored_events, **kwargs)

    def select_events(self, originator_id: UUID | str, **criteria: Any) -> Sequence[StoredEvent]:
        return self._kept.select_events(originator_id, **criteria)

    def select_notifications(self, *args: Any, **criteria: Any) -> Sequence[Notification]:
        return self._kept.select_notifications(*args, **criteria)

    def max_notification_id(self) -> int | None:
        return self._kept.max_notification_id()

    def subscribe(
        self, gt: int | None = None, topics: Sequence[str] = ()
    ) -> Subscription[ApplicationRecorder]:
        raise NotImplementedError


class OtherStore(Application[UUID]):
    """An application on a recorder that has no rows of ours and cannot overwrite."""

    def construct_recorder(self) -> ApplicationRecorder:
        return OtherRecorder()


@pytest.fixture
def unsupported() -> SessionService:
    """A service on a store that cannot erase, with one session."""
    service = SessionService(OtherStore(), token_estimator=NoTokens())
    service.find_or_create(SID)
    return service


def test_a_store_that_cannot_erase_says_so(unsupported: SessionService) -> None:
    with pytest.raises(ErasureUnsupportedError):
        unsupported.delete(SID)
    assert unsupported.find(SID) is None
    unsupported.app.close()


def test_a_store_that_cannot_erase_deletes_with_erase_false(unsupported: SessionService) -> None:
    deletion = unsupported.delete(SID, erase=False)
    assert deletion.erasure == "unsupported"
    assert deletion.reason
    assert unsupported.find(SID) is None
    unsupported.app.close()


def test_a_store_that_cannot_erase_still_deletes_what_expired(unsupported: SessionService) -> None:
    assert unsupported.delete_expired(datetime(9999, 1, 1, tzinfo=UTC)) == 1
    assert unsupported.find(SID) is None
    unsupported.app.close()


def test_a_store_that_cannot_erase_has_nothing_to_sweep(unsupported: SessionService) -> None:
    with pytest.raises(ErasureUnsupportedError):
        unsupported.sweep()
    unsupported.app.close()


def test_the_capabilities_say_whether_a_store_can_erase(
    unsupported: SessionService, sessions: SessionService
) -> None:
    assert sessions.capabilities.erases
    assert not unsupported.capabilities.erases
    unsupported.app.close()
