"""A file that has grown since it was imported adds what is new, and nothing twice."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.infrastructure.formats_import.conftest import WriteFile
from tests.infrastructure.formats_import.test_claude_code import answer, call, result, text, user
from tests.support.providers.rules import anthropic_rule_faults, openai_rule_faults

from turnlog.application import SessionService
from turnlog.domain.log import EventType, NewEvent
from turnlog.domain.messages import Message
from turnlog.infrastructure.formats import (
    ImportedSession,
    LogsDivergedError,
    WrittenSession,
    anthropic_messages,
    openai_chat,
    read_file,
    write_session,
)
from turnlog.infrastructure.formats.imported import ImportedEvent

Json = dict[str, Any]

ASKED = user("u1", None, "hi")
LOOKING = answer("a1", "u1", text("I look."), message_id="m1")
CALLING = answer("a2", "a1", call("t1"), message_id="m1")
CALLING_TOO = answer("a3", "a2", call("t2"), message_id="m1")
FIRST = user("r1", "a2", [result("t1")], toolUseResult={"lines": 1})
SECOND = user("r2", "a3", [result("t2")], toolUseResult={"lines": 2})
DONE = answer("a4", "r2", text("Done."))


def imported(sessions: SessionService, path: Path) -> list[WrittenSession]:
    file = read_file(path, format="claude_code")
    return [write_session(sessions, session) for session in file.sessions()]


def import_growing(write_file: WriteFile, *states: Sequence[Json]) -> tuple[SessionService, WrittenSession]:
    """A service that imported a file in each of these states, and what became of the last."""
    sessions = SessionService()
    (written,) = [imported(sessions, write_file(*state)) for state in states][-1]
    return sessions, written


def part_ids(sessions: SessionService) -> list[list[str | None]]:
    """Of each message the ids of its calls and results, or its text."""
    return [
        [getattr(part, "id", None) or getattr(part, "content", None) for part in message.parts]
        for message in sessions.view("s1").messages
    ]


def test_new_messages_are_appended(write_file: WriteFile) -> None:
    sessions, written = import_growing(write_file, [ASKED], [ASKED, LOOKING])
    assert (written.held, written.written, written.notes()) == (1, 1, [])
    assert part_ids(sessions) == [["hi"], ["I look."]]


def test_what_an_answer_has_more_is_a_message_behind_it(write_file: WriteFile) -> None:
    sessions, _ = import_growing(write_file, [ASKED, LOOKING], [ASKED, LOOKING, CALLING])
    assert part_ids(sessions) == [["hi"], ["I look."], ["t1"]]


def test_results_that_came_later_are_appended(write_file: WriteFile) -> None:
    before = [ASKED, LOOKING, CALLING, CALLING_TOO, FIRST]
    sessions, _ = import_growing(write_file, before, [*before, SECOND, DONE])
    assert part_ids(sessions) == [["hi"], ["I look.", "t1", "t2"], ["t1"], ["t2"], ["Done."]]


def test_a_message_that_has_grown_is_reported(write_file: WriteFile) -> None:
    _, written = import_growing(write_file, [ASKED, LOOKING], [ASKED, LOOKING, CALLING])
    assert written.notes() == [
        "1 messages had grown since they were imported: what is new stands behind them"
    ]


def test_a_message_that_has_grown_twice_is_appended_in_three(write_file: WriteFile) -> None:
    states = [[ASKED, LOOKING], [ASKED, LOOKING, CALLING], [ASKED, LOOKING, CALLING, CALLING_TOO]]
    sessions, _ = import_growing(write_file, *states)
    assert part_ids(sessions) == [["hi"], ["I look."], ["t1"], ["t2"]]


def test_a_message_that_has_grown_is_exported_without_doubles(write_file: WriteFile) -> None:
    empty = user("r1", "a2", [{"type": "tool_result", "tool_use_id": "t1"}])
    before = [ASKED, LOOKING, CALLING, CALLING_TOO, empty]
    sessions, _ = import_growing(write_file, before, [*before, SECOND])
    exported = anthropic_messages.export(sessions.get_messages("s1"))
    assert [one["content"] for one in exported[2:]] == [[*empty["message"]["content"]], [result("t2")]]


def test_what_a_client_keeps_of_a_late_result_is_appended(write_file: WriteFile) -> None:
    side = user("x1", None, "Search!", isSidechain=True)
    before = [ASKED, LOOKING, CALLING, CALLING_TOO, FIRST, side]
    sessions, _ = import_growing(write_file, before, [*before, SECOND])
    kept = [event.payload for event in sessions.get_events("s1") if event.type != EventType.MESSAGE]
    assert [payload["uuid"] for payload in kept if payload] == ["r1", "r2"]


def test_a_note_that_was_an_event_is_told_once_a_user_message_follows(write_file: WriteFile) -> None:
    before = [ASKED, LOOKING, user("n1", "a1", "A note.", isMeta=True)]
    sessions, _ = import_growing(write_file, before, [*before, user("u2", "n1", "And?")])
    assert part_ids(sessions)[-1] == ["A note.", "And?"]


def test_ids_are_those_of_the_records(write_file: WriteFile) -> None:
    (session,) = read_file(
        write_file(
            ASKED,
            LOOKING,
            CALLING,
            user("r1", "a2", [result("t1"), text("Stop!")], toolUseResult={}),
            answer("a3", "r1", text("Stopped.")),
            user("n1", "a3", "A note.", isMeta=True),
            answer("a4", "n1", text("Noted.")),
            user("n2", "a4", "Another.", isMeta=True),
            user("u2", "n2", "Bye."),
        )
    ).sessions()
    assert [event.id for event in session.events] == [
        "u1",
        "a1",
        "r1-results",
        "r1-tool-use-result",
        "r1",
        "a3",
        "n1-meta",
        "a4",
        "u2",
    ]


def test_records_without_a_uuid_are_not_repeated(write_file: WriteFile) -> None:
    waiting = {"type": "queue-operation", "operation": "enqueue", "sessionId": "s1"}
    sessions, _ = import_growing(write_file, [ASKED, waiting, waiting], [ASKED, waiting, waiting, LOOKING])
    assert [event.type for event in sessions.get_events("s1")].count(
        EventType("CLAUDE_CODE.QUEUE_OPERATION")
    ) == 2


def test_a_message_that_is_another_now_stays_as_it_was(write_file: WriteFile) -> None:
    sessions, written = import_growing(write_file, [ASKED], [user("u1", None, "ho"), LOOKING])
    assert part_ids(sessions) == [["hi"], ["I look."]]
    assert written.notes() == ["1 messages differ from what was imported: the log keeps what it held"]


def test_a_fork_that_gives_up_what_was_imported_is_refused(write_file: WriteFile) -> None:
    before = [ASKED, LOOKING, user("u2", "a1", "one way")]
    with pytest.raises(LogsDivergedError):
        import_growing(write_file, before, [*before, user("u3", "a1", "another way")])


def test_a_session_that_went_on_elsewhere_is_not_mixed_with_a_grown_file(write_file: WriteFile) -> None:
    sessions, _ = import_growing(write_file, [ASKED])
    sessions.append_message("s1", Message.user("Something else."))
    with pytest.raises(LogsDivergedError):
        imported(sessions, write_file(ASKED, LOOKING))


@st.composite
def records(draw: st.DrawFn) -> list[Json]:
    """A conversation as Claude Code writes it: a record per block, results as they come, notes between."""
    found: list[Json] = []
    parent: str | None = None

    def add(make: Any, *content: Any, **fields: Any) -> None:
        nonlocal parent
        uuid = f"id-{len(found)}"
        found.append(make(uuid, parent, *content, **fields))
        if not fields.get("isSidechain"):
            parent = uuid

    for turn in range(draw(st.integers(1, 3))):
        add(user, f"question {turn}")
        if draw(st.booleans()):
            add(user, f"note {turn}", isMeta=True)
        for step in range(draw(st.integers(1, 2))):
            name = f"m{turn}.{step}"
            calls = [f"t{turn}.{step}.{number}" for number in range(draw(st.integers(0, 3)))]
            add(answer, text(f"answer {name}"), message_id=name)
            late = draw(st.integers(0, len(calls)))
            for number, one in enumerate(calls):
                add(answer, call(one), message_id=name)
                if number < late:
                    add(user, [result(one)], toolUseResult={"of": one})
            if draw(st.booleans()):
                add(user, f"sidechain {name}", isSidechain=True, agentId="a7")
            for one in calls[late:]:
                add(user, [result(one)], toolUseResult={"of": one})
    return found


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(log=records(), data=st.data())
def test_however_a_file_grew_each_part_is_there_once_and_requests_are_accepted(
    write_file: WriteFile, log: list[Json], data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(1, len(log)), max_size=3)))
    grown, _ = import_growing(write_file, *(log[:cut] for cut in cuts), log)
    at_once, _ = import_growing(write_file, log)
    assert _parts(grown) == _parts(at_once)
    view = grown.view("s1")
    body = anthropic_messages.request(view, model="m", max_tokens=9, prefill=True)
    assert anthropic_rule_faults(body) == []
    assert openai_rule_faults(openai_chat.request(view, model="m", prefill=True)) == []


def _parts(sessions: SessionService) -> Counter[str]:
    """The parts of the view, each with its branch."""
    return Counter(
        json.dumps([event.branch, part.model_dump(mode="json")])
        for event in sessions.view("s1").events
        if event.message
        for part in event.message.parts
    )


def test_a_chat_with_an_id_that_has_grown_adds_its_new_messages(write_file: WriteFile) -> None:
    sessions = SessionService()
    said = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
    for count in (1, 2):
        (session,) = read_file(write_file({"id": "chat-7", "messages": said[:count]})).sessions()
        write_session(sessions, session)
    assert [message.text for message in sessions.get_messages("chat-7")] == ["hi", "hello"]


def test_a_log_that_lacks_a_message_in_between_is_refused(write_file: WriteFile) -> None:
    one, two, three = ({"role": "user", "content": said} for said in ("one", "two", "three"))
    (lacking,) = read_file(write_file({"id": "chat-7", "messages": [one, three]})).sessions()
    (whole,) = read_file(write_file({"id": "chat-7", "messages": [one, two, three]})).sessions()
    sessions = SessionService()
    write_session(sessions, lacking)
    with pytest.raises(LogsDivergedError):
        write_session(sessions, whole)


def test_a_log_that_has_another_message_in_between_is_refused() -> None:
    entries = tuple(ImportedEvent(NewEvent(Message.user(name), id=name)) for name in "abc")
    sessions = SessionService()
    write_session(sessions, ImportedSession("s", "turnlog", {}, entries))
    with pytest.raises(LogsDivergedError):
        write_session(sessions, ImportedSession("s", "turnlog", {}, entries[::2]))


def test_an_exported_log_that_lacks_an_event_in_between_is_refused() -> None:
    entries = tuple(ImportedEvent(NewEvent(Message.user(name), id=name)) for name in "abc")
    sessions = SessionService()
    write_session(sessions, ImportedSession("s", "turnlog", {}, entries[::2]))
    with pytest.raises(LogsDivergedError):
        write_session(sessions, ImportedSession("s", "turnlog", {}, entries))
