"""What cannot work is refused where it is written, with a typed error that says what is meant."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest
from tests.support.chats import service
from tests.support.scripted_chat import AsyncScriptedModel, ScriptedModel

from turnlog.application import (
    AsyncBackgroundCompaction,
    AsyncChatModelSummarizer,
    AsyncSessionChat,
    AsyncSessionService,
    BackgroundCompaction,
    ChatModelSummarizer,
    ConversationSearch,
    CrossSessionSearch,
    SessionAudit,
    SessionChat,
    Sessions,
    SessionService,
    event_context,
)
from turnlog.application.audit import InvalidPromptError
from turnlog.application.chat import ChatReply, FinishReason, RenderedRequest, Tool
from turnlog.application.projections import (
    MaterialisedViews,
    MemoryFollowerStore,
    MemoryViewStore,
    SessionFeed,
    SessionFollower,
    SupervisedRunner,
)
from turnlog.domain import (
    CompactionWindow,
    CompositeCompactionTrigger,
    EventFilter,
    EventQuery,
    FallbackSummarizer,
    GuardedCompactionStrategy,
    InvalidArgumentError,
    InvalidEventError,
    InvalidFilterError,
    InvalidIdError,
    InvalidMessageError,
    InvalidPartError,
    InvalidSettingError,
    Message,
    MessageFilter,
    RecursiveSummarizationCompactionStrategy,
    Role,
    Session,
    StorageError,
    TextPart,
    TokenCountTrigger,
    ToolCallPart,
    TurnlogError,
    WindowCompactionStrategy,
)
from turnlog.infrastructure.formats import anthropic_messages, openai_chat, openai_responses
from turnlog.infrastructure.models import AsyncOpenAIChatModel, Limits, OpenAIChatModel, RetryPolicy

SID = "s"
WINDOW = WindowCompactionStrategy(CompactionWindow.last_turns(1))
Make = Callable[[SessionService, Any], object]


def chat(sessions: SessionService, **settings: Any) -> SessionChat:
    """A chat with these settings."""
    return SessionChat(sessions, ScriptedModel([]), **settings)


MISTAKES: dict[str, tuple[Make, object, type[TurnlogError], str]] = {
    "a name as a model": (
        lambda s, x: SessionChat(s, x),
        "gpt-5",
        InvalidSettingError,
        r"OpenAIChatModel\('gpt-5'\)",
    ),
    "a class as a model": (
        lambda s, x: SessionChat(s, x),
        ScriptedModel,
        InvalidSettingError,
        "OpenAIChatModel",
    ),
    "an async model in a chat": (
        lambda s, x: SessionChat(s, x),
        AsyncScriptedModel([]),
        InvalidSettingError,
        "for asyncio",
    ),
    "an async model of a provider in a chat": (
        lambda s, x: SessionChat(s, x),
        AsyncOpenAIChatModel("m", api_key="k"),
        InvalidSettingError,
        "for asyncio",
    ),
    "a sync model in an async chat": (
        lambda s, x: AsyncSessionChat(s, x),
        ScriptedModel([]),
        InvalidSettingError,
        "block the loop",
    ),
    "a sync model of a provider in an async chat": (
        lambda s, x: AsyncSessionChat(s, x),
        OpenAIChatModel("m", api_key="k"),
        InvalidSettingError,
        "block the loop",
    ),
    "a name as the model of summaries": (
        lambda _, x: ChatModelSummarizer(x),
        "gpt-5",
        InvalidSettingError,
        "OpenAIChatModel",
    ),
    "an async model of summaries": (
        lambda _, x: ChatModelSummarizer(x),
        AsyncScriptedModel([]),
        InvalidSettingError,
        "for asyncio",
    ),
    "a sync model of awaited summaries": (
        lambda _, x: AsyncChatModelSummarizer(x),
        ScriptedModel([]),
        InvalidSettingError,
        "block the loop",
    ),
    "a text as a strategy": (lambda s, x: chat(s, strategy=x), "window", InvalidSettingError, "strategy"),
    "a number as a trigger": (
        lambda s, x: chat(s, strategy=WINDOW, trigger=x),
        16_000,
        InvalidSettingError,
        r"TokenCountTrigger\(16_000\)",
    ),
    "a number as a recorder": (lambda s, x: chat(s, recorder=x), 5, InvalidSettingError, "PromptRecorder"),
    "a text as a filter": (lambda s, x: chat(s, filter=x), "x", InvalidSettingError, "EventFilter"),
    "a text as what is stored": (lambda s, x: chat(s, store=x), "x", InvalidSettingError, "MessageFilter"),
    "a number as instructions": (lambda s, x: chat(s, instructions=x), 5, InvalidSettingError, "text"),
    "seconds as a lease": (lambda s, x: chat(s, lease=x), 60, InvalidSettingError, "timedelta"),
    "a text as options": (lambda s, x: chat(s, options=x), "x", InvalidSettingError, "mapping"),
    "a text as a time limit": (lambda s, x: chat(s, tool_time_limit=x), "60", InvalidSettingError, "seconds"),
    "one function as tools": (lambda s, x: chat(s, tools=x), print, InvalidSettingError, r"tools=\[find\]"),
    "a lambda as a tool": (lambda s, x: chat(s, tools=[x]), lambda: "pong", InvalidSettingError, "no name"),
    "a text as the time limit of a tool": (
        lambda _, x: Tool.of(SID.count, name="count", time_limit=x),
        "60",
        InvalidSettingError,
        "seconds",
    ),
    "a text as a query of all": (lambda s, x: s.search_all(x), "hi", InvalidArgumentError, r"keywords='hi'"),
    "a text as a query": (lambda s, x: s.search_events(SID, x), "hi", InvalidArgumentError, r"keywords='hi'"),
    "a text as `where`": (
        lambda s, x: s.search_all(EventQuery(), where=x),
        "x",
        InvalidSettingError,
        "where",
    ),
    "a text as metadata to find": (lambda s, x: s.find_by_metadata(x), "x", InvalidSettingError, "where"),
    "a number as roles": (lambda _, x: EventFilter(roles=x), 5, InvalidFilterError, "roles"),
    "a number as roles of a query": (lambda _, x: EventQuery(roles=x), 5, InvalidArgumentError, "roles"),
    "a number as a pattern": (lambda _, x: EventFilter(pattern=x), 5, InvalidFilterError, r"re\.compile"),
    "a number as a text to hold": (
        lambda _, x: MessageFilter.contains(x),
        5,
        InvalidFilterError,
        "needs a text",
    ),
    "a number as filters": (lambda _, x: MessageFilter.all_of(x), 5, InvalidFilterError, "Only filters"),
    "a number as triggers": (
        lambda _, x: CompositeCompactionTrigger(x),
        5,
        InvalidSettingError,
        "TurnCountTrigger",
    ),
    "a number as events": (lambda s, x: s.append_events(SID, x), 5, InvalidEventError, r"Message\.user"),
    "a number as the time of an event": (
        lambda s, x: s.append_message(SID, Message.user("hi"), occurred_at=x),
        5,
        InvalidEventError,
        "occurred_at",
    ),
    "no id of an event to abandon": (lambda s, x: s.abandon(SID, x, "c"), None, InvalidIdError, "text"),
    "a number as the id of a call": (
        lambda s, x: s.abandon(SID, "e", x),
        5,
        InvalidSettingError,
        "call_id",
    ),
    "a number as a reason": (lambda s, x: s.hold(SID, x, by="ada"), 5, InvalidSettingError, "reason"),
    "a number as who holds": (lambda s, x: s.hold(SID, "audit", by=x), 5, InvalidSettingError, "by"),
    "no time before which": (lambda s, x: s.delete_expired(x), None, InvalidSettingError, "before"),
    "no time since which": (lambda s, x: s.erasures(x), None, InvalidSettingError, "since"),
    "days after which to purge": (lambda s, x: s.sweep(x), 30, InvalidSettingError, "timedelta"),
    "none as a plan": (lambda s, x: s.apply_plan(SID, x), None, InvalidSettingError, "CompactionPlan"),
    "none as a boundary": (
        lambda s, x: s.restore_boundary(SID, "b", x),
        None,
        InvalidSettingError,
        "CompactionBoundary",
    ),
    "a text as what costs": (lambda s, x: s.count_tokens(x), "hi", InvalidSettingError, "message"),
    "numbers as ids": (lambda s, x: s.events_by_id(SID, x), [5], InvalidIdError, "text"),
    "a number as whose turn": (lambda s, x: s.rest_of_turn(SID, x), 5, InvalidIdError, "text"),
    "a text as a call": (lambda s, x: s.awaits(SID, x), "c1", InvalidSettingError, "CallReference"),
    "no mark of a turn": (lambda s, x: s.record_turn(SID, [], x), None, InvalidSettingError, "TurnMark"),
    "a number as ids": (lambda s, x: s.events_by_id(SID, x), 5, InvalidSettingError, "list of ids"),
    "a number as heads": (
        lambda s, x: SessionAudit(s).verify(heads=x),
        5,
        InvalidSettingError,
        "export_heads",
    ),
    "a text as a signer": (
        lambda s, x: SessionAudit(s).export_heads(signer=x),
        "key",
        InvalidSettingError,
        "Ed25519Signer",
    ),
    "a text as an attempt": (
        lambda s, x: SessionAudit(s).record_prompt(SID, body={}, attempt=x),
        "1",
        InvalidPromptError,
        "attempt",
    ),
    "a number as what causes a call": (
        lambda s, x: SessionAudit(s).record_prompt(SID, body={}, append=x),
        5,
        InvalidEventError,
        r"Message\.user",
    ),
    "a text as criteria": (lambda s, x: s.get_events(SID, x), "hi", InvalidFilterError, "EventFilter"),
    "a number as a context": (
        lambda s, x: s.append_message(SID, Message.user("hi"), context=x),
        5,
        InvalidSettingError,
        "'actor'",
    ),
    "a number in a context": (
        lambda _, x: event_context(actor=x).__enter__(),
        5,
        InvalidSettingError,
        "actor",
    ),
    "a text as metadata": (lambda s, x: s.create("t", metadata=x), "x", InvalidSettingError, "metadata"),
    "a number as new metadata": (lambda s, x: s.update_metadata(SID, x), 5, InvalidSettingError, "metadata"),
    "days as an idle time": (lambda s, x: s.create("t", idle=x), 7, InvalidSettingError, "timedelta"),
    "a text as an expiry": (lambda s, x: s.extend(SID, x), "tomorrow", InvalidSettingError, "until"),
    "days as a longer life": (lambda s, x: s.extend(SID, by=x), 7, InvalidSettingError, "timedelta"),
    "a number as a prefix": (lambda s, x: s.sessions_with_prefix(x), 5, InvalidSettingError, "prefix"),
    "a number as a principal": (lambda s, x: s.scoped_to(x), 5, InvalidSettingError, "principal"),
    "a number as an estimator": (
        lambda _, x: SessionService(token_estimator=x),
        5,
        InvalidSettingError,
        "TiktokenEstimator",
    ),
    "a time as a clock": (lambda _, x: SessionService(clock=x), 5, InvalidSettingError, "clock"),
    "a number as the session of a search": (
        lambda s, x: ConversationSearch(s, x),
        5,
        InvalidArgumentError,
        "session id",
    ),
    "a text as a page size": (
        lambda s, x: ConversationSearch(s, SID, page_size=x),
        "x",
        InvalidSettingError,
        "page_size",
    ),
    "a number as the principal of a search": (
        lambda s, x: CrossSessionSearch(s, x),
        5,
        InvalidSettingError,
        "principal",
    ),
    "a text as a model that summarizes": (
        lambda _, x: RecursiveSummarizationCompactionStrategy(x, 3),
        "x",
        InvalidSettingError,
        "summarize",
    ),
    "a text as a summarizer": (lambda _, x: FallbackSummarizer(x), "x", InvalidSettingError, "summarize"),
    "a text as a gain": (
        lambda _, x: GuardedCompactionStrategy(WINDOW, min_gain=x),
        "x",
        InvalidSettingError,
        "min_gain",
    ),
    "seconds as a cooldown": (
        lambda _, x: GuardedCompactionStrategy(WINDOW, cooldown=x),
        300,
        InvalidSettingError,
        "timedelta",
    ),
    "a text as an overhead": (lambda _, x: TokenCountTrigger(5, x), "x", InvalidSettingError, "overhead"),
    "a number among triggers": (
        lambda _, x: CompositeCompactionTrigger.any_of(x),
        5,
        InvalidSettingError,
        "TurnCountTrigger",
    ),
    "a text as a strategy in the background": (
        lambda s, x: BackgroundCompaction(s, None, x),
        "x",
        InvalidSettingError,
        "compact",
    ),
    "a number as a trigger in the background": (
        lambda s, x: AsyncBackgroundCompaction(s, x, WINDOW),
        5,
        InvalidSettingError,
        "trigger",
    ),
    "a text as a limit": (lambda _, x: Limits(read=x), "x", InvalidSettingError, "`read`"),
    "none as a limit": (lambda _, x: Limits(total=x), None, InvalidSettingError, "`total`"),
    "a text as repetitions": (lambda _, x: RetryPolicy(retries=x), "x", InvalidSettingError, "`retries`"),
    "seconds as limits": (lambda _, x: OpenAIChatModel("m", limits=x), 5, InvalidSettingError, "Limits"),
    "a number as repetitions": (
        lambda _, x: OpenAIChatModel("m", retry=x),
        5,
        InvalidSettingError,
        "RetryPolicy",
    ),
    "a number as the name of a model": (
        lambda _, x: OpenAIChatModel(x),
        5,
        InvalidSettingError,
        "name of the model",
    ),
    "a negative position": (lambda s, x: SessionFeed(s, after=x), -3, InvalidSettingError, "at least 0"),
    "a class to be saved as well": (
        lambda s, x: s.append_message(SID, Message.user("hi"), also=[x]),
        Session,
        InvalidSettingError,
        r"also=\[order\]",
    ),
    "a class in place of a function": (
        lambda s, x: s.append_message(SID, Message.user("hi"), also=x),
        Session,
        InvalidSettingError,
        r"also=\[order\]",
    ),
    "a class to be saved with a new session": (
        lambda s, x: s.create("t", also=x),
        Session,
        InvalidSettingError,
        r"also=\[order\]",
    ),
    "a UUID as a session id": (lambda s, x: s.find(x), UUID(int=5), InvalidIdError, r"str\(…\)"),
    "a number as a session id": (lambda s, x: s.find(x), 5, InvalidIdError, r"str\(…\)"),
    "details of a session as its id": (
        lambda s, _: s.view(cast("Any", s.find(SID))),
        None,
        InvalidIdError,
        r"text: give its `\.id`",
    ),
    "a number as what a user said": (
        lambda _, x: Message.user(x),
        5,
        InvalidMessageError,
        "a text or of a list of parts.* not of a value of type int",
    ),
    "one part in place of a list": (
        lambda _, x: Message.user(x),
        TextPart(content="hi"),
        InvalidMessageError,
        "list of parts.* type TextPart",
    ),
    "a part in its plain form in place of a list": (
        lambda _, x: Message.user(x),
        {"type": "text", "content": "hi"},
        InvalidMessageError,
        "list of parts.* type dict",
    ),
    "bytes as what a user said": (lambda _, x: Message.user(x), b"hi", InvalidMessageError, "type bytes"),
    "a number as parts": (
        lambda _, x: Message(role=Role.USER, parts=x),
        5,
        InvalidMessageError,
        "parts: it must be a list of parts",
    ),
    "a part without its text": (
        lambda _, x: Message.user([x]),
        {"type": "text"},
        InvalidPartError,
        "content: it is missing",
    ),
    "a number as a text": (lambda _, x: TextPart(content=x), 5, InvalidPartError, "content: it must be text"),
    "a number as metadata of a message": (
        lambda _, x: Message.user("hi", metadata=x),
        5,
        InvalidMessageError,
        "metadata: it must be a mapping",
    ),
    "a span as a time limit": (
        lambda s, x: chat(s, tool_time_limit=x),
        timedelta(seconds=3),
        InvalidSettingError,
        r"`tool_time_limit` \(seconds",
    ),
    "a span as the time limit of a tool": (
        lambda _, x: Tool.of(len, time_limit=x),
        timedelta(seconds=3),
        InvalidSettingError,
        "time_limit",
    ),
    "a text as a position": (lambda s, x: SessionFeed(s, after=x), "x", InvalidSettingError, "position"),
    "parsed arguments": (
        lambda _, x: ToolCallPart(id="c", name="f", arguments=x),
        {"a": 1},
        InvalidPartError,
        r"json\.dumps",
    ),
    "one text as pins": (lambda _, x: WindowCompactionStrategy(pins=x), "rule", InvalidSettingError, "rule"),
    "a number as pins": (lambda _, x: WindowCompactionStrategy(pins=x), 5, InvalidSettingError, "pins"),
    "numbers as pins": (
        lambda _, x: WindowCompactionStrategy(pins=x),
        [5],
        InvalidSettingError,
        "id of an event",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_refused_where_it_is_written(name: str) -> None:
    make, given, error, says = MISTAKES[name]
    with SessionService() as sessions:
        sessions.create(SID)
        with pytest.raises(error, match=says):
            make(sessions, given)


WAITING: dict[str, Callable[[Any, Any], object]] = {
    "send": lambda chat, wait: chat.send(SID, "hi", wait=wait),
    "stream": lambda chat, wait: chat.stream(SID, "hi", wait=wait),
    "resume": lambda chat, wait: chat.resume(SID, wait=wait),
    "answer": lambda chat, wait: chat.answer(SID, "e", "c", "yes", wait=wait),
    "deny": lambda chat, wait: chat.deny(SID, "e", "c", wait=wait),
    "approve": lambda chat, wait: chat.approve(SID, "e", "c", wait=wait),
    "abandon": lambda chat, wait: chat.abandon(SID, "e", "c", wait=wait),
}


@pytest.mark.parametrize("wait", [timedelta(seconds=3), "3", -1, True], ids=str)
@pytest.mark.parametrize("name", WAITING)
def test_a_wait_is_checked_although_no_other_turn_runs(name: str, wait: object) -> None:
    async def asked(sessions: SessionService) -> None:
        found = WAITING[name](AsyncSessionChat(sessions, AsyncScriptedModel([])), wait)
        await cast("Any", found)

    with SessionService() as sessions:
        sessions.create(SID)
        with pytest.raises(InvalidSettingError, match=r"`wait` \(seconds\)"):
            WAITING[name](chat(sessions), wait)
        with pytest.raises(InvalidSettingError, match=r"`wait` \(seconds\)"):
            asyncio.run(asked(sessions))


@pytest.mark.parametrize("timeout", [timedelta(seconds=3), "3"], ids=str)
def test_a_timeout_is_checked_although_nothing_is_waited_for(timeout: Any) -> None:
    class Follower(SessionFollower[Any]):
        name = "f"

    with SessionService() as sessions, pytest.raises(InvalidSettingError, match=r"`timeout` \(seconds\)"):
        MaterialisedViews(sessions, MemoryViewStore()).view(SID, timeout=timeout)
    with SupervisedRunner(
        application_class=Sessions, projection_class=Follower, view_class=MemoryFollowerStore
    ) as runner:
        with pytest.raises(InvalidSettingError, match=r"`timeout` \(seconds\)"):
            runner.wait(None, timeout)
        with pytest.raises(InvalidSettingError, match=r"`timeout` \(seconds\)"):
            runner.run_forever(timeout)


@pytest.mark.parametrize(
    "given", ["x", 5, ["x"], Message.user("x")], ids=["text", "number", "texts", "message"]
)
@pytest.mark.parametrize("codec", [openai_chat, openai_responses, anthropic_messages])
def test_a_request_is_made_of_a_view_or_of_messages_only(codec: Any, given: object) -> None:
    with pytest.raises(InvalidEventError, match=r"Message\.user"):
        codec.request(given, model="m", max_tokens=5)


def test_pins_that_are_events_are_refused_by_their_id() -> None:
    with SessionService() as sessions:
        sessions.create(SID)
        event = cast("Any", sessions.append_message(SID, Message.user("hi")))
        with pytest.raises(InvalidSettingError, match=r"event\.id"):
            WindowCompactionStrategy(pins=[event])


class Blocks:
    """A model whose answer comes at once; nothing says so beforehand."""

    provider, model = "script", "m"

    def render(self, request: Any, *, stream: bool = False) -> RenderedRequest:
        """Nothing that would be sent."""
        return RenderedRequest(b"{}", "script/1", "m", request, is_stream=stream)

    def complete(self, rendered: Any, *, on_send: Any = None) -> Any:  # noqa: ARG002 - the port's
        """The answer."""
        return ChatReply(Message.assistant("Hello."), FinishReason.STOP)


def test_a_model_that_turns_out_to_block_is_named() -> None:
    chat = AsyncSessionChat(SessionService(), cast("Any", Blocks()))
    with pytest.raises(InvalidSettingError, match="Blocks blocks the loop"):
        asyncio.run(chat.send(SID, "hi"))


def test_a_closed_service_says_so(tmp_path: Path) -> None:
    sessions = service(tmp_path / "s.db")
    sessions.create(SID)
    sessions.close()
    calls: list[Callable[[], object]] = [
        lambda: sessions.find(SID),
        lambda: sessions.append_message(SID, Message.user("hi")),
        lambda: sessions.list_sessions(),
        lambda: sessions.search_all(EventQuery()),
        lambda: sessions.compact(SID, None, WINDOW),
        lambda: sessions.delete(SID),
        lambda: sessions.sweep(),
        lambda: SessionAudit(sessions).verify(),
    ]
    for call in calls:
        with pytest.raises(StorageError, match="was closed"):
            call()


def test_a_closed_service_for_asyncio_says_so(tmp_path: Path) -> None:
    async def asked() -> None:
        env = {"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": str(tmp_path / "s.db")}
        sessions = AsyncSessionService(env=env)
        await sessions.create(SID)
        await sessions.close()
        await sessions.find(SID)

    with pytest.raises(StorageError, match="was closed"):
        asyncio.run(asked())


@pytest.mark.parametrize("name", ["mesage", "messages", "boundery", "begun", "event_"])
def test_a_misspelt_handler_is_refused_when_the_class_is_made(name: str) -> None:
    with pytest.raises(InvalidSettingError, match="is no handler"):
        type("Follower", (SessionFollower,), {"name": "f", name: print})


def test_helpers_of_a_follower_are_taken() -> None:
    methods = {"name": "f", "message": print, "_messages": print, "write": print, "send_mail": print}
    assert type("Follower", (SessionFollower,), methods)


def test_a_lambda_with_a_name_is_a_tool() -> None:
    assert Tool.of(lambda: "pong", name="ping").name == "ping"


def test_times_without_an_end_are_limits() -> None:
    assert Limits(total=float("inf")).total > timedelta(days=1).total_seconds()
