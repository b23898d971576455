"""Reading materialised views: the rows of the read model with their texts from the log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from eventsourcing.persistence import TrackingRecorder

from turnlog.application.async_service import AnySessionService, sync_service
from turnlog.application.core import ServiceCore
from turnlog.application.projections.batches import pages
from turnlog.application.projections.errors import ReadModelBehindError
from turnlog.application.projections.stored_view import StoredView
from turnlog.application.projections.view_projection import ViewProjection
from turnlog.application.projections.view_store import VIEW_MODEL, ViewStore
from turnlog.application.projections.waiting import poll
from turnlog.application.storage import storage_errors
from turnlog.domain.errors import SessionNotFoundError
from turnlog.domain.guards import require_number
from turnlog.domain.log import SessionEvent
from turnlog.domain.view import View


class MaterialisedViews(ServiceCore):
    """Views from a view store, as far as it follows the log, in the scope of a service.

    They equal what `SessionService.view(session_id, at_version=…)` gives for their version.
    """

    def __init__(self, service: AnySessionService, store: ViewStore) -> None:
        vars(self).update(vars(sync_service(service)))
        self._owns_app = False
        self._store = store

    def view(self, session_id: str, *, at_least: int | None = None, timeout: float = 1.0) -> View:
        """The view as it is stored; with `at_least` it is waited for, as `wait` does.

        Raises `SessionNotFoundError`, also while nothing of the session was applied.
        """
        require_number("`timeout` (seconds)", timeout)
        if at_least is not None:
            self.wait(session_id, at_least, timeout=timeout)
        key = self._key(session_id)
        found = self._store.view_of(key.aggregate_id)
        if found is None:
            raise SessionNotFoundError(session_id)
        versions = [row.version for row in found.rows]
        entries = self._streams.entries_at(key.aggregate_id, session_id, versions)
        return View(tuple(_known(entries, version, session_id) for version in versions), found.version)

    def rows(self, session_id: str) -> StoredView:
        """The rows alone, without reading the log. Raises `SessionNotFoundError`."""
        found = self._store.view_of(self._key(session_id).aggregate_id)
        if found is None:
            raise SessionNotFoundError(session_id)
        return found

    def wait(self, session_id: str, version: int, *, timeout: float = 1.0) -> None:
        """Wait until the store has this version of the session, which any process may have written.

        It asks at once and then every few milliseconds. It returns too when all that was in the log at the
        call is applied and the session is gone. Raises `ReadModelBehindError`.
        """
        aggregate_id = self._key(session_id).aggregate_id
        with storage_errors():
            newest = self._app.recorder.max_notification_id()

        def is_there() -> bool:
            found = self._store.view_of(aggregate_id)
            if found is not None:
                return found.version >= version
            return self._store.has_tracking_id(self._app.name, newest) and self._is_gone(aggregate_id)

        if not poll(is_there, timeout):
            raise ReadModelBehindError(VIEW_MODEL, self._store.position(), newest, timeout)

    def catch_up(self) -> None:
        """Apply all that is missing, without a runner; several processes may do so at once."""
        catch_up(self, ViewProjection(self._store))

    def _is_gone(self, aggregate_id: Any) -> bool:
        state = self._streams.state(aggregate_id)
        return state is None or state.is_deleted


def catch_up(
    service: ServiceCore, projection: ViewProjection, progress: Callable[[int], object] | None = None
) -> int | None:
    """Apply to a projection what the log of a service holds behind its tracking row; the position reached."""
    app, store = service.app, cast("TrackingRecorder", projection.view)
    reached = store.max_tracking_id(app.name)
    for page in pages(app.recorder, app.mapper, reached):
        projection.process_page(page)
        reached = page[-1].position
        if progress is not None:
            progress(len(page))
    return reached


def _known(entries: dict[int, SessionEvent], version: int, session_id: str) -> SessionEvent:
    if version not in entries:
        raise SessionNotFoundError(session_id)
    return entries[version]
