"""Imported conversations are written completely, once, and as they were."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.infrastructure.cli.conftest import AIRLINE

from turnlog.application import SessionService
from turnlog.domain.log import CompactionBoundary, EventType, NewEvent, SessionEvent
from turnlog.domain.messages import Message, ToolCallPart
from turnlog.domain.window import CompactionWindow, WindowCompactionStrategy
from turnlog.infrastructure.formats.imported import (
    ImportedAbandonment,
    ImportedBoundary,
    ImportedEntry,
    ImportedEvent,
    ImportedSession,
)
from turnlog.infrastructure.formats.importing import read_file
from turnlog.infrastructure.formats.writing import LogsDivergedError, write_session


class CrashError(Exception):
    """The process ends."""


def airline() -> ImportedSession:
    (session,) = read_file(AIRLINE).sessions()
    return session


def ids(events: Sequence[SessionEvent]) -> list[str]:
    return [event.id for event in events]


def event(event_id: str, text: str, context: Mapping[str, str] | None = None) -> ImportedEvent:
    return ImportedEvent(NewEvent(Message.user(text), id=event_id), context or {})


def session_of(*entries: ImportedEntry) -> ImportedSession:
    return ImportedSession("s", "turnlog", {}, entries)


def with_everything() -> ImportedSession:
    """A log with a boundary, its summary, an abandoned call, contexts, and an event of an application's."""
    call = Message.assistant([ToolCallPart(id="c", name="pay", arguments="{}", awaiting=True)])
    return session_of(
        event("1", "one", {"actor": "ada"}),
        ImportedEvent(NewEvent(call, id="2"), {"actor": "ada"}),
        ImportedAbandonment("3", "2", "c"),
        ImportedEvent(NewEvent(type=EventType.of("ACME.AUDIT"), payload={"ok": True}, id="4")),
        event("5", "two", {"actor": "eve"}),
        ImportedBoundary("6", CompactionBoundary(summary=("7", "8"), preserved=("5",), covered_count=2)),
        ImportedEvent(NewEvent(Message.user("So far?"), id="7", synthetic=True)),
        ImportedEvent(NewEvent(Message.assistant("Paid nothing."), id="8", synthetic=True)),
        event("9", "three", {"actor": "bob"}),
    )


def crash_after(entries: int) -> Any:
    done = 0

    def on_progress(more: int) -> None:
        nonlocal done
        done += more
        if done >= entries:
            raise CrashError

    return on_progress


@pytest.mark.parametrize("batch", [1, 7, 62, 200])
def test_every_message_is_written_whatever_the_batch(batch: int) -> None:
    sessions, session = SessionService(), airline()

    written = write_session(sessions, session, batch=batch)

    assert (written.written, written.held) == (62, 0)
    assert sessions.view(session.id).messages == tuple(event.message for event in session.events)


def test_a_batch_is_one_write() -> None:
    sessions, session = SessionService(), airline()

    write_session(sessions, session, batch=20)

    times = [event.timestamp for event in sessions.get_events(session.id)]
    assert sum(before != after for before, after in pairwise(times)) == 3


@given(st.integers(1, 62), st.integers(1, 30))
def test_a_second_run_completes_what_a_crash_left(crash: int, batch: int) -> None:
    sessions, session = SessionService(), airline()
    with pytest.raises(CrashError):
        write_session(sessions, session, batch=batch, on_progress=crash_after(crash))
    left = sessions.get_events(session.id)

    write_session(sessions, session, batch=batch)

    events = sessions.get_events(session.id)
    assert ids(events) == [event.id for event in session.events]
    assert events[: len(left)] == left


@given(st.integers(1, 9))
def test_a_log_with_boundaries_is_completed_too(crash: int) -> None:
    sessions, session = SessionService(), with_everything()
    with pytest.raises(CrashError):
        write_session(sessions, session, batch=1, on_progress=crash_after(crash))

    write_session(sessions, session)

    assert ids(sessions.get_events("s")) == list("123456789")
    assert sessions.view("s").ids == ("7", "8", "5", "9")


