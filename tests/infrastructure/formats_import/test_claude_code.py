"""Claude Code's records become sessions, branches and messages."""

from __future__ import annotations

from typing import Any

import pytest
from tests.infrastructure.formats_import.conftest import WriteFile, messages_of, said, sessions_of

from turnlog.domain.attributes import SessionAttributes
from turnlog.domain.messages import BlobPart, Role
from turnlog.infrastructure.formats.imported import Fate, UnreadableFileError
from turnlog.infrastructure.formats.importing import read_file

Json = dict[str, Any]


def user(uuid: str, parent: str | None, content: str | list[Json], **fields: Any) -> Json:
    return record("user", uuid, parent, {"role": "user", "content": content}, **fields)


def answer(uuid: str, parent: str | None, *blocks: Json, message_id: str = "", **fields: Any) -> Json:
    message: Json = {"id": message_id or f"msg_{uuid}", "type": "message", "role": "assistant"}
    message |= {"model": "claude-x", "content": list(blocks), "usage": {"output_tokens": len(uuid)}}
    return record("assistant", uuid, parent, message, **fields)


def record(kind: str, uuid: str, parent: str | None, message: Json, **fields: Any) -> Json:
    links = {"uuid": uuid, "parentUuid": parent, "sessionId": "s1", "isSidechain": False}
    return {"type": kind, **links, "message": message, **fields}


def text(content: str) -> Json:
    return {"type": "text", "text": content}


def call(call_id: str) -> Json:
    return {"type": "tool_use", "id": call_id, "name": "Read", "input": {"path": call_id}}


def result(call_id: str) -> Json:
    return {"type": "tool_result", "tool_use_id": call_id, "content": f"content of {call_id}"}


def test_records_of_one_message_id_are_one_message(write_file: WriteFile) -> None:
    path = write_file(
        user("u1", None, "hi"),
        answer("a1", "u1", text("Let me look."), message_id="msg_1"),
        answer("a2", "a1", call("t1"), message_id="msg_1"),
    )
    (session,) = sessions_of(path)
    assert [part.type for part in messages_of(session)[1].parts] == ["text", "tool_call"]


def test_results_that_follow_are_one_tool_message(write_file: WriteFile) -> None:
    path = write_file(
        user("u1", None, "hi"),
        answer("a1", "u1", call("t1"), call("t2")),
        user("r1", "a1", [result("t1")]),
        user("r2", "r1", [result("t2")]),
    )
    (session,) = sessions_of(path)
    assert [response.id for response in messages_of(session)[2].tool_responses] == ["t1", "t2"]


def test_a_record_of_a_message_that_comes_behind_a_result_still_belongs_to_it(write_file: WriteFile) -> None:
    path = write_file(
        user("u1", None, "hi"),
        answer("a1", "u1", call("t1"), message_id="msg_1"),
        user("r1", "a1", [result("t1")]),
        answer("a2", "r1", call("t2"), message_id="msg_1"),
        user("r2", "a2", [result("t2")]),
    )
    (session,) = sessions_of(path)
    assert [message.role for message in messages_of(session)] == [Role.USER, Role.ASSISTANT, Role.TOOL]


def test_parallel_calls_that_fork_the_links_keep_all_their_results(write_file: WriteFile) -> None:
    path = write_file(
        user("u1", None, "hi"),
        answer("a1", "u1", call("t1"), message_id="msg_1"),
        answer("a2", "a1", call("t2"), message_id="msg_1"),
        user("r1", "a1", [result("t1")]),
        user("r2", "a2", [result("t2")]),
        answer("a3", "r2", text("Done.")),
    )
    (session,) = sessions_of(path)
    assert [response.id for response in messages_of(session)[2].tool_responses] == ["t1", "t2"]


def test_parallel_calls_beside_the_newest_chain_are_kept_with_their_results(write_file: WriteFile) -> None:
    path = write_file(
        user("u1", None, "hi"),
        answer("a1", "u1", call("t1"), message_id="msg_1"),
        answer("a2", "a1", call("t2"), message_id="msg_1"),
        user("r2", "a2", [result("t2")]),
        user("r1", "a1", [result("t1")]),
        answer("a3", "r1", text("Done.")),
    )
    (session,) = sessions_of(path)
    assert [one.id for one in messages_of(session)[1].tool_calls] == ["t1", "t2"]
    assert [one.id for one in messages_of(session)[2].tool_responses] == ["t2", "t1"]


def test_a_result_beside_words_of_the_user_stands_with_its_call(write_file: WriteFile) -> None:
    path = write_file(
        user("u1", None, "hi"),
        answer("a1", "u1", call("t1")),
        user("r1", "a1", [result("t1"), text("Stop!")]),
    )
    (session,) = sessions_of(path)
    assert said(session)[2:] == [("tool", None), ("user", "Stop!")]


