"""Calls that stay open: approved, answered or given up later, by event and call id, in any process."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Event
from typing import Any

import pytest
from tests.support.chats import SID, lines, messages, service
from tests.support.scripted_chat import ScriptedModel, calls

from turnlog.application import SessionService
from turnlog.application.chat import (
    Awaiting,
    ChatReply,
    FinishReason,
    MessageTooLargeError,
    ModelUnavailableError,
    SessionChat,
    Tool,
    ToolCallFinished,
    Turn,
)
from turnlog.application.turns import CallReference
from turnlog.domain import (
    CallNotAwaitedError,
    CompactionReason,
    CompactionWindow,
    InvalidMessageError,
    InvalidSettingError,
    Message,
    MessageFilter,
    Role,
    SessionNotFoundError,
    TurnInProgressError,
    UnknownEventError,
    WindowCompactionStrategy,
)


def pay(amount: int) -> str:
    """Pays somebody."""
    return f"paid {amount}"


def ping() -> str:
    """Says pong."""
    return "pong"


PAY = Tool.of(pay, needs_approval=True)
ASKS = calls('c1 pay {"amount": 5}')


def asked(
    sessions: SessionService, *lines_: object, tools: tuple[object, ...] = (PAY, ping)
) -> tuple[Turn, CallReference]:
    """A turn that ended with an open call."""
    turn = SessionChat(sessions, ScriptedModel([*(lines_ or (ASKS,))]), tools=tools).send(SID, "Pay 5.")  # type: ignore[arg-type, list-item]
    return turn, turn.awaiting[0]


def later(sessions: SessionService, *lines_: object) -> tuple[SessionChat, ScriptedModel]:
    """A chat of another process, with the same tools."""
    model = ScriptedModel([*(lines_ or ("done",))])  # type: ignore[list-item]
    return SessionChat(sessions, model, tools=[PAY, ping]), model


def test_a_call_that_needs_approval_ends_the_turn_open(sessions: SessionService) -> None:
    turn, call = asked(sessions)
    stored = messages(sessions)[-1]
    assert (turn.finish_reason, call) == (FinishReason.TOOL_CALL, CallReference(stored.id, "c1"))
    assert stored.tool_calls[0].awaiting
    assert lines(sessions) == ["User: Pay 5.", 'Assistant [tool calls: pay({"amount": 5})]']


def test_new_instructions_do_not_end_the_turn_of_an_open_call(sessions: SessionService) -> None:
    _, call = asked(sessions)
    sessions.append_message(SID, Message.system("Be kind."))
    chat, model = later(sessions)
    assert chat.approve(SID, call.event_id, call.call_id).text == "done"
    assert model.told[0][0] == "System: Be kind."


def test_of_approvals_that_come_at_once_one_makes_the_call_and_the_others_wait(tmp_path: Path) -> None:
    with service(tmp_path / "chat.db") as sessions, ThreadPoolExecutor(4) as pool:
        _, call = asked(sessions)
        chat, model = later(sessions)
        start = Barrier(4)

        def approve(_: int) -> str:
            start.wait()
            try:
                return chat.approve(SID, call.event_id, call.call_id, wait=60).text
            except CallNotAwaitedError:
                return "was answered"

        said = list(pool.map(approve, range(4)))
        assert {"done"} <= set(said) <= {"done", "was answered"}
        assert len(model.asked) == 1
        assert lines(sessions)[2:] == ["Tool [responses: pay -> paid 5]", "Assistant: done"]


def beside_a_model_that_is_asked(
    sessions: SessionService, pool: ThreadPoolExecutor, call: CallReference, said: Callable[[], Any]
) -> tuple[Future[Turn], Future[Turn]]:
    """Two approvals of a call, the second while the model is asked behind the first; then this is said."""
    waits = Event()
    view = sessions.view_for_turn
    second: list[Future[Turn]] = []

    def viewed(*arguments: Any, **named: Any) -> Any:
        try:
            return view(*arguments, **named)
        except TurnInProgressError:
            waits.set()
            raise

    def answer(_: object) -> Any:
        second.append(pool.submit(chat.approve, SID, call.event_id, call.call_id, wait=60))
        assert waits.wait(60)
        return said()

    sessions.view_for_turn = viewed  # type: ignore[method-assign]
    chat = SessionChat(sessions, ScriptedModel([answer]), tools=[PAY])
    first = pool.submit(chat.approve, SID, call.event_id, call.call_id)
    first.exception(60)
    return first, second[0]


def test_an_approval_beside_a_model_that_is_being_asked_waits_and_gets_what_it_said(tmp_path: Path) -> None:
    with service(tmp_path / "chat.db") as sessions, ThreadPoolExecutor(2) as pool:
        _, call = asked(sessions)
        first, second = beside_a_model_that_is_asked(sessions, pool, call, lambda: "done")
        assert first.result().text == "done"
        assert (second.result(60).text, second.result().is_repeat) == ("done", True)


def test_where_that_model_fails_and_the_user_goes_on_the_call_was_answered(tmp_path: Path) -> None:
    with service(tmp_path / "chat.db") as sessions, ThreadPoolExecutor(2) as pool:
        _, call = asked(sessions)

        def fails() -> Exception:
            sessions.append_message(SID, Message.user("Well?"))
            return ModelUnavailableError("busy")

        first, second = beside_a_model_that_is_asked(sessions, pool, call, fails)
        assert isinstance(first.exception(), ModelUnavailableError)
        with pytest.raises(CallNotAwaitedError):
            second.result(60)


def test_a_call_that_is_settled_while_it_is_made_leaves_no_mark(sessions: SessionService) -> None:
    def pay(amount: int) -> str:
        """Pays somebody."""
        sessions.abandon(SID, call.event_id, call.call_id)
        return f"paid {amount}"

    _, call = asked(sessions)
    chat = SessionChat(sessions, ScriptedModel(["hi"]), tools=[Tool.of(pay, needs_approval=True)])
    with pytest.raises(CallNotAwaitedError):
        chat.approve(SID, call.event_id, call.call_id)
    assert chat.send(SID, "Hello?").text == "hi"


def test_an_approved_call_is_made_and_the_turn_goes_on(tmp_path: Path) -> None:
    with service(tmp_path / "chat.db") as sessions:
        _, call = asked(sessions)
    with service(tmp_path / "chat.db") as sessions:
        chat, model = later(sessions)
        turn = chat.approve(SID, call.event_id, call.call_id)
        assert (turn.text, turn.finish_reason) == ("done", FinishReason.STOP)
        assert lines(sessions)[2:] == ["Tool [responses: pay -> paid 5]", "Assistant: done"]
        assert model.told[0][-1] == "Tool [responses: pay -> paid 5]"


def test_an_answered_call_goes_on_with_the_answer(sessions: SessionService) -> None:
    _, call = asked(sessions)
    chat, _ = later(sessions)
    turn = chat.answer(SID, call.event_id, "c1", {"paid": False})
    assert turn.text == "done"
    assert messages(sessions)[2].message == Message.tool('{"paid":false}', id="c1")


def test_a_call_that_is_given_up_goes_on_without_a_result(sessions: SessionService) -> None:
    _, call = asked(sessions)
    chat, model = later(sessions)
    assert chat.abandon(SID, call.event_id, "c1").text == "done"
    assert [event.type for event in sessions.get_events(SID)] == [
        "MESSAGE",
        "MESSAGE",
        "CALL_ABANDONED",
        "MESSAGE",
    ]
    assert b"[no result so far]" in model.render(model.asked[0]).body


@pytest.mark.parametrize("how", ["answer", "approve", "abandon"])
def test_a_call_is_settled_once(sessions: SessionService, how: str) -> None:
    _, call = asked(sessions)
    chat, model = later(sessions)
    more = ("too late",) if how == "answer" else ()
    getattr(chat, how)(SID, call.event_id, "c1", *more)
    before = sessions.get_events(SID)
    with pytest.raises(CallNotAwaitedError):
        getattr(chat, how)(SID, call.event_id, "c1", *more)
    assert (sessions.get_events(SID), len(model.asked)) == (before, 1)
    assert SessionChat(sessions, ScriptedModel(["hi"])).send(SID, "hello").text == "hi"


def test_calls_that_are_not_there_are_refused(sessions: SessionService) -> None:
    _, call = asked(sessions)
    chat, _ = later(sessions)
    with pytest.raises(UnknownEventError):
        chat.answer(SID, "nowhere", "c1", "x")
    with pytest.raises(CallNotAwaitedError):
        chat.answer(SID, call.event_id, "c9", "x")
    with pytest.raises(SessionNotFoundError):
        chat.answer("nobody", call.event_id, "c1", "x")
    with pytest.raises(SessionNotFoundError):
        chat.answer(SID, call.event_id, "c1", "x", principal="eve")


def test_the_other_calls_of_the_answer_are_made_at_once(sessions: SessionService) -> None:
    turn, _ = asked(sessions, calls("c0 ping", 'c1 pay {"amount": 5}'))
    assert lines(sessions)[-1] == "Tool [responses: ping -> pong]"
    assert len(turn.awaiting) == 1


def test_the_turn_goes_on_with_the_last_of_several_open_calls(sessions: SessionService) -> None:
    _, first = asked(sessions, calls('c1 pay {"amount": 1}', 'c2 pay {"amount": 2}'))
    chat, model = later(sessions)
    turn = chat.approve(SID, first.event_id, "c1")
    assert (turn.finish_reason, turn.awaiting) == (None, (CallReference(first.event_id, "c2"),))
    assert model.asked == []
    assert chat.approve(SID, first.event_id, "c2").text == "done"


def test_of_two_answers_at_once_the_later_one_goes_on(sessions: SessionService) -> None:
    _, first = asked(sessions, calls('c1 pay {"amount": 1}', 'c2 pay {"amount": 2}'))
    chat, model = later(sessions)
    record = sessions.record_turn
    meanwhile: list[Turn] = []

    def overtaken(*arguments: Any, **named: Any) -> Any:
        sessions.record_turn = record  # type: ignore[method-assign]
        meanwhile.append(chat.answer(SID, first.event_id, "c2", "two"))
        return record(*arguments, **named)

    sessions.record_turn = overtaken  # type: ignore[method-assign]
    turn = chat.answer(SID, first.event_id, "c1", "one")
    assert [one.finish_reason for one in (*meanwhile, turn)] == [None, FinishReason.STOP]
    assert len(model.asked) == 1
    assert lines(sessions)[2:] == [
        "Tool [responses: c2 -> two]",
        "Tool [responses: c1 -> one]",
        "Assistant: done",
    ]


def test_a_call_of_an_earlier_turn_gets_its_result_without_asking_the_model(sessions: SessionService) -> None:
    _, call = asked(sessions)
    chat, model = later(sessions, "I am waiting for approval.", "done")
    chat.send(SID, "Is it paid?")
    turn = chat.approve(SID, call.event_id, "c1")
    assert (turn.finish_reason, len(model.asked)) == (None, 1)
    chat.send(SID, "And now?")
    body = model.render(model.asked[1]).body
    assert body.index(b"paid 5") < body.index(b"Is it paid?")


def test_an_open_call_keeps_its_turn_in_the_view(sessions: SessionService) -> None:
    _, call = asked(sessions)
    chat, _ = later(sessions)
    chat.send(SID, "Is it paid?")
    result = sessions.compact(SID, None, WindowCompactionStrategy(CompactionWindow.last_turns(1)))
    assert result.reason is CompactionReason.AWAITED_CALL
    chat.approve(SID, call.event_id, "c1")
    chat.send(SID, "And now?")
    assert not sessions.compact(
        SID, None, WindowCompactionStrategy(CompactionWindow.last_turns(1))
    ).is_unchanged


def test_arguments_are_checked_when_the_call_is_made(sessions: SessionService) -> None:
    _, call = asked(sessions, calls('c1 pay {"amount": "much"}'))
    chat, _ = later(sessions)
    chat.approve(SID, call.event_id, "c1")
    assert "The arguments are malformed" in lines(sessions)[2]


def test_an_open_call_is_stored_whatever_the_filter_says(sessions: SessionService) -> None:
    chat = SessionChat(
        sessions, ScriptedModel([ASKS, "done"]), tools=[PAY], store=MessageFilter.roles("user")
    )
    (call,) = chat.send(SID, "Pay 5.").awaiting
    assert chat.approve(SID, call.event_id, "c1").text == "done"
    assert [event.role for event in messages(sessions)] == [Role.USER, Role.ASSISTANT, Role.TOOL]


def test_an_answer_that_is_too_large_is_refused_and_the_call_stays_open(sessions: SessionService) -> None:
    _, call = asked(sessions)
    chat = SessionChat(sessions, ScriptedModel(["done"]), max_message_tokens=50)
    with pytest.raises(MessageTooLargeError):
        chat.answer(SID, call.event_id, "c1", "x" * 100)
    assert chat.answer(SID, call.event_id, "c1", "x").text == "done"


# --- tools that take long


def ship(parcel: int) -> str | Awaiting:
    """Ships a parcel, which takes days."""
    return Awaiting("The parcel is on its way.") if parcel else Awaiting()


def test_a_tool_can_say_that_its_result_comes_later(sessions: SessionService) -> None:
    chat = SessionChat(sessions, ScriptedModel([calls('c1 ship {"parcel": 1}'), "It arrived."]), tools=[ship])
    turn = chat.send(SID, "Ship it.")
    assert turn.messages[2].tool_responses[0].provisional
    (call,) = turn.awaiting
    assert chat.answer(SID, call.event_id, call.call_id, "It is there.").text == "It arrived."


def test_a_tool_that_says_nothing_in_the_meantime_stores_nothing(sessions: SessionService) -> None:
    chat = SessionChat(sessions, ScriptedModel([calls('c1 ship {"parcel": 0}')]), tools=[ship])
    assert len(chat.send(SID, "Ship it.").messages) == 2


def test_a_tool_that_may_wait_but_does_not_closes_its_call(sessions: SessionService) -> None:
    quick = Tool.of(lambda: "there", name="quick", awaits=True)
    chat = SessionChat(sessions, ScriptedModel([calls("c1 quick"), "ok"]), tools=[quick])
    turn = chat.send(SID, "go")
    assert (turn.text, turn.awaiting) == ("ok", ())
    with pytest.raises(CallNotAwaitedError):
        chat.answer(SID, messages(sessions)[1].id, "c1", "again")


def test_an_approved_tool_can_take_long_as_well(sessions: SessionService) -> None:
    tool = Tool.of(ship, needs_approval=True)
    chat = SessionChat(sessions, ScriptedModel([calls('c1 ship {"parcel": 1}'), "ok"]), tools=[tool])
    (call,) = chat.send(SID, "Ship it.").awaiting
    turn = chat.approve(SID, call.event_id, "c1")
    assert (turn.finish_reason, turn.awaiting) == (None, (call,))
    assert chat.answer(SID, call.event_id, "c1", "arrived").text == "ok"


def test_a_stream_tells_that_a_call_stays_open(sessions: SessionService) -> None:
    model = ScriptedModel([calls('c1 ship {"parcel": 1}')])
    with SessionChat(sessions, model, tools=[ship]).stream(SID, "Ship it.") as turn:
        (finished,) = [event for event in turn if isinstance(event, ToolCallFinished)]
    assert finished.result is None


def test_a_keyed_turn_that_ended_open_is_returned_open(sessions: SessionService) -> None:
    chat = SessionChat(sessions, ScriptedModel([ASKS, "done"]), tools=[PAY])
    first = chat.send(SID, "Pay 5.", idempotency_key="k")
    again = chat.send(SID, "Pay 5.", idempotency_key="k")
    assert (again.awaiting, again.is_repeat) == (first.awaiting, True)
    chat.approve(SID, again.awaiting[0].event_id, "c1")
    assert chat.send(SID, "Pay 5.", idempotency_key="k").awaiting == ()


def test_a_turn_whose_model_failed_behind_an_approval_goes_on_when_it_is_approved_again(
    sessions: SessionService,
) -> None:
    paid: list[int] = []

    def pay(amount: int) -> str:
        """Pays somebody."""
        paid.append(amount)
        return "paid"

    _, call = asked(sessions)
    model = ScriptedModel([ModelUnavailableError("busy"), "done"])
    chat = SessionChat(sessions, model, tools=[Tool.of(pay, needs_approval=True)])
    with pytest.raises(ModelUnavailableError):
        chat.approve(SID, call.event_id, call.call_id)

    turn = chat.approve(SID, call.event_id, call.call_id)

    assert (turn.text, paid) == ("done", [5])


def test_a_result_that_is_given_again_behind_the_answer_is_refused(sessions: SessionService) -> None:
    _, call = asked(sessions)
    chat, _ = later(sessions)
    chat.answer(SID, call.event_id, call.call_id, "paid")

    with pytest.raises(CallNotAwaitedError):
        chat.answer(SID, call.event_id, call.call_id, "paid")


def test_another_process_finds_the_open_calls(sessions: SessionService) -> None:
    _, call = asked(sessions)
    assert sessions.awaited_calls(SID) == (call,)

    later(sessions)[0].approve(SID, call.event_id, call.call_id)
    assert sessions.awaited_calls(SID) == ()


def test_a_message_that_says_nothing_is_refused_and_nothing_is_stored(sessions: SessionService) -> None:
    model = ScriptedModel(["done"])
    with pytest.raises(InvalidMessageError):
        SessionChat(sessions, model).send(SID, "  ")

    assert (model.asked, lines(sessions)) == ([], [])


def test_an_open_call_says_what_is_called(sessions: SessionService) -> None:
    _, call = asked(sessions)
    (held,) = sessions.awaited_calls(SID)
    for one in (call, held):
        assert (one.name, one.arguments) == ("pay", '{"amount": 5}')
    assert held == CallReference(call.event_id, "c1")


def test_a_call_that_a_tool_left_open_says_what_is_called(sessions: SessionService) -> None:
    def order(amount: int) -> Awaiting:
        """Orders something."""
        return Awaiting(f"{amount} are on their way")

    model = ScriptedModel([calls('c1 order {"amount": 5}')])
    (call,) = SessionChat(sessions, model, tools=[order]).send(SID, "Order 5.").awaiting
    assert (call.name, call.arguments) == ("order", '{"amount": 5}')


def test_a_denied_call_is_not_made_and_the_model_is_told_why(sessions: SessionService) -> None:
    _, call = asked(sessions)
    chat, _ = later(sessions)
    turn = chat.deny(SID, call.event_id, call.call_id, "too much")
    assert turn.text == "done"
    told = "The call was denied and not made. Reason: too much"
    assert lines(sessions)[2] == f"Tool [responses: c1 -> {told}]"
    (result,) = messages(sessions)[2].message.tool_responses  # type: ignore[union-attr]
    assert (result.extra["is_error"], sessions.awaited_calls(SID)) == (True, ())


def test_a_call_is_denied_without_a_reason_too(sessions: SessionService) -> None:
    _, call = asked(sessions)
    later(sessions)[0].deny(SID, call.event_id, call.call_id)
    assert lines(sessions)[2].endswith("c1 -> The call was denied and not made.]")


def test_a_call_that_was_denied_cannot_be_approved(sessions: SessionService) -> None:
    _, call = asked(sessions)
    later(sessions)[0].deny(SID, call.event_id, call.call_id)
    with pytest.raises(CallNotAwaitedError):
        later(sessions)[0].approve(SID, call.event_id, call.call_id)


SETTLES: dict[str, Callable[[SessionChat, CallReference, str], Turn]] = {
    "approve": lambda chat, call, by: chat.approve(SID, call.event_id, call.call_id, by=by),
    "deny": lambda chat, call, by: chat.deny(SID, call.event_id, call.call_id, by=by),
    "answer": lambda chat, call, by: chat.answer(SID, call.event_id, call.call_id, "paid", by=by),
    "abandon": lambda chat, call, by: chat.abandon(SID, call.event_id, call.call_id, by=by),
}


@pytest.mark.parametrize("name", SETTLES)
def test_who_settled_a_call_is_recorded(sessions: SessionService, name: str) -> None:
    turn, call = asked(sessions)
    newest = turn.events[-1].version
    SETTLES[name](later(sessions)[0], call, "ada")
    settled = [event for event in sessions.iter_events(SID) if event.version > newest]
    assert settled
    assert {event.context.get("actor") for event in settled} == {"ada"}


@pytest.mark.parametrize("by", ["", " ", 5])
def test_who_settled_a_call_is_somebody(sessions: SessionService, by: Any) -> None:
    _, call = asked(sessions)
    with pytest.raises(InvalidSettingError, match="by='ada'"):
        later(sessions)[0].approve(SID, call.event_id, call.call_id, by=by)


@pytest.mark.parametrize("call_id", [None, "", "c1"])
def test_calls_without_ids_of_their_own_are_settled_one_by_one(
    sessions: SessionService, call_id: str | None
) -> None:
    parts = [
        {"type": "tool_call", "id": call_id, "name": "pay", "arguments": f'{{"amount": {n}}}'} for n in (5, 7)
    ]
    asks = ChatReply(Message.assistant(parts), FinishReason.TOOL_CALL)
    turn, first = asked(sessions, asks)
    second = turn.awaiting[1]
    assert turn.awaiting == sessions.awaited_calls(SID)
    chat, model = later(sessions)

    chat.approve(SID, second.event_id, second.call_id)
    chat.deny(SID, first.event_id, first.call_id)

    given = [one for event in messages(sessions) if event.message for one in event.message.tool_responses]
    assert [(one.id, one.response) for one in given] == [
        (second.call_id, "paid 7"),
        (first.call_id, "The call was denied and not made."),
    ]
    assert len(model.asked) == 1
    assert sessions.awaited_calls(SID) == ()
