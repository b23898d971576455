"""A redaction removes one content everywhere, on every store, and leaves all else as it was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.contracts.stores import STORES, Store, WordCount, on_postgres, sqlite_env

from turnlog.application.audit import SessionAudit
from turnlog.application.erasing import ErasureUnsupportedError
from turnlog.application.service import SessionService
from turnlog.domain.errors import (
    InvalidSettingError,
    LegalHoldError,
    NotRedactableError,
    SessionNotFoundError,
    UnknownEventError,
)
from turnlog.domain.ids import aggregate_id
from turnlog.domain.log import EventType
from turnlog.domain.messages import Message, TextPart, ToolCallPart
from turnlog.domain.query import EventQuery
from turnlog.domain.redaction import redacted_text
from turnlog.domain.view import project
from turnlog.domain.window import CompactionWindow, WindowCompactionStrategy

SID, SECRET = "s", "zinnia"
WHY: Any = {"reason": "asked for by Ada", "by": "bob"}


@pytest.fixture(params=sorted(STORES))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    make: Callable[[Path], Store] = STORES[request.param]
    return make(tmp_path)


@pytest.fixture
def sessions(store: Store) -> SessionService:
    service = store.service()
    tell(service)
    return service


def tell(service: SessionService) -> None:
    service.create(SID, metadata={"title": SECRET})
    service.append_message(SID, Message.user(f"The word is {SECRET}."), event_id="u1")
    call = ToolCallPart(id="c1", name=SECRET, arguments=SECRET, awaiting=True)
    service.append_message(SID, Message.assistant([TextPart(content=SECRET), call]), event_id="k1")
    service.append_message(SID, Message.tool(SECRET, id="c1", name=SECRET, provisional=True), event_id="t1")
    service.append_event(SID, "ACME.NOTE", {"note": SECRET}, event_id="x1")
    service.append_message(SID, Message.user("And now?"), event_id="u2")


def told(service: SessionService) -> str:
    return repr((service.get_events(SID), service.view(SID).events, service.find(SID)))


def test_a_content_is_shown_to_nobody_afterwards(sessions: SessionService) -> None:
    sessions.update_metadata(SID, {"title": "a flower"})
    for named in ("u1", "k1", "t1", "x1", 0):
        assert sessions.redact(SID, named, **WHY).erasure == "done"
    assert SECRET not in told(sessions)


def test_another_service_does_not_show_what_it_remembers(store: Store, sessions: SessionService) -> None:
    other = store.service()
    assert SECRET in repr(other.view(SID).events)
    sessions.redact(SID, "u1", **WHY)
    assert SECRET not in (other.view(SID).messages[0].text or "")
    assert SECRET not in (other.view(SID, at_version=1).messages[0].text or "")


def test_what_another_thread_read_before_the_redaction_is_not_remembered(
    store: Store, sessions: SessionService
) -> None:
    other = store.service()
    read: Any = other._streams._read_versions  # pyright: ignore[reportPrivateUsage] # the moment of the race

    def read_and_lose_the_race(*args: Any) -> Any:
        found = read(*args)
        vars(other._streams).pop("_read_versions")  # pyright: ignore[reportPrivateUsage]
        sessions.redact(SID, "u1", **WHY)
        assert other.version(SID) == 6
        return found

    vars(other._streams)["_read_versions"] = read_and_lose_the_race  # pyright: ignore[reportPrivateUsage]
    other.view(SID)
    assert SECRET not in (other.view(SID).messages[0].text or "")


def test_the_index_of_a_file_forgets_it(tmp_path: Path) -> None:
    with SessionService(env=sqlite_env(tmp_path / "s.db"), token_estimator=WordCount()) as sessions:
        tell(sessions)
        sessions.append_events(SID, [Message.user("…")] * 200)
        recorder: Any = sessions.app.recorder
        query, aggregate = EventQuery(keywords="The word is"), aggregate_id(SID, "")
        assert 1 in recorder.recall.candidates([aggregate], query)[aggregate]
        sessions.redact(SID, "u1", **WHY)
        assert 1 not in recorder.recall.candidates([aggregate], query).get(aggregate, ())


def test_the_marker_says_why_by_whom_and_when(store: Store, sessions: SessionService) -> None:
    version = sessions.redact(SID, "u1", **WHY).version
    mark = sessions.get_event(SID, "u1").redacted
    assert mark is not None
    assert (mark.reason, mark.by, mark.at, mark.version) == (WHY["reason"], WHY["by"], store.now, version)


def test_the_redaction_is_an_entry_of_the_log(sessions: SessionService) -> None:
    redaction = sessions.redact(SID, "u1", **WHY)
    entry = sessions.get_events(SID)[-1]
    assert (entry.type, entry.version) == (EventType.REDACTION, redaction.version)
    assert entry.payload is not None
    assert {**entry.payload, "commitment": ""} == {"event_id": "u1", "version": 1, "commitment": "", **WHY}


def test_the_log_verifies(sessions: SessionService) -> None:
    for named in ("u1", "k1", "t1", "x1"):
        sessions.redact(SID, named, **WHY)
    assert SessionAudit(sessions).verify().findings == ()


def test_ids_versions_times_and_the_view_stay(sessions: SessionService) -> None:
    def frame() -> list[object]:
        events = sessions.get_events(SID)
        return [(one.id, one.version, one.timestamp, one.type, one.role) for one in events if one.version < 6]

    before, view = frame(), sessions.view(SID).ids
    for named in ("u1", "k1", "t1", "x1"):
        sessions.redact(SID, named, **WHY)
    assert (frame(), sessions.view(SID).ids) == (before, view)


def test_a_projection_of_the_log_is_the_view(sessions: SessionService) -> None:
    sessions.abandon(SID, "k1", "c1")
    sessions.redact(SID, "u1", **WHY)
    sessions.compact(SID, None, WindowCompactionStrategy(CompactionWindow.last_turns(1)))
    sessions.redact(SID, "k1", **WHY)
    assert project(sessions.get_events(SID)).ids == sessions.view(SID).ids


def test_a_call_and_its_result_still_belong_together(sessions: SessionService) -> None:
    sessions.redact(SID, "k1", **WHY)
    sessions.redact(SID, "t1", **WHY)
    asked, answered = sessions.view(SID).messages[1:3]
    assert [(call.id, call.arguments, call.awaiting) for call in asked.tool_calls] == [("c1", "{}", True)]
    assert [(one.id, one.response, one.provisional) for one in answered.tool_responses] == [
        ("c1", redacted_text(WHY["reason"]), True)
    ]


def test_an_awaited_call_is_awaited_still(sessions: SessionService) -> None:
    sessions.redact(SID, "k1", **WHY)
    sessions.append_message(SID, Message.tool("In Lund.", id="c1"))
    assert sessions.compact(SID, None, WindowCompactionStrategy(CompactionWindow.last_turns(1)))


def test_a_search_finds_none_of_it(sessions: SessionService) -> None:
    for named in ("u1", "k1", "t1", "x1"):
        sessions.redact(SID, named, **WHY)
    assert sessions.search_events(SID, EventQuery(keywords=SECRET)) == ()
    assert sessions.search_events(SID, EventQuery(keywords="asked for by")) == ()


def test_a_second_redaction_is_a_repeat(sessions: SessionService) -> None:
    first = sessions.redact(SID, "u1", **WHY)
    second = sessions.redact(SID, "u1", reason="again", by="eve")
    assert (second.is_repeat, second.version, sessions.version(SID)) == (True, first.version, first.version)


def test_a_redacted_id_stays_taken(sessions: SessionService) -> None:
    sessions.redact(SID, "u1", **WHY)
    assert sessions.append_message(SID, Message.user("another"), event_id="u1").is_repeat


def test_a_session_under_a_hold_is_not_redacted(sessions: SessionService) -> None:
    sessions.hold(SID, "case 7", by="ada")
    with pytest.raises(LegalHoldError):
        sessions.redact(SID, "u1", **WHY)
    assert SECRET in told(sessions)


def test_metadata_in_force_are_not_redacted(sessions: SessionService) -> None:
    with pytest.raises(NotRedactableError):
        sessions.redact(SID, 0, **WHY)


def test_former_metadata_are(sessions: SessionService) -> None:
    version = sessions.update_metadata(SID, {"title": "rose"})
    sessions.update_metadata(SID, {})
    assert (sessions.redact(SID, 0, **WHY).erasure, sessions.redact(SID, version, **WHY).erasure) == (
        "done",
        "done",
    )
    assert SessionAudit(sessions).verify().findings == ()


def test_what_has_no_content_is_not_redacted(sessions: SessionService) -> None:
    sessions.abandon(SID, "k1", "c1")
    boundary = sessions.compact(SID, None, WindowCompactionStrategy(CompactionWindow.last_turns(1))).version
    redaction = sessions.redact(SID, "u1", **WHY).version
    for version in (boundary or 0, redaction):
        with pytest.raises(NotRedactableError):
            sessions.redact(SID, version, **WHY)


def test_an_event_that_is_not_there_is_not_redacted(sessions: SessionService) -> None:
    for named in ("u9", 99):
        with pytest.raises(UnknownEventError):
            sessions.redact(SID, named, **WHY)
    with pytest.raises(SessionNotFoundError):
        sessions.redact("t", "u1", **WHY)


def test_a_redaction_has_a_reason_and_somebody_who_asked(sessions: SessionService) -> None:
    unsaid: list[Any] = [{"reason": " ", "by": "bob"}, {"reason": "asked", "by": ""}]
    for words in unsaid:
        with pytest.raises(InvalidSettingError):
            sessions.redact(SID, "u1", **words)


def test_a_redacted_session_is_deleted_like_any_other(sessions: SessionService) -> None:
    sessions.redact(SID, "u1", **WHY)
    assert sessions.delete(SID).erasure == "done"
    assert SessionAudit(sessions).verify().findings == ()


def test_a_store_that_cannot_erase_redacts_nothing(tmp_path: Path) -> None:
    env = {
        "APPLICATION_RECORDER_TOPIC": "eventsourcing.postgres:PostgresApplicationRecorder",
        "POSTGRES_ENABLE_DB_FUNCTIONS": "yes",
    }
    with on_postgres(env=env)(tmp_path).service() as sessions:
        tell(sessions)
        with pytest.raises(ErasureUnsupportedError):
            sessions.redact(SID, "u1", **WHY)
        assert sessions.version(SID) == 5
