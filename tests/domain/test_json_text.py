"""JSON as the log keeps it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st

from turnlog.domain.errors import NotJsonError
from turnlog.domain.json_text import (
    JsonValue,
    checked_json_text,
    from_json_text,
    plain_json_text,
    to_json_text,
)

_values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


_plain: st.SearchStrategy[Any] = st.recursive(
    st.booleans() | st.text(st.characters(exclude_categories=())),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(exclude_categories=())), inner, max_size=3)
    ),
    max_leaves=8,
)


@for_all(_plain)
def test_texts_have_the_same_form_on_the_short_way(value: JsonValue) -> None:
    assert plain_json_text(value) == to_json_text(value)


@for_all(_values)
def test_any_json_value_comes_back_as_it_was(value: JsonValue) -> None:
    assert from_json_text(checked_json_text(value)) == value


@for_all(st.text(st.characters(exclude_categories=())))
def test_any_text_has_a_form_that_is_valid_utf8(text: str) -> None:
    assert from_json_text(to_json_text(text).encode().decode()) == text


def test_text_in_any_script_is_stored_as_it_is() -> None:
    assert to_json_text({"a": "Где ≠ 漢字 🙂"}) == '{"a":"Где ≠ 漢字 🙂"}'


def test_a_lone_surrogate_escapes_the_whole_text() -> None:
    assert to_json_text(["é", "\ud800"]) == '["\\u00e9","\\ud800"]'


def test_nul_is_escaped() -> None:
    assert to_json_text("a\0") == '"a\\u0000"'


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"cost": float("nan")}, "metadata.cost"),
        ({"cost": [1, float("inf")]}, r"metadata.cost\[1\]"),
        ({"a": {7: "x"}}, "metadata.a holds a key of type int"),
        ({"a": (1, 2)}, "metadata.a holds a value of type tuple"),
        ({"a": b"x"}, "metadata.a holds a value of type bytes"),
        ({"a": {1, 2}}, "metadata.a holds a value of type set"),
    ],
    ids=["nan", "infinity", "key", "tuple", "bytes", "set"],
)
def test_what_would_not_come_back_is_refused_with_its_place(value: object, path: str) -> None:
    with pytest.raises(NotJsonError, match=path):
        checked_json_text(value, "metadata")


def _nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


def test_nesting_is_kept_up_to_its_limit() -> None:
    assert from_json_text(checked_json_text(_nested(200))) == _nested(200)


def test_deeper_nesting_is_refused() -> None:
    with pytest.raises(NotJsonError, match="200 levels"):
        checked_json_text(_nested(201))


def test_a_value_that_holds_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(NotJsonError, match="nesting"):
        to_json_text(value)
