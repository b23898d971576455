"""A turn as it happens: what is told in which order, and what leaving it early leaves behind."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from tests.support.chats import SID, lines, messages
from tests.support.scripted_chat import ScriptedModel, Stream, calls, says

from turnlog.application import SessionService
from turnlog.application.chat import (
    ChatReply,
    Compacted,
    FinishReason,
    MessageStored,
    ReasoningDelta,
    SessionChat,
    StreamInterruptedError,
    TextDelta,
    ToolCallFinished,
    ToolCallStarted,
    TurnFinished,
    TurnUnfinishedError,
    Usage,
)
from turnlog.domain import (
    CompactionWindow,
    Message,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    TurnCountTrigger,
    WindowCompactionStrategy,
)


def ping() -> str:
    """Says pong."""
    return "pong"


def test_a_stream_tells_what_happens_in_order(sessions: SessionService) -> None:
    model = ScriptedModel([calls("c1 ping", text="let me see"), "it works"])
    with SessionChat(sessions, model, tools=[ping]).stream(SID, "go") as turn:
        told = [type(event) for event in turn]
    assert told == [
        MessageStored,
        TextDelta,
        TextDelta,
        TextDelta,
        MessageStored,
        ToolCallStarted,
        ToolCallFinished,
        MessageStored,
        TextDelta,
        TextDelta,
        MessageStored,
        TurnFinished,
    ]


def test_what_a_stream_stores_is_what_send_stores(sessions: SessionService) -> None:
    model = ScriptedModel([calls("c1 ping"), "it works"])
    with SessionChat(sessions, model, tools=[ping]).stream("streamed", "go") as turn:
        told = list(turn)
    model.asked.clear()
    sent = SessionChat(sessions, model, tools=[ping]).send("sent", "go")
    assert lines(sessions, "streamed") == lines(sessions, "sent")
    assert turn.turn.messages == sent.messages
    assert isinstance(told[-1], TurnFinished)
    assert told[-1].turn is turn.turn


def test_reasoning_is_told_apart_from_text(sessions: SessionService) -> None:
    parts = [ReasoningPart(content="hm"), TextPart(content="yes")]
    model = ScriptedModel([ChatReply(Message.assistant(parts), FinishReason.STOP)])
    with SessionChat(sessions, model).stream(SID, "go") as turn:
        told = [event for event in turn if isinstance(event, (TextDelta, ReasoningDelta))]
    assert told == [ReasoningDelta("hm"), TextDelta("yes")]


def test_a_compaction_is_told_when_it_happens(sessions: SessionService) -> None:
    chat = SessionChat(
        sessions,
        ScriptedModel(["hi"]),
        trigger=TurnCountTrigger(1),
        strategy=WindowCompactionStrategy(CompactionWindow.last_turns(1)),
    )
    chat.send(SID, "one")
    with chat.stream(SID, "two") as turn:
        (compacted,) = [event for event in turn if isinstance(event, Compacted)]
    assert len(compacted.result.covered_events) == 2


def test_a_stream_that_is_left_early_stores_what_came_and_closes_the_connection(
    sessions: SessionService,
) -> None:
    model = ScriptedModel([Stream(("one ", "two ", "three"))])
    with SessionChat(sessions, model).stream(SID, "go") as turn:
        for event in turn:
            if event == TextDelta("two "):
                break
    assert lines(sessions) == ["User: go", "Assistant: one two "]
    assert model.closed == 1
    assert turn.turn.finish_reason is FinishReason.CANCELLED
    stored = messages(sessions)[1].message
    assert stored is not None
    assert (stored.metadata or {})["finish_reason"] == "cancelled"


def test_an_error_in_the_block_leaves_the_turn_like_a_break(sessions: SessionService) -> None:
    model = ScriptedModel([Stream(("one ", "two"))])

    def read() -> None:
        with SessionChat(sessions, model).stream(SID, "go") as turn:
            for event in turn:
                assert not isinstance(event, TextDelta), "the reader fails"

    with pytest.raises(AssertionError, match="the reader fails"):
        read()
    assert lines(sessions) == ["User: go", "Assistant: one "]


def test_a_stream_that_is_left_before_its_first_token_stores_no_answer(sessions: SessionService) -> None:
    with SessionChat(sessions, ScriptedModel([Stream(("one",))])).stream(SID, "go") as turn:
        assert isinstance(next(iter(turn)), MessageStored)
    assert lines(sessions) == ["User: go"]


def test_a_stream_that_nobody_reads_does_nothing(sessions: SessionService) -> None:
    with SessionChat(sessions, ScriptedModel(["hi"])).stream(SID, "go"):
        pass
    assert sessions.find(SID) is None


def test_a_turn_that_was_left_blocks_nobody(sessions: SessionService) -> None:
    chat = SessionChat(sessions, ScriptedModel([Stream(("one ", "two")), "hi"]))
    with chat.stream(SID, "go") as turn:
        next(event for event in turn if isinstance(event, TextDelta))
    assert chat.send(SID, "hello").text == "hi"


def test_leaving_between_tools_keeps_what_was_stored(sessions: SessionService) -> None:
    never = threading.Event()

    def hang() -> None:
        never.wait()

    chat = SessionChat(sessions, ScriptedModel([calls("c1 ping", "c2 hang"), "hi"]), tools=[ping, hang])
    with chat.stream(SID, "go") as turn:
        for event in turn:
            if (
                isinstance(event, MessageStored)
                and event.event.message
                and event.event.message.tool_responses
            ):
                break
    assert lines(sessions)[-1] == "Tool [responses: ping -> pong]"
    assert turn.turn.finish_reason is FinishReason.CANCELLED
    model = ScriptedModel(["go on"])
    SessionChat(sessions, model).send(SID, "and now?")
    assert b"[no result: the call was interrupted]" in model.render(model.asked[0]).body


def test_a_stream_that_breaks_off_stores_what_came_and_raises(sessions: SessionService) -> None:
    reply = ChatReply(Message.assistant("one "), FinishReason.ERROR, usage=Usage(output_tokens=1))
    error = StreamInterruptedError("The connection was lost.", reply)
    chat = SessionChat(sessions, ScriptedModel([Stream(("one ",), error), "hi"]))
    with pytest.raises(StreamInterruptedError), chat.stream(SID, "go") as turn:
        list(turn)
    stored = messages(sessions)[1].message
    assert stored is not None
    assert (stored.text, (stored.metadata or {})["finish_reason"]) == ("one ", "error")
    assert chat.send(SID, "hello").text == "hi"


def test_an_answer_of_which_nothing_came_is_not_stored(sessions: SessionService) -> None:
    error = StreamInterruptedError("Lost.", ChatReply(Message.assistant(), FinishReason.ERROR))
    chat = SessionChat(sessions, ScriptedModel([Stream((), error)]))
    with pytest.raises(StreamInterruptedError), chat.stream(SID, "go") as turn:
        list(turn)
    assert lines(sessions) == ["User: go"]


def test_the_result_of_a_turn_that_still_runs_is_not_there(sessions: SessionService) -> None:
    with SessionChat(sessions, ScriptedModel(["hi"])).stream(SID, "go") as turn:
        next(iter(turn))
        with pytest.raises(TurnUnfinishedError):
            _ = turn.turn


def test_a_call_of_an_answer_that_broke_off_is_not_run(sessions: SessionService) -> None:
    ran: list[str] = []

    def note() -> None:
        ran.append("note")

    parts = [TextPart(content="a"), ToolCallPart(id="c1", name="note")]
    reply = ChatReply(Message.assistant(parts), FinishReason.ERROR)
    model = ScriptedModel([Stream(("a",), StreamInterruptedError("Lost.", reply))])
    with (
        pytest.raises(StreamInterruptedError),
        SessionChat(sessions, model, tools=[note]).stream(SID, "go") as t,
    ):
        list(t)
    assert (ran, len(messages(sessions))) == ([], 2)


def test_a_piece_is_handed_on_before_the_model_makes_the_next_one(sessions: SessionService) -> None:
    made: list[str] = []

    def pieces() -> Iterator[str]:
        for piece in ("one", "two"):
            made.append(piece)
            yield piece

    with SessionChat(sessions, ScriptedModel([Stream(pieces())])).stream(SID, "go") as turn:
        seen = [(event.text, list(made)) for event in turn if isinstance(event, TextDelta)]
    assert seen == [("one", ["one"]), ("two", ["one", "two"])]


def test_an_interrupt_of_the_program_ends_the_turn_and_is_raised(sessions: SessionService) -> None:
    def interrupt(_: object) -> str:
        raise KeyboardInterrupt

    chat = SessionChat(sessions, ScriptedModel([interrupt, says("hi")]))
    with pytest.raises(KeyboardInterrupt):
        chat.send(SID, "go")
    assert lines(sessions) == ["User: go"]
    assert chat.send(SID, "hello").text == "hi"
