"""The steps of a session one after the other, with what was in the view at each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from turnlog.application.audit.core import AuditCore
from turnlog.application.audit.results import (
    BoundaryRef,
    CallFigures,
    EventRef,
    Timeline,
    TimelineEntry,
)
from turnlog.application.passes import SkippedPass
from turnlog.application.token_counts import TokenCounts
from turnlog.domain.log import EventType, SessionEvent


class Timing(AuditCore):
    """The course of a session."""

    def passes(self, session_id: str) -> tuple[SkippedPass, ...]:
        """Compaction passes that wrote nothing: declined, failed, or overtaken; those that were kept.

        A service keeps them that was made with `keep_passes=True`. Raises `SessionNotFoundError`.
        """
        key, _ = self._opened(session_id)
        return tuple(self._passes.read(key.aggregate_id))

    def timeline(self, session_id: str) -> Timeline:
        """Turns, calls and boundaries in order, with the tokens of the view behind each. Reads the whole log.

        Raises `SessionNotFoundError`.
        """
        key, state = self._opened(session_id)
        course = _Course(self._token_counts())
        for entry in self._streams.entries(key.aggregate_id, key.session_id, upto=state.version):
            course.step(entry)
        return replace(course.timeline(session_id, state.version), lost=self.lost(session_id))


@dataclass
class _Tokens:
    """What the messages of a view cost: superseded system messages cost nothing."""

    counts: TokenCounts
    events: dict[str, SessionEvent] = field(default_factory=dict[str, SessionEvent])
    total: int = 0
    systems: dict[str | None, SessionEvent] = field(default_factory=dict[str | None, SessionEvent])

    def add(self, event: SessionEvent) -> None:
        self.events[event.id] = event
        if event.is_stored_system:
            former = self.systems.get(event.branch)
            self.total -= self.counts.of_event(former) if former else 0
            self.systems[event.branch] = event
        self.total += self.counts.of_event(event)

    def only(self, names: Iterable[str]) -> _Tokens:
        """The same for these messages alone, in this order; those that are still to come are left out."""
        left = _Tokens(self.counts)
        for name in names:
            if name in self.events:
                left.add(self.events[name])
        return left


class _Course:
    """A fold over the log: the view as ids, and the steps so far."""

    def __init__(self, counts: TokenCounts) -> None:
        self._counts = counts
        self._view = _Tokens(counts)
        self._log_tokens = 0
        self._entries: list[TimelineEntry] = []
        self._calls: dict[str, int] = {}
        self._boundary: tuple[int, int] | None = None
        """The newest boundary among the steps, and how many messages of its summary are still to come."""

    def step(self, event: SessionEvent) -> None:
        """One more entry of the log."""
        if event.message:
            self._message(event)
        elif event.boundary:
            self._compacted(event)
        elif event.type == EventType.PROMPT_RENDERED:
            self._prompted(event, event.payload or {})
        elif event.type == EventType.MODEL_REPLIED:
            self._replied(event.payload or {})

    def timeline(self, session_id: str, version: int) -> Timeline:
        """All that was seen."""
        calls = [entry.call for entry in self._entries if entry.call]
        costs: dict[str, Decimal] = {}
        for call in calls:
            if call.cost is not None and call.currency is not None:
                costs[call.currency] = costs.get(call.currency, Decimal(0)) + Decimal(call.cost)
        return Timeline(
            session_id=session_id,
            version=version,
            entries=tuple(self._entries),
            turns=sum(entry.kind == "turn" for entry in self._entries),
            calls=len(calls),
            boundaries=sum(entry.kind == "boundary" for entry in self._entries),
            input_tokens=sum(call.input_tokens or 0 for call in calls),
            output_tokens=sum(call.output_tokens or 0 for call in calls),
            costs={currency: str(cost) for currency, cost in sorted(costs.items())},
        )

    def _message(self, event: SessionEvent) -> None:
        self._log_tokens += self._counts.of_event(event)
        self._view.add(event)
        if event.starts_turn:
            self._add(event, "turn", EventRef.of(event).excerpt)
        elif self._boundary is not None:
            place, missing = self._boundary
            self._entries[place] = self._measured(self._entries[place])
            self._boundary = (place, missing - 1) if missing > 1 else None

    def _compacted(self, event: SessionEvent) -> None:
        assert event.boundary is not None  # noqa: S101 - the caller looked
        ref = BoundaryRef.of(event)
        self._view = self._view.only(event.boundary.named)
        self._add(event, "boundary", f"{ref.covered:,} left the view", boundary=ref)
        if ref.summary:
            self._boundary = (len(self._entries) - 1, ref.summary)

    def _prompted(self, event: SessionEvent, payload: Mapping[str, Any]) -> None:
        call_id = str(payload.get("call", event.id))
        if call_id in self._calls:
            place = self._calls[call_id]
            call = self._entries[place].call
            assert call is not None  # noqa: S101 - that is how it was noted
            again = replace(call, attempts=call.attempts + 1, body_bytes=payload.get("bytes"))
            self._entries[place] = replace(self._entries[place], call=again)
            return
        self._calls[call_id] = len(self._entries)
        figures = CallFigures(payload.get("model"), payload.get("renderer"), 1, payload.get("bytes"))
        self._add(event, "call", figures.model or "a model", call=figures, name=call_id)

    def _replied(self, payload: Mapping[str, Any]) -> None:
        place = self._calls.get(str(payload.get("call")))
        call = None if place is None else self._entries[place].call
        if place is None or call is None:
            return
        usage: Mapping[str, Any] = payload.get("usage") or {}
        cost: Mapping[str, Any] = payload.get("cost") or {}
        answered = replace(
            call,
            finish_reason=payload.get("finish_reason"),
            input_tokens=usage.get("input_tokens"),
            output_tokens=usage.get("output_tokens"),
            latency_ms=payload.get("latency_ms"),
            cost=cost.get("amount"),
            currency=cost.get("currency"),
        )
        self._entries[place] = replace(self._entries[place], call=answered)

    def _add(
        self,
        event: SessionEvent,
        kind: str,
        label: str,
        *,
        call: CallFigures | None = None,
        boundary: BoundaryRef | None = None,
        name: str | None = None,
    ) -> None:
        entry = TimelineEntry(
            version=event.version,
            time=event.timestamp,
            kind=kind,
            id=name or event.id,
            label=label,
            messages=0,
            tokens=0,
            log_tokens=0,
            call=call,
            boundary=boundary,
        )
        self._entries.append(self._measured(entry))

    def _measured(self, entry: TimelineEntry) -> TimelineEntry:
        return replace(
            entry,
            messages=len(self._view.events),
            tokens=self._view.total,
            log_tokens=self._log_tokens,
        )
