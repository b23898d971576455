"""Appending, repeating and checking versions, on every store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import pytest
from eventsourcing.persistence import StoredEvent
from tests.contracts.passes import keep_turns
from tests.contracts.stores import Store

from turnlog.application.service import SessionService
from turnlog.domain.errors import (
    CallNotAwaitedError,
    SessionNotFoundError,
    UnknownEventError,
    VersionConflictError,
)
from turnlog.domain.ids import aggregate_id
from turnlog.domain.log import EventType, NewEvent
from turnlog.domain.messages import Message, ToolCallPart

HI = Message.user("hi")
NOTE = EventType.of("ACME.NOTE")


def _texts(sessions: SessionService, session_id: str = "s") -> list[str | None]:
    return [event.text for event in sessions.get_events(session_id)]


def test_what_is_appended_is_what_is_read(sessions: SessionService) -> None:
    sessions.create("s")
    stored = sessions.append_events(
        "s",
        [
            HI,
            NewEvent(message=Message.assistant("\ud800\0漢🙂"), id="é", branch="scout"),
            NewEvent(type=NOTE, payload={"n": [1, None]}),
        ],
        context={"actor": "ada"},
    )
    assert sessions.get_events("s") == stored


def test_the_version_counts_the_events(sessions: SessionService) -> None:
    sessions.create("s")
    sessions.append_events("s", [HI, HI])
    sessions.update_metadata("s", {"title": "t"})
    assert sessions.version("s") == 3


def test_another_service_reads_what_was_appended(store: Store) -> None:
    writer = store.service()
    writer.create("s")
    writer.append_message("s", HI)
    assert _texts(store.service()) == ["hi"]


@pytest.mark.parametrize("event_id", ["given", "1-" + "a" * 20, "7-" + "a" * 20, "Ä" * 200])
def test_an_id_appended_again_is_a_repeat(sessions: SessionService, event_id: str) -> None:
    sessions.create("s")
    first = sessions.append_message("s", HI, event_id=event_id)
    again = sessions.append_message("s", Message.user("other"), event_id=event_id)
    assert (again.version, again.text, again.is_repeat, again.differs) == (first.version, "hi", True, True)
    assert _texts(sessions) == ["hi"]


def test_an_id_appended_again_by_another_service_is_a_repeat(store: Store) -> None:
    one, other = store.service(), store.service()
    one.create("s")
    other.append_message("s", Message.user("first"))
    one.append_message("s", HI, event_id="given")
    again = other.append_message("s", HI, event_id="given")
    assert (again.is_repeat, again.differs) == (True, False)
    assert _texts(one) == ["first", "hi"]


def test_an_own_id_given_back_is_a_repeat(sessions: SessionService) -> None:
    sessions.create("s")
    stored = sessions.append_message("s", HI)
    assert sessions.append_event("s", stored).is_repeat


def test_ids_that_differ_in_case_or_form_are_different(sessions: SessionService) -> None:
    sessions.create("s")
    for event_id in ("a", "A", "e\u0301", "é", "a "):
        sessions.append_message("s", HI, event_id=event_id)
    assert len(sessions.get_events("s")) == 5


def test_the_same_id_in_another_session_is_no_repeat(sessions: SessionService) -> None:
    for session_id in ("s", "t"):
        sessions.create(session_id)
        assert not sessions.append_message(session_id, HI, event_id="given").is_repeat


def test_of_a_batch_the_repeats_are_left_out(sessions: SessionService) -> None:
    sessions.create("s")
    sessions.append_message("s", HI, event_id="b")
    batch = [NewEvent(message=Message.user(name), id=name) for name in ("a", "b", "c", "c")]
    stored = sessions.append_events("s", batch)
    assert [event.is_repeat for event in stored] == [False, True, False, True]
    assert [event.id for event in sessions.get_events("s")] == ["b", "a", "c"]


def test_a_repeat_of_a_covered_event_changes_nothing(sessions: SessionService) -> None:
    sessions.create("s")
    for name in ("1", "2", "3"):
        sessions.append_message("s", Message.user(name), event_id=name)
    keep_turns(sessions, "s", 1)
    assert sessions.append_message("s", Message.user("1"), event_id="1").is_repeat
    assert sessions.view("s").ids == ("3",)


def test_an_event_without_a_payload_appended_again_does_not_differ(sessions: SessionService) -> None:
    sessions.create("s")
    event = NewEvent(type=NOTE, id="n")
    sessions.append_event("s", event)
    assert not sessions.append_event("s", event).differs


def test_payloads_that_only_python_calls_equal_differ(sessions: SessionService) -> None:
    sessions.create("s")
    sessions.append_event("s", "ACME.NOTE", {"done": True}, event_id="n")
    assert sessions.append_event("s", "ACME.NOTE", {"done": 1}, event_id="n").differs


@pytest.mark.parametrize("expected", [0, 3])
def test_a_version_that_is_not_the_sessions_writes_nothing(sessions: SessionService, expected: int) -> None:
    sessions.create("s")
    sessions.append_events("s", [HI, HI])
    with pytest.raises(VersionConflictError) as conflict:
        sessions.append_events("s", [HI], expected_version=expected)
    assert (conflict.value.expected, conflict.value.actual) == (expected, 2)
    assert sessions.version("s") == 2


def test_the_current_version_is_accepted(sessions: SessionService) -> None:
    sessions.create("s")
    sessions.append_events("s", [HI], expected_version=0)
    assert sessions.version("s") == 1


def test_a_version_that_another_service_left_behind_conflicts(store: Store) -> None:
    one, other = store.service(), store.service()
    one.create("s")
    one.append_message("s", HI)
    other.append_message("s", HI)
    with pytest.raises(VersionConflictError):
        one.append_events("s", [HI], expected_version=1)


def test_a_retried_batch_succeeds_with_its_old_version(sessions: SessionService) -> None:
    sessions.create("s")
    batch = [NewEvent(message=HI, id="a"), NewEvent(message=HI, id="b")]
    sessions.append_events("s", batch, expected_version=0)
    assert all(event.is_repeat for event in sessions.append_events("s", batch, expected_version=0))
    assert sessions.version("s") == 2


def test_a_retried_batch_with_something_new_conflicts(sessions: SessionService) -> None:
    sessions.create("s")
    sessions.append_events("s", [NewEvent(message=HI, id="a")], expected_version=0)
    with pytest.raises(VersionConflictError):
        sessions.append_events("s", [NewEvent(message=HI, id="a"), HI], expected_version=0)


def test_an_answer_that_was_lost_is_found_out(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = store.service()
    sessions.create("s")
    insert = sessions.app.recorder.insert_events

    def stored_but_unsaid(stored_events: Sequence[StoredEvent], **kwargs: Any) -> Sequence[int] | None:
        insert(stored_events, **kwargs)
        return insert(stored_events, **kwargs)

    monkeypatch.setattr(sessions.app.recorder, "insert_events", stored_but_unsaid)
    appended = sessions.append_message("s", HI)
    monkeypatch.undo()
    assert (appended.is_repeat, len(sessions.get_events("s"))) == (False, 1)


def test_an_id_that_lands_while_it_is_looked_up_is_a_repeat(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An id in the service's own form needs no ledger entry at the version it names, so nothing but the
    order of look-up and load keeps it from being stored twice."""
    one, other = store.service(), store.service()
    one.create("s")
    event_id = "2-" + "a" * 20
    _before_each_read(other, lambda: one.append_message("s", HI, event_id=event_id), monkeypatch)
    other.append_message("s", HI, event_id=event_id)
    monkeypatch.undo()
    assert [event.id for event in one.get_events("s")] == [event_id]