def test_of_a_fork_the_chain_that_ends_in_the_newest_record_is_taken(write_file: WriteFile) -> None:
    path = write_file(
        user("u1", None, "hi"),
        answer("a1", "u1", text("Hello.")),
        user("u2", "a1", "first try"),
        answer("a2", "u2", text("No.")),
        user("u3", "a1", "second try"),
    )
    (session,) = sessions_of(path)
    assert [content for _, content in said(session)] == ["hi", "Hello.", "second try"]


def test_the_newest_record_is_told_by_its_time(write_file: WriteFile) -> None:
    path = write_file(
        user("u1", None, "hi", timestamp="2025-01-01T10:00:00Z"),
        answer("a1", "u1", text("new"), timestamp="2025-01-01T10:09:00Z"),
        answer("a2", "u1", text("old"), timestamp="2025-01-01T10:01:00Z"),
    )
    (session,) = sessions_of(path)
    assert said(session)[-1] == ("assistant", "new")


def test_the_records_of_forks_that_were_given_up_are_reported(write_file: WriteFile) -> None:
    path = write_file(
        user("u1", None, "hi"), user("u2", "u1", "a"), answer("a2", "u2", text("A")), user("u3", "u1", "b")
    )
    assert read_file(path).report.of(Fate.DROPPED) == {"records of forks that were given up": 2}


def test_a_record_whose_parent_is_not_there_begins_anew_behind_what_was_said(write_file: WriteFile) -> None:
    path = write_file(user("u1", None, "hi"), user("u2", "lost", "again"))
    (session,) = sessions_of(path)
    assert [content for _, content in said(session)] == ["hi", "again"]


def test_links_order_records_that_stand_in_the_wrong_order(write_file: WriteFile) -> None:
    path = write_file(answer("a1", "u1", text("Hello.")), user("u2", "a1", "Bye."), user("u1", None, "hi"))
    (session,) = sessions_of(path)
    assert [content for _, content in said(session)] == ["hi", "Hello.", "Bye."]


def test_links_that_run_in_a_circle_lose_nothing(write_file: WriteFile) -> None:
    path = write_file(user("u1", "u2", "one"), user("u2", "u1", "two"))
    (session,) = sessions_of(path)
    assert sorted(content or "" for _, content in said(session)) == ["one", "two"]


def test_a_record_that_stands_twice_is_taken_once(write_file: WriteFile) -> None:
    path = write_file(user("u1", None, "hi"), user("u1", None, "hi"))
    (session,) = sessions_of(path)
    assert said(session) == [("user", "hi")]


def test_a_sidechain_is_a_branch_under_the_id_of_its_agent(write_file: WriteFile) -> None:
    path = write_file(
        user("u1", None, "hi"),
        user("x1", None, "Search!", isSidechain=True, agentId="a7"),
        answer("x2", "x1", text("Found."), isSidechain=True, agentId="a7"),
    )
    (session,) = sessions_of(path)
    assert said(session, "a7") == [("user", "Search!"), ("assistant", "Found.")]


def test_sidechains_without_an_agent_are_numbered(write_file: WriteFile) -> None:
    path = write_file(
        user("u1", None, "hi"),
        user("x1", "u1", "Search!", isSidechain=True),
        user("y1", "u1", "Plan!", isSidechain=True),
    )
    (session,) = sessions_of(path)
    assert said(session, "sidechain-2") == [("user", "Plan!")]


def test_a_sidechain_is_no_fork_of_the_conversation(write_file: WriteFile) -> None:
    path = write_file(
        user("u1", None, "hi"),
        user("u2", "u1", "there"),
        user("x1", "u1", "Search!", isSidechain=True),
    )
    (session,) = sessions_of(path)
    assert said(session) == [("user", "hi"), ("user", "there")]


def test_a_meta_record_in_front_of_a_user_message_joins_it(write_file: WriteFile) -> None:
    path = write_file(user("m1", None, "Caveat.", isMeta=True), user("u1", "m1", "hi"))
    (session,) = sessions_of(path)
    assert said(session) == [("user", "Caveat.\nhi")]


def test_a_meta_record_behind_a_user_message_joins_it(write_file: WriteFile) -> None:
    path = write_file(
        user("u1", None, "/skill"),
        user("m1", "u1", "The skill says …", isMeta=True),
        answer("a1", "m1", text("Done.")),
    )
    (session,) = sessions_of(path)
    assert said(session) == [("user", "/skill\nThe skill says …"), ("assistant", "Done.")]


def test_a_meta_record_behind_results_joins_the_tool_message(write_file: WriteFile) -> None:
    source = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}
    path = write_file(
        user("u1", None, "hi"),
        answer("a1", "u1", call("t1")),
        user("r1", "a1", [result("t1")]),
        user("m1", "r1", [{"type": "document", "source": source}], isMeta=True),
        answer("a2", "m1", text("Read.")),
    )
    (session,) = sessions_of(path)
    assert isinstance(messages_of(session)[2].parts[-1], BlobPart)


