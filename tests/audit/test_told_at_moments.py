"""A call is named by its id, by the event of its answer, or by a moment up to which it is the newest."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.audit.calls import Asked, ScriptedChat
from tests.audit.conftest import SID
from tests.audit.renderers import RENDERERS

from turnlog.application.audit import PromptRecorder, SessionAudit, UnknownCallError
from turnlog.application.service import SessionService
from turnlog.domain.errors import UnknownVersionError
from turnlog.domain.log import EventType, SessionEvent
from turnlog.domain.messages import Message, Role


@pytest.fixture
def chat(sessions: SessionService) -> ScriptedChat:
    """A scripted chat that records."""
    return ScriptedChat(sessions, SID, PromptRecorder(sessions, renderers=RENDERERS))


def answers(sessions: SessionService) -> list[SessionEvent]:
    """The events of the answers, in order."""
    return [event for event in sessions.get_events(SID) if event.role is Role.ASSISTANT]


def test_an_answer_means_the_call_that_it_answers(
    sessions: SessionService, audit: SessionAudit, chat: ScriptedChat
) -> None:
    calls = [chat.say(text, Asked()) for text in ("one", "two", "three")]
    assert [audit.told(SID, answer.id).call_id for answer in answers(sessions)] == calls


def test_the_version_of_an_answer_means_the_same(
    sessions: SessionService, audit: SessionAudit, chat: ScriptedChat
) -> None:
    calls = [chat.say(text, Asked()) for text in ("one", "two")]
    assert [audit.told(SID, answer.version).call_id for answer in answers(sessions)] == calls


def _recorded(audit: SessionAudit, text: str) -> str:
    body: dict[str, Any] = {"messages": [text]}
    return audit.record_prompt(SID, body=json.dumps(body).encode(), append=[Message.user(text)])


def test_of_calls_that_overlap_an_answer_means_its_own(sessions: SessionService, audit: SessionAudit) -> None:
    first, second = _recorded(audit, "one"), _recorded(audit, "two")
    for call_id, text in ((first, "on one"), (second, "on two")):
        audit.record_reply(SID, call_id, append=[Message.assistant(text)])
    told = [audit.told(SID, answer.id).call_id for answer in answers(sessions)]
    assert told == [first, second]


def test_what_is_recorded_with_an_answer_means_its_call_too(
    sessions: SessionService, audit: SessionAudit, chat: ScriptedChat
) -> None:
    call_id = chat.say("one", Asked())
    chat.say("two", Asked())
    reply = next(event for event in sessions.iter_events(SID) if event.type == EventType.MODEL_REPLIED)
    assert audit.told(SID, reply.id).call_id == call_id


def test_an_answer_means_the_attempt_that_was_answered(
    sessions: SessionService, audit: SessionAudit, chat: ScriptedChat
) -> None:
    call_id = chat.say("one", Asked(), resends=["alternate"])
    answer = answers(sessions)[0]
    assert audit.told(SID, answer.id).body == chat.sent[call_id, 2]
    assert audit.told(SID, answer.id, attempt=1).body == chat.sent[call_id, 1]


def test_an_answer_of_a_branch_means_the_call_of_its_branch(
    sessions: SessionService, audit: SessionAudit, chat: ScriptedChat
) -> None:
    of_branch = chat.say("look", Asked(branch="find"), answer=False)
    chat.say("root", Asked(), answer=False)
    sessions.append_events(SID, [Message.assistant("later")])
    found = sessions.append_message(SID, Message.assistant("found"), branch="find")
    assert audit.told(SID, found.id).call_id == of_branch


def test_a_version_and_a_time_mean_the_newest_call_up_to_them(
    sessions: SessionService, audit: SessionAudit, chat: ScriptedChat
) -> None:
    first = chat.say("one", Asked())
    between = sessions.append_message(SID, Message.system("Be kind."))
    second = chat.say("two", Asked())
    assert audit.told(SID, between.version).call_id == first
    assert audit.told(SID, datetime.now(UTC) + timedelta(days=1)).call_id == second


def test_up_to_a_moment_without_a_call_none_is_told(audit: SessionAudit, chat: ScriptedChat) -> None:
    chat.say("one", Asked())
    with pytest.raises(UnknownCallError, match="up to version 1"):
        audit.told(SID, 1)


def test_a_version_that_the_session_has_not_reached_is_refused(
    audit: SessionAudit, chat: ScriptedChat
) -> None:
    chat.say("one", Asked())
    with pytest.raises(UnknownVersionError):
        audit.told(SID, 99)