def _before_each_read(
    service: SessionService, act: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let something happen behind the first read of a service, and before its second one."""
    select, reads = service.app.recorder.select_events, 0

    def counted(originator_id: UUID | str, **criteria: Any) -> Sequence[StoredEvent]:
        nonlocal reads
        reads += 1
        if reads == 2:
            act()
        return select(originator_id, **criteria)

    monkeypatch.setattr(service.app.recorder, "select_events", counted)


def test_appending_to_an_unknown_session_is_refused(sessions: SessionService) -> None:
    with pytest.raises(SessionNotFoundError):
        sessions.append_message("s", HI)


def test_an_empty_batch_needs_the_session_too(sessions: SessionService) -> None:
    with pytest.raises(SessionNotFoundError):
        sessions.append_events("s", [])


def test_a_repeat_in_a_session_that_another_service_deleted_is_refused(store: Store) -> None:
    one, other = store.service(), store.service()
    one.create("s")
    other.append_message("s", HI, event_id="given")
    one.delete("s", erase=False)
    with pytest.raises(SessionNotFoundError):
        other.append_message("s", HI, event_id="given")


def test_a_call_that_another_service_marked_can_be_abandoned(store: Store) -> None:
    one, other = store.service(), store.service()
    one.create("s")
    other.append_message("s", HI)
    asked = one.append_message("s", Message.assistant([ToolCallPart(id="c", name="f", awaiting=True)]))
    other.abandon("s", asked.id, "c")
    with pytest.raises(CallNotAwaitedError):
        one.abandon("s", asked.id, "c")


def test_an_event_is_found_by_its_id(sessions: SessionService) -> None:
    sessions.create("s")
    own = sessions.append_message("s", HI)
    given = sessions.append_message("s", HI, event_id="given")
    assert sessions.get_event("s", own.id) == own
    assert sessions.get_event("s", "given") == given
    with pytest.raises(UnknownEventError):
        sessions.get_event("s", "nobody")


def test_the_framework_loads_the_session_at_its_version(sessions: SessionService) -> None:
    sessions.create("s")
    sessions.append_message("s", HI)
    stored = sessions.app.events.get(_id_in(sessions))
    assert [event.originator_version for event in stored] == [0, 1]


def _id_in(sessions: SessionService) -> Any:
    is_text = sessions.app.env.get("ORIGINATOR_ID_TYPE") == "text"
    return str(aggregate_id("s")) if is_text else aggregate_id("s")
