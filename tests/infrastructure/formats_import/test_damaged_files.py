"""A damaged file is refused with its place and the reason, and gives nothing."""

from __future__ import annotations

import json
import os
from copy import copy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.infrastructure.formats_import.conftest import (
    OWN_TRANSCRIPTS,
    SUPPORTED,
    WriteFile,
    said,
    sessions_of,
)

from turnlog.domain.json_text import checked_json_text
from turnlog.infrastructure.formats.imported import (
    FileTooLargeError,
    ImportFileError,
    UnknownFormatError,
    UnreadableFileError,
)
from turnlog.infrastructure.formats.importing import KNOWN_FORMATS, read_file
from turnlog.infrastructure.formats.json_source import fields, items

LINE = b'{"messages": [{"role": "user", "content": "hi"}]}\n'


def refused(path: Path) -> UnreadableFileError:
    with pytest.raises(UnreadableFileError) as caught:
        read_file(path)
    return caught.value


@pytest.mark.parametrize(
    ("content", "line", "reason"),
    [
        (b"", None, "it is empty"),
        (b" \r\n\n", None, "it is empty"),
        (LINE + b'{"messages": [{"role": "user", "cont', 2, "ends too early"),
        (LINE + b"{'messages': []}\n" + LINE, 2, "not valid JSON"),
        (b'{"messages": [}\n' + LINE, 1, "not valid JSON"),
        (b'[\n {"role": "user",\n  "content": "hi"', 3, "ends too early"),
        (b'[\n {"role": "user",\n  "content" "hi"}\n]', 3, "not valid JSON"),
        (LINE + LINE + b'{"messages": "\xff"}\n', 3, "byte 15 of the line (0xff) is not valid UTF-8"),
        (b'[\n {"role": "user",\n  "content": "\xff"}\n]', 3, "not valid UTF-8"),
        (LINE.decode().encode("utf-16"), 1, "not valid UTF-8"),
        (LINE + b'{"messages": [], "x": NaN}\n', 2, "the number nan"),
        (b'[\n {"role": "user",\n  "x": [-Infinity],\n "content": "NaN"}\n]', 3, "the number -inf"),
        (LINE + b'{"messages": [], "x": 1e999}\n', 2, "the number inf"),
        (LINE + b"[" * 190 + b"]" * 190, 2, "levels of nesting"),
        (LINE + b"[" * 100_000, 2, "nested too deeply"),
        (LINE + b"9" * 5000, 2, "integer string conversion"),
        (LINE + b"42\n", 2, "no list of messages"),
        (LINE + b'{"messages": [{"role": "alien"}]}\n', 2, "message 0: "),
        (LINE + b'{"messages": [7]}\n', 2, "A message is a JSON object"),
        (b'{"exchanges": [{"url": "/chat/completions", "status": 500}]}', None, "holds no conversation"),
    ],
)
def test_damage_is_named_with_its_line(
    write_file: WriteFile, content: bytes, line: int | None, reason: str
) -> None:
    error = refused(write_file(content))
    assert error.line == line
    assert reason in error.reason


def test_the_message_says_that_nothing_was_imported(write_file: WriteFile) -> None:
    path = write_file(LINE + b"{")
    assert str(refused(path)).startswith(f"{path}, line 2: the JSON ends too early")
    assert "Nothing was imported" in str(refused(path))


def test_a_byte_order_mark_is_tolerated(write_file: WriteFile) -> None:
    (session,) = sessions_of(write_file(b"\xef\xbb\xbf" + LINE))
    assert said(session) == [("user", "hi")]


def test_crlf_and_blank_lines_are_tolerated(write_file: WriteFile) -> None:
    path = write_file((LINE + b"\n" + LINE).replace(b"\n", b"\r\n"))
    assert len(sessions_of(path)) == 2


def test_a_missing_line_end_is_tolerated(write_file: WriteFile) -> None:
    assert len(sessions_of(write_file(LINE + LINE.rstrip()))) == 2


def test_of_keys_that_stand_twice_the_last_is_taken(write_file: WriteFile) -> None:
    (session,) = sessions_of(write_file(b'[{"role": "user", "content": "a", "content": "b"}]'))
    assert said(session) == [("user", "b")]


def test_a_line_separator_in_a_text_ends_no_line(write_file: WriteFile) -> None:
    (session,) = sessions_of(write_file('[{"role": "user", "content": "a\u2028b\u0085c"}]'.encode()))
    assert said(session) == [("user", "a\u2028b\u0085c")]


