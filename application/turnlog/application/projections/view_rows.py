"""How events change the stored rows of views, whatever database has them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from turnlog.application.projections.batches import Positioned, by_stream
from turnlog.application.projections.stored_view import HANDLED, StoredView, ToldRow, evolved
from turnlog.domain.events import EventErased, MessageAppended, SessionDeleted, SessionOpened, StreamEvent


@dataclass(frozen=True, slots=True)
class ViewHead:
    """What is stored of a view beside its messages: version, how many they are, what is still to come."""

    version: int = -1
    messages: int = 0
    named: tuple[str, ...] = ()


class ViewRows(Protocol):
    """The rows of views, in a transaction."""

    def heads(self, aggregate_ids: Collection[UUID]) -> Mapping[UUID, ViewHead]:
        """By session its head, where there is one."""
        ...

    def read(self, aggregate_id: UUID) -> StoredView | None:
        """The view of a session."""
        ...

    def write_head(self, aggregate_id: UUID, head: ViewHead) -> None:
        """Replace the head."""
        ...

    def put(self, aggregate_id: UUID, place: int, rows: Sequence[ToldRow]) -> None:
        """Put these messages at the end, which is this place."""
        ...

    def cut(self, aggregate_id: UUID, place: int) -> None:
        """Remove the messages from this place on."""
        ...

    def remove(self, aggregate_id: UUID) -> None:
        """Remove all rows of a session."""
        ...


def follow(rows: ViewRows, batch: Sequence[Positioned]) -> None:
    """Write what these events change."""
    streams = by_stream(batch)
    heads = rows.heads(streams.keys())
    for aggregate_id, events in streams.items():
        _follow(rows, aggregate_id, heads.get(aggregate_id), events)


def _follow(rows: ViewRows, aggregate_id: UUID, head: ViewHead | None, events: Sequence[StreamEvent]) -> None:
    if any(isinstance(event, SessionDeleted) for event in events):
        rows.remove(aggregate_id)
        return
    known = [event for event in events if not isinstance(event, EventErased)]
    if not known or (head is None and not isinstance(known[0], SessionOpened)):
        return
    before = head or ViewHead()
    version = known[-1].originator_version
    changes = [event for event in known if isinstance(event, HANDLED)]
    said = [event for event in changes if isinstance(event, MessageAppended)]
    if not before.named and len(said) == len(changes):  # they only join at the end
        rows.put(aggregate_id, before.messages, [ToldRow.of(event) for event in said])
        rows.write_head(aggregate_id, ViewHead(version, before.messages + len(said)))
    else:
        stored = rows.read(aggregate_id) or StoredView(-1)
        after = evolved(stored, known)
        same = _common(stored.rows, after.rows)
        rows.cut(aggregate_id, same)
        rows.put(aggregate_id, same, after.rows[same:])
        rows.write_head(aggregate_id, ViewHead(version, len(after.rows), after.named))


def _common(before: Sequence[ToldRow], after: Sequence[ToldRow]) -> int:
    """How many rows at the beginning are the same."""
    pairs = zip(before, after, strict=False)
    return next(
        (place for place, (one, other) in enumerate(pairs) if one != other), min(len(before), len(after))
    )
