"""One `send` is one turn: what is asked, what is stored, and what is refused."""

from __future__ import annotations

import json
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from tests.support.chats import SID, lines, messages
from tests.support.scripted_chat import Line, ScriptedModel, calls, says

from turnlog.application import SessionService
from turnlog.application.chat import (
    ChatReply,
    FinishReason,
    MessageTooLargeError,
    ModelUnavailableError,
    SessionChat,
    Usage,
)
from turnlog.domain import (
    CompactionRequest,
    EventFilter,
    EventType,
    InvalidSettingError,
    Message,
    MessageFilter,
    Role,
    SessionAttributes,
    SessionIdUnavailableError,
    ToolCallPart,
)


def test_a_turn_stores_the_question_and_the_answer(sessions: SessionService) -> None:
    turn = SessionChat(sessions, ScriptedModel(["In Lund."])).send(SID, "Where is my parcel?")
    assert lines(sessions) == ["User: Where is my parcel?", "Assistant: In Lund."]
    assert turn.events == tuple(messages(sessions))
    assert (turn.text, turn.finish_reason) == ("In Lund.", FinishReason.STOP)


def test_the_next_turn_is_told_what_was_said(sessions: SessionService) -> None:
    model = ScriptedModel(["In Lund.", "Tomorrow."])
    chat = SessionChat(sessions, model)
    chat.send(SID, "Where is it?")
    chat.send(SID, "When will it come?")
    assert model.told[1] == ["User: Where is it?", "Assistant: In Lund.", "User: When will it come?"]


def test_a_message_with_parts_is_sent_as_it_is(sessions: SessionService) -> None:
    said = Message.user([{"type": "uri", "modality": "image", "uri": "https://example.org/a.png"}])
    model = ScriptedModel(["A parcel."])
    SessionChat(sessions, model).send(SID, said)
    assert messages(sessions)[0].message == said


@pytest.mark.parametrize("message", [Message.assistant("no"), Message.system("no"), 7])
def test_a_turn_begins_with_a_user(sessions: SessionService, message: Message) -> None:
    with pytest.raises(InvalidSettingError):
        SessionChat(sessions, ScriptedModel(["hi"])).send(SID, message)


def test_what_is_known_of_an_answer_is_stored_with_it(sessions: SessionService) -> None:
    usage = Usage(input_tokens=12, output_tokens=3, cache_read_input_tokens=4, provider={"prompt": 12})
    turn = SessionChat(sessions, ScriptedModel([says("hi", usage)])).send(SID, "hello")
    stored = messages(sessions)[1].message
    assert stored is not None
    assert stored.metadata == {
        "provider": "scripted",
        "model": "m-1",
        "request_model": "m",
        "response_id": "r1",
        "finish_reason": "stop",
        "provider_finish_reason": "stop",
        "usage": usage.to_dict(),
    }
    assert turn.usage == Usage(input_tokens=12, output_tokens=3, cache_read_input_tokens=4)


def test_the_usage_of_a_turn_is_the_sum_over_its_calls(sessions: SessionService) -> None:
    def ping() -> str:
        return "pong"

    model = ScriptedModel(
        [calls("c1 ping", usage=Usage(input_tokens=10, output_tokens=2)), says("ok", Usage(input_tokens=20))]
    )
    turn = SessionChat(sessions, model, tools=[ping]).send(SID, "go")
    assert turn.usage == Usage(input_tokens=30, output_tokens=2)


def test_metadata_that_the_model_gave_are_kept(sessions: SessionService) -> None:
    reply = ChatReply(Message.assistant("hi", metadata={"logprobs": [1]}), FinishReason.STOP)
    SessionChat(sessions, ScriptedModel([reply])).send(SID, "hello")
    stored = messages(sessions)[1].message
    assert stored is not None
    assert stored.metadata is not None
    assert (stored.metadata["logprobs"], stored.metadata["model"]) == ([1], "m")


