"""Scenarios 39 to 48 of `cases/concurrency_cases.md`: running a turn, on every store."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.support.chats import SID, lines
from tests.support.conformance_stores import Store
from tests.support.scripted_chat import ScriptedModel, calls

from turnlog.application import SessionService
from turnlog.application.chat import SessionChat
from turnlog.domain import (
    CompactionWindow,
    EventFilter,
    Message,
    MessageFilter,
    Role,
    SessionAttributes,
    TurnCountTrigger,
    WindowCompactionStrategy,
)


@pytest.fixture
def sessions(store: Store) -> SessionService:
    """A service on the store."""
    return store.service()


def owner(sessions: SessionService) -> object:
    """Whom the session belongs to."""
    found = sessions.find(SID)
    assert found is not None
    return found.metadata.get(SessionAttributes.PRINCIPAL_NAME)


def turns(sessions: SessionService, *texts: str) -> None:
    """A conversation of so many turns."""
    sessions.create(SID)
    for text in texts:
        sessions.append_events(SID, [Message.user(text), Message.assistant(f"{text}!")])


def test_conformance_scenario_15_within_one_turn_a_call_id_makes_no_id(sessions: SessionService) -> None:
    """Ids come from the caller's key and the place in the turn: a provider's call id may come again."""

    def find() -> str:
        return "found"

    chat = SessionChat(
        sessions, ScriptedModel([calls("call-7 find"), calls("call-7 find"), "done"]), tools=[find]
    )
    first = chat.send(SID, "go", idempotency_key="k")
    again = chat.send(SID, "go", idempotency_key="k")
    assert len(first.events) == len({event.id for event in first.events}) == 6
    assert [event.id for event in again.events] == [event.id for event in first.events]
    assert len(sessions.get_events(SID)) == 6


@pytest.mark.parametrize(("principal", "belongs_to"), [("ada", "ada"), (None, "guest")])
def test_conformance_scenario_39_the_session_is_made_on_first_use(
    sessions: SessionService, principal: str | None, belongs_to: str
) -> None:
    chat = SessionChat(sessions, ScriptedModel(["hi"]), default_principal="guest")
    chat.send(SID, "hello", principal=principal)
    assert owner(sessions) == belongs_to


def test_conformance_scenario_40_two_first_calls_at_once(store: Store) -> None:
    services = [store.service() for _ in range(2)]

    def send(number: int) -> None:
        SessionChat(services[number], ScriptedModel([f"answer {number}"])).send(SID, f"{number}", wait=60)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(send, range(2)))
    said = lines(services[0])
    assert sorted(said) == ["Assistant: answer 0", "Assistant: answer 1", "User: 0", "User: 1"]
    assert len(services[0].list_sessions()) == 1


def test_conformance_scenario_41_no_user_named(sessions: SessionService) -> None:
    sessions.create(SID, metadata={SessionAttributes.PRINCIPAL_NAME: "ada"})
    assert SessionChat(sessions, ScriptedModel(["hi"])).send(SID, "hello").text == "hi"
    assert owner(sessions) == "ada"


def test_conformance_scenario_42_system_messages_first(sessions: SessionService) -> None:
    turns(sessions, "one")
    sessions.append_message(SID, Message.system("stored"))
    turns_so_far = ["User: one", "Assistant: one!"]
    model = ScriptedModel(["hi"])
    SessionChat(sessions, model).send(SID, "two", system="of the call")
    assert model.told == [["System: stored", "System: of the call", *turns_so_far, "User: two"]]


def test_conformance_scenario_43_only_the_latest_stored_system_message_is_sent(
    sessions: SessionService,
) -> None:
    sessions.create(SID)
    sessions.append_events(SID, [Message.system("old"), Message.user("one"), Message.system("new")])
    model = ScriptedModel(["hi"])
    SessionChat(sessions, model).send(SID, "two")
    assert model.told == [["System: new", "User: one", "User: two"]]


def test_conformance_scenario_44_a_filter_on_what_is_stored(sessions: SessionService) -> None:
    model = ScriptedModel(["hi"])
    SessionChat(sessions, model, store=~MessageFilter.roles(Role.USER)).send(SID, "hello")
    assert model.told == [["User: hello"]]
    assert lines(sessions) == ["Assistant: hi"]


def test_conformance_scenario_45_a_filter_of_the_call(sessions: SessionService) -> None:
    turns(sessions, "one", "two", "three")
    model = ScriptedModel(["hi"])
    SessionChat(sessions, model).send(SID, "four", filter=EventFilter(last_n=2))
    assert model.told == [["User: three", "Assistant: three!", "User: four"]]


def test_conformance_scenario_46_covered_events_are_never_sent(sessions: SessionService) -> None:
    turns(sessions, "one", "two", "three")
    sessions.compact(SID, None, WindowCompactionStrategy(CompactionWindow.last_turns(1)))
    model = ScriptedModel(["hi"])
    SessionChat(sessions, model).send(SID, "four", filter=EventFilter())
    assert model.told == [["User: three", "Assistant: three!", "User: four"]]


def test_conformance_scenario_47_compaction_after_the_answer(sessions: SessionService) -> None:
    chat = SessionChat(
        sessions,
        ScriptedModel(["hi"]),
        trigger=TurnCountTrigger(2),
        strategy=WindowCompactionStrategy(CompactionWindow.last_events(2)),
    )
    results = [chat.send(SID, text).compaction for text in ("one", "two", "three")]
    assert [result is not None for result in results] == [False, False, True]
    assert [event.text for event in sessions.view(SID).events] == ["three", "hi"]
    kinds = [str(event.type) for event in sessions.get_events(SID)]
    assert (kinds.count("MESSAGE"), kinds.count("COMPACTION"), len(kinds)) == (6, 1, 7)


def test_conformance_scenario_48_a_repeated_call_with_random_ids(sessions: SessionService) -> None:
    chat = SessionChat(sessions, ScriptedModel(["hi"]))
    chat.send(SID, "hello")
    chat.send(SID, "hello")
    assert lines(sessions).count("User: hello") == 2
