"""Building and merging filters, where the cases leave room."""

from __future__ import annotations

from typing import Any

import pytest

from turnlog.domain.errors import InvalidFilterError
from turnlog.domain.filters import EventFilter


def test_one_text_is_one_keyword() -> None:
    assert EventFilter(keywords="Oak") == EventFilter(keywords=["oak"])


@pytest.mark.parametrize(
    "fields",
    [
        {"keyword": 7},
        {"keywords": [7]},
        {"keywords": 7},
        {"keywords": 0},
        {"keywords": b"a"},
        {"keywords": [None]},
        {"last_n": True},
        {"page_size": True},
    ],
    ids=str,
)
def test_what_is_of_another_kind_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidFilterError):
        EventFilter(**fields)


def test_the_newest_n_of_the_second_filter_replace_the_pages_of_the_first() -> None:
    merged = EventFilter(page=2, page_size=10).merge(EventFilter(last_n=3))
    assert merged == EventFilter(last_n=3)


def test_pages_of_the_second_filter_replace_the_newest_n_of_the_first() -> None:
    merged = EventFilter(last_n=3).merge(EventFilter(page_size=10))
    assert merged == EventFilter(page=0, page_size=10)


def test_the_terms_of_the_second_filter_bring_their_own_match() -> None:
    merged = EventFilter(keywords=["a"], match="all").merge(EventFilter(keywords=["b"]))
    assert merged == EventFilter(keywords=["b"], match="any")


def test_a_match_without_terms_does_not_change_the_match_of_the_first() -> None:
    merged = EventFilter(keywords=["a"], match="all").merge(EventFilter(match="any"))
    assert merged == EventFilter(keywords=["a"], match="all")
