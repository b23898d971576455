"""The chain of any stream, computed again by code that shares nothing with the library."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from enum import Enum
from hashlib import sha256
from typing import Any

from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st
from tests.domain.given import (
    BEGIN,
    Command,
    asked,
    compacted,
    extended,
    given,
    metadata_updated,
    noted,
    said,
)
from tests.domain.golden_stream import mapper
from tests.domain.stored_form import broken_links

from turnlog.domain.chain import chain_value, commitment, new_salt
from turnlog.domain.messages import Message
from turnlog.domain.session import Session

_texts = st.text(st.characters(), max_size=20)
_commands = st.one_of(
    st.builds(said, _texts),
    st.builds(said, _texts.map(Message.assistant), branch=st.sampled_from([None, "orch.é"])),
    st.builds(asked, _texts).map(said),
    st.builds(noted, st.just("ACME.AUDIT"), st.dictionaries(_texts, _texts, max_size=2)),
    st.just(metadata_updated({"a": 1}, context={"actor": "é"})),
    st.just(extended(BEGIN)),
)


def _stored(session: Session) -> list[tuple[int, str, dict[str, Any]]]:
    rows = [mapper().to_stored_event(event) for event in session.recorded]
    return [(row.originator_version, row.topic, json.loads(row.state)) for row in rows]


@settings(max_examples=50)
@for_all(st.lists(_commands, max_size=6))
def test_the_chain_of_any_stream_holds(commands: list[Command]) -> None:
    session = given(*commands, metadata={"title": "é\0"}).session
    assert broken_links(session.id.hex, _stored(session)) == []


def test_the_chain_holds_over_a_boundary() -> None:
    history = said("one"), said("two"), compacted(covered=[1], preserved=[2], summary=["recap"])
    session = given(*history).session
    assert broken_links(session.id.hex, _stored(session)) == []


def test_the_head_of_a_session_is_the_chain_value_of_its_newest_event() -> None:
    session = given(said("one")).session
    assert session.state.head == session.recorded[-1].chain


def test_two_salts_differ() -> None:
    assert new_salt() != new_salt()


def test_a_salt_is_sixteen_bytes_in_hex() -> None:
    assert len(bytes.fromhex(new_salt())) == 16


def test_a_commitment_is_the_hash_of_salt_line_feed_and_content() -> None:
    assert commitment("ab", "é") == sha256(b"ab\n\xc3\xa9").hexdigest()


def test_the_same_message_twice_has_two_commitments() -> None:
    one, two = given(said("same"), said("same")).session.recorded[1:]
    fields = [event.content_fields() for event in (one, two)]
    assert fields[0][0] == fields[1][0]
    assert commitment(fields[0][1] or "", "same") != commitment(fields[1][1] or "", "same")


def test_a_session_of_another_time_has_another_chain() -> None:
    heads = {Session.open("parcel", now=BEGIN.replace(microsecond=n)).state.head for n in (0, 1)}
    assert len(heads) == 2


class _Known(str, Enum):  # noqa: UP042 - formatted, a member is its name
    QUESTION = "question"


def test_a_member_of_an_enumeration_is_in_the_chain_as_it_is_stored() -> None:
    def value(event_id: str) -> str:
        moment = datetime(2026, 1, 1, tzinfo=UTC)
        return chain_value("0" * 64, "0" * 32, 1, "topic", moment, {"event_id": event_id}, "")

    assert value(_Known.QUESTION) == value("question")
