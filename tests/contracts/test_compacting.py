"""Views, boundaries and passes that race, on every store."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
from tests.contracts.passes import keep_turns, summarize
from tests.contracts.stores import BEGIN, Store

from turnlog.application.service import SessionService
from turnlog.domain.compaction import CompactionReason
from turnlog.domain.errors import SessionNotFoundError, UnknownVersionError
from turnlog.domain.log import EventType
from turnlog.domain.messages import Message
from turnlog.domain.view import project


def _turns(sessions: SessionService, count: int) -> None:
    sessions.create("s")
    for number in range(1, count + 1):
        sessions.append_message("s", Message.user(str(number)), event_id=str(number))


def test_a_pass_covers_what_the_window_leaves_out(store: Store) -> None:
    sessions = store.service()
    _turns(sessions, 5)
    result = keep_turns(sessions, "s", 2)
    assert [event.id for event in result.covered_events] == ["1", "2", "3"]
    assert store.service().view("s").ids == ("4", "5")


def test_the_summary_stands_in_front_of_what_is_kept(store: Store) -> None:
    sessions = store.service()
    _turns(sessions, 3)
    result = summarize(sessions, "s", 1)
    assert store.service().view("s").ids == (*(event.id for event in result.summary_events), "3")


def test_the_boundary_and_its_summary_are_the_newest_events_in_this_order(sessions: SessionService) -> None:
    _turns(sessions, 3)
    result = summarize(sessions, "s", 1)
    assert sessions.get_events("s")[-3:] == (result.boundary, *result.summary_events)
    assert result.version == 6


def test_a_view_of_the_past_is_the_view_as_it_was(store: Store) -> None:
    sessions = store.service()
    _turns(sessions, 3)
    before = sessions.view("s")
    store.pass_time(hours=1)
    summarize(sessions, "s", 1)
    assert store.service().view("s", at_version=3) == before
    assert store.service().view("s", at_time=BEGIN) == before


def test_a_version_that_is_not_reached_has_no_view(sessions: SessionService) -> None:
    _turns(sessions, 1)
    with pytest.raises(UnknownVersionError):
        sessions.view("s", at_version=2)


def test_a_window_that_holds_everything_writes_nothing(sessions: SessionService) -> None:
    _turns(sessions, 2)
    assert keep_turns(sessions, "s", 2).reason is CompactionReason.NOTHING_TO_COVER
    assert sessions.version("s") == 2


def test_a_message_that_comes_while_the_summary_is_written_wins(store: Store) -> None:
    one, other = store.service(), store.service()
    _turns(one, 3)
    result = summarize(one, "s", 1, lambda: other.append_message("s", Message.user("4"), event_id="4"))
    assert (result.reason, result.version) == (CompactionReason.RACE_LOST, 4)
    assert one.view("s").ids == ("1", "2", "3", "4")


def test_an_event_outside_the_view_loses_no_race(store: Store) -> None:
    one, other = store.service(), store.service()
    _turns(one, 3)
    result = summarize(one, "s", 1, lambda: other.append_event("s", "ACME.NOTE"))
    assert (result.reason, result.version) == (CompactionReason.COMPACTED, 7)


def test_of_two_passes_at_once_one_compacts(store: Store) -> None:
    services = [store.service() for _ in range(2)]
    _turns(services[0], 5)
    with ThreadPoolExecutor(2) as pool:
        passes = [pool.submit(keep_turns, service, "s", 2) for service in services]
        results = [one.result() for one in passes]
    assert sorted(result.is_unchanged for result in results) == [False, True]
    assert services[0].view("s").ids == ("4", "5")


def test_a_pass_whose_session_is_deleted_meanwhile_fails(store: Store) -> None:
    one, other = store.service(), store.service()
    _turns(one, 3)
    with pytest.raises(SessionNotFoundError):
        summarize(one, "s", 1, lambda: other.delete("s", erase=False))
    assert other.find("s") is None


def test_a_reader_never_sees_half_a_pass(store: Store) -> None:
    writer, reader = store.service(), store.service()
    _turns(writer, 2)
    done = Event()

    def write() -> None:
        for number in range(15):
            writer.append_message("s", Message.user(f"turn {number}"))
            summarize(writer, "s", 1)
        done.set()

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        while not done.is_set() and not writing.done():
            log = reader.get_events("s")
            boundaries = sum(event.type == EventType.COMPACTION for event in log)
            assert sum(event.synthetic for event in log) == 2 * boundaries
            assert project(log).events
        writing.result()
