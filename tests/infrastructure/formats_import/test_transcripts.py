"""Every recorded conversation in a supported format is read whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.infrastructure.formats_import.conftest import (
    OWN_TRANSCRIPTS,
    TRANSCRIPTS,
    messages_of,
    sessions_of,
)

from turnlog.domain.ids import check_id
from turnlog.domain.json_text import checked_json_text
from turnlog.domain.messages import Message, Role
from turnlog.infrastructure.formats.importing import read_file

COUNTS = {
    # file: sessions, messages, turns, calls. They are the counts of the transcripts' own list, except:
    # instructions beside the messages of a request are a message; calls that a provider ran are no calls;
    # of exchanges every conversation counts, not the longest; records of one answer, and results that
    # follow each other, are one message, and so are system messages in a row; a call of the simulated user
    # is no turn.
    "openai_chat/deepseek_reasoning_tools.json": (1, 10, 1, 4),
    "openai_chat/groq_tool_use_failed.json": (1, 7, 1, 2),
    "openai_chat/image_url.json": (1, 2, 1, 0),
    "openai_chat/lats_agent.json": (8, 38, 9, 15),
    "openai_chat/multilingual_small_talk_a.jsonl": (49, 2014, 1007, 0),
    "openai_chat/multiple_agent_tool_calls.json": (1, 8, 2, 2),
    "openai_chat/tau_airline_gpt4o_a.json": (20, 610, 182, 123),
    "anthropic_messages/compaction_usage.json": (1, 3, 1, 0),
    "anthropic_messages/image_url.json": (1, 2, 1, 0),
    "anthropic_messages/mcp_servers.json": (1, 4, 2, 0),
    "anthropic_messages/parallel_tool_calls.json": (1, 5, 1, 4),
    "anthropic_messages/summary_conversation.json": (1, 6, 3, 0),
    "anthropic_messages/system_mid_history.json": (1, 8, 3, 0),
    "anthropic_messages/thinking_redacted.json": (1, 4, 2, 0),
    "anthropic_messages/tool_search_handoff_round_trip.json": (1, 13, 3, 3),
    "claude_code/fixture_tool_call_pending.jsonl": (1, 2, 1, 1),
    "claude_code/log_edge_cases.jsonl": (2, 12, 7, 3),
    "claude_code/log_todowrite_examples.jsonl": (1, 11, 2, 3),
    "claude_code/message_kinds_a.jsonl": (9, 24, 0, 11),
    "claude_code/session_long_a.jsonl": (1, 142, 15, 98),
    "claude_code/session_tiny.jsonl": (1, 6, 2, 1),
    "tau2/airline_gpt_oss_120b.json": (10, 442, 51, 196),
    "tau2/spanish_ecommerce.json": (15, 166, 55, 28),
    "tau2/spanish_healthcare.json": (13, 197, 66, 33),
    "tau2/telecom_user_tools_gpt41.json": (8, 441, 86, 138),
}
CUT_COUNTS = {
    # The copies in this repository that hold fewer conversations than the original.
    "openai_chat/tau_airline_gpt4o_a.json": (3, 42, 19, 2),
    "tau2/telecom_user_tools_gpt41.json": (1, 38, 7, 12),
}


def test_the_format_is_recognised(transcript: Path) -> None:
    assert read_file(transcript).format == transcript.parent.name


def test_sessions_messages_turns_and_calls_are_as_counted(transcript: Path) -> None:
    counts = {**COUNTS, **CUT_COUNTS} if TRANSCRIPTS == OWN_TRANSCRIPTS else COUNTS
    expected = counts.get(f"{transcript.parent.name}/{transcript.name}")
    if expected is None:
        pytest.skip("nobody counted this file")
    sessions = sessions_of(transcript)
    events = [event for session in sessions for event in session.events if event.message]
    messages = [event.message for event in events if event.message]
    turns = sum(message.role is Role.USER for session in sessions for message in messages_of(session))
    calls = sum(len(message.tool_calls) for message in messages)
    assert (len(sessions), len(messages), turns, calls) == expected


def test_every_result_stands_behind_its_call(transcript: Path) -> None:
    for session in sessions_of(transcript):
        for branch in {event.branch for event in session.events}:
            assert _results_without_call(messages_of(session, branch)) == []


def test_every_event_can_be_stored(transcript: Path) -> None:
    for session in sessions_of(transcript):
        for event in session.events:
            checked_json_text(event.message.to_dict() if event.message else event.payload)


def test_ids_are_allowed_and_unique(transcript: Path) -> None:
    sessions = sessions_of(transcript)
    assert len({check_id("Session id", session.id) for session in sessions}) == len(sessions)
    for session in sessions:
        assert len({check_id("Event id", event.id) for event in session.events}) == len(session.events)


def test_a_second_reading_gives_the_same(transcript: Path) -> None:
    assert sessions_of(transcript) == sessions_of(transcript)


def test_the_counts_of_a_file_are_those_of_its_sessions(transcript: Path) -> None:
    file = read_file(transcript)
    sessions = list(file.sessions())
    assert file.session_count == len(sessions)
    assert file.entry_count == sum(len(session.entries) for session in sessions)


def test_nothing_is_synthetic(transcript: Path) -> None:
    assert not any(event.synthetic for session in sessions_of(transcript) for event in session.events)


def _results_without_call(messages: list[Message]) -> list[str | None]:
    """Ids of results in messages that do not directly follow the message with their call."""
    lost: list[str | None] = []
    calls: set[str | None] = set()
    for message in messages:
        if message.role is not Role.TOOL:
            calls = {call.id for call in message.tool_calls}
        lost += [result.id for result in message.tool_responses if result.id not in calls]
    return lost
