"""A turn that grows beyond a request: what is sent of it, and that log and view stay as they are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.chats import SID, Characters, lines, messages, service
from tests.support.providers.rules import openai_rule_faults
from tests.support.providers.transcripts import files
from tests.support.scripted_chat import ScriptedModel, calls

from turnlog.application import SessionService
from turnlog.application.chat import ChatReply, FinishReason, SessionChat, Tool
from turnlog.application.chat.shortening import shortened
from turnlog.domain import EventType, Message, Role, SessionEvent, event_text
from turnlog.domain.turns import call_pairs
from turnlog.infrastructure.formats import openai_chat
from turnlog.infrastructure.tokens import TiktokenEstimator

MINI_SWE = [path for path in files("coding_agents") if path.name.startswith("miniswe_")]
BEGIN = datetime(2031, 5, 1, tzinfo=UTC)


def big(size: int = 2_000) -> Tool:
    """A tool with a large result."""
    return Tool.of(lambda: "x" * size, name="big")


def rounds(count: int) -> list[ChatReply]:
    """Answers that each ask for the tool once."""
    return [calls(f"c{number} big") for number in range(count)]


def whole(request: Sequence[str]) -> list[bool]:
    """For each result of a request whether it is there as it was."""
    return ["left out here" not in line for line in request if line.startswith("Tool")]


def test_a_turn_that_fits_is_sent_as_it_is(sessions: SessionService) -> None:
    model = ScriptedModel([*rounds(6), "done"])
    SessionChat(sessions, model, tools=[big()], max_request_tokens=20_000, keep_tool_results=1).send(
        SID, "go"
    )
    assert whole(model.told[6]) == [True] * 6


def test_beyond_the_limit_results_older_than_the_newest_rounds_are_placeholders(
    sessions: SessionService,
) -> None:
    model = ScriptedModel([*rounds(6), "done"])
    chat = SessionChat(sessions, model, tools=[big()], max_request_tokens=9_000, keep_tool_results=2)
    chat.send(SID, "go")
    assert [whole(told) for told in model.told][4:] == [
        [True, True, True, True],
        [False, False, False, True, True],
        [False, False, False, True, True, True],
    ]


def test_a_placeholder_names_the_event_and_the_size(sessions: SessionService) -> None:
    model = ScriptedModel([*rounds(3), "done"])
    chat = SessionChat(sessions, model, tools=[big()], max_request_tokens=5_000, keep_tool_results=1)
    chat.send(SID, "go")
    event = messages(sessions)[2]
    (line,) = [line for line in model.told[3] if event.id in line]
    assert line == (
        "Tool [responses: big -> [left out here: a result of 2,026 tokens; it is in the log as event "
        f"{event.id}]]"
    )
    assert sessions.get_event(SID, event.id).message == event.message


def test_log_and_view_stay_as_they_are(sessions: SessionService) -> None:
    model = ScriptedModel([*rounds(5), "done"])
    SessionChat(sessions, model, tools=[big()], max_request_tokens=5_000).send(SID, "go")
    assert sum("x" * 2_000 in line for line in lines(sessions)) == 5
    assert sessions.view(SID).messages == tuple(sessions.get_messages(SID))


def test_where_placeholders_are_not_enough_the_oldest_rounds_are_not_sent(sessions: SessionService) -> None:
    answers = [
        ChatReply(
            Message.assistant([{"type": "text", "content": "y" * 900}, *reply.message.parts]),
            FinishReason.TOOL_CALL,
        )
        for reply in rounds(8)
    ]
    model = ScriptedModel([*answers, "done"])
    SessionChat(sessions, model, tools=[big()], max_request_tokens=6_000, keep_tool_results=2).send(SID, "go")
    assert "[left out here: " in model.told[8][1]
    assert "earlier rounds of tool calls" in model.told[8][1]
    assert model.told[8][0] == "User: go"


def test_turns_before_are_not_shortened(sessions: SessionService) -> None:
    model = ScriptedModel([*rounds(2), "done", *rounds(2), "done"])
    chat = SessionChat(sessions, model, tools=[big()], keep_tool_results=1)
    chat.send(SID, "one")
    SessionChat(sessions, model, tools=[big()], keep_tool_results=1, max_request_tokens=7_500).send(
        SID, "two"
    )
    assert whole(model.told[5]) == [True, True, False, True]


# --- as laws


def _turn(costs: Sequence[tuple[int, Sequence[int]]]) -> list[SessionEvent]:
    """A turn whose rounds cost this: the message with the calls, and each of its results."""
    said = [Message.user("go")]
    for number, (text, results) in enumerate(costs):
        ids = [f"c{number}.{place}" for place in range(len(results))]
        parts: list[Any] = [{"type": "tool_call", "id": name, "name": "f"} for name in ids]
        said.append(Message.assistant([{"type": "text", "content": "y" * text}, *parts]))
        said += (Message.tool("x" * size, id=name) for name, size in zip(ids, results, strict=True))
    return [
        SessionEvent(f"e{version}", EventType.MESSAGE, version, BEGIN, message=message)
        for version, message in enumerate(said)
    ]


def _cost(event: SessionEvent) -> int:
    return Characters().estimate(event.message) if event.message else 0


ROUNDS = st.lists(
    st.tuples(st.integers(0, 300), st.lists(st.integers(0, 3_000), min_size=1, max_size=3)), max_size=25
)


@given(ROUNDS, st.integers(1_500, 20_000), st.integers(1, 6))
def test_a_shortened_turn_fits_if_its_newest_round_does(
    costs: list[tuple[int, list[int]]], limit: int, keep: int
) -> None:
    events = _turn(costs)
    sent = shortened(events, limit, keep, _cost).events
    newest = sum(_cost(event) for event in events[-1 - len(costs[-1][1]) :]) if costs else 0
    if newest + 200 <= limit:
        assert sum(map(_cost, sent)) <= limit


@given(ROUNDS, st.integers(100, 20_000), st.integers(1, 6))
def test_a_call_is_sent_with_its_result_or_not_at_all(
    costs: list[tuple[int, list[int]]], limit: int, keep: int
) -> None:
    events = _turn(costs)
    cut = shortened(events, limit, keep, _cost)
    kept = {event.id for event in cut.events}
    assert all(
        (events[call].id in kept) == (events[result].id in kept) for call, result in call_pairs(events)
    )
    assert kept - {""} | set(cut.left_out) == {event.id for event in events}
    assert set(cut.placeholders) <= kept


@given(ROUNDS, st.integers(100, 20_000), st.integers(1, 6))
def test_the_newest_round_is_whole(costs: list[tuple[int, list[int]]], limit: int, keep: int) -> None:
    events = _turn(costs)
    sent = shortened(events, limit, keep, _cost).events
    newest = 1 + len(costs[-1][1]) if costs else 1
    assert list(sent[-newest:]) == events[-newest:]


@given(ROUNDS.filter(lambda costs: len(costs) <= 12), st.integers(100, 20_000), st.integers(1, 6))
def test_what_was_shortened_once_stays_shortened(
    costs: list[tuple[int, list[int]]], limit: int, keep: int
) -> None:
    before: set[str] = set()
    for count in range(1, len(costs) + 1):
        cut = shortened(_turn(costs[:count]), limit, keep, _cost)
        gone = set(cut.placeholders) | set(cut.left_out)
        assert before <= gone
        before = gone


def test_requests_between_two_steps_begin_with_the_same_bytes(sessions: SessionService) -> None:
    model = ScriptedModel([*rounds(30), "done"])
    chat = SessionChat(sessions, model, tools=[big(500)], max_request_tokens=6_000, keep_tool_results=3)
    chat.send(SID, "go")
    bodies = [json.loads(model.render(request).body)["messages"] for request in model.asked]
    same = sum(after[: len(before)] == before for before, after in pairwise(bodies))
    assert same >= 22


# --- real conversations


class Recorded:
    """A recorded conversation of one turn: the question, the answers, and a tool that returns the results."""

    def __init__(self, path: Path) -> None:
        said = [_message(one) for one in json.loads(path.read_text("utf-8"))["messages"]]
        self.question = next(one for one in said if one.role is Role.USER)
        self.answers = [one for one in said if one.role is Role.ASSISTANT and one.tool_calls]
        self._results = (part.response for one in said for part in one.tool_responses)

    def bash(self, command: str) -> str:
        """The next recorded result, whatever the command."""
        assert isinstance(command, str)
        return str(next(self._results, ""))


def _key(message: Message) -> str:
    return json.dumps(message.to_dict())


def _message(recorded: dict[str, Any]) -> Message:
    """The message without what the agent noted beside it."""
    if recorded["role"] not in ("user", "assistant", "tool"):
        return Message.system("")
    names = ("role", "content", "tool_calls", "tool_call_id")
    return openai_chat.message({name: recorded[name] for name in names if recorded.get(name)})


@pytest.mark.parametrize("path", MINI_SWE, ids=lambda path: path.stem)
def test_every_request_of_a_turn_of_a_hundred_calls_fits(path: Path, tmp_path: Path) -> None:
    limit = 16_000
    estimator = TiktokenEstimator()
    recorded = Recorded(path)
    model = ScriptedModel([*(ChatReply(one, FinishReason.TOOL_CALL) for one in recorded.answers), "Done."])
    tool = Tool.of(recorded.bash)
    with service(tmp_path / "chat.db", estimator=estimator) as sessions:
        chat = SessionChat(sessions, model, tools=[tool], max_request_tokens=limit, max_rounds=200)
        turn = chat.send(SID, recorded.question)
        assert turn.text == "Done."
        costs = {text: estimator.estimate(message) for message in turn.messages for text in (_key(message),)}
        for request in model.asked:
            sent = [one.message for one in request.conversation if isinstance(one, SessionEvent)]
            known = [one for one in sent if one is not None]
            total = sum(costs.get(_key(one)) or estimator.estimate(one) for one in known)
            assert total + estimator.estimate(Message.system(str(request.tools))) <= limit
            assert openai_rule_faults(json.loads(model.render(request).body)) == []
        assert [event_text(one) for one in sessions.view(SID).events] == lines(sessions)


def test_a_recorded_turn_of_a_hundred_calls_is_far_too_large_for_one_request() -> None:
    recorded = max(map(Recorded, MINI_SWE), key=lambda one: len(one.answers))
    assert len(recorded.answers) > 100
    estimator = TiktokenEstimator()
    assert sum(map(estimator.estimate, recorded.answers)) > 16_000
