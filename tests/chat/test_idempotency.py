"""A key of the caller's: a second call continues what the first one stored, and asks nothing twice."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Barrier

import pytest
from tests.chat.processes import Process
from tests.support.chats import SID, lines, messages, service
from tests.support.scripted_chat import ScriptedModel, Stream, calls, says

from turnlog.application import SessionService
from turnlog.application.chat import (
    ChatReply,
    FinishReason,
    MessageStored,
    ModelUnavailableError,
    SessionChat,
    StreamInterruptedError,
    TooManyRoundsError,
    Turn,
    Usage,
)
from turnlog.domain import InvalidIdError, Message, MessageFilter, Role, TurnInProgressError, View


def ping() -> str:
    """Says pong."""
    return "pong"


def unasked(_: object) -> str:
    """A line that must not be reached."""
    raise AssertionError("the model was asked again")


def test_a_second_call_with_the_key_returns_the_stored_turn(sessions: SessionService) -> None:
    first = SessionChat(sessions, ScriptedModel([says("hi", Usage(input_tokens=3, provider={}))])).send(
        SID, "hello", idempotency_key="k"
    )
    again = SessionChat(sessions, ScriptedModel([unasked])).send(SID, "hello", idempotency_key="k")
    assert again.is_repeat
    assert not first.is_repeat
    assert (again.events, again.finish_reason, again.usage) == (
        first.events,
        first.finish_reason,
        Usage(input_tokens=3),
    )


def test_a_turn_with_tools_is_returned_whole(sessions: SessionService) -> None:
    model = ScriptedModel([calls("c1 ping", "c2 ping"), calls("c3 ping"), "done"])
    first = SessionChat(sessions, model, tools=[ping]).send(SID, "go", idempotency_key="k")
    again = SessionChat(sessions, ScriptedModel([unasked]), tools=[ping]).send(SID, "go", idempotency_key="k")
    assert sorted(event.id for event in again.events) == sorted(event.id for event in first.events)
    assert again.text == "done"


@pytest.mark.parametrize("key", ["other", None])
def test_the_same_text_with_another_key_is_said_again(sessions: SessionService, key: str | None) -> None:
    chat = SessionChat(sessions, ScriptedModel(["hi"]))
    chat.send(SID, "hello", idempotency_key="k")
    chat.send(SID, "hello", idempotency_key=key)
    assert lines(sessions) == ["User: hello", "Assistant: hi"] * 2


def test_a_key_belongs_to_its_session(sessions: SessionService) -> None:
    chat = SessionChat(sessions, ScriptedModel(["hi"]))
    chat.send(SID, "hello", idempotency_key="k")
    assert not chat.send("other", "hello", idempotency_key="k").is_repeat


def test_a_turn_that_failed_at_the_model_goes_on_from_the_question(sessions: SessionService) -> None:
    chat = SessionChat(sessions, ScriptedModel([ModelUnavailableError("Down."), "hi"]))
    with pytest.raises(ModelUnavailableError):
        chat.send(SID, "hello", idempotency_key="k")
    assert chat.send(SID, "hello", idempotency_key="k").text == "hi"
    assert lines(sessions) == ["User: hello", "Assistant: hi"]


def test_other_turns_in_between_do_not_hide_the_turn(sessions: SessionService) -> None:
    chat = SessionChat(sessions, ScriptedModel([ModelUnavailableError("Down."), "hi"]))
    with pytest.raises(ModelUnavailableError):
        chat.send(SID, "hello", idempotency_key="k")
    chat.send(SID, "something else")
    chat.send(SID, "hello", idempotency_key="k")
    assert chat.send(SID, "hello", idempotency_key="k").is_repeat


def _crashed(sessions: SessionService, after: int) -> None:
    """A turn of two rounds that ended behind so many messages, as when its process died there."""
    whole = SessionChat(sessions, ScriptedModel([calls("c1 ping", "c2 ping"), calls("c3 ping"), "done"]))
    with pytest.MonkeyPatch.context() as patch:
        record = sessions.record_turn
        left = after

        def until_then(*arguments: object, **named: object) -> object:
            nonlocal left
            if left == 0:
                raise ConnectionError("the process died")
            left -= 1
            return record(*arguments, **named)  # type: ignore[arg-type]

        patch.setattr(sessions, "record_turn", until_then)
        with pytest.raises(ConnectionError):
            whole.send(SID, "go", idempotency_key="k", tools=[ping])


@pytest.mark.parametrize("after", range(7))
def test_a_turn_that_died_anywhere_goes_on_where_it_ended(tmp_path: Path, after: int) -> None:
    now = datetime.now(UTC)
    with service(tmp_path / "chat.db", clock=lambda: now) as sessions:
        sessions.create(SID)
        _crashed(sessions, after)
        assert len(messages(sessions)) == after
        now += timedelta(minutes=2)
        rest: list[object] = [calls("c1 ping", "c2 ping"), calls("c3 ping"), "done"]
        done = 0 if after < 2 else 1 if after < 5 else 2
        model = ScriptedModel(rest[done:])  # type: ignore[arg-type]
        turn = SessionChat(sessions, model, tools=[ping]).send(SID, "go", idempotency_key="k")
        assert turn.text == "done"
        assert len(model.asked) == 3 - done
        assert len(messages(sessions)) == len(turn.events) == 7
        results = [event for event in messages(sessions) if event.role is Role.TOOL]
        assert len(results) == 3


def test_a_process_that_died_in_a_tool_runs_it_again(tmp_path: Path) -> None:
    file = tmp_path / "chat.db"
    service(file).close()
    with Process(file) as process:
        process.say(f"send {SID} k")
        assert process.hear() == "asked"
        process.say("call")
        assert process.hear() == "working"
        process.kill()
    later = datetime.now(UTC) + timedelta(minutes=2)
    with service(file, clock=lambda: later) as sessions:
        chat = SessionChat(sessions, ScriptedModel(["ok"]), tools=[_named("work", lambda: "worked")])
        assert chat.send(SID, "hello", idempotency_key="k").text == "ok"
        assert "Tool [responses: work -> worked]" in lines(sessions)


def _named(name: str, function: Callable[[], str]) -> Callable[[], str]:
    function.__name__ = name
    return function


def test_a_retry_while_the_first_call_still_runs_is_refused(sessions: SessionService) -> None:
    chat = SessionChat(sessions, ScriptedModel(["hi"]))

    def retry(_: object) -> str:
        with pytest.raises(TurnInProgressError):
            chat.send(SID, "hello", idempotency_key="k")
        return "first"

    turn = SessionChat(sessions, ScriptedModel([retry])).send(SID, "hello", idempotency_key="k")
    assert turn.text == "first"


def test_two_calls_with_one_key_at_once_ask_once(sessions: SessionService) -> None:
    model = ScriptedModel(["hi", unasked])
    chat = SessionChat(sessions, model)

    def send(_: int) -> Turn:
        return chat.send(SID, "hello", idempotency_key="k", wait=60)

    with ThreadPoolExecutor(4) as pool:
        turns = list(pool.map(send, range(4)))
    assert [turn.text for turn in turns] == ["hi"] * 4
    assert sum(turn.is_repeat for turn in turns) == 3
    assert lines(sessions) == ["User: hello", "Assistant: hi"]


@pytest.mark.parametrize("look", [1, 2])
def test_a_call_that_ran_whole_between_two_looks_is_not_asked_again(
    sessions: SessionService, monkeypatch: pytest.MonkeyPatch, look: int
) -> None:
    """Before the first look at the session, and behind the look that found nothing of the key."""
    sessions.create(SID)
    other = SessionChat(sessions, ScriptedModel(["hi"]))
    looks = itertools.count(1)
    view_for_turn = sessions.view_for_turn

    def looked(session_id: str, **named: str | None) -> View:
        if next(looks) == look:
            assert not other.send(SID, "hello", idempotency_key="k").is_repeat
        return view_for_turn(session_id, **named)

    monkeypatch.setattr(sessions, "view_for_turn", looked)
    turn = SessionChat(sessions, ScriptedModel([unasked])).send(SID, "hello", idempotency_key="k")
    assert turn.text == "hi"
    assert lines(sessions) == ["User: hello", "Assistant: hi"]


def test_calls_with_one_key_at_once_run_the_tools_that_are_left_once(sessions: SessionService) -> None:
    ran: list[str] = []

    def work() -> str:
        ran.append("work")
        return "worked"

    with pytest.raises(KeyboardInterrupt):
        _die_before_tools(sessions, work)
    chat = SessionChat(sessions, ScriptedModel(["done", unasked]), tools=[work])
    start = Barrier(4)

    def send(_: int) -> str:
        start.wait()
        return chat.send(SID, "go", idempotency_key="k", wait=60).text

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(send, range(4))) == ["done"] * 4
    assert ran == ["work"]


def _die_before_tools(sessions: SessionService, work: Callable[[], str]) -> None:
    """A turn that ends when its answer with a call is stored."""
    chat = SessionChat(sessions, ScriptedModel([calls("c1 work")]), tools=[work])
    with chat.stream(SID, "go", idempotency_key="k") as turn:
        for event in turn:
            if isinstance(event, MessageStored) and event.event.role is Role.ASSISTANT:
                raise KeyboardInterrupt


def test_a_turn_that_was_cut_is_returned_as_it_is(sessions: SessionService) -> None:
    reply = ChatReply(Message.assistant("one"), FinishReason.ERROR)
    model = ScriptedModel([Stream(("one",), StreamInterruptedError("Lost.", reply)), unasked])
    chat = SessionChat(sessions, model)
    with pytest.raises(StreamInterruptedError), chat.stream(SID, "go", idempotency_key="k") as turn:
        list(turn)
    again = chat.send(SID, "go", idempotency_key="k")
    assert (again.text, again.finish_reason, again.is_repeat) == ("one", FinishReason.ERROR, True)


def test_a_question_that_is_not_stored_is_told_when_the_turn_goes_on(sessions: SessionService) -> None:
    model = ScriptedModel([calls("c1 ping"), ModelUnavailableError("Down."), "done"])
    chat = SessionChat(sessions, model, tools=[ping], store=~MessageFilter.roles("user"))
    with pytest.raises(ModelUnavailableError):
        chat.send(SID, "go", idempotency_key="k")
    assert chat.send(SID, "go", idempotency_key="k").text == "done"
    assert model.told[2] == [
        "User: go",
        "Assistant [tool calls: ping({})]",
        "Tool [responses: ping -> pong]",
    ]


def test_the_rounds_before_a_crash_count(sessions: SessionService) -> None:
    model = ScriptedModel(
        [calls("c1 ping"), calls("c2 ping"), ModelUnavailableError("Down."), calls("c3 ping")]
    )
    chat = SessionChat(sessions, model, tools=[ping], max_rounds=2)
    with pytest.raises(ModelUnavailableError):
        chat.send(SID, "go", idempotency_key="k")
    with pytest.raises(TooManyRoundsError):
        chat.send(SID, "go", idempotency_key="k")


@pytest.mark.parametrize("key", ["", "x" * 201, "\0"])
def test_a_key_has_the_form_of_an_id(sessions: SessionService, key: str) -> None:
    with pytest.raises(InvalidIdError):
        SessionChat(sessions, ScriptedModel(["hi"])).send(SID, "hello", idempotency_key=key)
