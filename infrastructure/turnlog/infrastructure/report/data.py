"""What a page shows, as plain JSON data: the entries of its window, and the views that boundaries made."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

from turnlog.application.audit import LostEvents
from turnlog.domain.log import CompactionBoundary, EventType, SessionEvent
from turnlog.domain.query import said_at
from turnlog.domain.view import View
from turnlog.infrastructure.report.calls import PROMPT, REPLY, Contents, call_data, reply_data
from turnlog.infrastructure.report.content import Data, parts_data
from turnlog.infrastructure.report.following import FollowedView, Measures

FORM: Final = 1
"""The form of the data."""

CARRIED_IN_FULL: Final = 2_000
"""Messages of earlier parts that a page shows in full, the newest ones of its first view."""

Runs: TypeAlias = list[list[int]]
"""Places of messages on a page, as runs from the first to the last of each."""


@dataclass(frozen=True)
class PageData:
    """The entries of one page, its first and last version, and the views that its boundaries made.

    `lost` says what the log does not have any more, each in front of which version.
    """

    first: int
    last: int
    entries: list[Data]
    views: list[Data]
    lost: list[Data]

    def to_dict(self) -> Data:
        """The data as the page's script reads it."""
        window = {"first": self.first, "last": self.last}
        shown = {"entries": self.entries, "views": self.views, "lost": self.lost}
        return {"form": FORM, "window": window, **shown}


def pages(
    events: Iterable[SessionEvent],
    measures: Measures,
    lost: Sequence[LostEvents] = (),
    *,
    carried_in_full: int = CARRIED_IN_FULL,
) -> Iterator[PageData]:
    """The log in the windows that were measured, read once from its beginning."""
    view, newest, turn = FollowedView(), None, 0
    untils = {step.version: step.until for step in measures.boundaries}
    contents = Contents()
    source = iter(events)
    event = next(source, None)
    for first, last in measures.windows:
        page = _Page(measures, untils, contents)
        page.carry(view.events, newest, carried_in_full)
        while event is not None and event.version <= last:
            turn += event.starts_turn
            page.add(event, turn, view)
            view.step(event)
            newest = event if event.boundary else newest
            event = next(source, None)
        until = lost[-1].last if lost and last == measures.head else last  # the last page has a lost end
        gaps = [{"v": one.first, "what": _sentence(one)} for one in lost if first <= one.first <= until]
        yield PageData(first, last, page.entries, page.views(), gaps)


def _sentence(lost: LostEvents) -> str:
    said = str(lost)
    return f"{said[0].upper()}{said[1:]}."


