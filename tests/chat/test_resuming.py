"""A turn that broke off goes on from its question, which is not said twice."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.chats import SID, lines
from tests.support.scripted_chat import AsyncScriptedModel, ScriptedModel, calls

from turnlog.application import AsyncSessionService, SessionService
from turnlog.application.chat import (
    AsyncSessionChat,
    FinishReason,
    ModelUnavailableError,
    NothingToResumeError,
    SessionChat,
    Tool,
)
from turnlog.domain import Message, SessionNotFoundError

FAILS = ModelUnavailableError("The server answered 500.")


def ping() -> str:
    """Says pong."""
    return "pong"


def failed(sessions: SessionService, *before: object, say: str = "hi") -> None:
    """A turn whose model failed behind these lines."""
    chat = SessionChat(sessions, ScriptedModel([*before, ModelUnavailableError("500")]), tools=[ping])  # type: ignore[list-item]
    with pytest.raises(ModelUnavailableError):
        chat.send(SID, say)


def test_the_question_is_asked_again_and_stands_in_the_log_once(sessions: SessionService) -> None:
    failed(sessions)
    model = ScriptedModel(["Hello."])
    turn = SessionChat(sessions, model).resume(SID)
    assert (turn.text, turn.is_repeat, len(model.asked)) == ("Hello.", False, 1)
    assert lines(sessions) == ["User: hi", "Assistant: Hello."]


def test_the_turn_holds_the_question_too(sessions: SessionService) -> None:
    failed(sessions)
    turn = SessionChat(sessions, ScriptedModel(["Hello."])).resume(SID)
    assert [message.text for message in turn.messages] == ["hi", "Hello."]


def test_results_that_are_stored_are_kept(sessions: SessionService) -> None:
    failed(sessions, calls("c1 ping"))
    before = lines(sessions)
    made: list[str] = []

    def counted() -> str:
        made.append("ping")
        return "pong"

    tool = Tool.of(counted, name="ping", description="Says pong.")
    turn = SessionChat(sessions, ScriptedModel(["Done."]), tools=[tool]).resume(SID)
    assert (turn.text, made, lines(sessions)) == ("Done.", [], [*before, "Assistant: Done."])


def test_calls_without_a_result_are_made(sessions: SessionService) -> None:
    sessions.create(SID)
    asks = calls("c1 ping").message
    sessions.append_events(SID, [Message.user("hi"), asks])  # the process ended here
    SessionChat(sessions, ScriptedModel(["Done."]), tools=[ping]).resume(SID)
    assert lines(sessions)[2:] == ["Tool [responses: ping -> pong]", "Assistant: Done."]


def test_of_parallel_calls_only_those_without_a_result_are_made(sessions: SessionService) -> None:
    sessions.create(SID)
    asks = calls("c1 ping", "c2 ping").message
    sessions.append_events(SID, [Message.user("hi"), asks, Message.tool("old", id="c1", name="ping")])
    SessionChat(sessions, ScriptedModel(["Done."]), tools=[ping]).resume(SID)
    assert lines(sessions)[2:] == [
        "Tool [responses: ping -> old]",
        "Tool [responses: ping -> pong]",
        "Assistant: Done.",
    ]


def test_a_question_that_has_its_answer_is_not_asked_again(sessions: SessionService) -> None:
    SessionChat(sessions, ScriptedModel(["Hello."])).send(SID, "hi")
    version = sessions.version(SID)
    model = ScriptedModel([])
    turn = SessionChat(sessions, model).resume(SID)
    assert (turn.text, turn.is_repeat, len(model.asked)) == ("Hello.", True, 0)
    assert sessions.version(SID) == version


def test_an_answer_that_broke_off_is_not_asked_for_again(sessions: SessionService) -> None:
    sessions.create(SID)
    broken = Message.assistant("Hel", metadata={"finish_reason": "error"})
    sessions.append_events(SID, [Message.user("hi"), broken])
    resumed = SessionChat(sessions, ScriptedModel([])).resume(SID)
    assert (resumed.is_repeat, resumed.finish_reason) == (True, FinishReason.ERROR)


def test_an_open_call_stays_open(sessions: SessionService) -> None:
    tool = Tool.of(ping, needs_approval=True)
    sent = SessionChat(sessions, ScriptedModel([calls("c1 ping")]), tools=[tool]).send(SID, "hi")
    turn = SessionChat(sessions, ScriptedModel([]), tools=[tool]).resume(SID)
    assert (turn.is_repeat, turn.awaiting) == (True, sent.awaiting)


def test_instructions_that_came_meanwhile_are_no_answer(sessions: SessionService) -> None:
    failed(sessions)
    sessions.append_message(SID, Message.system("Be kind."))
    assert SessionChat(sessions, ScriptedModel(["Hello."])).resume(SID).text == "Hello."


def test_a_branch_goes_on_from_its_own_question(sessions: SessionService) -> None:
    failed(sessions, say="root")
    sessions.append_message(SID, Message.user("look"), branch="find")
    turn = SessionChat(sessions, ScriptedModel(["Found."])).resume(SID, branch="find")
    assert [(event.text, event.branch) for event in turn.events] == [("look", "find"), ("Found.", "find")]


@pytest.mark.parametrize("texts", [(), ("Be kind.",)])
def test_a_session_without_a_question_has_nothing_to_resume(
    sessions: SessionService, texts: tuple[str, ...]
) -> None:
    sessions.create(SID)
    sessions.append_events(SID, [Message.system(text) for text in texts])
    with pytest.raises(NothingToResumeError):
        SessionChat(sessions, ScriptedModel([])).resume(SID)


def test_a_session_is_not_made_for_it(sessions: SessionService) -> None:
    with pytest.raises(SessionNotFoundError):
        SessionChat(sessions, ScriptedModel([])).resume(SID)


def test_what_a_model_raises_in_a_turn_says_how_to_go_on(sessions: SessionService) -> None:
    with pytest.raises(ModelUnavailableError) as caught:
        SessionChat(sessions, ScriptedModel([FAILS])).send(SID, "hi")
    assert "resume(session_id)" in "".join(caught.value.__notes__)


def test_a_chat_for_asyncio_resumes_too() -> None:
    async def text() -> str:
        async with AsyncSessionService() as sessions:
            await sessions.create(SID)
            await sessions.append_message(SID, Message.user("hi"))
            return (await AsyncSessionChat(sessions, AsyncScriptedModel(["Hello."])).resume(SID)).text

    assert asyncio.run(text()) == "Hello."
