"""What all audits stand on: the application, scope and readers of a session service."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TypeAlias, cast
from uuid import UUID

from turnlog.application.async_service import AnySessionService, sync_service
from turnlog.application.audit.findings import LostEvents
from turnlog.application.audit.renderers import RendererRegistry
from turnlog.application.audit.results import BoundaryRef
from turnlog.application.core import ServiceCore, require_aware
from turnlog.application.ports import RecordedHead, SessionRowsRecorder
from turnlog.application.settings import setting
from turnlog.application.stored_events import entry_in, unreadable
from turnlog.application.writing import SessionKey
from turnlog.domain.errors import (
    InvalidSettingError,
    MissingEventError,
    SessionNotFoundError,
    UnknownEventError,
    UnknownVersionError,
    shown,
)
from turnlog.domain.events import Compacted, EventErased
from turnlog.domain.ids import check_id
from turnlog.domain.log import SessionEvent
from turnlog.domain.state import SessionState
from turnlog.domain.view import View

Moment: TypeAlias = int | datetime | str
"""A version, an aware time, or the id of an event or of a model call."""


_RENDERERS_TOPIC = "turnlog.infrastructure.models.renderers:RENDERERS"


class AuditCore(ServiceCore):
    """A reader on the application of a service, in the same namespace and the same scope.

    Closing it closes nothing: the application is the service's. A service for asyncio is taken as well; the
    calls of the audit block all the same.
    """

    def __init__(self, service: AnySessionService, *, renderers: RendererRegistry | None = None) -> None:
        service = sync_service(service)
        vars(self).update(vars(service))
        self._owns_app = False
        self._service = service
        self._given_renderers = renderers

    def lost(self, session_id: str, *, after: int = -1) -> tuple[LostEvents, ...]:
        """The events behind `after` that the session's log does not have any more: gaps, and a lost end.

        That the newest ones are gone is known where the store has a row of the session. Every row is counted,
        and none is read as an event; `verify` says more. Raises `SessionNotFoundError`.
        """
        key = self._key(session_id)
        recorded = self._head(key.aggregate_id)  # first: who appends moves it together with the log
        newest = self._writer.current(key).version
        upto = newest if recorded is None else max(newest, recorded.version)
        found = tuple(LostEvents(*run) for run in self._streams.lost(key.aggregate_id, after, upto))
        if found:
            self._writer.current(key)  # it may have been deleted, and purged, meanwhile
        return found

    def _head(self, aggregate_id: UUID) -> RecordedHead | None:
        """The newest event as the session's row has it, None without one."""
        recorder = self._app.recorder
        return recorder.recorded_head(aggregate_id) if isinstance(recorder, SessionRowsRecorder) else None

    @property
    def _renderers(self) -> RendererRegistry:
        if self._given_renderers is None:
            named = setting(self._app.env, "RENDERERS_TOPIC", _RENDERERS_TOPIC)
            self._given_renderers = cast("RendererRegistry", named)
        return self._given_renderers

    def _opened(self, session_id: str) -> tuple[SessionKey, SessionState]:
        """The session and its newest state; `SessionNotFoundError`."""
        key = self._key(session_id)
        return key, self._writer.current(key)

    def _state(self, key: SessionKey, version: int) -> SessionState:
        """The state behind the event of this version."""
        state = self._streams.state(key.aggregate_id, version)
        if state is None or state.is_deleted:
            raise SessionNotFoundError(key.session_id)
        return state

    def _view(self, key: SessionKey, state: SessionState) -> View:
        return self._streams.view(key.aggregate_id, key.session_id, state)

    def _entry(self, key: SessionKey, event_id: str | int) -> SessionEvent:
        """The entry of this id, or at this version; `UnknownEventError`."""
        if isinstance(event_id, int):
            version: int | None = event_id
        else:
            version = self._locate(key, check_id("Event id", event_id))
        entry = None if version is None else self._streams.entry_at(key.aggregate_id, key.session_id, version)
        if entry is None or event_id not in (entry.id, entry.version):
            raise UnknownEventError(key.session_id, event_id)
        return entry

    def _moment(self, key: SessionKey, newest: SessionState, at: Moment | None) -> int:
        """The version that is meant; `UnknownVersionError`, `UnknownEventError`."""
        if at is None:
            return newest.version
        if isinstance(at, str):
            return self._version_of(key, self._entry(key, at))
        if isinstance(at, datetime):
            require_aware("at", at)
            version = self._streams.version_at(key.aggregate_id, at, newest)
            if version is None:
                raise UnknownVersionError(key.session_id, f"at {at}", newest.version)
            return version
        if isinstance(at, bool) or not isinstance(at, int):  # pyright: ignore[reportUnnecessaryIsInstance] # callers may be untyped
            raise InvalidSettingError(
                f"A moment is a version, a time or the id of an event or call, not {shown(at)}."
            )
        if not 0 <= at <= newest.version:
            raise UnknownVersionError(key.session_id, at, newest.version)
        return at

    def _version_of(self, key: SessionKey, entry: SessionEvent) -> int:  # noqa: ARG002 - calls know more
        """The version whose view an entry stands for."""
        return entry.version

    def _newest_boundary(self, key: SessionKey, state: SessionState) -> BoundaryRef | None:
        """The newest boundary up to this state."""
        return None if state.boundary is None else self._boundary(key, state.boundary)

    def _boundary(self, key: SessionKey, version: int) -> BoundaryRef:
        """The boundary at this version. `UnreadableEventError` when there is none that says its view."""
        event = self._streams.event_at(key.aggregate_id, version)
        if event is None or isinstance(event, EventErased):
            self._writer.current(key)  # raises where the session was deleted meanwhile
            raise MissingEventError("it is gone", key.aggregate_id.hex, version, key.session_id)
        entry = entry_in(event, key.session_id) if isinstance(event, Compacted) and event.state else None
        if entry is None:
            why = "a boundary that carries the view behind it should be there"
            raise unreadable(event, why, key.session_id)
        return BoundaryRef.of(entry)

    def _boundaries(
        self, key: SessionKey, state: SessionState, after: int = -1
    ) -> Iterator[tuple[SessionState, SessionState]]:
        """The states in front of and behind each boundary up to this state, the newest boundary first."""
        boundary = state.boundary
        while boundary is not None and boundary > after:
            before = self._state(key, boundary - 1)
            yield before, self._state(key, boundary)
            boundary = before.boundary
