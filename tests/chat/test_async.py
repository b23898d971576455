"""The same turns for asyncio. What a turn decides is tested with the sync chat; here is what differs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import pytest
from tests.support.chats import SID, lines, messages
from tests.support.scripted_chat import AsyncScriptedModel, ScriptedModel, Stream, calls, says

from turnlog.application import AsyncSessionService, SessionService, event_context
from turnlog.application.chat import (
    AsyncSessionChat,
    FinishReason,
    MessageStored,
    SessionChat,
    TextDelta,
    Tool,
    ToolCallStarted,
    TurnFinished,
    TurnUnfinishedError,
)
from turnlog.domain import (
    CompactionWindow,
    Message,
    SummaryRequest,
    TurnCountTrigger,
    TurnInProgressError,
    TurnlogError,
    WindowCompactionStrategy,
)

T = TypeVar("T")
PATIENCE = 60.0


def run(action: Coroutine[Any, Any, T]) -> T:
    """Run it on a loop of its own, within a time limit."""

    async def limited() -> T:
        async with asyncio.timeout(PATIENCE):
            return await action

    return asyncio.run(limited())


def ping() -> str:
    """Says pong."""
    return "pong"


class Unspeakable(Exception):  # noqa: N818 - it is one that a tool may raise
    """An error without a message that could be read."""

    def __str__(self) -> str:
        raise ValueError("no words")


async def aping() -> str:
    """Says pong, later."""
    await asyncio.sleep(0)
    return "pong"


@pytest.mark.parametrize("tool", [ping, aping])
def test_a_turn_with_tools_of_both_kinds(sessions: SessionService, tool: Callable[[], object]) -> None:
    model = AsyncScriptedModel([calls(f"c1 {tool.__name__}"), "done"])
    turn = run(AsyncSessionChat(sessions, model, tools=[tool]).send(SID, "go"))
    assert turn.text == "done"
    assert len(lines(sessions)) == 4


def test_it_runs_on_a_service_for_asyncio() -> None:
    async def talk() -> str:
        async with AsyncSessionService() as sessions:
            turn = await AsyncSessionChat(sessions, AsyncScriptedModel(["hi"])).send(SID, "hello")
            assert len(await sessions.get_events(SID)) == 2
            return turn.text

    assert run(talk()) == "hi"


def test_a_stream_tells_what_happens_in_order(sessions: SessionService) -> None:
    async def talk() -> list[type]:
        model = AsyncScriptedModel([calls("c1 ping"), "it works"])
        async with AsyncSessionChat(sessions, model, tools=[ping]).stream(SID, "go") as turn:
            with pytest.raises(TurnUnfinishedError):
                _ = turn.turn
            told = [type(event) async for event in turn]
        assert turn.turn.text == "it works"
        return told

    told = run(talk())
    assert told.count(MessageStored) == 4
    assert told[-3:] == [TextDelta, MessageStored, TurnFinished]


def test_a_stream_that_is_left_early_stores_what_came(sessions: SessionService) -> None:
    model = AsyncScriptedModel([Stream(("one ", "two"))])

    async def talk() -> FinishReason | None:
        async with AsyncSessionChat(sessions, model).stream(SID, "go") as turn:
            async for event in turn:
                if isinstance(event, TextDelta):
                    break
        return turn.turn.finish_reason

    assert run(talk()) is FinishReason.CANCELLED
    assert lines(sessions) == ["User: go", "Assistant: one "]
    assert model.closed == 1


def test_tools_of_one_answer_run_side_by_side(sessions: SessionService) -> None:
    async def talk() -> str:
        both = asyncio.Barrier(2)

        async def meet(who: int) -> int:
            await both.wait()
            return who

        model = AsyncScriptedModel([calls('c1 meet {"who":1}', 'c2 meet {"who":2}'), "done"])
        return (await AsyncSessionChat(sessions, model, tools=[meet]).send(SID, "go")).text

    assert run(talk()) == "done"


@pytest.mark.parametrize("is_async", [True, False])
def test_a_tool_that_hangs_is_given_up(sessions: SessionService, is_async: bool) -> None:
    never = threading.Event()

    async def hang() -> None:
        await asyncio.Event().wait()

    tool = Tool.of(hang if is_async else lambda: never.wait(), name="hang", time_limit=0.05)
    model = AsyncScriptedModel([calls("c1 hang"), "done"])
    turn = run(AsyncSessionChat(sessions, model, tools=[tool]).send(SID, "go"))
    assert "longer than 0.05 seconds" in str(turn.messages[2].tool_responses[0].response)


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize(
    "error",
    [
        LookupError("no"),
        StopIteration(),
        TimeoutError("own"),
        SystemExit(1),
        asyncio.CancelledError(),
        Unspeakable(),
    ],
    ids=repr,
)
def test_a_tool_that_raises_is_told_with_its_error(
    sessions: SessionService, is_async: bool, error: BaseException
) -> None:
    async def abroken() -> None:
        raise error

    def broken() -> None:
        raise error

    tool = Tool.of(abroken if is_async else broken, name="broken")
    model = AsyncScriptedModel([calls("c1 broken"), "done"])
    turn = run(AsyncSessionChat(sessions, model, tools=[tool]).send(SID, "go"))
    assert str(turn.messages[2].tool_responses[0].response).startswith("The tool failed: ")


async def _cancelled(action: Awaitable[object], when: asyncio.Event) -> None:
    task = asyncio.ensure_future(action)
    await when.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_a_task_that_is_cancelled_at_the_model_ends_its_turn(sessions: SessionService) -> None:
    async def talk() -> None:
        asked = asyncio.Event()

        async def hang() -> None:
            asked.set()
            await asyncio.Event().wait()

        chat = AsyncSessionChat(sessions, AsyncScriptedModel([lambda _: hang(), "hi"]))
        await _cancelled(chat.send(SID, "go"), asked)
        assert (await chat.send(SID, "hello")).text == "hi"

    run(talk())
    assert lines(sessions) == ["User: go", "User: hello", "Assistant: hi"]


def test_a_task_that_is_cancelled_in_a_tool_keeps_its_results(sessions: SessionService) -> None:
    async def talk() -> None:
        hanging = asyncio.Event()

        async def hang() -> None:
            while len(lines(sessions)) < 3:
                await asyncio.sleep(0.005)
            hanging.set()
            await asyncio.Event().wait()

        chat = AsyncSessionChat(
            sessions, AsyncScriptedModel([calls("c1 ping", "c2 hang"), "hi"]), tools=[ping, hang]
        )
        await _cancelled(chat.send(SID, "go"), hanging)
        assert (await chat.send(SID, "hello")).text == "hi"

    run(talk())
    assert lines(sessions)[2] == "Tool [responses: ping -> pong]"


def test_a_task_that_is_cancelled_while_it_writes_leaves_no_mark(sessions: SessionService) -> None:
    async def talk() -> None:
        sessions.create(SID)
        chat = AsyncSessionChat(sessions, AsyncScriptedModel(["hi"]))
        writing, go = asyncio.Event(), threading.Event()
        record = sessions.record_turn
        loop = asyncio.get_running_loop()

        writes: list[int] = []

        def slow(*arguments: Any, **named: Any) -> Any:
            writes.append(1)
            loop.call_soon_threadsafe(writing.set)
            if len(writes) == 1:
                go.wait(PATIENCE)
            return record(*arguments, **named)

        sessions.record_turn = slow  # type: ignore[method-assign]
        task = asyncio.ensure_future(chat.send(SID, "go"))
        await writing.wait()
        task.cancel()
        for _ in range(200):
            await asyncio.sleep(0)
        assert len(writes) == 1, "the turn is ended behind the write that is under way"
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await chat.send(SID, "hello")).text == "hi"

    run(talk())
    assert lines(sessions)[0] == "User: go"


def test_the_loop_goes_on_while_a_sync_tool_blocks(sessions: SessionService) -> None:
    async def talk() -> str:
        go = threading.Event()

        def block() -> str:
            assert go.wait(PATIENCE)
            return "went on"

        model = AsyncScriptedModel([calls("c1 block"), "done"])
        async with AsyncSessionChat(sessions, model, tools=[block]).stream(SID, "go") as turn:
            async for event in turn:
                if isinstance(event, ToolCallStarted):
                    asyncio.get_running_loop().call_later(0.01, go.set)
        return turn.turn.text

    assert run(talk()) == "done"


def test_turns_on_one_session_wait_for_each_other(sessions: SessionService) -> None:
    async def talk() -> list[str]:
        chat = AsyncSessionChat(sessions, AsyncScriptedModel(["hi"]))
        turns = await asyncio.gather(*(chat.send(SID, f"{n}", wait=PATIENCE) for n in range(4)))
        return [turn.text for turn in turns]

    assert run(talk()) == ["hi"] * 4
    assert [line.split(":")[0] for line in lines(sessions)] == ["User", "Assistant"] * 4


def test_a_second_turn_is_refused_while_one_runs(sessions: SessionService) -> None:
    async def talk() -> None:
        chat = AsyncSessionChat(sessions, AsyncScriptedModel(["hi"]))

        async def second() -> str:
            with pytest.raises(TurnInProgressError):
                await chat.send(SID, "second")
            return "first"

        first = AsyncSessionChat(sessions, AsyncScriptedModel([lambda _: second()]))
        assert (await first.send(SID, "first")).text == "first"

    run(talk())


def test_calls_are_approved_answered_and_given_up(sessions: SessionService) -> None:
    async def talk() -> list[str]:
        tool = Tool.of(ping, needs_approval=True)
        texts: list[str] = []
        for settle in ("approve", "answer", "abandon"):
            chat = AsyncSessionChat(sessions, AsyncScriptedModel([calls("c1 ping"), settle]), tools=[tool])
            (call,) = (await chat.send(settle, "go")).awaiting
            more = ("pong",) if settle == "answer" else ()
            turn = await getattr(chat, settle)(settle, call.event_id, call.call_id, *more)
            texts.append(turn.text)
        return texts

    assert run(talk()) == ["approve", "answer", "abandon"]


def test_a_pass_behind_the_answer_is_in_the_turn(sessions: SessionService) -> None:
    chat = AsyncSessionChat(
        sessions,
        AsyncScriptedModel(["hi"]),
        trigger=TurnCountTrigger(1),
        strategy=WindowCompactionStrategy(CompactionWindow.last_turns(1)),
    )
    run(chat.send(SID, "one"))
    assert run(chat.send(SID, "two")).compaction is not None


def test_a_summarizer_that_is_a_coroutine_is_awaited(sessions: SessionService) -> None:
    class Recap:
        async def summarize(self, request: SummaryRequest) -> list[Message]:
            await asyncio.sleep(0)
            assert request.covered
            return [Message.user("What was said?"), Message.assistant("This.")]

    chat = AsyncSessionChat(
        sessions,
        AsyncScriptedModel(["hi"]),
        trigger=TurnCountTrigger(1),
        strategy=WindowCompactionStrategy(CompactionWindow.last_turns(1), Recap()),
    )
    run(chat.send(SID, "one"))
    run(chat.send(SID, "two"))
    assert [event.text for event in sessions.view(SID).events][:2] == ["What was said?", "This."]


def test_the_context_of_the_caller_is_stored_with_the_turn(sessions: SessionService) -> None:
    with event_context(actor="ada"):
        run(AsyncSessionChat(sessions, AsyncScriptedModel(["hi"])).send(SID, "hello"))
    assert [event.context for event in messages(sessions)] == [{"actor": "ada"}] * 2


def test_a_sync_and_an_async_chat_store_the_same(sessions: SessionService) -> None:
    script: list[Any] = [calls("c1 ping", "c2 nowhere"), says("done")]
    SessionChat(sessions, ScriptedModel(script), tools=[ping]).send("sync", "go")
    run(AsyncSessionChat(sessions, AsyncScriptedModel(script), tools=[ping]).send("async", "go"))
    assert sorted(lines(sessions, "sync")) == sorted(lines(sessions, "async"))


def test_what_the_model_raises_reaches_the_caller(sessions: SessionService) -> None:
    chat = AsyncSessionChat(sessions, AsyncScriptedModel([TurnlogError("no"), "hi"]))
    with pytest.raises(TurnlogError, match="no"):
        run(chat.send(SID, "go"))
    assert run(chat.send(SID, "hello")).text == "hi"


def test_a_call_is_denied_on_the_loop_with_who_denied_it() -> None:
    async def settled() -> tuple[str, set[str | None]]:
        async with AsyncSessionService() as sessions:
            tool = Tool.of(ping, needs_approval=True)
            model = AsyncScriptedModel([calls("c1 ping"), "Then not."])
            chat = AsyncSessionChat(sessions, model, tools=[tool])
            turn = await chat.send(SID, "hi")
            (call,) = turn.awaiting
            after = await chat.deny(SID, call.event_id, call.call_id, "no", by="ada")
            events = [event async for event in sessions.iter_events(SID)]
            newest = turn.events[-1].version
            return after.text, {one.context.get("actor") for one in events if one.version > newest}

    assert run(settled()) == ("Then not.", {"ada"})