@pytest.mark.parametrize("reason", [FinishReason.LENGTH, FinishReason.CONTENT_FILTER])
def test_an_answer_that_was_cut_or_refused_is_an_answer(
    sessions: SessionService, reason: FinishReason
) -> None:
    reply = ChatReply(Message.assistant("I"), reason)
    turn = SessionChat(sessions, ScriptedModel([reply])).send(SID, "hello")
    assert (turn.text, turn.finish_reason) == ("I", reason)


def test_an_empty_answer_is_stored_and_the_next_turn_goes_on(sessions: SessionService) -> None:
    chat = SessionChat(sessions, ScriptedModel([ChatReply(Message.assistant(), FinishReason.STOP), "yes"]))
    assert chat.send(SID, "hello").text == ""
    assert chat.send(SID, "anybody there?").text == "yes"
    assert [event.role for event in messages(sessions)][1] is Role.ASSISTANT


# --- who it is for


def test_a_session_of_somebody_else_is_unavailable(sessions: SessionService) -> None:
    chat = SessionChat(sessions, ScriptedModel(["hi"]))
    chat.send(SID, "hello", principal="ada")
    with pytest.raises(SessionIdUnavailableError):
        chat.send(SID, "hello", principal="eve")
    assert len(messages(sessions)) == 2


def test_a_chat_in_a_scope_makes_sessions_of_the_scope(sessions: SessionService) -> None:
    SessionChat(sessions.scoped_to("ada"), ScriptedModel(["hi"])).send(SID, "hello")
    found = sessions.find(SID)
    assert found is not None
    assert found.metadata == {SessionAttributes.PRINCIPAL_NAME: "ada"}


# --- what goes with the conversation


def test_instructions_are_sent_and_not_stored(sessions: SessionService) -> None:
    model = ScriptedModel(["hi"])
    SessionChat(sessions, model, instructions="Be kind.").send(SID, "hello", system="Be brief.")
    assert model.told == [["System: Be kind.", "System: Be brief.", "User: hello"]]
    assert lines(sessions) == ["User: hello", "Assistant: hi"]


def test_instructions_do_not_replace_a_stored_system_message(sessions: SessionService) -> None:
    sessions.create(SID)
    sessions.append_message(SID, Message.system("You look after parcels."))
    model = ScriptedModel(["hi"])
    SessionChat(sessions, model).send(SID, "hello", system="Be brief.")
    assert b"You look after parcels.\\n\\nBe brief." in model.render(model.asked[0]).body


def test_system_messages_can_stay_where_they_stand(sessions: SessionService) -> None:
    model = ScriptedModel(["one", "two"])
    chat = SessionChat(sessions, model, system="in_place")
    chat.send(SID, "first")
    sessions.append_message(SID, Message.system("From now on in rhyme."))
    chat.send(SID, "second")
    assert model.told[1][2] == "System: From now on in rhyme."
    assert model.asked[1].system_in_place


def test_settings_of_the_model_reach_it(sessions: SessionService) -> None:
    model = ScriptedModel(["hi"])
    chat = SessionChat(sessions, model, max_output_tokens=9, options={"temperature": 0}, cache=True)
    chat.send(SID, "hello")
    asked = model.asked[0]
    assert (asked.max_output_tokens, asked.options, asked.cache) == (9, {"temperature": 0}, True)


# --- filters


def test_the_filter_of_a_call_is_merged_with_that_of_the_chat(sessions: SessionService) -> None:
    model = ScriptedModel(["one", "two", "three"])
    chat = SessionChat(sessions, model, filter=EventFilter(roles=["user"]))
    chat.send(SID, "first")
    chat.send(SID, "second")
    chat.send(SID, "third", filter=EventFilter(last_n=1))
    assert model.told[2] == ["User: second", "User: third"]


def test_a_filter_never_takes_messages_of_the_turn_itself(sessions: SessionService) -> None:
    def ping() -> str:
        return "pong"

    model = ScriptedModel([calls("c1 ping"), "done"])
    SessionChat(sessions, model, tools=[ping], filter=EventFilter(last_n=1)).send(SID, "go")
    assert model.told[1] == ["User: go", "Assistant [tool calls: ping({})]", "Tool [responses: ping -> pong]"]


