"""What a query takes, and what it refuses."""

from __future__ import annotations

import time
import unicodedata
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnlog.domain.errors import InvalidIdError, NaiveTimeError
from turnlog.domain.query import (
    MAX_KEYWORD_LENGTH,
    MAX_KEYWORDS,
    EventQuery,
    InvalidArgumentError,
    searchable,
)


@pytest.mark.parametrize(
    "fields",
    [
        {"keywords": [" ", ""]},
        {"keywords": ["word"] * (MAX_KEYWORDS + 1)},
        {"keywords": "x" * (MAX_KEYWORD_LENGTH + 1)},
        {"keywords": [7]},
        {"match": "some"},
        {"roles": ["poet"]},
        {"page": -1, "page_size": 10},
        {"page": 1},
        {"page_size": 0},
    ],
    ids=lambda fields: str(fields)[:40],
)
def test_what_no_query_can_mean_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError):
        EventQuery(**fields)


@pytest.mark.parametrize("name", ["since", "until"])
def test_a_time_without_an_offset_is_refused(name: str) -> None:
    with pytest.raises(NaiveTimeError):
        EventQuery(**{name: datetime(2031, 5, 1)})  # type: ignore[arg-type] # the name decides


@pytest.mark.parametrize("branch", ["", "orch..researcher", ".orch"])
def test_a_branch_with_an_empty_name_is_refused(branch: str) -> None:
    with pytest.raises(InvalidIdError):
        EventQuery(branch=branch)


def test_the_refusal_of_too_many_keywords_names_the_limit() -> None:
    with pytest.raises(InvalidArgumentError, match=str(MAX_KEYWORDS)):
        EventQuery(keywords=map(str, range(MAX_KEYWORDS + 1)))


def test_as_many_keywords_of_such_a_length_as_are_allowed_are_taken() -> None:
    words = [f"{number:0{MAX_KEYWORD_LENGTH}}" for number in range(MAX_KEYWORDS)]
    assert EventQuery(keywords=words).keywords == tuple(words)


def test_blank_keywords_among_others_do_not_count() -> None:
    assert EventQuery(keywords=["", "oak", "  "]).keywords == ("oak",)


def test_one_text_is_one_keyword() -> None:
    assert EventQuery(keywords="go, with oak").keywords == ("go, with oak",)


def test_a_page_beyond_all_numbers_is_only_a_page_beyond_the_end() -> None:
    assert EventQuery(page=10**30, page_size=10**30).limits[0] > 10**9


def test_the_next_page_of_a_query_is_the_same_query() -> None:
    query = EventQuery(keywords=["Oak"], match="all", page_size=5)
    assert replace(query, page=1) == EventQuery(keywords=["Oak"], match="all", page=1, page_size=5)


def test_queries_of_the_same_criteria_are_equal() -> None:
    since = datetime(2031, 5, 1, tzinfo=UTC)
    assert EventQuery(keywords=["a"], since=since) == EventQuery(keywords="a", since=since)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Привет", "ПРИВЕТ"),
        ("Ägypten", "ägypten"),
        ("STRASSE", "straße"),
        ("İSTANBUL", "istanbul"),
        ("ISPARTA", "ısparta"),
        ("cafe\u0301", "caf\u00e9"),
        ("\u1e9b\u0323", "\u1e69"),
        ("ｶﾞｽ", "ガス"),
        ("ΟΔΟΣ", "οδος"),
        ("ﬁle", "FILE"),
        ("１２３", "123"),
    ],
)
def test_two_ways_to_write_a_word_are_compared_as_one(one: str, other: str) -> None:
    assert searchable(one) == searchable(other)


@given(st.text(), st.sampled_from(["NFC", "NFD", "NFKC", "NFKD"]))
def test_how_characters_are_encoded_makes_no_difference(text: str, form: Any) -> None:
    assert searchable(unicodedata.normalize(form, text)) == searchable(text)


def test_a_text_of_nothing_but_accents_takes_no_longer_than_its_length() -> None:
    accents = "\u0301\u0323"
    start = time.process_time()
    searchable("a" + accents * 500_000)
    assert time.process_time() - start < 10
