"""What other systems overwrite in their logs, as it must stay here."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.contracts.stores import STORES
from tests.faults.conversation import SID, say

from turnlog.application.service import SessionService
from turnlog.domain.compaction import CompactionReason, CompactionRequest, CompactionResult
from turnlog.domain.messages import Message
from turnlog.domain.view import project


class Resummarizing:
    """A strategy that puts another summary where the newest one stands."""

    def __init__(self, text: str) -> None:
        self._text = text

    def compact(self, request: CompactionRequest) -> CompactionResult:
        """Covers the summary, or the first turn while there is none."""
        summaries = tuple(event for event in request.events if event.synthetic)
        covered = summaries or request.events[:2]
        return CompactionResult(
            CompactionReason.COMPACTED,
            covered_events=covered,
            preserved_events=tuple(event for event in request.events if event not in covered),
            summary=(Message.assistant(self._text),),
        )


@pytest.fixture(params=["memory", "sqlite"])
def sessions(request: pytest.FixtureRequest, tmp_path: Path) -> SessionService:
    """A service with one session."""
    service = STORES[request.param](tmp_path).service()
    service.create(SID)
    return service


def test_fault_082_of_two_passes_at_one_place_the_newer_counts_and_both_stay(
    sessions: SessionService,
) -> None:
    say(sessions, "u1 a1 u2 a2")
    messages = sessions.get_events(SID)
    first = sessions.compact(SID, None, Resummarizing("first"))
    second = sessions.compact(SID, None, Resummarizing("second"))
    log = sessions.get_events(SID)
    assert [event.text for event in project(log).events] == ["second", "xx", "xx"]
    assert log == (*messages, first.boundary, *first.summary_events, second.boundary, *second.summary_events)
