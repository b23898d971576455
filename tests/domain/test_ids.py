"""Ids of sessions, events and branches."""

from __future__ import annotations

from uuid import UUID

import pytest

from turnlog.domain.errors import InvalidIdError
from turnlog.domain.ids import (
    aggregate_id,
    check_branch,
    check_id,
    entry_id,
    is_ancestor,
    own_event_id,
    own_event_id_version,
)

TWENTY = "0123456789abcdef0123"


@pytest.mark.parametrize("value", ["a", "x" * 200, "漢字 🙂", " ", "a\nb", "a/b"])
def test_an_id_is_any_text_and_kept_as_it_is(value: str) -> None:
    assert check_id("Event id", value) == value


@pytest.mark.parametrize("value", ["", "x" * 201, "a\0b", "\ud800", 7, None])
def test_other_ids_are_refused(value: object) -> None:
    with pytest.raises(InvalidIdError, match="Event id"):
        check_id("Event id", value)


@pytest.mark.parametrize("value", ["orch", "orch.researcher", "a.b.c"])
def test_a_branch_is_names_parted_by_dots(value: str) -> None:
    assert check_branch(value) == value


@pytest.mark.parametrize("value", ["", ".", "a.", ".a", "a..b"])
def test_a_branch_with_an_empty_name_is_refused(value: str) -> None:
    with pytest.raises(InvalidIdError, match="Branch"):
        check_branch(value)


@pytest.mark.parametrize(
    ("ancestor", "branch", "sees"),
    [
        (None, None, True),
        (None, "lead", True),
        ("lead", "lead", True),
        ("lead", "lead.scout", True),
        ("lead", None, False),
        ("lead.scout", "lead", False),
        ("lead", "leader", False),
        ("lead", "Lead.scout", False),
    ],
)
def test_a_branch_sees_itself_and_what_it_hangs_on(
    ancestor: str | None, branch: str | None, sees: bool
) -> None:
    assert is_ancestor(ancestor, branch) is sees


@pytest.mark.parametrize(
    ("session_id", "namespace", "expected"),
    [
        ("parcel", "", "43f871d3-9700-5532-aa51-45344591a5a5"),
        ("漢字", "acme", "a08d7651-0e7e-5657-9343-282f13003f10"),
    ],
)
def test_the_aggregate_id_of_a_session_never_changes(session_id: str, namespace: str, expected: str) -> None:
    assert aggregate_id(session_id, namespace) == UUID(expected)


def test_namespace_and_session_id_cannot_be_mixed_up() -> None:
    assert aggregate_id('b","c', "a") != aggregate_id("c", 'a","b')


def test_the_entry_of_an_event_id_belongs_to_its_session() -> None:
    one, two = aggregate_id("one"), aggregate_id("two")
    assert len({entry_id(one, "e1"), entry_id(one, "e2"), entry_id(two, "e1")}) == 3


def test_an_own_event_id_says_its_version() -> None:
    assert own_event_id_version(own_event_id(17, TWENTY)) == 17


@pytest.mark.parametrize(
    "event_id",
    [
        "e1",
        TWENTY,
        f"017-{TWENTY}",
        f"-{TWENTY}",
        f"17-{TWENTY}0",
        f"17-{TWENTY[1:]}",
        f"17-{TWENTY.upper()}",
        f"17-{TWENTY}\n",
        f"１７-{TWENTY}",
    ],
)
def test_other_ids_say_no_version(event_id: str) -> None:
    assert own_event_id_version(event_id) is None
