"""What the decisions of a session need to know of its past. It holds no text of the conversation.

The view is kept as ranges of versions in view order, `3-17,25-40`. A range may span a few versions that are
no messages, never a covered one. An event carries the state that holds behind it (an *anchor*), so that
loading a session is one read.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

Ranges: TypeAlias = tuple[tuple[int, int], ...]
"""First and last version of each range, both inclusive, in view order."""

MAX_GAP = 16
"""Versions without a message that a range may span between two messages."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class AwaitedCall(NamedTuple):
    """A call that awaits its result. `hidden_by` later calls of the same id are answered first."""

    version: int
    call_id: str
    branch: str | None
    hidden_by: int = 0


class OpenTurn(NamedTuple):
    """A turn that runs on a branch. Behind `until` it counts as dead, and another may begin."""

    turn_id: str
    until: datetime
    branch: str | None = None


class SessionState(NamedTuple):
    """One value that is replaced as a whole, so that a reader of another thread never sees half a change."""

    version: int
    created_on: datetime
    modified_on: datetime
    head: str
    view: Ranges = ()
    sealed: bool = False
    awaited: tuple[AwaitedCall, ...] = ()
    expires_at: datetime | None = None
    idle: timedelta | None = None
    metadata_version: int | None = None
    anchor: int = 0
    is_deleted: bool = False
    holds: tuple[int, ...] = ()
    """The versions of the legal holds that are on."""
    boundary: int | None = None
    """The version of the newest COMPACTION boundary."""
    turns: tuple[OpenTurn, ...] = ()
    """The turns that run, at most one on each branch."""
    redacted: int | None = None
    """The version of the newest redaction."""

    def but(self, **changes: Any) -> SessionState:
        """The same with these changes; `_replace` takes five times as long, and each write asks it twice."""
        values: list[object] = list(self)
        for name, value in changes.items():
            values[_PLACES[name]] = value
        return SessionState._make(values)

    def must_carry_at(self, version: int) -> bool:
        """Whether the event at this version has to carry the state instead of naming its anchor."""
        return (version - self.anchor) * 8 > len(self.view) + len(self.awaited) + len(self.turns)

    def with_message(self, version: int) -> SessionState:
        """The state with the message at this version in the view."""
        view = self.view
        if not view:
            return self.but(view=((version, version),))
        first, last = view[-1]
        if not self.sealed and version <= last:  # the newest boundary named it in front
            return self
        if self.sealed and any(start <= version <= end for start, end in view):
            return self
        if not self.sealed and version - last - 1 <= MAX_GAP:
            return self.but(view=(*view[:-1], (first, version)))
        return self.but(view=(*view, (version, version)), sealed=False)

    def to_text(self) -> str:
        """The state as an event carries it: ranges; created; expires after; idle; metadata, and what is on.

        That is `;h` with the holds, `;b` with the newest boundary, `;r` with the newest redaction, `;t` with
        the open turns as a JSON list without a semicolon, and `;` with the awaited calls as a JSON list.
        """
        parts = [
            ranges_text(self.view) + ("!" if self.sealed else ""),
            _micros_text(self.created_on - _EPOCH),
            _micros_text(self.expires_at - self.created_on) if self.expires_at else "",
            _micros_text(self.idle) if self.idle is not None else "",
            "" if self.metadata_version is None else str(self.metadata_version),
        ]
        if self.holds:
            parts.append("h" + ",".join(map(str, self.holds)))
        if self.boundary is not None:
            parts.append(f"b{self.boundary}")
        if self.redacted is not None:
            parts.append(f"r{self.redacted}")
        if self.turns:
            turns = [(name, (until - self.created_on) // _MICROSECOND, on) for name, until, on in self.turns]
            parts.append("t" + _json(turns).replace(";", "\\u003b"))
        if self.awaited:
            parts.append(_json(self.awaited))
        return ";".join(parts)

    @classmethod
    def from_text(cls, text: str, *, version: int, modified_on: datetime, head: str) -> SessionState:
        """The state that an event of this version, time and chain value carries."""
        view, created, expires, idle, metadata, *rest = text.split(";", 5)
        holds = boundary = redacted = turns = ""
        if rest and rest[0].startswith("h"):
            holds, *rest = rest[0].removeprefix("h").split(";", 1)
        if rest and rest[0].startswith("b"):
            boundary, *rest = rest[0].removeprefix("b").split(";", 1)
        if rest and rest[0].startswith("r"):
            redacted, *rest = rest[0].removeprefix("r").split(";", 1)
        if rest and rest[0].startswith("t"):
            turns, *rest = rest[0].removeprefix("t").split(";", 1)
        created_on = _EPOCH + timedelta(microseconds=int(created))
        return cls(
            version=version,
            created_on=created_on,
            modified_on=modified_on,
            head=head,
            view=parse_ranges(view.removesuffix("!")),
            sealed=view.endswith("!"),
            awaited=tuple(AwaitedCall(*call) for call in json.loads(rest[0])) if rest else (),
            expires_at=created_on + timedelta(microseconds=int(expires)) if expires else None,
            idle=timedelta(microseconds=int(idle)) if idle else None,
            metadata_version=int(metadata) if metadata else None,
            anchor=version,
            holds=tuple(map(int, holds.split(","))) if holds else (),
            boundary=int(boundary) if boundary else None,
            redacted=int(redacted) if redacted else None,
            turns=tuple(
                OpenTurn(name, created_on + timedelta(microseconds=until), branch)
                for name, until, branch in (json.loads(turns) if turns else ())
            ),
        )


_PLACES = {name: place for place, name in enumerate(SessionState._fields)}


def ranges_text(ranges: Ranges) -> str:
    """The ranges as text, `3-17,25`."""
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def parse_ranges(text: str) -> Ranges:
    """The ranges that `ranges_text` wrote."""
    ranges: list[tuple[int, int]] = []
    for item in text.split(",") if text else ():
        first, _, last = item.partition("-")
        ranges.append((int(first), int(last or first)))
    return tuple(ranges)


def ranges_of(versions: Sequence[int], messages: Sequence[int], view: Ranges) -> Ranges:
    """Ranges for messages at `versions`, in this order.

    `messages` are the versions of all messages of the view before, sorted, and `view` its ranges: two kept
    messages share a range when they are neighbours, or when they shared one and no message lies between.
    """
    ranges: list[tuple[int, int]] = []
    before = RangeSet(view)
    for version in versions:
        if ranges:
            first, last = ranges[-1]
            if version == last + 1 or (
                version > last
                and bisect_left(messages, version) - bisect_left(messages, last) == 1
                and before.place(last) == before.place(version)
            ):
                ranges[-1] = (first, version)
                continue
        ranges.append((version, version))
    return tuple(ranges)


class RangeSet:
    """The ranges prepared for many questions."""

    def __init__(self, ranges: Ranges) -> None:
        self._ranges = sorted(ranges)
        self._firsts = [first for first, _ in self._ranges]

    def place(self, version: int) -> int | None:
        """Which of the ranges spans the version, None when none does."""
        index = bisect_right(self._firsts, version) - 1
        return index if index >= 0 and version <= self._ranges[index][1] else None

    def __contains__(self, version: int) -> bool:
        return self.place(version) is not None


def near_ranges(ranges: Iterable[tuple[int, int]], gap: int) -> Iterator[tuple[int, int]]:
    """The ranges in ascending order, those that lie at most `gap` versions apart as one, for reading."""
    ordered = sorted(ranges)
    if not ordered:
        return
    start = ordered[0][0]
    for (_, last), (first, _) in pairwise(ordered):
        if first - last - 1 > gap:
            yield start, last
            start = first
    yield start, ordered[-1][1]


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))


def _micros_text(span: timedelta) -> str:
    return str(span // _MICROSECOND)
