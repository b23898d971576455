"""Law 10: what is stored comes back as it was, whatever text it holds."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from tests.laws.machine import CountedCharacters
from tests.laws.profiles import effort
from tests.support import strategies as some

from turnlog.application.service import SessionService
from turnlog.application.sessions import Sessions
from turnlog.domain.log import EventType, NewEvent
from turnlog.domain.messages import Message

STORES = {
    "memory": Sessions(),
    "sqlite": Sessions(env={"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": ":memory:"}),
}


@pytest.fixture(params=STORES, scope="module")
def sessions(request: pytest.FixtureRequest) -> SessionService:
    return SessionService(STORES[request.param], token_estimator=CountedCharacters())


@effort(100, 20000)
@given(message=some.messages(), context=some.contexts, occurred_at=some.times)
def test_a_message_comes_back_as_it_was(
    sessions: SessionService, message: Message, context: dict[str, str], occurred_at: Any
) -> None:
    session_id = sessions.create().id
    stored = sessions.append_message(session_id, message, context=context, occurred_at=occurred_at)
    (read,) = sessions.get_events(session_id)
    assert read == stored
    assert (read.message, read.context, read.occurred_at) == (message, context, occurred_at)
    assert read.message is not None
    assert repr(read.message.to_dict()) == repr(message.to_dict()), "1, 1.0 and True are told apart"


@effort(60, 20000)
@given(payload=some.json_objects, metadata=some.json_objects, kind=some.event_types)
def test_payloads_and_metadata_come_back_as_they_were(
    sessions: SessionService, payload: dict[str, Any], metadata: dict[str, Any], kind: EventType
) -> None:
    session_id = sessions.create(metadata=metadata).id
    sessions.append_event(session_id, NewEvent(type=kind, payload=payload))
    (read,) = sessions.get_events(session_id)
    found = sessions.find(session_id)
    assert found is not None
    assert repr((read.payload, found.metadata)) == repr((payload, metadata))


@effort(60, 20000)
@given(message=some.messages())
def test_a_message_given_again_does_not_differ(sessions: SessionService, message: Message) -> None:
    session_id = sessions.create().id
    sessions.append_message(session_id, message, event_id="given")
    (read,) = sessions.get_events(session_id)
    assert not sessions.append_event(session_id, read).differs
