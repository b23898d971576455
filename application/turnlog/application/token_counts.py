"""Token counts that are remembered, so that a trigger costs the new events only."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from turnlog.domain.estimation import TokenEstimator
from turnlog.domain.log import SessionEvent
from turnlog.domain.messages import Message


class TokenCounts:
    """Counts each event once for as long as anybody holds it."""

    def __init__(self, estimator: TokenEstimator) -> None:
        self._estimator = estimator
        self._counts: WeakKeyDictionary[SessionEvent, int] = WeakKeyDictionary()

    def of_event(self, event: SessionEvent) -> int:
        """The tokens of the event's message, 0 when it has none."""
        count = self._counts.get(event)
        if count is None:
            count = self.of_message(event.message) if event.message else 0
            self._counts[event] = count
        return count

    def of_message(self, message: Message) -> int:
        """The tokens of a message."""
        return max(0, self._estimator.estimate(message))