def test_instructions_use_no_slot_of_a_filter(sessions: SessionService) -> None:
    sessions.create(SID)
    sessions.append_events(SID, [Message.system("Be kind."), Message.user("a"), Message.assistant("b")])
    model = ScriptedModel(["c"])
    SessionChat(sessions, model, filter=EventFilter(last_n=1)).send(SID, "d")
    assert model.told == [["System: Be kind.", "Assistant: b", "User: d"]]


def test_a_message_that_is_not_stored_is_still_told_within_its_turn(sessions: SessionService) -> None:
    def ping() -> str:
        return "pong"

    model = ScriptedModel([calls("c1 ping"), "done", "again"])
    chat = SessionChat(sessions, model, tools=[ping], store=~MessageFilter.roles(Role.TOOL))
    turn = chat.send(SID, "go")
    assert model.told[1][-1] == "Tool [responses: ping -> pong]"
    assert len(turn.messages) == 4
    assert lines(sessions) == ["User: go", "Assistant [tool calls: ping({})]", "Assistant: done"]


def test_what_is_not_stored_is_told_where_it_was_said(sessions: SessionService) -> None:
    def ping() -> str:
        return "pong"

    model = ScriptedModel([calls("c1 ping"), calls("c2 ping"), "done"])
    SessionChat(sessions, model, tools=[ping], store=MessageFilter.roles("assistant")).send(SID, "go")
    assert [line.split(" ")[0] for line in model.told[2]] == [
        "User:",
        "Assistant",
        "Tool",
        "Assistant",
        "Tool",
    ]


def test_a_turn_of_which_nothing_is_stored_still_answers(sessions: SessionService) -> None:
    chat = SessionChat(sessions, ScriptedModel(["hi"]), store=~MessageFilter.everything())
    turn = chat.send(SID, "hello")
    assert (turn.text, turn.events) == ("hi", ())
    assert chat.send(SID, "hello again").text == "hi"


# --- bad input


def test_a_message_that_is_too_large_is_refused_before_it_is_stored(sessions: SessionService) -> None:
    chat = SessionChat(sessions, ScriptedModel(["hi"]), max_message_tokens=20)
    with pytest.raises(MessageTooLargeError, match="1,007 tokens, one message may cost 20"):
        chat.send(SID, "x" * 1_000)
    assert sessions.find(SID) is None


def test_when_the_model_fails_the_question_is_stored_and_the_next_turn_works(
    sessions: SessionService,
) -> None:
    chat = SessionChat(sessions, ScriptedModel([ModelUnavailableError("The server is down."), "hi"]))
    with pytest.raises(ModelUnavailableError, match="The server is down"):
        chat.send(SID, "hello")
    assert lines(sessions) == ["User: hello"]
    assert chat.send(SID, "hello again").text == "hi"


def test_what_is_no_error_of_a_model_ends_the_turn_as_well(sessions: SessionService) -> None:
    chat = SessionChat(sessions, ScriptedModel([ZeroDivisionError("a bug"), "hi"]))
    with pytest.raises(ZeroDivisionError):
        chat.send(SID, "hello")
    assert chat.send(SID, "hello again").text == "hi"


def _fires(_: CompactionRequest) -> bool:
    return True


REFUSED: list[dict[str, Any]] = [
    {"max_rounds": 0},
    {"max_message_tokens": 0},
    {"max_request_tokens": -1},
    {"keep_tool_results": 0},
    {"tool_time_limit": 0},
    {"lease": timedelta(0)},
    {"trigger": _fires},
    {"system": "last"},
]


@pytest.mark.parametrize("settings", REFUSED, ids=lambda one: next(iter(one)))
def test_a_setting_that_cannot_be_meant_is_refused(
    sessions: SessionService, settings: dict[str, Any]
) -> None:
    with pytest.raises(InvalidSettingError):
        SessionChat(sessions, ScriptedModel(["hi"]), **settings)


