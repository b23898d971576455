"""The projection that keeps a materialised view up to date."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eventsourcing.persistence import Tracking
from eventsourcing.projection import Projection

from turnlog.application.projections.batches import Positioned, WholeWrites
from turnlog.application.projections.view_store import ViewStore
from turnlog.domain.events import StreamEvent


class ViewProjection(Projection[ViewStore]):
    """Applies the log of an application to a view store. For the framework's `ProjectionRunner` and ours.

    It sees all topics, so that the tracking row moves with every event of the application, and waiting for
    a position of the log comes to an end.
    """

    name = "turnlog_view"

    def __init__(self, view: ViewStore) -> None:
        super().__init__(view)
        self._writes = WholeWrites(view.apply)

    def process_event(  # pyright: ignore[reportIncompatibleVariableOverride] # a method without dispatch
        self, domain_event: Any, tracking: Tracking
    ) -> None:
        """Apply one event; a boundary together with its summary."""
        event = domain_event if isinstance(domain_event, StreamEvent) else None
        self._writes.add([Positioned(tracking.notification_id, event)])

    def process_page(self, page: Sequence[Positioned]) -> None:
        """Apply a page of events in one transaction."""
        self._writes.add(page)
