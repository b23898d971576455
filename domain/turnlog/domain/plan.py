"""The plan of an archive pass: which events are archived, and which new ones go where. Nothing else.

A plan is a pure function over a log held as a list; the service records the same pass as a boundary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from turnlog.domain.compaction import CompactionReason, CompactionResult
from turnlog.domain.errors import (
    DuplicateEventError,
    ForeignEventError,
    InvalidPlanError,
    UnknownPlanEventError,
)
from turnlog.domain.log import SessionEvent


@dataclass(frozen=True)
class PlannedInsert:
    """New events that go in front of the event `before`, or to the end of the log."""

    events: tuple[SessionEvent, ...]
    before: str | None = None

    def __post_init__(self) -> None:
        if not self.events:
            raise InvalidPlanError("A group of inserts holds at least one event.")


class ArchiveResult(Protocol):
    """What a pass over active events leaves; a `CompactionResult` with its summary written is one."""

    @property
    def compacted_events(self) -> Sequence[SessionEvent]:
        """The events that are active afterwards, in order, new ones among them."""
        ...


@dataclass(frozen=True)
class CompactionPlan:
    """Archive these events, insert those."""

    archive_ids: frozenset[str] = frozenset()
    inserts: tuple[PlannedInsert, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to archive and nothing to insert."""
        return not self.archive_ids and not self.inserts

    @classmethod
    def of(
        cls, session_id: str, active_events: Sequence[SessionEvent], result: ArchiveResult
    ) -> CompactionPlan:
        """The plan that leads from the active events to what the result keeps.

        Every active event that it does not keep is archived. Each run of new events among the kept ones is
        one group, in front of the active event that follows. Raises `ForeignEventError` for an event of
        another session, `DuplicateEventError` for one that is kept twice.
        """
        if isinstance(result, CompactionResult) and result.is_unchanged:
            return cls()
        active = {event.id for event in active_events}
        for event in (*active_events, *result.compacted_events):
            if event.session_id != session_id:
                raise ForeignEventError(event.id, session_id)
        groups: list[PlannedInsert] = []
        run: list[SessionEvent] = []
        seen: set[str] = set()
        for event in result.compacted_events:
            if event.id in seen:
                raise DuplicateEventError(event.id)
            seen.add(event.id)
            if event.id not in active:
                run.append(event)
                continue
            groups += [PlannedInsert(tuple(run), event.id)] if run else []
            run = []
        groups += [PlannedInsert(tuple(run))] if run else []
        return cls(frozenset(active - seen), tuple(groups))

    def apply_to(self, log: Sequence[SessionEvent]) -> tuple[SessionEvent, ...]:
        """The log with the events archived where they stand, and the groups in front of their anchors.

        The plan is checked as a whole first: `UnknownPlanEventError` for an id or anchor that the log does
        not hold, `DuplicateEventError` for a new id that it holds or that comes twice.
        """
        held = {event.id for event in log}
        wanted = (*self.archive_ids, *(group.before for group in self.inserts if group.before is not None))
        for name in wanted:
            if name not in held:
                raise UnknownPlanEventError(name)
        fresh: set[str] = set()
        for event in (event for group in self.inserts for event in group.events):
            if event.id in held or event.id in fresh:
                raise DuplicateEventError(event.id)
            fresh.add(event.id)
        at: dict[str | None, list[SessionEvent]] = {}
        for group in self.inserts:
            at.setdefault(group.before, []).extend(group.events)
        applied: list[SessionEvent] = []
        for event in log:
            applied += at.get(event.id, ())
            applied.append(replace(event, archived=True) if event.id in self.archive_ids else event)
        return (*applied, *at.get(None, ()))

    def as_result(self, view: Sequence[SessionEvent]) -> CompactionResult:
        """The pass over this view that the plan describes, its summary aside.

        Raises `UnknownPlanEventError` for an id or an anchor that the view does not hold.
        """
        held = {event.id for event in view}
        anchor = self.inserts[0].before if self.inserts else None
        for name in (*self.archive_ids, *((anchor,) if anchor is not None else ())):
            if name not in held:
                raise UnknownPlanEventError(name)
        ids = [event.id for event in view]
        at = 0 if not self.inserts else len(view) if anchor is None else ids.index(anchor)
        return CompactionResult(
            CompactionReason.COMPACTED,
            covered_events=tuple(event for event in view if event.id in self.archive_ids),
            pinned_events=tuple(event for event in view[:at] if event.id not in self.archive_ids),
            preserved_events=tuple(event for event in view[at:] if event.id not in self.archive_ids),
            summary=tuple(e.message for group in self.inserts for e in group.events if e.message),
        )