@dataclass
class _Page:
    """Collects the entries of one page."""

    measures: Measures
    until: Mapping[int, int]
    contents: Contents
    entries: list[Data] = field(default_factory=list[Data])
    _places: dict[str, int] = field(default_factory=dict[str, int])
    _boundaries: list[SessionEvent] = field(default_factory=list[SessionEvent])

    def carry(self, events: Sequence[SessionEvent], newest: SessionEvent | None, in_full: int) -> None:
        """The view in front of the window, and the boundary that it came from."""
        full = {event.version for event in events[max(0, len(events) - in_full) :]}
        for event in sorted(events, key=lambda event: event.version):
            data = self._message(event, None) if event.version in full else _light(event)
            self._append(event, {**data, "tokens": self.measures.costs[event.version], "carried": True})
        if newest is not None:
            self._boundaries.append(newest)

    def add(self, event: SessionEvent, turn: int, view: FollowedView) -> None:
        """One entry of the window, and the view in front of it."""
        if event.boundary:
            self._boundaries.append(event)
            self.entries.append({**_entry(event), "boundary": _boundary(event.boundary)})
        elif event.message:
            data = self._message(event, turn if event.starts_turn else None)
            self._append(event, {**data, "tokens": self.measures.costs[event.version]})
        else:
            payload = event.payload or {}
            self.contents.keep(event)
            self.entries.append(
                {**_entry(event), **self._call(event.type, payload, view), "payload": _json(payload)}
            )

    def _call(self, kind: EventType, payload: Mapping[str, Any], view: FollowedView) -> Data:
        if kind == PROMPT:
            told = self._told(payload, view) if payload.get("picked") else None
            return {"call": call_data(payload, self.contents, told)}
        return {"reply": reply_data(payload)} if kind == REPLY else {}

    def _told(self, payload: Mapping[str, Any], view: FollowedView) -> Sequence[SessionEvent] | None:
        """What the view in front of a call told its branch; None where the call was made of another one."""
        events = view.events
        newest = max((event.version for event in (*events, *self._boundaries[-1:])), default=0)
        if payload.get("view", -1) < newest:
            return None
        return View(events).told_events(payload.get("branch"))

    def views(self) -> list[Data]:
        """By boundary, which messages it made the view of, in its order; what it names comes later too."""
        return [self._view(event) for event in self._boundaries]

    def _view(self, event: SessionEvent) -> Data:
        boundary = event.boundary or CompactionBoundary()
        groups = {"pinned": boundary.pinned, "summary": boundary.summary, "preserved": boundary.preserved}
        places = self._places
        named = {name: runs(places[one] for one in ids if one in places) for name, ids in groups.items()}
        return {"version": event.version, "until": self.until[event.version], **named}

    def _append(self, event: SessionEvent, data: Data) -> None:
        self._places[event.id] = len(self._places)
        self.entries.append(data)

    def _message(self, event: SessionEvent, turn: int | None) -> Data:
        message = event.message
        assert message is not None  # noqa: S101 - callers look first
        data: Data = {**_light(event), "id": event.id, **_times(event), "parts": parts_data(message.parts)}
        data |= _redacted(event)
        if turn is not None:
            data["turn"] = turn
        about = {
            name: value
            for name, value in (("context", event.context), ("metadata", message.metadata))
            if value
        }
        if about:
            data["about"] = _json(about)
        return data


def runs(places: Iterable[int]) -> Runs:
    """The places in their order, each run of neighbours as its first and last.

    >>> runs([0, 4, 5, 6, 2])
    [[0, 0], [4, 6], [2, 2]]
    """
    found: Runs = []
    for place in places:
        if found and place == found[-1][1] + 1:
            found[-1][1] = place
        else:
            found.append([place, place])
    return found


def _light(event: SessionEvent) -> Data:
    """What the view needs of a message, without what it says."""
    data: Data = {"v": event.version, "role": str(event.role)}
    if event.branch is not None:
        data["branch"] = event.branch
    if event.synthetic:
        data["synthetic"] = True
    return data


def _entry(event: SessionEvent) -> Data:
    data: Data = {"v": event.version, "id": event.id, "type": event.type, **_times(event), **_redacted(event)}
    return data if event.branch is None else {**data, "branch": event.branch}


def _redacted(event: SessionEvent) -> Data:
    """The marker of a content that was removed."""
    mark = event.redacted
    return {"redacted": {"reason": mark.reason, "by": mark.by, "at": iso(mark.at)}} if mark else {}


def _times(event: SessionEvent) -> Data:
    data = {"said": iso(said_at(event))}
    recorded = iso(event.timestamp)
    return data if recorded == data["said"] else {**data, "recorded": recorded}


def iso(time: datetime) -> str:
    """The time in UTC to the second."""
    return f"{time.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def _boundary(boundary: CompactionBoundary) -> Data:
    data: Data = {
        "covered": boundary.covered_count,
        "saved": boundary.tokens_saved,
        "kept": len(boundary.pinned) + len(boundary.preserved),
        "summary": len(boundary.summary),
    }
    why = {"strategy": boundary.strategy, "trigger": boundary.trigger}
    return {**data, **{name: text for name, text in why.items() if text}}


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)
