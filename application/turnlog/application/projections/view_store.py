"""The port of the materialised view, and its reference in memory."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from threading import Lock
from typing import Final
from uuid import UUID

from eventsourcing.persistence import Tracking
from eventsourcing.popo import POPOTrackingRecorder

from turnlog.application.projections.batches import Positioned, by_stream
from turnlog.application.projections.stored_view import StoredView, evolved
from turnlog.application.projections.waiting import PromptWait
from turnlog.domain.events import EventErased, SessionDeleted, SessionOpened

VIEW_MODEL: Final = "view"

TRACKED_AS: Final = "turnlog.view"
"""The name of its tracking row, whatever the application is called: a store follows one log."""


class ViewStore(PromptWait):
    """The rows of what a model is told, by session, and how far they got, in one store.

    It is a tracking recorder of the framework's, so a `ProjectionRunner` can own it.
    """

    @abstractmethod
    def apply(self, batch: Sequence[Positioned]) -> None:
        """Apply these events and move the tracking behind them, in one transaction.

        What lies at the tracked position or in front of it was applied before and is left out, so several
        runners may do the same work. Raises `ReadModelOutdatedError`, `StorageError`.
        """

    @abstractmethod
    def view_of(self, aggregate_id: UUID) -> StoredView | None:
        """The view of a session as far as it was applied; None when there is none, or no longer.

        Raises `ReadModelOutdatedError`, `StorageError`.
        """

    @abstractmethod
    def position(self) -> int | None:
        """The position of the newest event that was applied, None before the first."""


class MemoryViewStore(ViewStore, POPOTrackingRecorder):
    """The materialised view in memory, the reference for all others."""

    def __init__(self) -> None:
        super().__init__()
        self._views: dict[UUID, StoredView] = {}
        self._applying = Lock()

    def apply(self, batch: Sequence[Positioned]) -> None:
        """Apply what is new of the batch."""
        with self._applying:
            tracked = self.position() or 0
            new = [item for item in batch if item.position > tracked]
            if not new:
                return
            views = dict(self._views)
            for aggregate_id, events in by_stream(new).items():
                known = [event for event in events if not isinstance(event, EventErased)]
                view = views.get(aggregate_id)
                if any(isinstance(event, SessionDeleted) for event in events):
                    views.pop(aggregate_id, None)
                elif known and (view or isinstance(known[0], SessionOpened)):
                    views[aggregate_id] = evolved(view or StoredView(-1), known)
            self._views = views
            self.insert_tracking(Tracking(TRACKED_AS, new[-1].position))

    def view_of(self, aggregate_id: UUID) -> StoredView | None:
        """The view of a session."""
        return self._views.get(aggregate_id)

    def position(self) -> int | None:
        """The tracked position."""
        return super().max_tracking_id(TRACKED_AS)

    def max_tracking_id(self, application_name: str) -> int | None:  # noqa: ARG002 - one log
        """The tracked position, whatever the application is called."""
        return self.position()
