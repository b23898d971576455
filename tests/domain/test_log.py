"""What a log holds, and what may be appended to it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.events import log_of

from turnlog.domain.errors import InvalidBoundaryError, InvalidEventError, InvalidIdError
from turnlog.domain.log import CompactionBoundary, EventType, NewEvent, SessionEvent, superseded_system
from turnlog.domain.messages import Message


def entry(**fields: Any) -> SessionEvent:
    (event,) = log_of([{"id": "e1", "kind": "message", "text": "hi", **fields}])
    return event


# --- types


@pytest.mark.parametrize("name", ["A", "ACME.AUDIT", "A_1.2", "X" * 64])
def test_a_type_is_upper_case_with_digits_dots_and_underscores(name: str) -> None:
    assert EventType.of(name) == name


@pytest.mark.parametrize("name", ["", "acme", "1A", ".A", "A B", "Ä", "X" * 65, "A\n"])
def test_other_types_are_refused(name: str) -> None:
    with pytest.raises(InvalidEventError, match="not allowed"):
        EventType.of(name)


# --- boundaries


def test_a_boundary_names_pinned_summary_and_preserved_in_this_order() -> None:
    assert CompactionBoundary(("p",), ("s1", "s2"), ("k",)).named == ("p", "s1", "s2", "k")


@pytest.mark.parametrize(
    "groups",
    [(("a", "a"), (), ()), (("a",), ("a",), ()), (("a",), (), ("a",)), ((), ("a",), ("a",))],
)
def test_a_boundary_that_names_a_message_twice_is_refused(groups: tuple[tuple[str, ...], ...]) -> None:
    with pytest.raises(InvalidBoundaryError, match="'a' twice"):
        CompactionBoundary(pinned=groups[0], summary=groups[1], preserved=groups[2])


# --- events of a log


@pytest.mark.parametrize(
    ("fields", "starts"),
    [
        ({"role": "user"}, True),
        ({"role": "user", "synthetic": True}, False),
        ({"role": "user", "branch": "scout"}, False),
        ({"role": "assistant"}, False),
        ({"role": "system"}, False),
    ],
)
def test_a_turn_starts_at_a_user_message_of_the_root(fields: dict[str, Any], starts: bool) -> None:
    assert entry(**fields).starts_turn is starts


def test_an_event_without_a_message_has_no_role_and_no_text() -> None:
    (audit,) = log_of([{"id": "x1", "kind": "ACME.AUDIT", "payload": {}}])
    assert (audit.role, audit.text, audit.starts_turn, audit.is_stored_system) == (None, None, False, False)


def test_what_an_append_answers_is_no_part_of_the_event() -> None:
    event = entry(role="user")
    assert event == entry(role="user", archived=True)


def test_a_stored_system_message_is_superseded_by_the_next_of_its_branch() -> None:
    fields: list[dict[str, Any]] = [
        {"id": "s1"},
        {"id": "b1", "branch": "scout"},
        {"id": "summary", "synthetic": True},
        {"id": "s2"},
        {"id": "b2", "branch": "scout"},
        {"id": "s3"},
    ]
    log = log_of({"kind": "message", "role": "system", "text": "be kind", **one} for one in fields)
    assert superseded_system(log) == {"s1", "b1", "s2"}


# --- what may be appended


def test_a_message_alone_is_an_event_without_an_id() -> None:
    new = NewEvent.of(Message.user("hi"))
    assert (new.type, new.id, new.branch) == (EventType.MESSAGE, None, None)


def test_an_event_of_another_log_keeps_its_id_and_branch() -> None:
    new = NewEvent.of(entry(role="user", branch="scout", synthetic=True))
    assert (new.id, new.branch, new.synthetic) == ("e1", "scout", True)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({}, "needs a message"),
        ({"message": Message.user("hi"), "payload": {}}, "has no payload"),
        ({"message": Message.user("hi"), "type": EventType.of("ACME.AUDIT")}, "no message"),
        ({"type": EventType.of("ACME.AUDIT"), "payload": {}, "synthetic": True}, "no message"),
        ({"type": EventType.COMPACTION}, "written by `compact`"),
    ],
)
def test_an_event_that_is_neither_message_nor_payload_is_refused(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidEventError, match=says):
        NewEvent(**fields)


@pytest.mark.parametrize("fields", [{"id": ""}, {"id": "a\0"}, {"branch": ""}, {"branch": "a..b"}])
def test_an_event_with_a_malformed_id_or_branch_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidIdError):
        NewEvent(message=Message.user("hi"), **fields)
