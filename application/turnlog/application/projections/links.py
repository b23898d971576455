"""Whether events that are read in their order follow on each other, looked at while a read model is made."""

from __future__ import annotations

from typing import Final, NamedTuple
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


class _Reached(NamedTuple):
    """How far a stream was read, and the chain value there if it is known.

    It is doubted where nothing says yet whether that event is the one that was recorded.
    """

    version: int
    chain: str | None
    is_doubted: bool = False


_BEGINNING: Final = _Reached(-1, GENESIS)


class Links:
    """The chain values of events that were read.

    `broken` are aggregate id and version of misfits, `missing` the versions that the log has no longer. What
    follows on a misfit, or on what is not known, may be the next misfit: then the event behind it does not
    fit, as `SessionAudit.verify` says it. Without `compares` only the versions are looked at.
    """

    def __init__(self, *, compares: bool = True) -> None:
        self._compares = compares
        self.broken: dict[tuple[str, int], None] = {}
        self.missing: dict[MissingEvents, None] = {}
        self._newest: Lru[str, _Reached] = Lru(_STREAMS)
        self._begun = 0

    def follow(self, event: StreamEvent) -> None:
        """Look at the next event of its stream; one that was read before is passed over."""
        stream, version = as_uuid(event.originator_id).hex, event.originator_version
        reached = self._reached(stream, version)
        if version <= reached.version:
            return
        if isinstance(event, EventErased):  # what it was is not in the log any more
            self._newest.put(stream, _Reached(version, None))
            return
        gap = self.gap_in_front(event)
        if gap is not None:
            self.note(MissingEvents(stream, *gap))
        before = reached.chain if version == reached.version + 1 else None
        is_misfit = self._compares and before is not None and not _fits(event, before)
        if is_misfit:
            self.note_broken(UUID(stream), version - reached.is_doubted)
        self._newest.put(stream, _Reached(version, event.chain, is_misfit or before is None))

    def gap_in_front(self, event: StreamEvent) -> tuple[int, int] | None:
        """The versions in front of this event that were not read; what a purge removed is no gap."""
        version = event.originator_version
        first = self._reached(as_uuid(event.originator_id).hex, version).version + 1
        if version <= first or (isinstance(event, SessionDeleted) and not event.keeps_content):
            return None
        return first, version - 1

    def pass_over(self, aggregate_id: UUID, version: int) -> None:
        """An event that is there and cannot be read: what follows on it cannot be looked at."""
        stream = aggregate_id.hex
        if version > self._reached(stream, version).version:
            self._newest.put(stream, _Reached(version, None))

    def note(self, missing: MissingEvents) -> None:
        """Remember that events are missing."""
        if len(self.missing) < MOST:
            self.missing[missing] = None

    def note_broken(self, aggregate_id: UUID, version: int) -> None:
        """Remember an event that is not the one that was recorded."""
        if len(self.broken) < MOST:
            self.broken[aggregate_id.hex, version] = None

    def _reached(self, stream: str, version: int) -> _Reached:
        """How far a stream was read."""
        found = self._newest.get(stream)
        if found is not None:
            return found
        self._begun += 1
        if self._begun > _STREAMS and version > 0:  # it may be one that was forgotten
            return _Reached(version - 1, None)
        return _BEGINNING


def _fits(event: StreamEvent, before: str) -> bool:
    try:
        return event.linked_to(before) == event.chain
    except (UnreadableEventError, TypeError, ValueError, AttributeError):
        return False
