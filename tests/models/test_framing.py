"""Events in bytes, however the bytes are cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnlog.infrastructure.models.framing import Event, NdjsonParser, Parser, SseParser


def events(parser: Parser, *chunks: bytes) -> list[Event]:
    return [event for chunk in chunks for event in parser.feed(chunk)] + list(parser.end())


def test_an_event_has_its_name_and_its_data() -> None:
    assert events(SseParser(), b"event: ping\ndata: {}\n\n") == [("ping", "{}")]


def test_lines_of_data_are_joined_by_line_breaks() -> None:
    assert events(SseParser(), b"data: {\ndata:  1\ndata\ndata:}\n\n") == [(None, "{\n 1\n\n}")]


def test_comments_ids_and_retry_times_are_passed_over() -> None:
    assert events(SseParser(), b": ping\n\nid: 7\nretry: 10\ndata: a\n\n:\n\n") == [(None, "a")]


def test_an_event_without_data_is_none_and_its_name_does_not_last() -> None:
    assert events(SseParser(), b"event: a\n\ndata: b\n\n") == [(None, "b")]


def test_a_byte_order_mark_is_no_part_of_the_first_field() -> None:
    assert events(SseParser(), "\ufeffdata: a\n\n".encode()) == [(None, "a")]


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_the_last_event_counts_without_the_empty_line_behind_it(end: str) -> None:
    assert events(SseParser(), b"data: a\n\ndata: b" + end.encode()) == [(None, "a"), (None, "b")]


def test_an_error_in_a_field_of_its_own_is_an_event() -> None:
    assert events(SseParser(), b'error: {"code":500}\n\n') == [("error", '{"code":500}')]


def test_bytes_that_are_no_text_do_not_end_the_stream() -> None:
    assert events(SseParser(), b"data: a\xff\n\ndata: b\n\n") == [(None, "a\ufffd"), (None, "b")]


def test_each_line_is_an_event_in_json_by_lines() -> None:
    assert events(NdjsonParser(), b'{"a":1}\n\n{"b":2}\r\n{"c":3}') == [
        (None, '{"a":1}'),
        (None, '{"b":2}'),
        (None, '{"c":3}'),
    ]


texts = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=8)


@given(
    st.lists(texts.filter(bool), max_size=4),
    st.sampled_from(["\n", "\r", "\r\n"]),
    st.lists(st.integers(0, 80), max_size=12),
)
def test_where_chunks_are_cut_changes_nothing(data: list[str], end: str, cuts: list[int]) -> None:
    whole = "".join(f": ping{end}{end}event: e{end}data: {text}{end}{end}" for text in data).encode()
    places = sorted({min(cut, len(whole)) for cut in cuts} | {0, len(whole)})
    chunks = [whole[start:stop] for start, stop in pairwise(places)]
    assert events(SseParser(), *chunks) == [("e", text) for text in data]


@given(st.lists(texts.filter(str.strip), max_size=4), st.integers(1, 7))
def test_lines_come_whole_from_chunks_of_any_size(data: list[str], size: int) -> None:
    whole = "\n".join(data).encode()
    chunks = [whole[start : start + size] for start in range(0, len(whole), size)]
    assert events(NdjsonParser(), *chunks) == [(None, text) for text in data]
