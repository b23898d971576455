"""A stored event that was damaged is an error that names session and version, whoever reads it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from eventsourcing.persistence import StoredEvent
from eventsourcing.popo import POPOAggregateRecorder
from tests.contracts.stores import sqlite_env

from turnlog.application import SessionService
from turnlog.domain.errors import UnreadableEventError
from turnlog.domain.ids import aggregate_id
from turnlog.domain.messages import Message
from turnlog.domain.query import EventQuery

Damage = Callable[[StoredEvent], StoredEvent]


def _state(change: Callable[[bytes], bytes]) -> Damage:
    return lambda row: replace(row, state=change(row.state))


def _field(change: Callable[[dict[str, Any]], object]) -> Damage:
    def damaged(state: bytes) -> bytes:
        fields = json.loads(state)
        change(fields)
        return json.dumps(fields, separators=(",", ":")).encode()

    return _state(damaged)


def _renamed(name: str) -> Damage:
    return _field(lambda fields: fields.update({f"{name}_of_old": fields.pop(name)}))


def _set(name: str, value: object) -> Damage:
    return _field(lambda fields: fields.update({name: value}))


DAMAGES: dict[str, Damage] = {
    "empty": _state(lambda _: b""),
    "cut": _state(lambda state: state[: len(state) // 2]),
    "garbage": _state(lambda _: b"\xff\x00\x13garbage"),
    "a list": _state(lambda _: b"[]"),
    "renamed id": _renamed("event_id"),
    "renamed content": _renamed("content"),
    "renamed time": _renamed("timestamp"),
    "time of another kind": _set("timestamp", "noon"),
    "content that is no JSON": _set("content", "{"),
    "content of another kind": _set("content", '{"parts":[{"type":7}]}'),
    "unknown topic": lambda row: replace(row, topic="turnlog.domain.events:MessageUnheardOf"),
    "topic of nothing": lambda row: replace(row, topic="nowhere.at.all:Nothing"),
    "topic of something else": lambda row: replace(row, topic="decimal:Decimal"),
}
READS: dict[str, Callable[[SessionService], object]] = {
    "view": lambda sessions: sessions.view("s"),
    "get_events": lambda sessions: sessions.get_events("s"),
    "iter_events": lambda sessions: list(sessions.iter_events("s")),
    "get_event": lambda sessions: sessions.get_event("s", 2),
    "search_events": lambda sessions: sessions.search_events("s", EventQuery(keywords=["parcel"])),
    "search_all": lambda sessions: sessions.search_all(EventQuery(keywords=["parcel"])),
    "usage": lambda sessions: sessions.usage("s"),
    "redact": lambda sessions: sessions.redact("s", 2, reason="r", by="b"),
}


@dataclass(frozen=True)
class Store:
    """Opens a store, and damages a row of it."""

    open: Callable[[], SessionService]
    damage: Callable[[int, Damage], None]


def _fill(sessions: SessionService) -> None:
    sessions.create(session_id="s")
    for said in ("Where is my parcel?", "The parcel is blue.", "And the parcel is late."):
        sessions.append_message("s", Message.user(said))


@pytest.fixture
def memory() -> Iterator[Store]:
    with SessionService() as sessions:
        _fill(sessions)
        recorder = sessions.app.recorder
        assert isinstance(recorder, POPOAggregateRecorder)
        events = recorder._stored_events  # pyright: ignore[reportPrivateUsage]

        def damage(version: int, how: Damage) -> None:
            for place, row in enumerate(events):
                if (row.originator_id, row.originator_version) == (aggregate_id("s"), version):
                    events[place] = how(row)

        other = SessionService(sessions.app)
        yield Store(lambda: other, damage)


@pytest.fixture
def file(tmp_path: Path) -> Store:
    path = tmp_path / "turnlog.db"
    with SessionService(env=sqlite_env(path)) as sessions:
        _fill(sessions)

    def damage(version: int, how: Damage) -> None:
        with closing(sqlite3.connect(path)) as connection, connection:
            place = (aggregate_id("s").hex, version)
            ((topic, state),) = connection.execute(
                "SELECT topic, state FROM stored_events WHERE (originator_id, originator_version) = (?, ?)",
                place,
            )
            row = how(StoredEvent(UUID(place[0]), version, topic, state))
            connection.execute(
                "UPDATE stored_events SET topic = ?, state = ? "
                "WHERE (originator_id, originator_version) = (?, ?)",
                (row.topic, row.state, *place),
            )

    return Store(lambda: SessionService(env=sqlite_env(path)), damage)


def _refused(store: Store, read: Callable[[SessionService], object]) -> UnreadableEventError:
    with (
        store.open() as sessions,
        pytest.raises(UnreadableEventError, match="turnlog audit verify") as raised,
    ):
        read(sessions)
    return raised.value


@pytest.mark.parametrize("damaged", DAMAGES)
@pytest.mark.parametrize("read", ["view", "get_events"])
def test_damage_of_any_kind_is_an_error_that_names_the_event(file: Store, damaged: str, read: str) -> None:
    file.damage(2, DAMAGES[damaged])
    error = _refused(file, READS[read])
    assert (error.session_id, error.version) == ("s", 2)


@pytest.mark.parametrize("damaged", sorted(set(DAMAGES) - {"content of another kind"}))
def test_what_a_search_cannot_read_is_not_left_out(file: Store, damaged: str) -> None:
    file.damage(2, DAMAGES[damaged])
    error = _refused(file, READS["search_all"])
    assert (error.session_id, error.version) == ("s", 2)


@pytest.mark.parametrize("read", READS)
def test_every_reader_of_a_file_says_so(file: Store, read: str) -> None:
    file.damage(2, DAMAGES["cut"])
    assert _refused(file, READS[read]).version == 2


@pytest.mark.parametrize("read", READS)
def test_every_reader_of_a_store_in_memory_says_so(memory: Store, read: str) -> None:
    memory.damage(2, DAMAGES["unknown topic"])
    assert _refused(memory, READS[read]).version == 2


@pytest.mark.parametrize("damaged", ["empty", "unknown topic", "renamed time"])
def test_a_session_whose_newest_event_is_damaged_is_not_appended_to(file: Store, damaged: str) -> None:
    file.damage(3, DAMAGES[damaged])
    error = _refused(file, lambda sessions: sessions.append_message("s", Message.user("Hello?")))
    assert (error.session_id, error.version) == ("s", 3)


def test_a_state_that_is_none_is_found_in_the_event_that_carries_it(file: Store) -> None:
    file.damage(3, _set("state", "what?"))
    error = _refused(file, lambda sessions: sessions.version("s"))
    assert (error.session_id, error.version) == ("s", 3)


def test_without_its_opening_event_a_session_is_named_by_its_aggregate(file: Store) -> None:
    for version in (0, 2):
        file.damage(version, DAMAGES["empty"])
    assert aggregate_id("s").hex in str(_refused(file, READS["view"]))


def test_other_sessions_are_read_as_before(file: Store) -> None:
    with file.open() as sessions:
        sessions.create(session_id="other")
        sessions.append_message("other", Message.user("Hello"))
    file.damage(2, DAMAGES["empty"])
    with file.open() as sessions:
        assert [message.text for message in sessions.view("other").messages] == ["Hello"]
