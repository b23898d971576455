"""Files of plain message lists."""

from __future__ import annotations

from typing import Any

import pytest
from tests.infrastructure.formats_import.conftest import WriteFile, messages_of, said, sessions_of

from turnlog.domain.attributes import SessionAttributes
from turnlog.infrastructure.formats import openai_chat
from turnlog.infrastructure.formats.imported import Fate
from turnlog.infrastructure.formats.importing import read_file

HI = {"role": "user", "content": "hi"}
HELLO = {"role": "assistant", "content": "hello"}


def test_a_list_of_messages_is_one_session(write_file: WriteFile) -> None:
    (session,) = sessions_of(write_file([HI, HELLO]))
    assert said(session) == [("user", "hi"), ("assistant", "hello")]


def test_each_record_of_an_array_is_a_session(write_file: WriteFile) -> None:
    sessions = sessions_of(write_file([{"traj": [HI]}, {"traj": [HI, HELLO]}]))
    assert [len(session.events) for session in sessions] == [1, 2]


def test_each_line_is_a_session(write_file: WriteFile) -> None:
    assert len(sessions_of(write_file({"messages": [HI]}, {"messages": [HELLO]}))) == 2


def test_the_id_of_a_record_is_the_id_of_its_session(write_file: WriteFile) -> None:
    (session,) = sessions_of(write_file({"id": "chat-7", "messages": [HI]}))
    assert session.id == "chat-7"


def test_an_id_that_is_not_allowed_is_replaced(write_file: WriteFile) -> None:
    (session,) = sessions_of(write_file({"id": "x" * 201, "messages": [HI]}))
    assert len(session.id) < 30


def test_an_id_that_stands_twice_is_used_once(write_file: WriteFile) -> None:
    path = write_file({"id": "chat-7", "messages": [HI]}, {"id": "chat-7", "messages": [HELLO]})
    assert len({session.id for session in sessions_of(path)}) == 2


def test_plain_values_beside_the_messages_are_metadata(write_file: WriteFile) -> None:
    (session,) = sessions_of(write_file({"lang": "ja", "reward": 0.5, "model": "m", "messages": [HI]}))
    assert session.metadata == {"lang": "ja", "reward": 0.5, SessionAttributes.MODEL: "m"}


BRIEF = {"role": "system", "content": "Be brief."}
KIND = {"role": "developer", "content": "Be kind."}


def test_system_messages_in_a_row_are_one_message_that_comes_back_as_they_were(write_file: WriteFile) -> None:
    (session,) = sessions_of(write_file([BRIEF, KIND, HI]))
    assert said(session) == [("system", "Be brief.\nBe kind."), ("user", "hi")]
    assert openai_chat.export(messages_of(session)) == [BRIEF, KIND, HI]


def test_instructions_beside_the_messages_belong_to_the_system_message_in_front(
    write_file: WriteFile,
) -> None:
    (session,) = sessions_of(write_file({"system": "Be kind.", "messages": [BRIEF, HI]}))
    assert said(session) == [("system", "Be kind.\nBe brief."), ("user", "hi")]


@pytest.mark.parametrize(("messages", "noted"), [([BRIEF, KIND, HI], 0), ([BRIEF, HI, KIND, HI, BRIEF], 2)])
def test_instructions_that_replace_earlier_ones_are_counted(
    write_file: WriteFile, messages: list[Any], noted: int
) -> None:
    report = read_file(write_file(messages)).report
    assert report.of(Fate.NOTED).get("later system messages in place of earlier instructions", 0) == noted


def test_a_request_body_of_anthropic_brings_its_instructions(write_file: WriteFile) -> None:
    (session,) = sessions_of(write_file({"system": "Be brief.", "messages": [HI]}))
    assert said(session) == [("system", "Be brief."), ("user", "hi")]


def test_blocks_of_anthropic_are_recognised_without_instructions(write_file: WriteFile) -> None:
    call: dict[str, Any] = {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}],
    }
    (session,) = sessions_of(write_file([HI, call]))
    assert session.source == "anthropic_messages"
