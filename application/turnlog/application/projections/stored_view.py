"""The view as a read model: which messages a model is told, by session, without their texts.

The texts stand in the log once. So what is erased or redacted there is nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from turnlog.domain.errors import BrokenBoundaryError
from turnlog.domain.events import Compacted, EventErased, MessageAppended, SessionDeleted, StreamEvent
from turnlog.domain.log import CompactionBoundary, EventType, SessionEvent
from turnlog.domain.view import View, evolve

VIEW_RULE: Final = 1
"""How the rows are made. With another one they are rebuilt, never read."""

HANDLED: Final = (MessageAppended, Compacted, SessionDeleted, EventErased)
"""The events that change more than the version."""

_NO_TIME: Final = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ToldRow:
    """A message of the view: where the log has it, and what tells which model gets it."""

    version: int
    event_id: str
    role: str
    branch: str | None = None
    synthetic: bool = False

    @classmethod
    def of(cls, event: MessageAppended) -> ToldRow:
        """The row of a stored message."""
        return cls(event.originator_version, event.event_id, event.role, event.branch, bool(event.synthetic))


@dataclass(frozen=True, slots=True)
class StoredView:
    """The view of one session at a version, as rows in view order.

    `named` is what the newest boundary names while its summary is still to come.
    """

    version: int
    rows: tuple[ToldRow, ...] = ()
    named: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether no message of the newest boundary's summary is still to come."""
        return not self.named


def evolved(view: StoredView, events: Iterable[StreamEvent]) -> StoredView:
    """The view behind these events of its session, by the rule that `domain.view.evolve` is.

    A boundary that names what the view does not hold is left out, as the log's own check reports it; the
    rows of all other sessions go on.
    """
    rows = list(view.rows)
    named = view.named
    version = view.version
    for event in events:
        version = event.originator_version
        if isinstance(event, MessageAppended) and not named:
            rows.append(ToldRow.of(event))
        elif isinstance(event, (MessageAppended, Compacted)):
            by_id = {row.event_id: row for row in rows}
            if isinstance(event, MessageAppended):
                by_id[event.event_id] = ToldRow.of(event)
            before = View(tuple(map(_slim, rows)), version - 1, named)
            try:
                after = evolve(before, _entry(event))
            except BrokenBoundaryError:
                continue
            rows = [by_id[entry.id] for entry in after.events]
            named = after.named
    return StoredView(version, tuple(rows), named)


def _slim(row: ToldRow) -> SessionEvent:
    return SessionEvent(row.event_id, EventType.MESSAGE, row.version, _NO_TIME)


def _entry(event: MessageAppended | Compacted) -> SessionEvent:
    if isinstance(event, MessageAppended):
        return _slim(ToldRow.of(event))
    boundary = CompactionBoundary(
        pinned=tuple(event.pinned or ()),
        summary=tuple(event.summary or ()),
        preserved=tuple(event.preserved or ()),
    )
    return SessionEvent(
        event.event_id, EventType.COMPACTION, event.originator_version, _NO_TIME, boundary=boundary
    )
