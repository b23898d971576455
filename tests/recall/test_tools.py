"""The two tools for models: what they are, what they take, and that nothing widens them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from turnlog.application.recall_tools import NO_RESULTS, ConversationSearch, CrossSessionSearch
from turnlog.application.service import SessionService
from turnlog.domain.attributes import SessionAttributes
from turnlog.domain.errors import InvalidSettingError
from turnlog.domain.messages import Message
from turnlog.domain.query import MAX_KEYWORD_LENGTH, InvalidArgumentError

SAID = datetime(2031, 5, 1, 9, tzinfo=UTC)


@pytest.fixture
def spoken() -> SessionService:
    sessions = SessionService()
    for name, owner in (("a", "ada"), ("b", "bob")):
        sessions.create(name, metadata={SessionAttributes.PRINCIPAL_NAME: owner})
        sessions.append_message(name, Message.user(f"oak, cedar of {owner} 会议"), occurred_at=SAID)
    return sessions


def tools(sessions: SessionService) -> tuple[ConversationSearch, CrossSessionSearch]:
    return ConversationSearch(sessions, "a"), CrossSessionSearch(sessions, "ada")


def test_a_model_is_told_the_results_as_json(spoken: SessionService) -> None:
    told = ConversationSearch(spoken, "a")({"query": "oak"})
    assert json.loads(told) == [
        {"timestamp": "2031-05-01T09:00:00Z", "type": "user", "text": "oak, cedar of ada 会议"}
    ]


def test_the_text_of_a_result_is_not_escaped_into_ascii(spoken: SessionService) -> None:
    assert "会议" in CrossSessionSearch(spoken, "ada")({"query": "会议"})


def test_a_model_is_told_when_nothing_was_found(spoken: SessionService) -> None:
    assert ConversationSearch(spoken, "a")({"query": "elm"}) == NO_RESULTS


@pytest.mark.parametrize(
    "more",
    [
        {"session_id": "b"},
        {"session": "b"},
        {"principal": "bob"},
        {"user": "bob"},
        {"where": {}},
        {"page_size": 99},
    ],
    ids=str,
)
def test_no_argument_of_a_model_widens_a_search(spoken: SessionService, more: dict[str, Any]) -> None:
    found = [[result.text for result in tool.search({"query": "oak", **more})] for tool in tools(spoken)]
    assert found == [["oak, cedar of ada 会议"]] * 2


def test_in_one_conversation_a_comma_is_a_part_of_the_word(spoken: SessionService) -> None:
    search = ConversationSearch(spoken, "a")
    assert (len(search.search({"query": "oak, cedar"})), len(search.search({"query": "cedar, oak"}))) == (
        1,
        0,
    )


@pytest.mark.parametrize(
    "arguments",
    [
        {"query": 7},
        {"query": ["oak"]},
        {"query": "x" * (MAX_KEYWORD_LENGTH + 1)},
        {"query": "oak", "page": "first"},
        {"query": "oak", "page": True},
        {"query": "oak", "page": 1.5},
    ],
    ids=lambda arguments: str(arguments)[:30],
)
def test_arguments_of_another_kind_are_refused(spoken: SessionService, arguments: dict[str, Any]) -> None:
    for tool in tools(spoken):
        with pytest.raises(InvalidArgumentError):
            tool.search(arguments)


@pytest.mark.parametrize(
    "since", ["2031-05-01T09:00:00", "20310501", 1, "2031-13-01T09:00:00Z", "9999-12-31T23:59:59.9999999Z"]
)
def test_a_time_that_is_no_instant_is_refused(spoken: SessionService, since: object) -> None:
    with pytest.raises(InvalidArgumentError, match=str(since)):
        CrossSessionSearch(spoken, "ada").search({"query": "oak", "since": since})


@pytest.mark.parametrize(
    ("mode", "found"),
    [
        ("all", 0),
        ("ALL", 0),
        ("any", 1),
        (" all ", 1),
        ("both", 1),
        (None, 1),
        (7, 1),
        (True, 1),
        (["all"], 1),
    ],
    ids=str,
)
def test_any_term_is_enough_unless_all_are_asked_for(
    spoken: SessionService, mode: object, found: int
) -> None:
    search = CrossSessionSearch(spoken, "ada")
    assert len(search.search({"query": "oak, pine", "match_mode": mode})) == found


@pytest.mark.parametrize(
    ("since", "found"),
    [
        ("2031-05-01T09:00:00z", 1),
        ("2031-05-01T09:00:00.0000000Z", 1),
        ("2031-05-01T09:00:00.0000001Z", 0),
        ("2031-05-01T08:59:59.999999999Z", 1),
        ("2031-05-01T11:00:00,000000001+02:00", 0),
    ],
)
def test_the_earliest_time_counts_to_its_last_digit(spoken: SessionService, since: str, found: int) -> None:
    assert len(CrossSessionSearch(spoken, "ada").search({"query": "oak", "since": since})) == found


@pytest.mark.parametrize("session_id", [None, "", "  "])
def test_a_search_without_its_session_cannot_be_made(spoken: SessionService, session_id: str | None) -> None:
    with pytest.raises(InvalidArgumentError, match="session"):
        ConversationSearch(spoken, session_id)


@pytest.mark.parametrize("principal", ["", " \t"])
def test_a_search_without_its_principal_cannot_be_made(spoken: SessionService, principal: str) -> None:
    with pytest.raises(InvalidSettingError):
        CrossSessionSearch(spoken, principal)


@pytest.mark.parametrize("place", [0, 1])
def test_both_providers_are_given_one_schema(spoken: SessionService, place: int) -> None:
    tool = tools(spoken)[place]
    function = tool.openai["function"]
    assert (function["name"], function["description"], function["parameters"]) == (
        tool.anthropic["name"],
        tool.anthropic["description"],
        tool.anthropic["input_schema"],
    )


@pytest.mark.parametrize("place", [0, 1])
def test_a_schema_is_plain_json(spoken: SessionService, place: int) -> None:
    tool = tools(spoken)[place]
    assert json.loads(json.dumps([tool.openai, tool.anthropic])) == [tool.openai, tool.anthropic]


@pytest.mark.parametrize("place", [0, 1])
def test_a_schema_offers_no_choice_of_whose_messages_are_searched(spoken: SessionService, place: int) -> None:
    offered = set(tools(spoken)[place].parameters["properties"])
    assert offered <= {"query", "match_mode", "since", "page"}
