"""Making, finding, listing, extending and ending sessions, on every store."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta

import pytest
from tests.contracts.stores import BEGIN, Store

from turnlog.application.erasing import ErasureUnsupportedError
from turnlog.application.service import SessionService
from turnlog.domain.attributes import SessionAttributes
from turnlog.domain.errors import (
    InvalidIdError,
    NaiveTimeError,
    SessionIdUnavailableError,
    SessionNotFoundError,
)
from turnlog.domain.messages import Message

HI = Message.user("hi")
HOUR = timedelta(hours=1)


def _listed(sessions: SessionService) -> list[str]:
    return [row.session_id for row in sessions.list_sessions()]


def test_a_new_session_is_found_as_it_was_made(store: Store) -> None:
    store.service().create("s", metadata={"title": "\0\ud800é", "n": [1.5, None]}, time_to_live=HOUR)
    found = store.service().find("s")
    assert found is not None
    assert (found.version, found.created_at, found.expires_at) == (0, BEGIN, BEGIN + HOUR)
    assert found.metadata == {"title": "\0\ud800é", "n": [1.5, None]}


def test_without_a_time_to_live_a_session_lives_sixty_days(sessions: SessionService) -> None:
    assert sessions.create("s").expires_at == BEGIN + timedelta(days=60)


def test_a_session_that_nobody_made_is_empty_where_reading_is_a_question(sessions: SessionService) -> None:
    assert (sessions.find("s"), sessions.get_events("s"), sessions.version("s")) == (None, (), 0)


def test_the_view_of_a_session_that_nobody_made_is_refused(sessions: SessionService) -> None:
    with pytest.raises(SessionNotFoundError):
        sessions.view("s")


@pytest.mark.parametrize("bad", ["", "a\0b", "\ud800", "x" * 201])
def test_a_malformed_id_is_refused(sessions: SessionService, bad: str) -> None:
    with pytest.raises(InvalidIdError):
        sessions.create(bad)


def test_an_id_is_taken_once(store: Store) -> None:
    store.service().create("s")
    with pytest.raises(SessionIdUnavailableError):
        store.service().create("s")


def test_the_id_of_a_deleted_session_stays_unavailable(sessions: SessionService) -> None:
    sessions.create("s")
    sessions.delete("s", erase=False)
    with pytest.raises(SessionIdUnavailableError):
        sessions.create("s")


def test_find_or_create_finds_what_another_service_made(store: Store) -> None:
    made = store.service().create("s", metadata={"by": "one"})
    assert store.service().find_or_create("s", metadata={"by": "other"}) == made


def test_two_first_calls_at_once_make_one_session(store: Store) -> None:
    services = [store.service() for _ in range(2)]

    def first_call(service: SessionService) -> None:
        service.find_or_create("s")
        service.append_message("s", HI)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(first_call, services))
    assert services[0].version("s") == 2


def test_namespaces_separate_completely(store: Store) -> None:
    ours, theirs = store.service(), store.service(namespace="theirs")
    ours.create("s")
    assert theirs.find("s") is None
    theirs.create("s")
    assert (_listed(ours), _listed(theirs)) == (["s"], ["s"])


def test_sessions_are_listed_newest_first(store: Store) -> None:
    writer = store.service()
    for name in ("a", "b", "c"):
        writer.create(name)
    assert _listed(store.service()) == ["c", "b", "a"]


def test_a_list_goes_on_behind_the_last_one_seen(sessions: SessionService) -> None:
    for name in ("a", "b", "c"):
        sessions.create(name)
    first = sessions.list_sessions(limit=2)
    assert [row.session_id for row in sessions.list_sessions(before=first[-1].position)] == ["a"]


def test_the_list_shows_what_another_service_just_did(store: Store) -> None:
    one, other = store.service(), store.service()
    one.create("s")
    assert _listed(other) == ["s"]
    store.pass_time(hours=1)
    one.append_events("s", [HI, HI])
    (row,) = other.list_sessions()
    assert (row.messages, row.version, row.created_at, row.modified_at) == (2, 2, BEGIN, BEGIN + HOUR)


def test_prefixes_are_compared_exactly(sessions: SessionService) -> None:
    for name in ("a%b", "axb", "A%b", "a%", "é", "b"):
        sessions.create(name)
    assert [row.session_id for row in sessions.sessions_with_prefix("a%")] == ["a%", "a%b"]
    assert [row.session_id for row in sessions.sessions_with_prefix("é")] == ["é"]


@pytest.mark.parametrize("prefix", ["\ud800", "\0"])
def test_a_prefix_that_no_id_can_have_finds_nothing(sessions: SessionService, prefix: str) -> None:
    sessions.create("s")
    assert list(sessions.sessions_with_prefix(prefix)) == []


def test_metadata_that_the_session_has_already_write_nothing(store: Store) -> None:
    here, there = store.service(), store.service()
    here.create("s", metadata={SessionAttributes.PRINCIPAL_NAME: "ada", "n": 1})
    assert [here.update_metadata("s", {"n": value}) for value in (1, True, True, 1.0, 1)] == [0, 1, 1, 2, 3]
    there.update_metadata("s", {"n": 2})
    assert here.update_metadata("s", {"n": 1}) == 5
    there.create("empty")
    assert here.update_metadata("empty", {}) == 0


def test_metadata_are_replaced_as_a_whole(store: Store) -> None:
    sessions = store.service()
    sessions.create("s", metadata={"a": 1})
    sessions.update_metadata("s", {"b": 2})
    found = store.service().find("s")
    assert found is not None
    assert found.metadata == {"b": 2}


def test_a_deleted_session_is_gone_for_every_service(store: Store) -> None:
    one, other = store.service(), store.service()
    one.create("s")
    other.append_message("s", HI)
    with suppress(ErasureUnsupportedError):  # it is deleted all the same
        one.delete("s")
    assert (other.find("s"), other.get_events("s"), other.version("s"), _listed(other)) == (None, (), 0, [])
    with pytest.raises(SessionNotFoundError):
        other.append_message("s", HI)


def test_only_expired_sessions_are_swept(sessions: SessionService) -> None:
    sessions.create("later", time_to_live=2 * HOUR)
    sessions.create("now", time_to_live=HOUR)
    sessions.create("never", time_to_live=None)
    assert sessions.delete_expired(BEGIN + HOUR) == 1
    assert sorted(_listed(sessions)) == ["later", "never"]


def test_an_empty_store_is_swept_of_nothing(sessions: SessionService) -> None:
    assert sessions.delete_expired(BEGIN + 1000 * HOUR) == 0


def test_an_expired_session_can_be_used_until_it_is_swept(store: Store) -> None:
    sessions = store.service()
    sessions.create("s", time_to_live=HOUR)
    store.pass_time(hours=2)
    sessions.append_message("s", HI)
    assert len(sessions.view("s").ids) == 1


def test_an_idle_session_expires_behind_its_last_message(store: Store) -> None:
    sessions = store.service()
    sessions.create("s", idle=HOUR)
    store.pass_time(minutes=50)
    sessions.append_message("s", HI)
    assert sessions.delete_expired(BEGIN + HOUR) == 0
    assert sessions.delete_expired(BEGIN + timedelta(minutes=110)) == 1


def test_an_expiry_that_another_service_moved_is_moved_back(store: Store) -> None:
    one, other = store.service(), store.service()
    one.create("s", time_to_live=HOUR)
    other.extend("s", BEGIN + 2 * HOUR)
    one.extend("s", BEGIN + 3 * HOUR)
    other.extend("s", BEGIN + 2 * HOUR)
    found = one.find("s")
    assert found is not None
    assert found.expires_at == BEGIN + 2 * HOUR


def test_extending_to_the_same_time_records_nothing(sessions: SessionService) -> None:
    sessions.create("s", time_to_live=HOUR)
    assert sessions.extend("s", BEGIN + HOUR) == 0


def test_a_time_without_an_offset_is_refused(sessions: SessionService) -> None:
    sessions.create("s")
    with pytest.raises(NaiveTimeError):
        sessions.extend("s", BEGIN.replace(tzinfo=None))


def test_a_session_is_extended_or_swept_never_both(store: Store) -> None:
    sweeper, user = store.service(), store.service()
    for name in map(str, range(20)):
        user.create(name, time_to_live=HOUR)
    survived: list[str] = []

    def extend_all() -> None:
        for name in map(str, range(20)):
            try:
                user.extend(name, BEGIN + 100 * HOUR)
            except SessionNotFoundError:
                continue
            survived.append(name)

    with ThreadPoolExecutor(2) as pool:
        extending = pool.submit(extend_all)
        swept = pool.submit(sweeper.delete_expired, BEGIN + HOUR)
        extending.result()
    assert sorted(_listed(user)) == sorted(survived)
    assert swept.result() == 20 - len(survived)


def test_two_sweeps_at_once_report_each_session_once(store: Store) -> None:
    services = [store.service() for _ in range(2)]
    for name in map(str, range(10)):
        services[0].create(name, time_to_live=HOUR)
    with ThreadPoolExecutor(2) as pool:
        sweeps = [pool.submit(service.delete_expired, BEGIN + HOUR) for service in services]
    assert sum(sweep.result() for sweep in sweeps) == 10
    assert _listed(services[0]) == []


def test_closing_a_service_leaves_a_hosts_application_open(sessions: SessionService) -> None:
    sessions.create("s")
    sessions.close()
    assert sessions.find("s") is not None


def test_what_holds_on_the_store_is_said(sessions: SessionService) -> None:
    sessions.create("s")
    sessions.append_message("s", HI, event_id="given")
    said = sessions.capabilities
    name = type(sessions.app).__name__
    recorder = type(sessions.app.recorder).__name__
    rows = recorder.endswith(("SessionRecorder", "HostRecorder"))
    streams = "trailing" if name == "OneStreamSessions" else "streams"
    plain = ("SQLiteApplicationRecorder", "PostgresApplicationRecorder")
    directory = "catch-up" if recorder in plain else "memory"
    assert (said.event_ids, said.directory) == (("rows", "rows") if rows else (streams, directory))