def test_a_meta_record_between_two_answers_is_an_event(write_file: WriteFile) -> None:
    path = write_file(
        user("u1", None, "hi"),
        answer("a1", "u1", text("Hello.")),
        user("m1", "a1", "Note.", isMeta=True),
        answer("a2", "m1", text("Noted.")),
    )
    (session,) = sessions_of(path)
    assert [event.type for event in session.events] == [
        "MESSAGE",
        "MESSAGE",
        "CLAUDE_CODE.META",
        "MESSAGE",
    ]


def test_a_user_record_of_nothing_but_results_starts_no_turn(write_file: WriteFile) -> None:
    path = write_file(answer("a1", None, call("t1")), user("r1", "a1", [result("t1")]))
    (session,) = sessions_of(path)
    assert Role.USER not in [message.role for message in messages_of(session)]


def test_what_the_client_keeps_of_a_result_is_an_event_behind_it(write_file: WriteFile) -> None:
    path = write_file(
        answer("a1", None, call("t1")), user("r1", "a1", [result("t1")], toolUseResult={"lines": 3})
    )
    (session,) = sessions_of(path)
    assert session.events[-1].payload == {"uuid": "r1", "toolUseResult": {"lines": 3}}


@pytest.mark.parametrize(
    ("kind", "event_type"),
    [
        ("summary", "CLAUDE_CODE.SUMMARY"),
        ("file-history-snapshot", "CLAUDE_CODE.FILE_HISTORY_SNAPSHOT"),
        ("system", "CLAUDE_CODE.SYSTEM"),
        ("queue-operation", "CLAUDE_CODE.QUEUE_OPERATION"),
        ("ünknown", "CLAUDE_CODE._NKNOWN"),
    ],
)
def test_a_record_of_another_type_is_an_event(write_file: WriteFile, kind: str, event_type: str) -> None:
    other = {"type": kind, "sessionId": "s1", "content": "x"}
    (session,) = sessions_of(write_file(user("u1", None, "hi"), other))
    assert (session.events[1].type, session.events[1].payload) == (event_type, other)


def test_a_line_that_is_no_record_is_an_event(write_file: WriteFile) -> None:
    (session,) = sessions_of(write_file(user("u1", None, "hi"), 42))
    assert session.events[1].payload == {"value": 42}


def test_a_file_may_hold_several_sessions(write_file: WriteFile) -> None:
    path = write_file(user("u1", None, "hi"), {**user("v1", None, "ho"), "sessionId": "s2"})
    assert [(session.id, said(session)) for session in sessions_of(path)] == [
        ("s1", [("user", "hi")]),
        ("s2", [("user", "ho")]),
    ]


def test_a_summary_goes_to_the_session_whose_record_it_names(write_file: WriteFile) -> None:
    path = write_file(
        user("u1", None, "hi"),
        {**user("v1", None, "ho"), "sessionId": "s2"},
        {"type": "summary", "summary": "Greeting", "leafUuid": "u1"},
    )
    assert sessions_of(path)[0].metadata[SessionAttributes.TITLE] == "Greeting"


def test_a_summary_of_a_session_that_is_elsewhere_is_no_title(write_file: WriteFile) -> None:
    path = write_file({"type": "summary", "summary": "Another", "leafUuid": "lost"}, user("u1", None, "hi"))
    assert SessionAttributes.TITLE not in sessions_of(path)[0].metadata


def test_an_event_claims_the_time_of_its_record(write_file: WriteFile) -> None:
    (session,) = sessions_of(write_file(user("u1", None, "hi", timestamp="2025-01-01T10:00:00.5Z")))
    assert str(session.events[0].occurred_at) == "2025-01-01 10:00:00.500000+00:00"


def test_a_time_without_an_offset_claims_no_instant(write_file: WriteFile) -> None:
    (session,) = sessions_of(write_file(user("u1", None, "hi", timestamp="2025-01-01T10:00:00")))
    assert session.events[0].occurred_at is None


def test_the_metadata_of_a_message_say_which_records_it_was(write_file: WriteFile) -> None:
    path = write_file(
        answer("a1", None, text("one"), message_id="msg_1"),
        answer("a2", "a1", text("two"), message_id="msg_1"),
    )
    (session,) = sessions_of(path)
    metadata = messages_of(session)[0].metadata or {}
    assert [one["uuid"] for one in metadata["claude_code"]] == ["a1", "a2"]


def test_a_malformed_result_is_an_error_with_its_line(write_file: WriteFile) -> None:
    malformed = {"type": "tool_result", "content": 7}
    path = write_file(answer("a1", None, call("t1")), user("r1", "a1", [malformed]))
    with pytest.raises(UnreadableFileError, match="line 2"):
        read_file(path)