# --- branches


def test_a_branch_is_told_its_own_and_what_is_above(sessions: SessionService) -> None:
    model = ScriptedModel(["one", "two", "three"])
    chat = SessionChat(sessions, model)
    chat.send(SID, "root")
    chat.send(SID, "task", branch="orch")
    chat.send(SID, "root again")
    assert model.told[1] == ["User: root", "Assistant: one", "User: task"]
    assert model.told[2] == ["User: root", "Assistant: one", "User: root again"]
    assert [event.branch for event in messages(sessions)] == [None, None, "orch", "orch", None, None]


def test_a_tool_can_run_a_turn_on_a_branch_of_its_own(sessions: SessionService) -> None:
    inner = SessionChat(sessions, ScriptedModel(["found it"]))

    def research(topic: str) -> str:
        return inner.send(SID, topic, branch="researcher").text

    model = ScriptedModel([calls('c1 research {"topic": "Lund"}'), "done"])
    assert SessionChat(sessions, model, tools=[research]).send(SID, "go").text == "done"
    assert model.told[1][-1] == "Tool [responses: research -> found it]"


# --- whatever others write meanwhile


def test_a_result_stands_behind_its_call_whatever_others_write(sessions: SessionService) -> None:
    def ping() -> str:
        sessions.append_message(SID, Message.user("and another thing"))
        sessions.append_event(SID, EventType.of("ACME.AUDIT"), {})
        return "pong"

    model = ScriptedModel([calls("c1 ping", "c2 ping"), "done"])
    SessionChat(sessions, model, tools=[ping]).send(SID, "go")
    body = model.render(model.asked[1]).body.decode()
    assert body.index('"tool_calls"') < body.index('"tool_call_id": "c1"') < body.index("another thing")


def test_a_message_that_came_between_reading_and_writing_is_told(sessions: SessionService) -> None:
    sessions.create(SID)

    def interrupt() -> None:
        if not lines(sessions):
            sessions.append_message(SID, Message.user("me first"))

    model = ScriptedModel(["hi"], on_render=interrupt)
    SessionChat(sessions, model).send(SID, "hello")
    assert model.told == [["User: me first", "User: hello"]]


def test_calls_of_an_answer_are_stored_before_the_tools_run(sessions: SessionService) -> None:
    seen: list[list[str]] = []

    def look() -> str:
        seen.append(lines(sessions))
        return "ok"

    model = ScriptedModel([calls("c1 look"), "done"])
    SessionChat(sessions, model, tools=[look]).send(SID, "go")
    assert seen == [["User: go", "Assistant [tool calls: look({})]"]]


def test_each_request_begins_with_the_bytes_of_the_one_before(sessions: SessionService) -> None:
    def ping(who: int) -> str:
        return f"pong {who}"

    script: list[Line] = [
        calls('c1 ping {"who": 1}', 'c2 ping {"who": 2}', text="let me see"),
        calls("c1 ping"),
        "done",
    ]
    model = ScriptedModel(script * 3)
    chat = SessionChat(sessions, model, tools=[ping], instructions="Be kind.")
    for text in ("one", "two", "three"):
        chat.send(SID, text)
        sessions.append_event(SID, EventType.of("ACME.AUDIT"), {"said": text})
    bodies = [json.loads(model.render(request).body)["messages"] for request in model.asked]
    assert len(bodies) == 9
    assert all(after[: len(before)] == before for before, after in pairwise(bodies))


def test_ids_of_calls_may_come_again(sessions: SessionService) -> None:
    def ping() -> str:
        return "pong"

    chat = SessionChat(sessions, ScriptedModel([calls("c1 ping"), "a", calls("c1 ping"), "b"]), tools=[ping])
    chat.send(SID, "go")
    chat.send(SID, "go")
    assert len(messages(sessions)) == 8
    assert isinstance(messages(sessions)[5].tool_calls[0], ToolCallPart)
