"""Compaction passes as the contracts need them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from eventsourcing.domain import Aggregate

from turnlog.application.service import SessionService
from turnlog.domain.compaction import CompactionResult, SummaryRequest
from turnlog.domain.messages import Message
from turnlog.domain.window import CompactionWindow, WindowCompactionStrategy

SUMMARY = (Message.user("What happened so far?"), Message.assistant("Things happened."))


class Summarizer:
    """Always writes the same summary, and does something else before it answers."""

    def __init__(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        self._meanwhile = meanwhile

    def summarize(self, request: SummaryRequest) -> Sequence[Message]:  # noqa: ARG002 - the port's
        """The summary."""
        self._meanwhile()
        return SUMMARY


def keep_turns(
    sessions: SessionService, session_id: str, turns: int, also: Sequence[Aggregate] = ()
) -> CompactionResult:
    """Compact to the newest turns, without a summary."""
    window = CompactionWindow.last_turns(turns)
    return sessions.compact(session_id, None, WindowCompactionStrategy(window), also=also)


def summarize(
    sessions: SessionService, session_id: str, turns: int, meanwhile: Callable[[], object] = lambda: None
) -> CompactionResult:
    """Compact to the newest turns with a summary, while something else happens."""
    window = CompactionWindow.last_turns(turns)
    return sessions.compact(session_id, None, WindowCompactionStrategy(window, Summarizer(meanwhile)))
