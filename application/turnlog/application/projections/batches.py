"""Events at their positions in the log of an application, and in batches that leave no write half done."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from eventsourcing.persistence import ApplicationRecorder, Mapper, Notification

from turnlog.application.storage import storage_errors
from turnlog.application.stored_events import event_of
from turnlog.domain.events import (
    Compacted,
    EventIdTaken,
    MessageAppended,
    SessionDeleted,
    StreamEvent,
    as_uuid,
)

OUR_TOPICS: Final = "turnlog.domain.events:"

PAGE: Final = 1000
"""Events that are read and applied at once where a read model is far behind."""

_MOST_HELD: Final = 10 * PAGE
"""Events behind a boundary that are held for its summary. Only a log that was tampered with has more."""


@dataclass(frozen=True, slots=True)
class Positioned:
    """An event at its position; None in the place of events that are not of sessions."""

    position: int
    event: StreamEvent | None


def positioned(notification: Notification, mapper: Mapper[Any]) -> Positioned:
    """The event of a notification."""
    if not notification.topic.startswith(OUR_TOPICS) or notification.topic == EventIdTaken.TOPIC:
        return Positioned(notification.id, None)
    event = event_of(mapper, notification)
    return Positioned(notification.id, event if isinstance(event, StreamEvent) else None)


def pages(
    recorder: ApplicationRecorder, mapper: Mapper[Any], after: int | None, *, size: int = PAGE
) -> Iterator[Sequence[Positioned]]:
    """What the log holds behind a position, page by page, until nothing more is there."""
    while True:
        with storage_errors():
            found = recorder.select_notifications(after, size, inclusive_of_start=after is None)
        if found:
            yield [positioned(notification, mapper) for notification in found]
            after = found[-1].id
        if len(found) < size:
            return


def by_stream(batch: Iterable[Positioned]) -> dict[UUID, list[StreamEvent]]:
    """The events of each stream, in order."""
    streams: dict[UUID, list[StreamEvent]] = {}
    for item in batch:
        if item.event is not None:
            streams.setdefault(as_uuid(item.event.originator_id), []).append(item.event)
    return streams


class WholeWrites:
    """Collects events until each boundary among them has its summary.

    A boundary and its summary are one write. A read model that shows all or nothing of it applies them
    together.
    """

    def __init__(self, apply: Callable[[Sequence[Positioned]], object]) -> None:
        self._apply = apply
        self._held: list[Positioned] = []
        self._awaited: dict[UUID, set[str]] = {}

    def add(self, items: Iterable[Positioned]) -> None:
        """Take these events, and apply all that is held as soon as nothing is awaited."""
        for item in items:
            self._held.append(item)
            if item.event is not None:
                self._note(item.event)
        if not self._awaited or len(self._held) > _MOST_HELD:
            self.flush()

    def flush(self) -> None:
        """Apply all that is held."""
        held, self._held = self._held, []
        self._awaited.clear()
        if held:
            self._apply(held)

    def _note(self, event: StreamEvent) -> None:
        aggregate_id = as_uuid(event.originator_id)
        if isinstance(event, Compacted) and event.summary:
            self._awaited[aggregate_id] = set(event.summary)
        elif (awaited := self._awaited.get(aggregate_id)) is not None:
            known = isinstance(event, MessageAppended) and event.event_id in awaited
            if isinstance(event, MessageAppended):
                awaited.discard(event.event_id)
            # Anything else in this stream means that the summary will not come: nobody waits for it.
            if not awaited or not known or isinstance(event, SessionDeleted):
                del self._awaited[aggregate_id]
