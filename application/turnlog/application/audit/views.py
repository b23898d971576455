"""What was in the view at a moment, and what changed between two."""

from __future__ import annotations

from collections.abc import Sequence

from turnlog.application.audit.core import AuditCore, Moment
from turnlog.application.audit.results import (
    BoundaryRef,
    Came,
    Diff,
    EventRef,
    Left,
    Standing,
    ViewAt,
    ViewEntry,
)
from turnlog.application.writing import SessionKey
from turnlog.domain.log import SessionEvent
from turnlog.domain.state import RangeSet, SessionState


class Views(AuditCore):
    """Views at moments."""

    def view_at(self, session_id: str, at: Moment | None = None) -> ViewAt:
        """The view at a version, at a time, behind an event, or that a call was told; now by default.

        Raises `UnknownVersionError`, `UnknownEventError`, `SessionNotFoundError`.
        """
        key, newest = self._opened(session_id)
        state = self._state(key, self._moment(key, newest, at))
        return self._view_at(key, state)

    def diff(self, session_id: str, a: Moment, b: Moment) -> Diff:
        """What `b` has that `a` has not, what it lost, and which boundaries did it.

        Raises what `view_at` raises.
        """
        key, newest = self._opened(session_id)
        versions = [self._moment(key, newest, moment) for moment in (a, b)]
        states = [self._state(key, version) for version in versions]
        before, after = (self._view(key, state).events for state in states)
        return self._difference(key, states, before, after)

    def _difference(
        self,
        key: SessionKey,
        states: Sequence[SessionState],
        before: Sequence[SessionEvent],
        after: Sequence[SessionEvent],
    ) -> Diff:
        had, has = ({event.version for event in events} for events in (before, after))
        came = [event for event in after if event.version not in had]
        left = [event for event in before if event.version not in has]
        earlier, later = sorted(states, key=lambda state: state.version)
        boundaries, covering = self._covering(key, earlier, later, left if later is states[1] else came)
        of_summary = {name: ref for ref in boundaries for name in ref.named.summary}

        def boundary_of(event: SessionEvent) -> BoundaryRef | None:
            return covering.get(event.version) or of_summary.get(event.id)

        return Diff(
            session_id=key.session_id,
            before=states[0].version,
            after=states[1].version,
            came=tuple(Came(EventRef.of(event), boundary_of(event)) for event in came),
            left=tuple(Left(EventRef.of(event), boundary_of(event)) for event in left),
            stayed=len(had & has),
            boundaries=tuple(boundaries),
        )

    def _covering(
        self, key: SessionKey, earlier: SessionState, later: SessionState, gone: Sequence[SessionEvent]
    ) -> tuple[list[BoundaryRef], dict[int, BoundaryRef]]:
        """The boundaries between two states, and which of them covered each message that is gone."""
        left = {event.version for event in gone}
        boundaries: list[BoundaryRef] = []
        covering: dict[int, BoundaryRef] = {}
        for before, after in self._boundaries(key, later, earlier.version):
            boundary = self._boundary(key, after.version)
            boundaries.append(boundary)
            in_front, behind = RangeSet(before.view), RangeSet(after.view)
            covered = {version for version in left if version in in_front and version not in behind}
            covering.update((version, boundary) for version in covered)
            left -= covered
        return boundaries[::-1], covering

    def _view_at(self, key: SessionKey, state: SessionState) -> ViewAt:
        boundary = self._newest_boundary(key, state)
        named: dict[str, Standing] = {}
        if boundary:
            named.update(dict.fromkeys(boundary.named.pinned, Standing.PINNED))
            named.update(dict.fromkeys(boundary.named.summary, Standing.SUMMARY))
            named.update(dict.fromkeys(boundary.named.preserved, Standing.PRESERVED))
        events = self._view(key, state).events
        return ViewAt(
            session_id=key.session_id,
            version=state.version,
            time=state.modified_on,
            boundary=boundary,
            entries=tuple(ViewEntry(event, named.get(event.id, Standing.SINCE)) for event in events),
        )
