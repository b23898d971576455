"""The seam for those who record calls: an event with each request, one with each answer, in their writes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.support.chats import SID
from tests.support.scripted_chat import Adapted, ScriptedModel, Stream, calls, says

from turnlog.application import SessionService
from turnlog.application.chat import (
    ChatReply,
    ContextOverflowError,
    FinishReason,
    ModelCall,
    SessionChat,
    StreamInterruptedError,
    TextDelta,
    Tool,
)
from turnlog.domain import (
    EventFilter,
    EventType,
    Message,
    MessageFilter,
    NewEvent,
    SessionEvent,
)

PROMPT, REPLY = EventType.of("TEST.PROMPT"), EventType.of("TEST.REPLY")


@dataclass
class Recorder:
    """Keeps what it was told, and names it in the log."""

    calls: list[ModelCall] = field(default_factory=list[ModelCall])
    replies: list[tuple[ModelCall, ChatReply]] = field(default_factory=list[tuple[ModelCall, ChatReply]])

    def prompt(self, call: ModelCall) -> NewEvent:
        """One event."""
        self.calls.append(call)
        return NewEvent(type=PROMPT, payload={"attempt": call.attempt, "version": call.version})

    def reply(self, call: ModelCall, reply: ChatReply) -> list[NewEvent]:
        """One event, in a list."""
        self.replies.append((call, reply))
        return [NewEvent(type=REPLY, payload={"reason": str(reply.finish_reason)})]


def types(sessions: SessionService) -> list[str]:
    """The log in one word for each entry."""
    return [event.role or event.type.removeprefix("TEST.") for event in sessions.get_events(SID)]


def one_write(*events: SessionEvent) -> bool:
    """Whether they were written together."""
    return len({event.timestamp for event in events}) == 1


def ping() -> str:
    """Says pong."""
    return "pong"


def test_a_request_is_written_with_the_message_that_causes_it_and_an_answer_with_its_record(
    sessions: SessionService,
) -> None:
    model = ScriptedModel([calls("c1 ping", "c2 ping"), "done"])
    SessionChat(sessions, model, tools=[ping], recorder=Recorder()).send(SID, "go")
    assert types(sessions) == [
        "user",
        "PROMPT",
        "assistant",
        "REPLY",
        "tool",
        "tool",
        "PROMPT",
        "assistant",
        "REPLY",
    ]
    log = sessions.get_events(SID)
    assert one_write(*log[0:2])
    assert one_write(*log[2:4])
    assert one_write(*log[5:7])
    assert one_write(*log[7:9])


def test_recording_costs_no_further_write(sessions: SessionService) -> None:
    writes: list[int] = []
    save: Callable[..., Any] = sessions.app.save

    def counted(*objects: Any, **named: Any) -> Any:
        writes.append(1)
        return save(*objects, **named)

    sessions.create(SID)
    sessions.app.save = counted  # type: ignore[method-assign]
    chat = SessionChat(sessions, ScriptedModel([calls("c1 ping"), "done"]), tools=[ping], recorder=Recorder())
    chat.send(SID, "go")
    assert len(writes) == 4


def test_the_version_of_a_call_is_that_of_the_view_which_was_rendered(sessions: SessionService) -> None:
    recorder = Recorder()
    model = ScriptedModel([calls("c1 ping"), "done", "again"])
    chat = SessionChat(sessions, model, tools=[ping], recorder=recorder)
    chat.send(SID, "go")
    chat.send(SID, "and again")
    for call in recorder.calls:
        view = sessions.view(SID, at_version=call.version)
        sent = [one.message for one in call.rendered.request.conversation if isinstance(one, SessionEvent)]
        assert sent == list(view.messages)
        assert call.unstored == ()


def test_a_request_that_others_overtook_is_rendered_anew(sessions: SessionService) -> None:
    sessions.create(SID)
    recorder = Recorder()

    def interrupt() -> None:
        if not sessions.get_events(SID):
            sessions.append_message(SID, Message.user("me first"))

    SessionChat(sessions, ScriptedModel(["hi"], on_render=interrupt), recorder=recorder).send(SID, "hello")
    assert [call.version for call in recorder.calls] == [1, 2]
    assert types(sessions) == ["user", "user", "PROMPT", "assistant", "REPLY"]
    sent = recorder.calls[-1].rendered.request.conversation
    assert [one.message for one in sent if isinstance(one, SessionEvent)] == list(
        sessions.view(SID, at_version=2).messages
    )


def test_what_is_not_in_the_log_is_named_by_its_place(sessions: SessionService) -> None:
    recorder = Recorder()
    chat = SessionChat(
        sessions,
        ScriptedModel(["hi"]),
        instructions="Be kind.",
        store=~MessageFilter.roles("user"),
        recorder=recorder,
    )
    chat.send(SID, "hello", filter=EventFilter(last_n=5))
    (call,) = recorder.calls
    assert [(one.place, one.message.text) for one in call.unstored] == [(0, "Be kind."), (1, "hello")]
    assert call.filter == EventFilter(last_n=5)


def test_placeholders_and_what_is_left_out_are_named(sessions: SessionService) -> None:
    recorder = Recorder()
    big = Tool.of(lambda: "x" * 2_000, name="big")
    model = ScriptedModel([*(calls(f"c{n} big") for n in range(3)), "done"])
    chat = SessionChat(
        sessions, model, tools=[big], max_request_tokens=5_000, keep_tool_results=1, recorder=recorder
    )
    chat.send(SID, "go")
    results = [event for event in sessions.get_events(SID) if event.role == "tool"]
    assert set(recorder.calls[-1].placeholders) == {event.id for event in results[:2]}


def test_attempts_are_counted_and_recorded_each(sessions: SessionService) -> None:
    recorder = Recorder()
    model = ScriptedModel([ContextOverflowError(), "hi"])
    SessionChat(sessions, model, recorder=recorder).send(SID, "hello")
    assert [call.attempt for call in recorder.calls] == [1, 2]
    assert types(sessions) == ["user", "PROMPT", "PROMPT", "assistant", "REPLY"]


def test_a_body_that_is_changed_while_it_is_sent_is_recorded_before_it_leaves(
    sessions: SessionService,
) -> None:
    recorder = Recorder()
    seen: list[list[str]] = []

    def answer(_: object) -> ChatReply:
        seen.append(types(sessions))
        return says("hi")

    SessionChat(sessions, ScriptedModel([Adapted(b"other", answer)]), recorder=recorder).send(SID, "hello")
    assert [call.rendered.body == b"other" for call in recorder.calls] == [False, True]
    assert seen == [["user", "PROMPT", "PROMPT"]]
    assert recorder.replies[0][0].attempt == 2


def test_an_answer_that_was_cut_is_recorded_as_well(sessions: SessionService) -> None:
    chat = SessionChat(sessions, ScriptedModel([Stream(("one", "two"))]), recorder=Recorder())
    with chat.stream(SID, "go") as turn:
        next(event for event in turn if isinstance(event, TextDelta))
    assert types(sessions) == ["user", "PROMPT", "assistant", "REPLY"]
    assert sessions.get_events(SID)[-1].payload == {"reason": "cancelled"}


def test_an_answer_of_which_nothing_came_is_recorded_without_a_message(sessions: SessionService) -> None:
    error = StreamInterruptedError("Lost.", ChatReply(Message.assistant(), FinishReason.ERROR))
    chat = SessionChat(sessions, ScriptedModel([Stream((), error)]), recorder=Recorder())
    with pytest.raises(StreamInterruptedError), chat.stream(SID, "go") as turn:
        list(turn)
    assert types(sessions) == ["user", "PROMPT", "REPLY"]


@pytest.mark.parametrize("is_streamed", [True, False])
def test_an_answer_says_how_long_it_took(sessions: SessionService, is_streamed: bool) -> None:
    recorder = Recorder()
    chat = SessionChat(sessions, ScriptedModel(["hi"]), recorder=recorder)
    if is_streamed:
        with chat.stream(SID, "hello") as turn:
            list(turn)
    else:
        chat.send(SID, "hello")
    assert recorder.calls[0].seconds is None
    assert (recorder.replies[0][0].seconds or 0) > 0


def test_the_recorder_is_told_the_message_as_it_is_stored(sessions: SessionService) -> None:
    recorder = Recorder()
    SessionChat(sessions, ScriptedModel(["hi"]), recorder=recorder).send(SID, "hello")
    assert recorder.replies[0][1].message == sessions.get_messages(SID)[1]
