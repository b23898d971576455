"""Finding sessions by their metadata: what counts as equal, in which order, on which pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.contracts.stores import STORES, Store

from turnlog.application.ports import SessionRow
from turnlog.application.service import SessionService
from turnlog.domain.attributes import SessionAttributes
from turnlog.domain.errors import InvalidSettingError, NotJsonError
from turnlog.domain.messages import Message

HI = Message.user("hi")


@pytest.fixture(params=["memory", "sqlite", "sqlite-plain-recorder", "postgres", "postgres-plain-recorder"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """Directories that catch up, and one of rows."""
    return STORES[request.param](tmp_path)


@pytest.fixture
def sessions(store: Store) -> SessionService:
    """A service on the store."""
    return store.service()


def ids(rows: Sequence[SessionRow]) -> list[str]:
    return [row.session_id for row in rows]


def test_all_of_several_keys_must_hold(sessions: SessionService) -> None:
    agent = {SessionAttributes.AGENT_NAME: "scout", SessionAttributes.AGENT_VERSION: "2"}
    sessions.create("both", metadata={**agent, SessionAttributes.MODEL: "m", "more": 1})
    sessions.create("one", metadata={SessionAttributes.AGENT_NAME: "scout"})
    sessions.create("none")
    assert ids(sessions.find_by_metadata(agent)) == ["both"]


def test_without_criteria_all_are_found(sessions: SessionService) -> None:
    sessions.create("a", metadata={"x": 1})
    sessions.create("b")
    assert ids(sessions.find_by_metadata({})) == ["b", "a"]


VALUES: dict[str, Any] = {
    "true": True,
    "one": 1,
    "one point zero": 1.0,
    "text one": "1",
    "false": False,
    "zero": 0,
    "null": None,
    "empty": "",
    "list": [1, 2],
    "list turned": [2, 1],
    "object": {"a": 1, "b": [None]},
    "composed": "caf\u00e9",
    "decomposed": "cafe\u0301",
    "upper": "CAF\u00c9",
    "blank behind": "caf\u00e9 ",
    "cjk": "評審",
    "emoji": "🙂",
    "surrogate": "\ud800",
    "nul": "a\0b",
    "quote": "' OR 1=1 --",
    "percent": "%",
    "huge": 2**80,
    "long": "x" * 5000,
}


def test_values_are_compared_exactly_as_json(sessions: SessionService) -> None:
    for name, value in VALUES.items():
        sessions.create(name, metadata={"key": value})
    found = {name: ids(sessions.find_by_metadata({"key": value})) for name, value in VALUES.items()}
    assert found == {name: [name] for name in VALUES}


def test_the_order_of_keys_in_an_object_makes_no_difference(sessions: SessionService) -> None:
    sessions.create("s", metadata={"key": {"a": 1, "b": 2}})
    assert ids(sessions.find_by_metadata({"key": {"b": 2, "a": 1}})) == ["s"]


@pytest.mark.parametrize("key", ["", "ключ", "a.b", "a\0", "\ud800", "'"])
def test_any_key_is_found(sessions: SessionService, key: str) -> None:
    sessions.create("s", metadata={key: 1})
    sessions.create("t", metadata={"other": 1})
    assert ids(sessions.find_by_metadata({key: 1})) == ["s"]


def test_a_key_that_holds_null_is_not_a_key_that_is_missing(sessions: SessionService) -> None:
    sessions.create("null", metadata={"key": None})
    sessions.create("missing")
    assert ids(sessions.find_by_metadata({"key": None})) == ["null"]


def test_what_json_cannot_say_is_no_criterion(sessions: SessionService) -> None:
    with pytest.raises(NotJsonError):
        sessions.find_by_metadata({"key": float("nan")})


def test_an_update_moves_a_session_from_one_answer_to_another(store: Store, sessions: SessionService) -> None:
    sessions.create("s", metadata={"key": "old", "kept": 1})
    store.service().update_metadata("s", {"key": "new", "kept": 1})
    (row,) = sessions.find_by_metadata({"key": "new", "kept": 1})
    assert (row.metadata, row.version) == ({"key": "new", "kept": 1}, 1)
    assert ids(sessions.find_by_metadata({"key": "old"})) == []


def test_a_deleted_session_is_found_no_more(store: Store, sessions: SessionService) -> None:
    for name in ("a", "b"):
        sessions.create(name, metadata={"key": 1})
    store.service().delete("a", erase=False)
    assert ids(sessions.find_by_metadata({"key": 1})) == ["b"]


def test_pages_go_from_the_newest_to_the_oldest_whatever_is_appended_meanwhile(
    sessions: SessionService,
) -> None:
    for number in range(9):
        sessions.create(f"s{number}", metadata={"key": number % 2})
    first = sessions.find_by_metadata({"key": 0}, limit=2)
    sessions.append_message("s2", HI)
    sessions.update_metadata("s0", {"key": 0, "title": "older"})
    sessions.create("late", metadata={"key": 0})
    second = sessions.find_by_metadata({"key": 0}, limit=2, before=first[-1].position)
    third = sessions.find_by_metadata({"key": 0}, limit=2, before=second[-1].position)
    assert [ids(page) for page in (first, second, third)] == [["s8", "s6"], ["s4", "s2"], ["s0"]]


def test_a_row_says_how_much_was_said(sessions: SessionService) -> None:
    sessions.create("s", metadata={SessionAttributes.TITLE: "A parcel"})
    sessions.append_events("s", [HI, HI])
    sessions.append_event("s", "ACME.AUDIT", {})
    (row,) = sessions.list_sessions()
    assert (row.messages, row.version, row.metadata[SessionAttributes.TITLE]) == (2, 3, "A parcel")


LISTS: dict[str, Callable[[SessionService, int], Sequence[SessionRow]]] = {
    "all": lambda sessions, limit: sessions.list_sessions(limit=limit),
    "by metadata": lambda sessions, limit: sessions.find_by_metadata({}, limit=limit),
    "by prefix": lambda sessions, limit: sessions.sessions_with_prefix("s", limit=limit),
}


@pytest.mark.parametrize("limit", [0, -1, True])
@pytest.mark.parametrize("name", sorted(LISTS))
def test_a_page_holds_at_least_one_session(sessions: SessionService, name: str, limit: int) -> None:
    with pytest.raises(InvalidSettingError):
        LISTS[name](sessions, limit)


@pytest.mark.parametrize("number", [2**63, 2**200])
def test_limits_and_positions_beyond_all_numbers_are_only_large(
    sessions: SessionService, number: int
) -> None:
    sessions.create("s")
    assert ids(sessions.list_sessions(limit=number, before=number)) == ["s"]
    assert ids(sessions.sessions_with_prefix("s", limit=number)) == ["s"]


@pytest.mark.parametrize("number", [0, -1, -(2**200)])
def test_in_front_of_the_first_position_there_is_none(sessions: SessionService, number: int) -> None:
    sessions.create("s")
    assert ids(sessions.list_sessions(before=number)) == []
