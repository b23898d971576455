"""Recorded conversations come back as they came, and can be sent to each provider."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.support.providers.rules import anthropic_rule_faults, openai_rule_faults, responses_rule_faults
from tests.support.providers.transcripts import claude_code_messages, conversations, files
from tests.support.providers.types import anthropic_type_faults, openai_type_faults, responses_type_faults

from turnlog.domain.messages import Message
from turnlog.infrastructure.formats import PrefillWarning, anthropic_messages, openai_chat, openai_responses

OPENAI = files("openai_chat")
ANTHROPIC = files("anthropic_messages")
RESPONSES = files("openai_responses")
CLAUDE_CODE = files("claude_code")
EVERY = pytest.mark.parametrize(
    "path", [*OPENAI, *ANTHROPIC, *RESPONSES, *CLAUDE_CODE], ids=lambda path: path.name
)


def canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True)


def stored(messages: Iterable[Message]) -> list[Message]:
    """The messages as they come back from a log."""
    return [Message.model_validate(json.loads(json.dumps(one.to_dict()))) for one in messages]


@pytest.mark.parametrize("path", OPENAI, ids=lambda path: path.name)
def test_openai_messages_come_back_exactly(path: Path) -> None:
    for conversation in conversations(path):
        read = stored(openai_chat.messages(conversation))
        assert canonical(openai_chat.export(read)) == canonical(conversation)


@pytest.mark.parametrize("path", ANTHROPIC, ids=lambda path: path.name)
def test_anthropic_messages_come_back_exactly(path: Path) -> None:
    for conversation in conversations(path):
        read = stored(anthropic_messages.messages(conversation))
        assert canonical(anthropic_messages.export(read)) == canonical(conversation)


@pytest.mark.parametrize("path", RESPONSES, ids=lambda path: path.name)
def test_items_of_responses_come_back_exactly(path: Path) -> None:
    for conversation in conversations(path):
        read = stored(openai_responses.messages(conversation))
        assert canonical(openai_responses.export(read)) == canonical(conversation)


@pytest.mark.parametrize("path", CLAUDE_CODE, ids=lambda path: path.name)
def test_the_messages_of_claude_code_come_back_exactly(path: Path) -> None:
    messages = claude_code_messages(path)
    read = stored(anthropic_messages.messages(messages))
    assert canonical(anthropic_messages.export(read)) == canonical(messages)


@EVERY
def test_no_recorded_message_has_to_be_kept_twice(path: Path) -> None:
    kept_whole = [one for read in imported(path) for one in read if "original" in (one.shape or {})]
    assert kept_whole == []


@EVERY
def test_every_conversation_makes_a_request_that_openai_accepts(path: Path) -> None:
    for read in imported(path):
        body = request(openai_chat, read)
        assert openai_type_faults(body) + openai_rule_faults(body) == []


@EVERY
def test_every_conversation_makes_a_request_that_anthropic_accepts(path: Path) -> None:
    for read in imported(path):
        body = request(anthropic_messages, read)
        assert anthropic_type_faults(body) + anthropic_rule_faults(body) == []


@EVERY
@pytest.mark.parametrize("model", ["gpt-5", "o4-mini", "gpt-5.6-sol"])
def test_every_conversation_makes_a_request_that_responses_accepts(path: Path, model: str) -> None:
    for read in imported(path):
        body = request(openai_responses, read, model)
        assert responses_type_faults(body) + responses_rule_faults(body) == []


def imported(path: Path) -> Iterable[tuple[Message, ...]]:
    if path in CLAUDE_CODE:
        return [anthropic_messages.messages(claude_code_messages(path))]
    module: Any = anthropic_messages if path in ANTHROPIC else openai_chat
    module = openai_responses if path in RESPONSES else module
    return map(module.messages, conversations(path))


def request(module: Any, read: Iterable[Message], model: str = "a-model") -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrefillWarning)
        return dict(module.request(read, model=model))
