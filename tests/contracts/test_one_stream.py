"""Stores that save one stream at a time: ids of events are settled by whoever writes next."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.contracts.stores import STORES, Store

from turnlog.domain.events import EventIdTaken
from turnlog.domain.log import NewEvent
from turnlog.domain.messages import Message

BATCH = [NewEvent(message=Message.user(name), id=name) for name in ("a", "b", "c")]


class ProcessDiedError(Exception):
    """Stands in for a crash."""


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return STORES["one-stream"](tmp_path)


def test_a_repeat_right_behind_its_first_write_is_known(store: Store) -> None:
    store.service().create("s")
    store.service().append_events("s", BATCH)
    again = store.service().append_events("s", BATCH)
    assert [event.is_repeat for event in again] == [True, True, True]


def test_a_settlement_that_was_cut_short_is_completed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = store.service()
    sessions.create("s")
    sessions.append_events("s", BATCH)
    save, settled = sessions.app.save, 0

    def dies_in_between(*aggregates: object) -> object:
        nonlocal settled
        if isinstance(aggregates[0], EventIdTaken):
            settled += 1
            if settled == 2:
                raise ProcessDiedError
        return save(*aggregates)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] # passed on as it came

    monkeypatch.setattr(sessions.app, "save", dies_in_between)
    with pytest.raises(ProcessDiedError):
        sessions.append_message("s", Message.user("d"), event_id="d")
    monkeypatch.undo()
    assert all(event.is_repeat for event in store.service().append_events("s", BATCH))
    assert len(sessions.get_events("s")) == 3


def test_ids_of_several_writes_at_one_time_are_all_known(store: Store) -> None:
    """The clock stands still, so the newest write cannot be told from the one before it by its time."""
    sessions = store.service()
    sessions.create("s")
    for event in BATCH:
        sessions.append_event("s", event)
    assert all(event.is_repeat for event in store.service().append_events("s", BATCH))