def test_each_entry_keeps_its_context() -> None:
    sessions = SessionService()

    write_session(sessions, with_everything())

    actors = [event.context.get("actor") for event in sessions.get_events("s")]
    assert actors == ["ada", "ada", None, None, "eve", None, None, None, "bob"]


def test_a_repeated_write_changes_nothing() -> None:
    sessions, session = SessionService(), with_everything()
    write_session(sessions, session)
    before = sessions.get_events("s")

    written = write_session(sessions, session)

    assert (written.written, written.held) == (0, 9)
    assert sessions.get_events("s") == before


def test_a_session_that_went_on_is_left_as_it_is() -> None:
    sessions, session = SessionService(), airline()
    write_session(sessions, session)
    sessions.append_message(session.id, Message.user("And my bag?"))
    sessions.compact(session.id, None, WindowCompactionStrategy(CompactionWindow.last_turns(1)))
    before = sessions.get_events(session.id)

    assert write_session(sessions, session).written == 0
    assert sessions.get_events(session.id) == before


def test_a_file_that_has_grown_adds_what_is_new(tmp_path: Path) -> None:
    record = {"type": "user", "sessionId": "s", "message": {"role": "user", "content": "one"}, "uuid": "u1"}
    answer = {"role": "assistant", "id": "m", "content": [{"type": "text", "text": "two"}]}
    grown = [record, {**record, "type": "assistant", "message": answer, "uuid": "u2", "parentUuid": "u1"}]
    sessions = SessionService()

    for count in (1, 2):
        path = tmp_path / f"{count}.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in grown[:count]))
        for session in read_file(path, format="claude_code").sessions():
            write_session(sessions, session)

    assert [message.text for message in sessions.get_messages("s")] == ["one", "two"]


def test_a_file_that_has_grown_adds_what_is_new_behind_a_compaction() -> None:
    sessions, session = SessionService(), airline()
    write_session(sessions, replace(session, entries=session.entries[:50]))
    sessions.compact(session.id, None, WindowCompactionStrategy(CompactionWindow.last_turns(2)))

    written = write_session(sessions, session)

    assert (written.held, written.written) == (50, 12)


@pytest.mark.parametrize("entries", [(event("x", "other"),), (event("1", "one"), event("y", "other"))])
def test_a_log_that_differs_is_refused_and_left_alone(entries: tuple[ImportedEntry, ...]) -> None:
    sessions = SessionService()
    write_session(sessions, session_of(event("1", "one"), event("2", "two")))
    before = sessions.get_events("s")

    with pytest.raises(LogsDivergedError):
        write_session(sessions, session_of(*entries))

    assert sessions.get_events("s") == before


def test_progress_counts_every_entry_once() -> None:
    counted: list[int] = []

    write_session(SessionService(), with_everything(), batch=2, on_progress=counted.append)

    assert sum(counted) == 9


def test_of_two_imports_at_once_each_counts_what_it_wrote_itself() -> None:
    session = session_of(event("a", "one"), event("b", "two"), event("c", "three"))
    others: list[int] = []

    def meanwhile(_: int) -> None:
        if not others:  # what is missing was found out by now
            others.append(write_session(service, session_of(*session.entries[:2])).written)

    with SessionService() as service:
        written = write_session(service, session, on_progress=meanwhile)
        assert ids(service.get_events("s")) == ["a", "b", "c"]
    assert (others, written.written, written.held) == ([2], 1, 2)


def test_a_boundary_that_another_import_restored_is_not_counted_as_written() -> None:
    with SessionService() as source:
        source.create("s")
        for number in range(4):
            source.append_message("s", Message.user(str(number)), event_id=str(number))
        source.compact("s", None, WindowCompactionStrategy(CompactionWindow.last_turns(1)))
        entries: list[ImportedEntry] = []
        for one in source.get_events("s"):
            if one.boundary:
                entries.append(ImportedBoundary(one.id, one.boundary))
            elif one.message:
                entries.append(event(one.id, one.message.text or ""))
    session = session_of(*entries)
    others: list[int] = []

    def meanwhile(_: int) -> None:
        if not others:
            others.append(write_session(service, session).written)

    with SessionService() as service:
        written = write_session(service, session, on_progress=meanwhile)
    assert (others, written.written) == ([5], 0)
