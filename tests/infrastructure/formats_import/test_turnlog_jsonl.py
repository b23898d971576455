"""A log that is exported and imported is the same log."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.infrastructure.formats_import.conftest import WriteFile, sessions_of

from turnlog.domain.log import CompactionBoundary, EventType, SessionEvent
from turnlog.domain.messages import Message, Role, ToolCallPart
from turnlog.infrastructure.formats import turnlog_jsonl
from turnlog.infrastructure.formats.imported import (
    ImportedAbandonment,
    ImportedBoundary,
    ImportedEntry,
    ImportedEvent,
    ImportedSession,
    UnreadableFileError,
    UnsupportedEventError,
)
from turnlog.infrastructure.formats.importing import read_file

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)

any_text = st.text(st.characters(), max_size=8)
"""Of any characters: NUL, lone surrogates and line separators, too."""

ids = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8)
branches = st.none() | st.sampled_from(("orch", "orch.researcher"))
times = st.none() | st.datetimes(timezones=st.sampled_from((UTC, timezone(timedelta(hours=5, minutes=30)))))
contexts = st.dictionaries(any_text, any_text, max_size=2)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | any_text,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(any_text, inner, max_size=2),
    max_leaves=4,
)
payloads = st.dictionaries(any_text, json_values, max_size=3)


@st.composite
def messages(draw: st.DrawFn) -> Message:
    parts: list[dict[str, Any]] = [{"type": "text", "content": draw(any_text)}]
    parts.append({"type": "tool_call", "id": draw(any_text), "name": "f", "arguments": draw(any_text)})
    parts.append({"type": "tool_call_response", "id": "c", "response": parts[:1], "is_error": True})
    parts.append({"type": "acme", "x": draw(json_values)})
    chosen = draw(st.lists(st.sampled_from(parts), max_size=3))
    metadata = draw(st.none() | payloads)
    return Message.of(draw(st.sampled_from(Role)), chosen, metadata=metadata, origin="openai.chat")


@st.composite
def logs(draw: st.DrawFn) -> list[SessionEvent]:
    """A log as a session can have it: each id once, boundaries of the view with their summaries behind."""
    names = iter(draw(st.lists(ids, unique=True, min_size=20, max_size=20)))
    log: list[SessionEvent] = []
    view: list[str] = []
    for kind in draw(st.lists(st.sampled_from(("MESSAGE", "COMPACTION", "ACME.AUDIT")), max_size=5)):
        event = SessionEvent(
            id=next(names),
            type=EventType.of(kind),
            version=1,
            timestamp=NOON,
            branch=draw(branches),
            context=draw(contexts),
            occurred_at=draw(times),
        )
        if kind == "MESSAGE":
            log.append(replace(event, message=draw(messages())))
            view.append(event.id)
        elif kind == "ACME.AUDIT":
            log.append(replace(event, payload=draw(payloads)))
        else:
            pinned, preserved = view[:1], view[2:]
            summary = [next(names)] if view else []
            boundary = CompactionBoundary(
                pinned=tuple(pinned),
                summary=tuple(summary),
                preserved=tuple(preserved),
                branch=event.branch,
                covered_count=draw(st.integers(0, 9)),
                tokens_saved=draw(st.integers(0, 9)),
                strategy=draw(st.none() | any_text),
                trigger=draw(st.none() | any_text),
            )
            log.append(replace(event, boundary=boundary))
            for name in summary:
                told = Message.assistant(draw(any_text))
                log.append(replace(event, id=name, type=EventType.MESSAGE, message=told, synthetic=True))
            view = pinned + summary + preserved
    return log


def exported(log: Sequence[SessionEvent], metadata: dict[str, Any] | None = None) -> bytes:
    return "".join(f"{line}\n" for line in turnlog_jsonl.lines("s1", metadata or {}, log)).encode()


def log_of(session: ImportedSession) -> list[SessionEvent]:
    """The log that an import of the session makes, recorded at one time."""
    return [_event(entry) for entry in session.entries]


def _event(entry: ImportedEntry) -> SessionEvent:
    match entry:
        case ImportedBoundary():
            event = SessionEvent(
                entry.id,
                EventType.COMPACTION,
                1,
                NOON,
                branch=entry.boundary.branch,
                boundary=entry.boundary,
                occurred_at=entry.occurred_at,
            )
        case ImportedAbandonment():
            payload = {"event_id": entry.event_id, "call_id": entry.call_id}
            event = SessionEvent(
                entry.id, EventType.CALL_ABANDONED, 1, NOON, payload=payload, occurred_at=entry.occurred_at
            )
        case ImportedEvent():
            new = entry.event
            event = SessionEvent(
                new.id or "",
                new.type,
                1,
                NOON,
                branch=new.branch,
                synthetic=new.synthetic,
                message=new.message,
                payload=new.payload,
                occurred_at=new.occurred_at,
            )
    return replace(event, context=entry.context)


def with_claimed_times(log: Sequence[SessionEvent]) -> list[SessionEvent]:
    """The log whose events all claim a time, as those of an imported one do."""
    return [replace(event, occurred_at=event.occurred_at or NOON) for event in log]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(log=logs())
def test_an_imported_log_is_the_exported_log(write_file: WriteFile, log: list[SessionEvent]) -> None:
    (session,) = sessions_of(write_file(exported(log)))
    assert log_of(session) == with_claimed_times(log)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(log=logs(), metadata=payloads)
def test_an_export_of_an_import_is_the_same_bytes(
    write_file: WriteFile, log: list[SessionEvent], metadata: dict[str, Any]
) -> None:
    content = exported(log, metadata)
    (session,) = sessions_of(write_file(content))
    assert exported(log_of(session), dict(session.metadata)) == content


def test_metadata_and_id_of_the_session_come_back(write_file: WriteFile) -> None:
    (session,) = sessions_of(write_file(exported([], {"user.name": "ada", "n": 1})))
    assert (session.id, session.metadata) == ("s1", {"user.name": "ada", "n": 1})


def test_a_file_may_hold_several_logs(write_file: WriteFile) -> None:
    second = exported([]).replace(b'"s1"', b'"s2"')
    assert [session.id for session in sessions_of(write_file(exported([]) + second))] == ["s1", "s2"]


def test_an_imported_transcript_can_be_exported_and_imported(transcript: Path, write_file: WriteFile) -> None:
    session = sessions_of(transcript)[0]
    (again,) = sessions_of(write_file(exported(log_of(session))))
    assert [entry.event.message for entry in again.entries if isinstance(entry, ImportedEvent)] == [
        event.message for event in session.events
    ]


def awaiting(call_id: str) -> SessionEvent:
    call = ToolCallPart(id=call_id, name="ask", awaiting=True)
    return SessionEvent("m1", EventType.MESSAGE, 1, NOON, message=Message.assistant([call]))


def test_an_abandoned_call_comes_back(write_file: WriteFile) -> None:
    payload = {"event_id": "m1", "call_id": "c1"}
    abandoned = SessionEvent(
        "x1", EventType.CALL_ABANDONED, 2, NOON, payload=payload, context={"actor": "ada"}
    )
    (session,) = sessions_of(write_file(exported([awaiting("c1"), abandoned])))
    assert session.entries[1] == ImportedAbandonment("x1", "m1", "c1", NOON, {"actor": "ada"})


HEADER = {"turnlog": 1, "session": "s1"}
EVENT: dict[str, Any] = {"id": "e1", "type": "ACME.AUDIT", "time": NOON.isoformat(), "payload": {}}
NEXT: dict[str, Any] = {**EVENT, "id": "e2"}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ({**NEXT, "id": ""}, "Event id '' is not allowed"),
        (EVENT, "Event 'e1' stands twice"),
        ({**NEXT, "type": "acme"}, "Event type 'acme' is not allowed"),
        ({**NEXT, "type": None}, "`type` must be text"),
        ({**NEXT, "time": "yesterday"}, "no ISO time"),
        ({**NEXT, "time": "2026-01-01T12:00:00"}, "no offset"),
        ({**NEXT, "payload": []}, "`payload` must be an object"),
        ({**NEXT, "branch": "a..b"}, "Branch 'a..b' is not allowed"),
        ({**NEXT, "context": {"actor": 1}}, "`context` holds texts only"),
        ({**NEXT, "type": "MESSAGE"}, "A message is malformed"),
        ({**NEXT, "type": "MESSAGE", "message": {"role": "alien"}}, "A message is malformed"),
        ({**NEXT, "type": "COMPACTION", "boundary": {"pinned": ["a", "a"]}}, "names 'a' twice"),
        (
            {**NEXT, "type": "COMPACTION", "boundary": {"pinned": ["e1"]}},
            "'e1', which is no message of the current view",
        ),
        ({**NEXT, "type": "COMPACTION", "boundary": {"summary": ["s"]}}, "summary of the newest boundary"),
        ({**NEXT, "type": "COMPACTION", "boundary": {"pinned": [1]}}, "`pinned` must be a list of texts"),
        ({**NEXT, "type": "COMPACTION", "boundary": {"covered_count": "1"}}, "must be a whole number"),
        ({**NEXT, "type": "CALL_ABANDONED", "payload": {"event_id": "e1"}}, "`call_id` must be text"),
        (
            {**NEXT, "type": "CALL_ABANDONED", "payload": {"event_id": "e1", "call_id": "c"}},
            "no call 'c' that awaits",
        ),
        (HEADER, "begins a second time"),
        ({**HEADER, "turnlog": 2, "session": "s2"}, "version 2 of the export"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_malformed_line_is_an_error_with_its_line_and_reason(
    write_file: WriteFile, line: dict[str, Any], reason: str
) -> None:
    with pytest.raises(UnreadableFileError) as caught:
        read_file(write_file(HEADER, EVENT, line))
    assert caught.value.line == 3
    assert reason in caught.value.reason


@pytest.mark.parametrize("kind", ["COMPACTION_SKIPPED"])
def test_an_event_that_only_a_later_release_can_import_is_refused_by_its_type(
    write_file: WriteFile, kind: str
) -> None:
    with pytest.raises(UnsupportedEventError, match=f"line 3: events of type {kind} ") as caught:
        read_file(write_file(HEADER, EVENT, {**NEXT, "type": kind}))
    assert (caught.value.line, caught.value.event_type) == (3, kind)


def test_what_follows_a_boundary_must_be_its_summary(write_file: WriteFile) -> None:
    boundary = {**EVENT, "type": "COMPACTION", "boundary": {"summary": ["s1"]}}
    with pytest.raises(UnreadableFileError, match=r"line 3: Behind a boundary stand"):
        read_file(write_file(HEADER, boundary, NEXT))


def test_every_line_can_be_written_as_utf8_and_has_no_line_end() -> None:
    event = SessionEvent(
        "e1", EventType.MESSAGE, 1, NOON, message=Message.user("\ud800\0\n\u2028é"), context={"a": "b"}
    )
    (_, line) = turnlog_jsonl.lines("s1", {}, [event])
    assert "\n" not in line
    assert json.loads(line.encode())["message"]["parts"][0]["content"] == "\ud800\0\n\u2028é"
