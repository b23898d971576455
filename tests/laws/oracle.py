"""The rules once more, written plainly and apart from the code that they judge."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Literal

from turnlog.domain.events import StreamEvent
from turnlog.domain.log import SessionEvent

Unit = Literal["events", "turns", "tokens"]


def cost_of(event: SessionEvent) -> int:
    """What an event costs here: one, and one for each character of its text."""
    return 1 + len(event.text or "")


def view_ids(log: Sequence[SessionEvent]) -> list[str]:
    """What the newest boundary names, then every message behind it that it does not name."""
    view: list[str] = []
    for event in log:
        if event.boundary is not None:
            view = [*event.boundary.pinned, *event.boundary.summary, *event.boundary.preserved]
        elif event.message is not None and event.id not in view:
            view.append(event.id)
    return view


def starts_turn(event: SessionEvent) -> bool:
    """Root-level user messages that no compaction wrote."""
    return event.role == "user" and not event.synthetic and event.branch is None


def is_stored_system(event: SessionEvent) -> bool:
    """System messages that no compaction wrote."""
    return event.role == "system" and not event.synthetic


def awaiting(log: Iterable[SessionEvent]) -> set[str]:
    """The ids of messages with a call that still awaits its result.

    A result answers the newest message of its branch with an open call of its id, there the first open one.
    """
    open_calls: list[tuple[str, str | None, str | None, bool]] = []
    for event in log:
        if event.type == "CALL_ABANDONED":
            assert event.payload is not None
            given_up = (event.payload["event_id"], event.payload["call_id"])
            open_calls = [call for call in open_calls if (call[0], call[2]) != given_up or not call[3]]
        if event.message is None:
            continue
        for response in event.message.tool_responses:
            asked = [call for call in open_calls if call[1:3] == (event.branch, response.id)]
            if asked and not response.provisional:
                open_calls.remove(next(call for call in asked if call[0] == asked[-1][0]))
        for asked_for in event.message.tool_calls:
            open_calls.append((event.id, event.branch, asked_for.id, asked_for.awaiting))
    return {call[0] for call in open_calls if call[3]}


def pairs(view: Sequence[SessionEvent]) -> list[tuple[str, str]]:
    """Ids of the message of each call and of the message of its result, as they meet in this view."""
    found: list[tuple[str, str]] = []
    for place, event in enumerate(view):
        for response in event.message.tool_responses if event.message else ():
            for earlier in reversed(view[:place]):
                assert earlier.message is not None
                if earlier.branch == event.branch and response.id in [
                    c.id for c in earlier.message.tool_calls
                ]:
                    found.append((earlier.id, event.id))
                    break
    return found


@dataclass(frozen=True)
class Expected:
    """What a pass must do to a view; None of it when `covered` is empty."""

    pinned: tuple[str, ...] = ()
    covered: tuple[str, ...] = ()
    preserved: tuple[str, ...] = ()
    prior_summary: tuple[str, ...] = ()
    held_by_awaited: bool = False
    is_plain: bool = True
    """Whether every pair of call and result lies within the turns, so that the groups are determined."""


def expected_pass(
    view: Sequence[SessionEvent], unit: Unit, size: int, *, summarizes: bool, awaited: Set[str]
) -> Expected:
    """The pass as the conformance cases describe it, and law 4 on top."""
    latest = {event.branch: event.id for event in view if is_stored_system(event)}
    system = [e.id for e in view if is_stored_system(e) and latest[e.branch] == e.id]
    summaries = [e.id for e in view if e.synthetic]
    conversation = [e for e in view if not e.synthetic and not is_stored_system(e)]
    starts = [place for place, event in enumerate(conversation) if starts_turn(event)]
    if not starts:
        return Expected()
    preamble, turns = conversation[: starts[0]], conversation[starts[0] :]
    starts = [place - starts[0] for place in starts]
    pinned = [*system, *(e.id for e in preamble), *([] if summarizes else summaries)]
    by_id = {event.id: event for event in view}
    pinned_cost = sum(cost_of(by_id[name]) for name in pinned)

    raw = 0
    match unit:
        case "events":
            root = [place for place, event in enumerate(turns) if event.branch is None]
            raw = root[len(root) - size] if len(root) >= size else 0
        case "turns":
            raw = starts[len(starts) - size] if len(starts) >= size else 0
        case "tokens":
            while raw < len(turns) and pinned_cost + sum(map(cost_of, turns[raw:])) > size:
                raw += 1
    cut = min([place for place in starts if place >= raw], default=starts[-1])

    inside = {event.id for event in turns}
    met = pairs(view)

    def is_allowed(place: int, held: Set[str]) -> bool:
        left = {event.id for event in turns[:place]}
        parted = any((call in left) != (result in left) for call, result in met if {call, result} <= inside)
        waiting = [index for index, event in enumerate(conversation) if event.id in held]
        return not parted and all(len(preamble) + place <= index for index in waiting)

    allowed = max([place for place in starts if place <= cut and is_allowed(place, awaited)], default=0)
    without = max([place for place in starts if place <= cut and is_allowed(place, set())], default=0)
    if allowed == 0:
        return Expected(held_by_awaited=without > 0)
    preserved = tuple(event.id for event in turns[allowed:])
    kept = {*pinned, *preserved}
    return Expected(
        pinned=tuple(pinned),
        covered=tuple(event.id for event in view if event.id not in kept),
        preserved=preserved,
        prior_summary=tuple(summaries) if summarizes else (),
        is_plain=all((call in inside) == (result in inside) for call, result in met),
    )


def sent_cost(view: Sequence[SessionEvent]) -> int:
    """What is sent: all but superseded system messages."""
    latest = {event.branch: event.id for event in view if is_stored_system(event)}
    return sum(cost_of(e) for e in view if not is_stored_system(e) or latest[e.branch] == e.id)


def chain_of(events: Sequence[StreamEvent]) -> list[str]:
    """The chain values of a whole stream, computed as the format's description says."""
    values: list[str] = []
    previous = "0" * 64
    for event in events:
        fields = dict(vars(event))
        content, salt, committed = (fields.pop(name, None) for name in ("content", "salt", "commitment"))
        if content is not None:
            committed = sha256(f"{salt}\n{content}".encode()).hexdigest()
        head = [
            "turnlog/1",
            previous,
            event.originator_id.hex,
            str(event.originator_version),
            type(event).TOPIC,
            event.timestamp.isoformat(),
        ]
        for name in ("originator_id", "originator_version", "timestamp", "chain"):
            fields.pop(name)
        lines = [*head, *_field_lines(fields), committed or ""]
        previous = sha256("".join(line + "\n" for line in lines).encode()).hexdigest()
        values.append(previous)
    return values


def _field_lines(fields: Mapping[str, Any]) -> list[str]:
    lines: list[str] = []
    for name, value in sorted(fields.items()):
        if value is not None:
            text = json.dumps(value, separators=(",", ":")) if isinstance(value, list) else str(value)
            lines.append(f"{name}={len(text)}:{text}")
    return lines
