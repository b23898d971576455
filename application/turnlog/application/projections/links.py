"""Whether events that are read in their order follow on each other, looked at while a read model is made."""

from __future__ import annotations

from typing import Final

from turnlog.application.streams import Lru
from turnlog.domain.chain import GENESIS
from turnlog.domain.errors import UnreadableEventError
from turnlog.domain.events import EventErased, StreamEvent, as_uuid

_STREAMS: Final = 100_000
"""Sessions whose newest chain value is remembered: of one that is silent for longer one link is not looked
at."""

_MOST: Final = 1000
"""Broken links that are remembered."""


class Links:
    """The chain values of events that were read; `broken` are aggregate id and version of misfits."""

    def __init__(self) -> None:
        self.broken: dict[tuple[str, int], None] = {}
        self._newest: Lru[str, tuple[int, str | None]] = Lru(_STREAMS)

    def follow(self, event: StreamEvent) -> None:
        """Look at the next event of its stream; one that was read before is passed over."""
        stream, version = as_uuid(event.originator_id).hex, event.originator_version
        reached, before = self._newest.get(stream) or (-1, GENESIS if version == 0 else None)
        if version <= reached:
            return
        is_next = version == reached + 1 and before is not None
        if isinstance(event, EventErased):  # what it was is not in the log any more
            self._newest.put(stream, (version, None))
            return
        if is_next and before is not None and not _fits(event, before) and len(self.broken) < _MOST:
            self.broken[stream, version] = None
        self._newest.put(stream, (version, event.chain))


def _fits(event: StreamEvent, before: str) -> bool:
    try:
        return event.linked_to(before) == event.chain
    except (UnreadableEventError, TypeError, ValueError, AttributeError):
        return False
