"""Real conversations all the way: imported, projected, compacted, and asked of both providers."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from tests.support.providers.rules import anthropic_rule_faults, openai_rule_faults
from tests.support.providers.transcripts import files
from tests.support.providers.types import anthropic_type_faults, openai_type_faults

from turnlog.application import SessionService
from turnlog.domain import (
    CompactionWindow,
    Message,
    SummaryRequest,
    View,
    WindowCompactionStrategy,
    project,
)
from turnlog.infrastructure.formats import PrefillWarning, anthropic_messages, openai_chat
from turnlog.infrastructure.formats.importing import read_file
from turnlog.infrastructure.formats.writing import write_session

KINDS = ("openai_chat", "anthropic_messages", "claude_code", "tau2")
TRANSCRIPTS = [path for kind in KINDS for path in files(kind)]
MOST = 5
"""Conversations of one file that are taken; some files hold dozens of one kind."""


class Recap:
    """A summarizer that says how much it stands for."""

    def summarize(self, request: SummaryRequest) -> list[Message]:
        """A user message and an answer."""
        told = len(request.covered) + len(request.prior_summary)
        return [Message.user("What has happened so far?"), Message.assistant(f"{told} messages.")]


STRATEGIES = {
    "events": WindowCompactionStrategy(CompactionWindow.last_events(6)),
    "turns": WindowCompactionStrategy(CompactionWindow.last_turns(2), Recap()),
    "tokens": WindowCompactionStrategy(CompactionWindow.token_budget(2_000), Recap()),
    "one turn": WindowCompactionStrategy(CompactionWindow.last_turns(1)),
}


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_conversation_is_accepted_by_both_providers_whatever_is_compacted(path: Path) -> None:
    with SessionService() as sessions:
        for conversation in islice(read_file(path).sessions(), MOST):
            written = write_session(sessions, conversation)
            _check(sessions, written.id)
            for strategy in STRATEGIES.values():
                sessions.compact(written.id, None, strategy)
                _check(sessions, written.id)


def _check(sessions: SessionService, session_id: str) -> None:
    view = sessions.view(session_id)
    assert view == project(sessions.get_events(session_id))
    for branch in sorted({event.branch for event in view.events}, key=str):
        told = view.told_events(branch)
        if told:
            _check_requests(view, branch)


def _check_requests(view: View, branch: str | None) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrefillWarning)  # most recordings end with an answer
        openai = openai_chat.request(view, model="m", branch=branch)
        anthropic = anthropic_messages.request(view, model="m", branch=branch)
    checks: list[tuple[Callable[[Any], list[str]], dict[str, Any]]] = [
        (openai_type_faults, openai),
        (openai_rule_faults, openai),
        (anthropic_type_faults, anthropic),
        (anthropic_rule_faults, anthropic),
    ]
    assert [fault for check, body in checks for fault in check(body)] == []
