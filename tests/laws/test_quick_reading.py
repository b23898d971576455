"""What is read the quick way is what is read the framework's way, in whatever state a stored event is."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from eventsourcing.persistence import (
    DatetimeAsISO,
    DecimalAsStr,
    JSONTranscoder,
    Mapper,
    StoredEvent,
    UUIDAsHex,
)
from hypothesis import given
from hypothesis import strategies as st
from tests.laws.profiles import effort
from tests.support import strategies as some

from turnlog.application.sessions import Sessions
from turnlog.application.stored_events import decoder_of, entry_in, stream_event_of, usual_message
from turnlog.application.transcoding import QuickJSONTranscoder
from turnlog.domain.events import MessageAppended
from turnlog.domain.json_text import from_json_text, to_json_text

THEIRS, OURS = JSONTranscoder(), QuickJSONTranscoder()
for transcoder in (THEIRS, OURS):
    for one in (UUIDAsHex(), DecimalAsStr(), DatetimeAsISO()):
        transcoder.register(one)
MAPPER: Mapper[UUID] = Mapper(OURS)

AT = "2026-01-02T03:04:05.678901+00:00"
CONTENT = '{"parts":[{"type":"text","content":"In Lund."}]}'
REDACTED = f'{{"redacted":{{"at":"{AT}","by":"ada","reason":"asked for","version":7}},"form":[]}}'
FIELDS: dict[str, Any] = {
    "timestamp": {"_type_": "datetime_iso", "_data_": AT},
    "chain": "0" * 64,
    "content": CONTENT,
    "event_id": "a",
    "role": "user",
}
FURTHER: dict[str, Any] = {
    "branch": "a.b",
    "synthetic": 1,
    "occurred_at": AT,
    "context": '{"trace":"x"}',
    "commitment": "c" * 64,
    "salt": "f" * 32,
    "opens": ["c1"],
}
STRANGE: list[object] = [
    "[]",
    "{",
    "7",
    '{"parts":[{"type":"text"}]}',
    '{"text":"x"}',
    '{"role":"tool"}',
    {"_type_": "datetime_iso", "_data_": "2026-01-02T03:04:05"},
]
NO_JSON = [
    b"",
    b"{",
    b"[1,]",
    b" {} ",
    b"{}{}",
    b"NaN",
    b"[Infinity,-0.0,1e400,-0,01]",
    b'{"a":1,"b":2,"a":3}',
    b'"\xff"',
    b'"\xed\xa0\x80"',
    b'"\\ud800"',
    b'"\\ud83d\\ude42"',
    b'"\t"',
    b"\xef\xbb\xbf{}",
    b"[" * 300 + b"]" * 300,
    b"1" * 5000,
    b'{"_type_":"strange","_data_":1}',
    b'{"_type_":[],"_data_":1}',
    b'{"_type_":"uuid_hex","_data_":7}',
    b'{"_type_":"uuid_hex","_data_":{"_type_":"decimal_str","_data_":"1.0"}}',
]

marked: st.SearchStrategy[Any] = st.recursive(
    some.json_values
    | st.sampled_from([datetime(2026, 1, 2, tzinfo=UTC), Decimal("1.50"), UUID(int=7)])
    | st.sampled_from([{"_type_": "datetime_iso"}, {"_type_": "x", "_data_": 1, "further": 2}]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def told(action: Callable[[], object]) -> str:
    """What the action returns, or raises."""
    try:
        return repr(action())
    except Exception as error:
        return repr((type(error), str(error)))


@effort(200, 20000)
@given(value=marked)
def test_the_transcoder_reads_what_the_frameworks_reads(value: object) -> None:
    try:
        data = THEIRS.encode(value)
    except UnicodeEncodeError:
        data = json.dumps(value, default=repr).encode()
    assert told(lambda: OURS.decode(data)) == told(lambda: THEIRS.decode(data))


texts = st.text(st.characters(exclude_categories=()), max_size=8)
flat = st.dictionaries(
    texts | st.none() | st.integers(),
    texts
    | st.integers()
    | st.booleans()
    | st.datetimes(timezones=st.just(UTC))
    | st.lists(texts, max_size=2),
    max_size=4,
)


@effort(300, 20000)
@given(value=flat | marked)
def test_the_transcoder_writes_what_the_frameworks_writes(value: object) -> None:
    assert told(lambda: OURS.encode(value)) == told(lambda: THEIRS.encode(value))


@effort(300, 20000)
@given(value=marked, place=st.integers(0, 60), byte=st.integers(0, 255))
def test_what_is_damaged_is_refused_as_the_framework_refuses_it(value: object, place: int, byte: int) -> None:
    data = bytearray(json.dumps(value, default=repr).encode())
    data[place % len(data)] = byte
    assert told(lambda: OURS.decode(bytes(data))) == told(lambda: THEIRS.decode(bytes(data)))


@pytest.mark.parametrize("data", NO_JSON)
def test_strange_bytes_are_read_or_refused_as_by_the_framework(data: bytes) -> None:
    assert told(lambda: OURS.decode(data)) == told(lambda: THEIRS.decode(data))


@pytest.mark.parametrize("data", [one for one in NO_JSON if b"\xff" not in one and b"\xed" not in one])
def test_strange_content_is_read_or_refused_as_json_does(data: bytes) -> None:
    text = f'{{"a":{data.decode()}}}'
    assert told(lambda: from_json_text(text)) == told(lambda: json.JSONDecoder().raw_decode(text)[0])


@pytest.mark.parametrize("text", [" {}", "{} ", "\n{}\n", "{}}", "{}{}"])
def test_content_is_the_json_and_nothing_around_it(text: str) -> None:
    with pytest.raises(json.JSONDecodeError):
        from_json_text(text)


@effort(200, 20000)
@given(value=some.json_objects)
def test_content_is_read_as_json_reads_it(value: dict[str, Any]) -> None:
    text = to_json_text(value)
    if not text.startswith("~"):
        assert repr(from_json_text(text)) == repr(json.loads(text))


@st.composite
def damaged(draw: st.DrawFn) -> dict[str, Any]:
    """The fields of a message, one of them of another kind, and one of them gone."""
    fields = dict(draw(st.sampled_from([FIELDS, {**FIELDS, "content": REDACTED, "commitment": "c" * 64}])))
    names = st.sampled_from([*FIELDS, *FURTHER, "class_version"])
    fields |= {name: FURTHER[name] for name in draw(st.sets(st.sampled_from([*FURTHER])))}
    fields |= draw(st.dictionaries(names, some.json_values | st.sampled_from(STRANGE), max_size=1))
    gone = draw(st.sets(names, max_size=1))
    return {name: value for name, value in fields.items() if name not in gone}


@effort(600, 50000)
@given(fields=damaged())
def test_a_usual_message_is_what_its_event_says(fields: dict[str, Any]) -> None:
    row = StoredEvent(UUID(int=1), 3, MessageAppended.TOPIC, json.dumps(fields).encode())
    quick = usual_message(OURS.decode, (3, row.topic, row.state), "parcel")
    if quick is not None:
        slow = entry_in(stream_event_of(MAPPER, row), "parcel")
        assert quick == slow
        assert repr(quick) == repr(slow)
        assert set(vars(quick)) == set(vars(slow))


@pytest.mark.parametrize("fields", [FIELDS, {**FIELDS, **FURTHER, "content": REDACTED}])
def test_a_message_as_it_is_written_is_usual(fields: dict[str, Any]) -> None:
    row = StoredEvent(UUID(int=1), 3, MessageAppended.TOPIC, json.dumps(fields).encode())
    assert usual_message(OURS.decode, (3, row.topic, row.state), "parcel") is not None


def test_states_that_are_compressed_are_read_by_the_mapper() -> None:
    assert decoder_of(Sessions(env={"COMPRESSOR_TOPIC": "zlib"}).mapper) is None
    assert decoder_of(Sessions().mapper) is not None


def test_an_application_of_ours_reads_the_quick_way_unless_it_is_told_otherwise() -> None:
    assert type(Sessions().mapper.transcoder) is QuickJSONTranscoder
    own = "eventsourcing.persistence:JSONTranscoder"
    assert type(Sessions(env={"TRANSCODER_TOPIC": own}).mapper.transcoder) is JSONTranscoder
