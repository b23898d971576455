"""Turns, and where a conversation may be cut."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from turnlog.domain.log import SessionEvent


def turn_starts(events: Sequence[SessionEvent]) -> list[int]:
    """The indexes at which a turn starts: user messages of the root that no compaction wrote."""
    return [index for index, event in enumerate(events) if event.starts_turn]


def snap(events: Sequence[SessionEvent], raw_cut: int) -> int:
    """The first turn start at the raw cut or behind it; the end when none follows."""
    return next((start for start in turn_starts(events) if start >= raw_cut), len(events))


def cut_at_turn(events: Sequence[SessionEvent], raw_cut: int) -> int:
    """The raw cut moved forward to a turn start, or back to the newest one when none follows.

    Without a turn start 0: nothing is cut.
    """
    cut = snap(events, raw_cut)
    return cut if cut < len(events) else max(turn_starts(events), default=0)


def turn_safe(events: Sequence[SessionEvent], cut: int, awaited: frozenset[str] = frozenset()) -> int:
    """The cut moved back until it parts no call from its result and covers no call that awaits one.

    It stays on a turn start; 0 when no turn can leave.
    """
    keep_from = min((i for i, event in enumerate(events) if event.id in awaited), default=len(events))
    pairs = sorted(call_pairs(events), key=lambda pair: pair[1])
    earlier = (start for start in reversed(turn_starts(events)) if start < cut)
    first_call = len(events)
    for candidate in (cut, *earlier):
        while pairs and pairs[-1][1] >= candidate:
            first_call = min(first_call, pairs.pop()[0])
        if first_call >= candidate and keep_from >= candidate:
            return candidate
    return 0


@dataclass
class _OpenCall:
    event: int
    answered: bool = False


def call_pairs(events: Sequence[SessionEvent]) -> list[tuple[int, int]]:
    """Indexes of the event of each call and of the event of each of its results.

    Providers use ids again, even within one message, so a result belongs to the newest message of its branch
    that asked for a call of its id: to that message's first call without a result, else to the last one (a
    result after a provisional one).
    """
    newest: dict[tuple[str | None, str | None], list[_OpenCall]] = {}
    pairs: list[tuple[int, int]] = []
    for index, event in enumerate(events):
        if event.message is None:
            continue
        asked: dict[str | None, list[_OpenCall]] = defaultdict(list)
        for call in event.message.tool_calls:
            asked[call.id].append(_OpenCall(index))
        for call_id, calls in asked.items():
            newest[event.branch, call_id] = calls
        for response in event.message.tool_responses:
            candidates = newest.get((event.branch, response.id))
            if candidates:
                answered = next((one for one in candidates if not one.answered), candidates[-1])
                answered.answered = True
                pairs.append((answered.event, index))
    return pairs


def open_awaited(events: Sequence[SessionEvent]) -> frozenset[str]:
    """The ids of events with a call marked as awaiting that no final result answers."""
    waiting: dict[tuple[str | None, str | None], list[str]] = defaultdict(list)
    for event in events:
        if event.message is None:
            continue
        for call in reversed(event.message.tool_calls):  # the first call of a message is answered first
            waiting[event.branch, call.id].append(event.id if call.awaiting else "")
        for response in event.message.tool_responses:
            calls = waiting[event.branch, response.id]
            if calls and not response.provisional:
                calls.pop()
    return frozenset(name for calls in waiting.values() for name in calls if name)


def with_late_results(
    preamble: Sequence[SessionEvent], turns: Sequence[SessionEvent]
) -> tuple[list[SessionEvent], list[SessionEvent]]:
    """The preamble with the later results of its calls, and the turns without these.

    A later message that answers a call of the preamble and one of a turn draws that call along as well.
    """
    together = [*preamble, *turns]
    linked: dict[int, set[int]] = defaultdict(set)
    for call, result in call_pairs(together):
        linked[call].add(result)
        linked[result].add(call)
    first = set(range(len(preamble)))
    late: set[int] = set()
    reached = list(first)
    while reached:
        for index in linked.get(reached.pop(), ()):
            if index not in first and index not in late:
                late.add(index)
                reached.append(index)
    if not late:
        return list(preamble), list(turns)
    rest = range(len(preamble), len(together))
    return (
        [*preamble, *(together[index] for index in sorted(late))],
        [together[index] for index in rest if index not in late],
    )


def held_back(
    conversation: Sequence[SessionEvent], turns: Sequence[SessionEvent], cut: int, awaited: frozenset[str]
) -> int:
    """The cut among the turns, moved back in front of what awaits a result anywhere in the conversation.

    A call in the preamble, or drawn along with it, keeps the turns behind the place where it stands as well.
    """
    order = {event.id: index for index, event in enumerate(conversation)}
    first = min((order[name] for name in awaited if name in order), default=len(conversation))
    if cut == 0 or order[turns[cut].id] <= first:
        return turn_safe(turns, cut, awaited)
    earlier = (start for start in turn_starts(turns) if order[turns[start].id] <= first)
    return turn_safe(turns, max(earlier, default=0), awaited)


def drawn_along(events: Sequence[SessionEvent], ids: Collection[str]) -> frozenset[str]:
    """These ids and those of all events that share a call with one of them, directly or through others."""
    linked: dict[int, set[int]] = defaultdict(set)
    for call, result in call_pairs(events):
        linked[call].add(result)
        linked[result].add(call)
    reached = [index for index, event in enumerate(events) if event.id in ids]
    found = set(reached)
    while reached:
        for index in linked.get(reached.pop(), ()):
            if index not in found:
                found.add(index)
                reached.append(index)
    return frozenset(events[index].id for index in found)


def safe_stops(events: Sequence[SessionEvent]) -> tuple[int, ...]:
    """The indexes behind the first at which a turn starts and no call is parted from its result; the end."""
    depth = [0] * (len(events) + 2)
    for call, result in call_pairs(events):
        depth[call + 1] += 1
        depth[result + 1] -= 1
    starts = set(turn_starts(events))
    stops: list[int] = []
    parted = 0
    for index in range(1, len(events)):
        parted += depth[index]
        if not parted and index in starts:
            stops.append(index)
    return (*stops, len(events)) if events else ()