def test_a_pretty_printed_list_of_one_line_objects_is_one_document(write_file: WriteFile) -> None:
    path = write_file(b'[\n{"role": "user", "content": "hi"}\n]\n')
    assert len(sessions_of(path)) == 1


def test_a_document_above_the_limit_is_refused_with_both_figures(write_file: WriteFile) -> None:
    document = b'[\n {"role": "user",\n  "content": "hi"}\n]'
    with pytest.raises(FileTooLargeError, match=f"{len(document)} bytes; at most 30 ") as caught:
        read_file(write_file(document), max_size=30)
    assert (caught.value.size, caught.value.max_size) == (len(document), 30)


def test_a_document_of_one_line_above_the_limit_is_refused(write_file: WriteFile) -> None:
    with pytest.raises(FileTooLargeError):
        read_file(write_file(LINE), max_size=len(LINE) - 1)


def test_lines_within_the_limit_may_make_a_file_above_it(write_file: WriteFile) -> None:
    assert read_file(write_file(LINE * 10), max_size=len(LINE)).session_count == 10


def test_a_line_above_the_limit_is_refused_with_its_number(write_file: WriteFile) -> None:
    with pytest.raises(FileTooLargeError, match="line 2") as caught:
        read_file(write_file(LINE + b" " + LINE), max_size=len(LINE))
    assert caught.value.line == 2


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert "no such file" in refused(tmp_path / "missing.json").reason


def test_a_folder_is_refused(tmp_path: Path) -> None:
    assert "not a regular file" in refused(tmp_path).reason


def test_a_pipe_is_refused_instead_of_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in refused(tmp_path / "pipe").reason


def test_a_file_that_changed_since_it_was_checked_is_refused(write_file: WriteFile) -> None:
    file = read_file(write_file(LINE))
    write_file(LINE + LINE)
    with pytest.raises(UnreadableFileError, match="was changed"):
        next(file.sessions())


def test_an_unknown_format_names_the_known_ones(write_file: WriteFile) -> None:
    with pytest.raises(UnknownFormatError, match=", ".join(KNOWN_FORMATS)):
        read_file(write_file({"answer": 42}))


def test_a_format_that_does_not_exist_is_refused(write_file: WriteFile) -> None:
    with pytest.raises(UnknownFormatError, match="'word'"):
        read_file(write_file(LINE), format="word")


def test_a_format_can_be_forced(write_file: WriteFile) -> None:
    assert sessions_of(write_file(LINE), "anthropic_messages")[0].source == "anthropic_messages"


@pytest.mark.parametrize(
    "name", [name for name in KNOWN_FORMATS if "messages" not in name and name != "openai_chat"]
)
def test_a_forced_format_that_does_not_fit_is_an_error(write_file: WriteFile, name: str) -> None:
    with pytest.raises(UnreadableFileError):
        read_file(write_file(LINE), format=name)


VALUES: list[Any] = [None, True, 0, -1, 1e300, "", "x", "\ud800\0", "tool", [], [[]], [1], {}, {"type": []}]
SAMPLES = sorted(
    path for kind in SUPPORTED for path in (OWN_TRANSCRIPTS / kind).glob("*") if path.stat().st_size < 20_000
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=200)
@given(data=st.data())
def test_a_file_with_any_value_in_any_place_is_read_or_refused(
    write_file: WriteFile, data: st.DataObject
) -> None:
    path = data.draw(st.sampled_from(SAMPLES))
    text = path.read_text(encoding="utf-8")
    values = (
        [json.loads(text)] if path.suffix == ".json" else [json.loads(line) for line in text.splitlines()]
    )
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(values) - 1))
        values[place] = _with_change(values[place], data)
    try:
        sessions = sessions_of(write_file(*values), data.draw(st.sampled_from((None, path.parent.name))))
    except ImportFileError:
        return
    for session in sessions:
        for event in session.events:
            checked_json_text(event.message.to_dict() if event.message else event.payload)


def _with_change(value: Any, data: st.DataObject) -> Any:
    """The value with one place of it, at any depth, replaced or taken away."""
    keys: list[Any] = [*range(len(items(value))), *sorted(fields(value))]
    if not keys or data.draw(st.integers(0, 9)) == 0:
        return data.draw(st.sampled_from(VALUES))
    changed = copy(value)
    key = data.draw(st.sampled_from(keys))
    if data.draw(st.integers(0, 9)):
        changed[key] = _with_change(changed[key], data)
    else:
        del changed[key]
    return changed
