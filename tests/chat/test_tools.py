"""Tools: schemas from Python functions, calls side by side, and what a model is told when one fails."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from functools import partial
from sqlite3 import Connection
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field
from tests.support.chats import SID, lines, messages
from tests.support.scripted_chat import ScriptedModel, calls

from turnlog.application import ConversationSearch, SessionService
from turnlog.application.chat import (
    Awaiting,
    MessageTooLargeError,
    SessionChat,
    Tool,
    ToolContext,
    TooManyRoundsError,
)
from turnlog.domain import InvalidSettingError, TextPart, ToolCallResponsePart


class Address(BaseModel):
    """Where something goes."""

    city: str
    country: str = "SE"


def deliver(
    to: Address,
    parcel: Annotated[int, Field(description="The number on the parcel.", ge=1)],
    *,
    json: bool = False,
    _private: float = 0.5,
    title: str | None = None,
) -> str:
    """Delivers a parcel."""
    return f"{parcel} to {to.city}, {to.country} {json} {_private} {title}"


# --- what a model is told of a tool


def test_a_function_is_a_tool_with_a_schema() -> None:
    definition = Tool.of(deliver).definition
    assert (definition.name, definition.description) == ("deliver", "Delivers a parcel.")
    properties = definition.parameters["properties"]
    assert list(properties) == ["to", "parcel", "json", "_private", "title"]
    assert properties["parcel"] == {
        "description": "The number on the parcel.",
        "minimum": 1,
        "type": "integer",
    }
    assert definition.parameters["required"] == ["to", "parcel"]
    assert definition.parameters["additionalProperties"] is False


def test_arguments_reach_the_function_as_its_types() -> None:
    call = Tool.of(deliver).bind('{"to": {"city": "Lund"}, "parcel": 7, "json": true}', ToolContext(SID))
    assert call() == "7 to Lund, SE True 0.5 None"


def test_a_tool_without_parameters_takes_no_arguments_in_any_form() -> None:
    tool = Tool.of(lambda: "pong", name="ping")
    assert tool.bind("", ToolContext(SID))() == tool.bind("{}", ToolContext(SID))() == "pong"


def test_positional_parameters_bound_methods_and_partials_are_tools() -> None:
    def power(base: int, exponent: int, /) -> int:
        return int(base**exponent)

    assert Tool.of(power).bind('{"base": 2, "exponent": 5}', ToolContext(SID))() == 32
    assert Tool.of(partial(deliver, json=True)).name == "deliver"
    assert Tool.of("abc".upper, name="shout").bind("{}", ToolContext(SID))() == "ABC"


def test_a_tool_learns_where_its_call_comes_from(sessions: SessionService) -> None:
    seen: list[ToolContext] = []

    def note(context: ToolContext) -> None:
        seen.append(context)

    model = ScriptedModel([calls("c1 note"), "ok"])
    SessionChat(sessions, model, tools=[note]).send(SID, "go", principal="ada", branch="b")
    assert seen == [ToolContext(SID, "b", "ada", "c1")]
    assert model.asked[0].tools[0].parameters["properties"] == {}


def test_a_tool_with_a_schema_of_its_own_is_taken(sessions: SessionService) -> None:
    chat = SessionChat(
        sessions, ScriptedModel(["In Lund.", calls('c1 conversation_search {"query":"lund"}'), "ok"])
    )
    chat.send(SID, "Where?")
    chat.send(SID, "What did you say?", tools=[ConversationSearch(sessions, SID)])
    assert "In Lund." in lines(sessions)[-2]


def test_the_tools_of_a_call_take_the_place_of_those_of_the_chat(sessions: SessionService) -> None:
    model = ScriptedModel(["ok"])
    SessionChat(sessions, model, tools=[deliver]).send(SID, "go", tools=[])
    assert model.asked[0].tools == ()


def _any_positions(*given: int) -> None:
    """Takes whatever comes."""


def _any_names(**given: int) -> None:
    """Takes whatever comes."""


def _no_schema(connection: Connection) -> None:
    """Takes what JSON cannot say."""


@pytest.mark.parametrize(
    "tool", [_any_positions, _any_names, _no_schema, 7], ids=["*", "**", "no schema", "7"]
)
def test_what_cannot_be_a_tool_is_refused_at_once(sessions: SessionService, tool: Any) -> None:
    with pytest.raises(InvalidSettingError):
        SessionChat(sessions, ScriptedModel(["hi"]), tools=[tool])


def test_two_tools_of_one_name_are_refused(sessions: SessionService) -> None:
    with pytest.raises(InvalidSettingError, match="Two tools are named 'deliver'"):
        SessionChat(sessions, ScriptedModel(["hi"]), tools=[deliver, deliver])


# --- calls


def told(
    sessions: SessionService, tool: Callable[..., object] | Tool, arguments: str = "{}", **settings: Any
) -> str:
    """What the model is told of one call of the tool."""
    made = Tool.of(tool, name="tool") if not isinstance(tool, Tool) else tool
    model = ScriptedModel([calls(f"c1 {made.name} {arguments}"), "ok"])
    turn = SessionChat(sessions, model, tools=[made], **settings).send(SID, "go")
    assert turn.text == "ok"
    (part,) = turn.messages[2].tool_responses
    assert isinstance(part.response, str)
    assert part.extra.get("is_error", False) == part.response.startswith(
        ("The tool", "The arg", "The result")
    )
    return part.response


@dataclass
class Parcel:
    number: int
    due: date


@pytest.mark.parametrize(
    ("value", "result"),
    [
        ("text", "text"),
        (None, ""),
        ({"a": [1, None]}, '{"a":[1,null]}'),
        (3, "3"),
        (True, "true"),
        (Parcel(1, date(2031, 5, 1)), '{"number":1,"due":"2031-05-01"}'),
        (Address(city="Lund"), '{"city":"Lund","country":"SE"}'),
        ([], "[]"),
    ],
)
def test_what_a_tool_returns_is_told_as_text(sessions: SessionService, value: object, result: str) -> None:
    assert told(sessions, lambda: value) == result


def test_parts_are_told_as_parts(sessions: SessionService) -> None:
    model = ScriptedModel([calls("c1 look"), "ok"])
    look = Tool.of(lambda: [TextPart(content="a"), TextPart(content="b")], name="look")
    turn = SessionChat(sessions, model, tools=[look]).send(SID, "go")
    assert turn.messages[2].tool_responses[0].response == (TextPart(content="a"), TextPart(content="b"))


@pytest.mark.parametrize(
    "value", [object(), math.nan, [math.inf], 10**20_000], ids=["object", "nan", "inf", "digits"]
)
def test_a_result_that_json_cannot_hold_says_so(sessions: SessionService, value: object) -> None:
    assert "JSON cannot say" in told(sessions, lambda: value)


def test_a_tool_that_raises_is_told_with_its_error(sessions: SessionService) -> None:
    def broken() -> None:
        raise LookupError("no such parcel")

    assert told(sessions, broken) == "The tool failed: LookupError: no such parcel"


def test_a_tool_whose_error_has_no_message_is_told_at_once(sessions: SessionService) -> None:
    class UnspeakableError(Exception):
        def __str__(self) -> str:
            raise ValueError("no words")

    def broken() -> None:
        raise UnspeakableError

    assert told(sessions, broken) == "The tool failed: UnspeakableError: (its message cannot be read)"


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), StopIteration()])
def test_not_even_an_exit_of_a_tool_ends_the_turn(sessions: SessionService, error: BaseException) -> None:
    def leave() -> None:
        raise error

    assert told(sessions, leave).startswith(f"The tool failed: {type(error).__name__}")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ('{"city":', "malformed: they are no JSON (EOF while parsing"),
        ("[]", "malformed: they are no JSON object."),
        ('{"town": "Lund"}', "city: Field required"),
        ('{"city": 7}', "valid string"),
        ('{"city": "\ud800"}', "they are no valid text"),
    ],
)
def test_malformed_arguments_are_told_with_the_reason(
    sessions: SessionService, arguments: str, reason: str
) -> None:
    def find(city: str) -> str:
        return city

    text = told(sessions, find, arguments)
    assert text.startswith("The arguments are malformed")
    assert reason in text


def test_an_unknown_tool_is_told_with_those_that_there_are(sessions: SessionService) -> None:
    model = ScriptedModel([calls("c1 fly"), "ok"])
    turn = SessionChat(sessions, model, tools=[deliver]).send(SID, "go")
    assert turn.messages[2].tool_responses[0].response == "There is no tool 'fly'. Tools are: deliver."


def test_a_tool_that_hangs_is_given_up(sessions: SessionService) -> None:
    never = threading.Event()
    hang = Tool.of(lambda: never.wait(), name="hang", time_limit=0.05)
    assert told(sessions, hang) == "The tool failed: it took longer than 0.05 seconds and was given up"


def test_what_a_tool_returns_after_its_time_is_nobodys_result(sessions: SessionService) -> None:
    late = threading.Event()

    def slow() -> str:
        late.wait()
        return "too late"

    def quick() -> str:
        late.set()
        return "quick"

    model = ScriptedModel([calls("c1 slow"), calls("c2 quick"), "ok"])
    tools: list[Any] = [Tool.of(slow, time_limit=0.05), quick]
    SessionChat(sessions, model, tools=tools).send(SID, "go")
    assert [line for line in lines(sessions) if "too late" in line] == []


def test_a_late_result_does_not_stand_for_a_call_that_still_runs(sessions: SessionService) -> None:
    given_up, pause = threading.Event(), threading.Event()
    threads: list[threading.Thread] = []

    def slow() -> str:
        threads.append(threading.current_thread())
        given_up.wait(60)
        return "too late"

    def steady() -> str:
        while not any("given up" in line for line in lines(sessions)):
            pause.wait(0.005)
        given_up.set()
        threads[0].join(60)
        return "steady"

    model = ScriptedModel([calls("c1 slow", "c2 steady"), "ok"])
    turn = SessionChat(sessions, model, tools=[Tool.of(slow, time_limit=0.05), steady]).send(SID, "go")
    results = [str(one.tool_responses[0].response) for one in turn.messages[2:4]]
    assert results == ["The tool failed: it took longer than 0.05 seconds and was given up", "steady"]


def test_the_time_limit_of_the_chat_counts_for_tools_without_one(sessions: SessionService) -> None:
    never = threading.Event()
    assert "0.05 seconds" in told(sessions, lambda: never.wait(), tool_time_limit=0.05)


def test_calls_of_one_answer_run_side_by_side(sessions: SessionService) -> None:
    both = threading.Barrier(2, timeout=60)

    def meet(who: int) -> int:
        both.wait()
        return who

    model = ScriptedModel([calls('c1 meet {"who":1}', 'c2 meet {"who":2}'), "ok"])
    turn = SessionChat(sessions, model, tools=[meet]).send(SID, "go")
    assert sorted(str(m.tool_responses[0].response) for m in turn.messages[2:4]) == ["1", "2"]


def test_each_result_is_stored_before_the_next_call_is_over(sessions: SessionService) -> None:
    stored = threading.Event()

    def first() -> str:
        return "first"

    def second() -> str:
        while not any("first ->" in line for line in lines(sessions)):
            stored.wait(0.005)
        return "second"

    model = ScriptedModel([calls("c1 first", "c2 second"), "ok"])
    turn = SessionChat(sessions, model, tools=[first, second], tool_time_limit=10).send(SID, "go")
    assert turn.messages[3].tool_responses[0].response == "second"


def test_an_async_tool_works_in_a_sync_chat(sessions: SessionService) -> None:
    async def ping() -> str:
        await asyncio.sleep(0)
        return "pong"

    assert told(sessions, ping) == "pong"


def test_two_calls_of_one_id_each_get_their_result(sessions: SessionService) -> None:
    def echo(text: str) -> str:
        return text

    model = ScriptedModel([calls('c1 echo {"text":"x"}', 'c1 echo {"text":"y"}'), "ok"])
    SessionChat(sessions, model, tools=[echo]).send(SID, "go")
    results = [event.message.tool_responses[0] for event in messages(sessions)[2:4] if event.message]
    assert sorted(str(one.response) for one in results) == ["x", "y"]


def test_a_result_that_is_too_large_says_so_with_both_numbers(sessions: SessionService) -> None:
    text = told(sessions, lambda: "x" * 1_000, max_message_tokens=200)
    assert "costs 1,0" in text
    assert "may cost 200" in text


def test_the_rounds_of_a_turn_are_bounded(sessions: SessionService) -> None:
    def ping() -> str:
        return "pong"

    chat = SessionChat(sessions, ScriptedModel([calls("c1 ping")]), tools=[ping], max_rounds=3)
    with pytest.raises(TooManyRoundsError, match="more than 3 rounds"):
        chat.send(SID, "go")
    assert len(lines(sessions)) == 1 + 3 * 2 + 1
    with pytest.raises(TooManyRoundsError):
        chat.send(SID, "go on")


def test_awaiting_is_only_for_tools_that_say_so(sessions: SessionService) -> None:
    assert told(sessions, lambda: Awaiting()) == "The tool failed: it has not finished and will not"


def test_an_answer_with_calls_but_no_tools_tells_that_there_are_none(sessions: SessionService) -> None:
    turn = SessionChat(sessions, ScriptedModel([calls("c1 fly"), "ok"])).send(SID, "go")
    assert "Tools are: none" in str(turn.messages[2].tool_responses[0].response)


def test_the_logger_gets_no_text_of_a_tool(
    sessions: SessionService, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(secret: str) -> None:
        raise LookupError(secret)

    with caplog.at_level(logging.DEBUG, "turnlog"):
        told(sessions, broken, '{"secret": "zinnia"}')
    assert [record.getMessage() for record in caplog.records] == ["Tool 'tool' raised LookupError."]
    assert caplog.text.count("zinnia") == 0


def test_the_parts_of_a_result_name_the_call(sessions: SessionService) -> None:
    model = ScriptedModel([calls("c1 ping"), "ok"])
    turn = SessionChat(sessions, model, tools=[Tool.of(lambda: "pong", name="ping")]).send(SID, "go")
    assert turn.messages[2].parts == (ToolCallResponsePart(id="c1", name="ping", response="pong"),)


def test_a_question_that_is_too_large_is_no_matter_for_tools(sessions: SessionService) -> None:
    chat = SessionChat(sessions, ScriptedModel(["ok"]), tools=[deliver], max_message_tokens=10)
    with pytest.raises(MessageTooLargeError):
        chat.send(SID, "x" * 11)
