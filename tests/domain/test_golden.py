"""The storage format: what is stored by any released version is what today's code writes and reads."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from functools import cache
from typing import Any

import pytest
from tests.domain.golden_stream import decided, event_of, sample_of, stored_samples
from tests.domain.stored_form import broken_links, chain_of

from turnlog.domain.chain import commitment
from turnlog.domain.entries import entry_of
from turnlog.domain.events import STREAM_EVENTS, EventIdTaken
from turnlog.domain.session import Session, fold
from turnlog.domain.view import project, replay

SAMPLES = stored_samples()
STREAM = [sample for sample in SAMPLES if sample["aggregate"] == SAMPLES[0]["aggregate"]]
SHARED = {"state", "anchor", "context"}
"""Fields of every event in a stream: one sample is enough."""
STORED_CLASSES: tuple[type[Any], ...] = (*STREAM_EVENTS, EventIdTaken)


def _name(sample: dict[str, Any]) -> str:
    return f"{sample['topic'].rpartition(':')[2]}-{sample['version']}"


def _states(samples: list[dict[str, Any]]) -> list[tuple[int, str, dict[str, Any]]]:
    return [(sample["version"], sample["topic"], json.loads(sample["state"])) for sample in samples]


def _names(events: Iterable[Any]) -> set[str]:
    names: set[str] = set()
    return names.union(*map(vars, events))


@cache
def _samples_of_today() -> list[dict[str, Any]]:
    return [sample_of(event) for event in decided()]


def test_no_sample_is_missing() -> None:
    assert len(SAMPLES) == len(_samples_of_today())


@pytest.mark.parametrize("place", range(len(SAMPLES)), ids=[_name(sample) for sample in SAMPLES])
def test_an_event_is_stored_as_it_was_in_every_release(place: int) -> None:
    assert _samples_of_today()[place] == SAMPLES[place]


@pytest.mark.parametrize("sample", SAMPLES, ids=_name)
def test_a_stored_event_comes_back_as_what_its_class_makes_of_its_fields(sample: dict[str, Any]) -> None:
    event = event_of(sample)
    assert event == type(event)(**vars(event))


def test_every_event_class_has_a_sample() -> None:
    assert {sample["topic"] for sample in SAMPLES} == {event_class.TOPIC for event_class in STORED_CLASSES}


@pytest.mark.parametrize("event_class", STORED_CLASSES)
def test_every_field_is_set_in_a_sample(event_class: type[Any]) -> None:
    declared = {field.name for field in dataclasses.fields(event_class)}
    events: list[Any] = [event_of(sample) for sample in SAMPLES]
    of_class = _names(event for event in events if type(event) is event_class)
    assert _names(events) >= SHARED
    # A commitment is stored when a content is removed; a nonce where there is no salt.
    assert declared - of_class - SHARED - {"commitment", "nonce"} == set()


def test_a_stored_stream_loads() -> None:
    session: Session | None = None
    for sample in STREAM:
        session = event_of(sample).mutate(session)
    assert session is not None
    assert (session.version, session.is_deleted) == (19, True)


@pytest.mark.parametrize("sample", STREAM, ids=_name)
def test_the_state_that_an_event_carries_is_the_fold_up_to_it(sample: dict[str, Any]) -> None:
    events = [event_of(one) for one in STREAM[: sample["version"] + 1]]
    assert events[-1].state_carried() == fold(events)


def test_the_view_of_a_stored_stream_is_what_its_boundary_names() -> None:
    log = [entry for sample in STREAM if (entry := entry_of(event_of(sample), ""))]
    assert project(log).ids == replay(log).ids == ("m1", "su14", "sa15", "m10", "m11")


def test_a_stored_text_comes_back_whatever_it_holds() -> None:
    entry = entry_of(event_of(STREAM[6]), "")
    assert entry is not None
    assert entry.message is not None
    assert entry.message.tool_responses[0].response == "In Lund\0."


def test_stored_metadata_come_back_whatever_they_hold() -> None:
    assert json.loads(event_of(STREAM[0]).content) == {"title": "NUL \0, lone \ud800"}


# --- the chain over the stored form


def test_the_chain_of_a_stored_stream_holds() -> None:
    assert broken_links(STREAM[0]["aggregate"], _states(STREAM)) == []


CHANGES: dict[str, Any] = {
    "role": "assistant",
    "event_id": "m0",
    "occurred_at": "2031-05-01T08:00:00.123457+00:00",
    "content": '{"parts":[]}',
    "salt": "0" * 32,
    "state": "1;0;;;",
    "timestamp": {"_type_": "datetime_iso", "_data_": "2031-05-01T08:02:02.123457+00:00"},
    "branch": "added",
}


@pytest.mark.parametrize("name", sorted(CHANGES))
def test_a_changed_field_breaks_the_chain_where_it_is(name: str) -> None:
    states = _states(STREAM)
    states[2][2][name] = CHANGES[name]
    assert broken_links(STREAM[0]["aggregate"], states) == [2]


def test_a_removed_event_breaks_the_chain_behind_it() -> None:
    states = _states(STREAM)
    del states[5]
    assert broken_links(STREAM[0]["aggregate"], states) == [6]


def test_a_content_that_was_removed_leaves_the_chain_whole() -> None:
    states = _states(STREAM)
    state = states[2][2]
    state["commitment"] = commitment(state.pop("salt"), state.pop("content"))
    assert broken_links(STREAM[0]["aggregate"], states) == []


@pytest.mark.parametrize("sample", STREAM, ids=_name)
def test_the_library_links_an_event_as_the_design_says(sample: dict[str, Any]) -> None:
    state = json.loads(sample["state"])
    expected = chain_of("ab" * 32, sample["aggregate"], sample["version"], sample["topic"], state)
    assert event_of(sample).linked_to("ab" * 32) == expected
