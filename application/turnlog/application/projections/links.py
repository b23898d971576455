"""Whether events that are read in their order follow on each other, looked at while a read model is made."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from turnlog.application.projections.maintaining import MissingEvents
from turnlog.application.streams import Lru
from turnlog.domain.chain import GENESIS
from turnlog.domain.errors import UnreadableEventError
from turnlog.domain.events import EventErased, SessionDeleted, StreamEvent, as_uuid

_STREAMS: Final = 100_000
"""Sessions whose newest chain value is remembered: of one that is silent for longer one link is not looked
at."""

MOST: Final = 1000
"""Broken links, and gaps, that are remembered."""


class Links:
    """The chain values of events that were read.

    `broken` are aggregate id and version of misfits, `missing` the versions that the log has no longer.
    """

    def __init__(self) -> None:
        self.broken: dict[tuple[str, int], None] = {}
        self.missing: dict[MissingEvents, None] = {}
        self._newest: Lru[str, tuple[int, str | None]] = Lru(_STREAMS)
        self._begun = 0

    def follow(self, event: StreamEvent) -> None:
        """Look at the next event of its stream; one that was read before is passed over."""
        stream, version = as_uuid(event.originator_id).hex, event.originator_version
        reached, before = self._reached(stream, version)
        if version <= reached:
            return
        if isinstance(event, EventErased):  # what it was is not in the log any more
            self._newest.put(stream, (version, None))
            return
        if version > reached + 1 and not (isinstance(event, SessionDeleted) and not event.keeps_content):
            self.note(MissingEvents(stream, reached + 1, version - 1))
        is_next = version == reached + 1 and before is not None
        if is_next and before is not None and not _fits(event, before):
            self.note_broken(UUID(stream), version)
        self._newest.put(stream, (version, event.chain))

    def pass_over(self, aggregate_id: UUID, version: int) -> None:
        """An event that is there and cannot be read: what follows on it cannot be looked at."""
        stream = aggregate_id.hex
        if version > self._reached(stream, version)[0]:
            self._newest.put(stream, (version, None))

    def note(self, missing: MissingEvents) -> None:
        """Remember that events are missing."""
        if len(self.missing) < MOST:
            self.missing[missing] = None

    def note_broken(self, aggregate_id: UUID, version: int) -> None:
        """Remember an event that is not the one that was recorded."""
        if len(self.broken) < MOST:
            self.broken[aggregate_id.hex, version] = None

    def _reached(self, stream: str, version: int) -> tuple[int, str | None]:
        """How far a stream was read, and the chain value there if it is known."""
        found = self._newest.get(stream)
        if found is not None:
            return found
        self._begun += 1
        if self._begun > _STREAMS and version > 0:  # it may be one that was forgotten
            return version - 1, None
        return -1, GENESIS


def _fits(event: StreamEvent, before: str) -> bool:
    try:
        return event.linked_to(before) == event.chain
    except (UnreadableEventError, TypeError, ValueError, AttributeError):
        return False
