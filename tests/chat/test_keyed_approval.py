"""A turn with a key whose call somebody settled meanwhile: called again it gives back all of it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest
from tests.chat.test_approval import ASKS, PAY, SETTLES, ping
from tests.support.chats import SID, lines, messages, service
from tests.support.scripted_chat import ScriptedModel, calls

from turnlog.application import SessionService
from turnlog.application.chat import Awaiting, ModelUnavailableError, SessionChat, Tool, Turn
from turnlog.application.turns import CallReference
from turnlog.domain import Message, SessionEvent

BUSY = ModelUnavailableError("busy")


def chat(sessions: SessionService, *said: object) -> tuple[SessionChat, ScriptedModel]:
    """A chat with both tools."""
    model = ScriptedModel([*said])  # type: ignore[list-item]
    return SessionChat(sessions, model, tools=[PAY, ping]), model


def keyed(sessions: SessionService, *said: object) -> tuple[Turn, list[object]]:
    """The turn under the key, called once more, and what the model was asked for it."""
    caller, model = chat(sessions, *said)
    return caller.send(SID, "Pay 5.", idempotency_key="k"), list(model.asked)


def open_call(sessions: SessionService) -> CallReference:
    """The call that the turn left open."""
    return keyed(sessions, ASKS)[0].awaiting[0]


def said_of(turn: Turn) -> list[str]:
    return [event.id for event in turn.events]


@pytest.mark.parametrize("name", SETTLES)
def test_what_followed_a_settled_call_belongs_to_the_turn(sessions: SessionService, name: str) -> None:
    SETTLES[name](chat(sessions, "done")[0], open_call(sessions), "ada")
    version = sessions.version(SID)

    turn, asked = keyed(sessions)

    assert (turn.text, turn.is_repeat, turn.awaiting, asked) == ("done", True, (), [])
    assert said_of(turn) == [event.id for event in messages(sessions)]
    assert sessions.version(SID) == version


def test_a_turn_whose_model_failed_behind_an_approval_goes_on_once(sessions: SessionService) -> None:
    call = open_call(sessions)
    with pytest.raises(ModelUnavailableError):
        chat(sessions, BUSY)[0].approve(SID, call.event_id, call.call_id)

    turn, asked = keyed(sessions, "done")
    assert (turn.text, turn.is_repeat, len(asked)) == ("done", False, 1)
    again, asked = keyed(sessions)
    assert (said_of(again), again.is_repeat, asked) == (said_of(turn), True, [])
    assert lines(sessions)[2:] == ["Tool [responses: pay -> paid 5]", "Assistant: done"]


def test_it_can_be_resumed_as_well(sessions: SessionService) -> None:
    call = open_call(sessions)
    with pytest.raises(ModelUnavailableError):
        chat(sessions, BUSY)[0].approve(SID, call.event_id, call.call_id)

    resumed = chat(sessions, "done")[0].resume(SID)

    assert (resumed.text, resumed.is_repeat) == ("done", False)
    assert lines(sessions)[2:] == ["Tool [responses: pay -> paid 5]", "Assistant: done"]


def test_a_call_that_was_begun_behind_an_approval_is_made_again(sessions: SessionService) -> None:
    call = open_call(sessions)
    with pytest.raises(ModelUnavailableError):
        chat(sessions, BUSY)[0].approve(SID, call.event_id, call.call_id)
    sessions.append_message(SID, calls("c1 ping").message)  # the process ended behind it

    turn, asked = keyed(sessions, "done")

    assert (turn.text, len(asked)) == ("done", 1)
    assert lines(sessions)[4:] == ["Tool [responses: ping -> pong]", "Assistant: done"]
    again, asked = keyed(sessions)
    assert (said_of(again), asked) == ([event.id for event in messages(sessions)], [])


def test_a_call_that_opened_behind_an_approval_is_still_open(sessions: SessionService) -> None:
    call = open_call(sessions)
    (second,) = chat(sessions, calls('c2 pay {"amount": 7}'))[0].approve(SID, call.event_id, "c1").awaiting

    turn, _ = keyed(sessions)
    assert (turn.awaiting, turn.is_repeat) == ((second,), True)

    chat(sessions, "done")[0].approve(SID, second.event_id, "c2")
    turn, _ = keyed(sessions)
    assert (turn.text, said_of(turn)) == ("done", [event.id for event in messages(sessions)])


def test_what_was_said_next_does_not_belong_to_it_and_is_not_answered(sessions: SessionService) -> None:
    call = open_call(sessions)
    chat(sessions, "Later.")[0].send(SID, "And tomorrow?")
    chat(sessions)[0].answer(SID, call.event_id, call.call_id, "paid")

    turn, asked = keyed(sessions)

    assert ([message.text for message in turn.messages], turn.is_repeat) == (["Pay 5.", None], True)
    assert (turn.awaiting, asked) == ((), [])


def test_what_other_branches_said_does_not_belong_to_it(sessions: SessionService) -> None:
    call = open_call(sessions)
    for message in (Message.user("look"), Message.assistant("found")):
        sessions.append_message(SID, message, branch="find")
    chat(sessions, "done")[0].approve(SID, call.event_id, call.call_id)

    turn, _ = keyed(sessions)

    assert {event.branch for event in turn.events} == {None}
    assert turn.text == "done"


@pytest.mark.parametrize("note", ["on its way", ""])
def test_a_call_whose_result_came_in_later_is_not_made_again(sessions: SessionService, note: str) -> None:
    made: list[int] = []

    def order(amount: int) -> Awaiting:
        """Orders something."""
        made.append(amount)
        return Awaiting(note)

    def send(*said: object) -> Turn:
        model = ScriptedModel([*said])  # type: ignore[list-item]
        return SessionChat(sessions, model, tools=[order]).send(SID, "Order 5.", idempotency_key="k")

    (call,) = send(calls('c1 order {"amount": 5}')).awaiting
    if note:
        assert send().awaiting == (call,)
    chat(sessions, "done")[0].answer(SID, call.event_id, "c1", "arrived")

    turn = send()
    assert (turn.text, made) == ("done", [5])
    assert said_of(turn) == [event.id for event in messages(sessions)]


def test_a_call_of_a_later_round_with_the_id_of_an_earlier_one_is_made(sessions: SessionService) -> None:
    sessions.create(SID)
    one, two = calls("c1 ping").message, calls("c1 ping").message
    sessions.append_events(SID, [Message.user("hi"), one, Message.tool("old", id="c1", name="ping"), two])
    SessionChat(sessions, ScriptedModel(["Done."]), tools=[Tool.of(ping)]).resume(SID)
    assert lines(sessions)[4:] == ["Tool [responses: ping -> pong]", "Assistant: Done."]


def test_while_the_approval_goes_on_the_turn_waits_and_the_model_is_asked_once(tmp_path: Path) -> None:
    asked, may_answer = Event(), Event()

    def slowly(_: object) -> str:
        asked.set()
        assert may_answer.wait(60)
        return "done"

    with service(tmp_path / "chat.db") as sessions, ThreadPoolExecutor(2) as pool:
        call = open_call(sessions)
        approved = pool.submit(chat(sessions, slowly)[0].approve, SID, call.event_id, call.call_id)
        assert asked.wait(60)
        caller, model = chat(sessions)
        again = pool.submit(caller.send, SID, "Pay 5.", idempotency_key="k", wait=60)
        may_answer.set()
        assert said_of(again.result(60)) == [event.id for event in messages(sessions)]
        assert (approved.result(60).text, model.asked) == ("done", [])


def test_who_settles_a_call_in_between_is_not_asked_for_twice(sessions: SessionService) -> None:
    call = open_call(sessions)
    with pytest.raises(ModelUnavailableError):
        chat(sessions, BUSY)[0].approve(SID, call.event_id, call.call_id)
    read = sessions.rest_of_turn

    def overtaken(*args: object, **named: object) -> object:
        found = read(*args, **named)  # type: ignore[arg-type]
        sessions.rest_of_turn = read  # type: ignore[method-assign]
        chat(sessions, "done")[0].approve(SID, call.event_id, call.call_id)
        return found

    sessions.rest_of_turn = overtaken  # type: ignore[method-assign, assignment]
    turn, asked = keyed(sessions)

    assert (turn.text, turn.is_repeat, asked) == ("done", True, [])
    assert lines(sessions)[2:] == ["Tool [responses: pay -> paid 5]", "Assistant: done"]


# --- what a process left undone when it ended


def begun(sessions: SessionService, *named: str) -> SessionEvent:
    """The keyed turn up to an answer with these calls, none of which was made."""
    found: list[SessionEvent] = []

    class EndedError(Exception):
        pass

    def ended(*args: object, **named: object) -> object:
        write = record(*args, **named)  # type: ignore[arg-type]
        if any(event.tool_calls for event in write.events):
            found.extend(write.events)
            raise EndedError
        return write

    record = sessions.record_turn
    sessions.record_turn = ended  # type: ignore[method-assign, assignment]
    with pytest.raises(EndedError):
        keyed(sessions, calls(*named))
    sessions.record_turn = record  # type: ignore[method-assign]
    return found[0]


@pytest.mark.parametrize("name", SETTLES)
def test_a_call_beside_it_that_was_never_made_is_made_when_it_is_settled(
    sessions: SessionService, name: str
) -> None:
    answer = begun(sessions, 'c1 pay {"amount": 5}', "c2 ping")
    caller, model = chat(sessions, "done")
    turn = SETTLES[name](caller, CallReference(answer.id, "c1"), "ada")

    assert turn.text == "done"
    assert "Tool [responses: ping -> pong]" in model.told[0]
    again, asked = keyed(sessions)
    assert (said_of(again), again.is_repeat, asked) == (
        [event.id for event in messages(sessions)],
        True,
        [],
    )


def test_a_call_beside_it_is_made_when_the_process_ended_behind_the_settling(
    sessions: SessionService,
) -> None:
    answer = begun(sessions, 'c1 pay {"amount": 5}', "c2 ping")
    sessions.append_message(SID, Message.tool("paid 5", id="c1", name="pay"))

    chat(sessions, "done")[0].approve(SID, answer.id, "c1")

    assert lines(sessions)[2:] == [
        "Tool [responses: pay -> paid 5]",
        "Tool [responses: ping -> pong]",
        "Assistant: done",
    ]


def test_a_keyed_turn_that_was_resumed_without_its_key_comes_back_whole(sessions: SessionService) -> None:
    begun(sessions, "c1 ping", "c2 ping")
    chat(sessions, calls("c3 ping"), "done")[0].resume(SID)

    turn, asked = keyed(sessions)

    assert (turn.text, turn.is_repeat, asked) == ("done", True, [])
    assert said_of(turn) == [event.id for event in messages(sessions)]


def test_a_question_that_was_answered_without_its_key_is_not_asked_again(sessions: SessionService) -> None:
    with pytest.raises(ModelUnavailableError):
        keyed(sessions, BUSY)
    chat(sessions, "done")[0].resume(SID)

    turn, asked = keyed(sessions)

    assert (turn.text, turn.is_repeat, asked) == ("done", True, [])


@pytest.mark.parametrize("key", ["k", None])
def test_who_goes_on_at_the_same_time_does_not_ask_twice(sessions: SessionService, key: str | None) -> None:
    with pytest.raises(ModelUnavailableError):
        keyed(sessions, BUSY)
    caller, model = chat(sessions)

    def overtaken() -> None:
        model.on_render = None
        chat(sessions, "done")[0].resume(SID)

    model.on_render = overtaken
    turn = caller.resume(SID) if key is None else caller.send(SID, "Pay 5.", idempotency_key=key)

    assert (turn.text, turn.is_repeat, model.asked) == ("done", True, [])


def test_who_approves_again_at_the_same_time_does_not_ask_twice(sessions: SessionService) -> None:
    call = open_call(sessions)
    with pytest.raises(ModelUnavailableError):
        chat(sessions, BUSY)[0].approve(SID, call.event_id, call.call_id)
    caller, model = chat(sessions)
    asks = sessions.awaits

    def overtaken(*args: object, **named: object) -> object:
        sessions.awaits = asks  # type: ignore[method-assign]
        chat(sessions, "done")[0].resume(SID)
        return asks(*args, **named)  # type: ignore[arg-type]

    sessions.awaits = overtaken  # type: ignore[method-assign, assignment]
    turn = caller.approve(SID, call.event_id, call.call_id)

    assert (turn.text, turn.is_repeat, model.asked) == ("done", True, [])
    assert lines(sessions)[2:] == ["Tool [responses: pay -> paid 5]", "Assistant: done"]
