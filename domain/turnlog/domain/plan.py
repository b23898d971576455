"""The plan of an archive pass: which events are archived, and which new ones go where. Nothing else.

A plan is a pure function over a log held as a list; the service records the same pass as a boundary.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

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
        cls,
        session_id: str,
        active_events: Sequence[SessionEvent],
        compacted: Sequence[str],
        new_events: Iterable[SessionEvent] = (),
    ) -> CompactionPlan:
        """The plan that leads from the active events to `compacted`, the ids that are active afterwards.

        Every active event that `compacted` does not name is archived. Each run of new events in it is one
        group, in front of the active event that follows. Raises `ForeignEventError` for an event of another
        session, `UnknownPlanEventError` for an id that is neither active nor new, `DuplicateEventError`.
        """
        active = {event.id for event in active_events}
        made = {event.id: event for event in new_events}
        for event in (*active_events, *made.values()):
            if event.session_id != session_id:
                raise ForeignEventError(event.id, session_id)
        groups: list[PlannedInsert] = []
        run: list[SessionEvent] = []
        seen: set[str] = set()
        for name in compacted:
            if name in seen:
                raise DuplicateEventError(name)
            seen.add(name)
            if name in active:
                groups += [PlannedInsert(tuple(run), name)] if run else []
                run = []
            elif name in made:
                run.append(made[name])
            else:
                raise UnknownPlanEventError(name)
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
