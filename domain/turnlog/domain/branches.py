"""Compacting one branch: a pass owns the messages of exactly that branch, all else keeps its place.

To its strategy the branch looks like a root conversation of its own: turn starts, window, latest system
message and prior summary are taken among the owned messages. What comes back is placed in the view of the
whole session.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace

from turnlog.domain.compaction import CompactionRequest, CompactionResult
from turnlog.domain.log import SessionEvent
from turnlog.domain.turns import call_pairs
from turnlog.domain.view import View


def branch_request(request: CompactionRequest, branch: str) -> CompactionRequest:
    """The request as a pass of this branch sees it; its cost is the cost of all that the branch is told."""
    owned = tuple(replace(event, branch=None) for event in owned_events(request.events, branch))
    return replace(
        request,
        view=View(owned, request.view.version),
        branch=branch,
        told=request.view.told_events(branch),
    )


def owned_events(events: Sequence[SessionEvent], branch: str) -> tuple[SessionEvent, ...]:
    """The events that a pass of this branch owns: those of the branch, not of what is above or below it."""
    return tuple(event for event in events if event.branch == branch)


def place(result: CompactionResult, events: Sequence[SessionEvent], branch: str) -> CompactionResult:
    """The result of a branch's pass, placed in the view of the whole session.

    Covered messages vanish where they stand. The summary stands in front of the first owned message that is
    kept behind the last covered one, or where that one stood; where that would part a call from its result,
    in front of the turn of the call.
    """
    gone = {event.id for event in result.covered_events}
    last = max((index for index, event in enumerate(events) if event.id in gone), default=-1)
    following = (i for i in range(last + 1, len(events)) if events[i].branch == branch)
    at = _unparted(events, gone, branch, next(following, last)) if result.summary else 0
    kept = [(index, event) for index, event in enumerate(events) if event.id not in gone]
    return replace(
        result,
        covered_events=tuple(event for event in events if event.id in gone),
        pinned_events=tuple(event for index, event in kept if index < at),
        preserved_events=tuple(event for index, event in kept if index >= at),
    )


def _unparted(events: Sequence[SessionEvent], gone: Set[str], branch: str, at: int) -> int:
    """The place, or the turn start in front of the calls of the branch that it would part from a result."""
    kept = {i for i, event in enumerate(events) if event.branch == branch and event.id not in gone}
    pairs = [pair for pair in call_pairs(events) if pair[0] in kept]
    while parted := [call for call, answer in pairs if call < at <= answer]:
        starts = (i for i in kept if i < min(parted) and replace(events[i], branch=None).starts_turn)
        at = max(starts, default=min(parted))
    return at
