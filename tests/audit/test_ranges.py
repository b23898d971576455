"""A view in many pieces is read at once where the store can do that, and is the same everywhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.contracts.stores import STORES

from turnlog.application.ports import SessionRowsRecorder
from turnlog.domain.compaction import CompactionReason, CompactionRequest, CompactionResult
from turnlog.domain.messages import Message


class EveryOther:
    """Keeps every other message of the older ones."""

    def compact(self, request: CompactionRequest) -> CompactionResult:
        """Cover the others."""
        older, newest = request.events[:-1], request.events[-1:]
        return CompactionResult(
            CompactionReason.COMPACTED,
            covered_events=older[::2],
            preserved_events=(*older[1::2], *newest),
        )


@pytest.mark.parametrize("name", sorted(STORES))
def test_a_view_in_many_pieces_is_the_same_on_every_store(name: str, tmp_path: Path) -> None:
    store = STORES[name](tmp_path)
    sessions = store.service()
    sessions.create("s")
    for number in range(12):
        sessions.append_message("s", Message.user(f"{number}"))
        for _ in range(40):
            sessions.append_event("s", "ACME.NOTE", {})
    sessions.compact("s", None, EveryOther())
    fresh = store.service()
    assert [message.text for message in fresh.view("s").messages] == ["1", "3", "5", "7", "9", "11"]
    if isinstance(fresh.app.recorder, SessionRowsRecorder):
        assert fresh.app.recorder.select_ranges(fresh.list_sessions()[0].aggregate_id, [(0, 1)]) is not None
    sessions.close()
    fresh.close()
