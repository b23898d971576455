"""Where a message went: covered by which boundary, carried on by which summary."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from turnlog.application.audit.core import AuditCore, Moment
from turnlog.application.audit.errors import NoSummaryError
from turnlog.application.audit.results import (
    BoundaryRef,
    Carried,
    CarriedSummary,
    EventRef,
    Explanation,
    Lineage,
    Reason,
    Standing,
)
from turnlog.application.writing import SessionKey
from turnlog.domain.log import SessionEvent, superseded_system
from turnlog.domain.messages import Message, Role
from turnlog.domain.state import RangeSet, SessionState

_NOTHING: Mapping[str, Any] = {}


class Tracing(AuditCore):
    """Why a message is or is not in a view, and what a summary stands for."""

    def explain(self, session_id: str, event_id: str | int, at: Moment | None = None) -> Explanation:
        """Why this event is or is not in the view at a moment; now by default.

        The event is meant by its id, or by its version as a number.

        Raises `UnknownEventError`, `UnknownVersionError`, `SessionNotFoundError`.
        """
        key, newest = self._opened(session_id)
        event = self._entry(key, event_id)
        state = self._state(key, self._moment(key, newest, at))
        if event.message is None:
            return _told(
                key,
                event,
                state,
                Reason.NO_MESSAGE,
                f"It was never in the view: {event.type} events are not told to a model.",
            )
        if event.version > state.version:
            return _told(
                key,
                event,
                state,
                Reason.NOT_YET,
                f"It is not in the view of version {state.version}: it came at version {event.version}.",
            )
        if event.version in RangeSet(state.view):
            return self._explain_held(key, event, state)
        return self._explain_covered(key, event, state)

    def lineage(self, session_id: str, summary_id: str | int) -> Lineage:
        """The messages that a summary stands for, and the earlier summaries through which it does.

        The summary is meant by one of its messages or by the COMPACTION event that wrote it: an id, or a
        version as a number. Raises `NoSummaryError` for any other event and for a compaction that wrote
        none, `UnknownEventError`, `SessionNotFoundError`.
        """
        key, _ = self._opened(session_id)
        event = self._entry(key, summary_id)
        has_summary = event.synthetic or (event.boundary is not None and event.boundary.summary)
        boundary = self._state(key, event.version).boundary if has_summary else None
        if boundary is None:
            raise NoSummaryError(session_id, summary_id)
        return self._lineage(key, boundary)

    def carried(self, session_id: str, event_id: str | int) -> Carried:
        """The summaries that carry a message on, in the order of the log, and the prompts that told it.

        A prompt tells it as it is, in one of these summaries, or by value, as a shortened result. Reads the
        log behind the message once. Raises `UnknownEventError`, `SessionNotFoundError`.
        """
        key, newest = self._opened(session_id)
        event = self._entry(key, event_id)
        summaries = tuple(self._summaries_of(key, event, newest)) if event.message else ()
        return Carried(session_id, EventRef.of(event), summaries)

    def _lineage(self, key: SessionKey, version: int) -> Lineage:
        boundary = self._boundary(key, version)
        before = self._state(key, version - 1)
        named = set(boundary.named.named)
        covered = [event for event in self._view(key, before).events if event.id not in named]
        earlier = sorted(
            {
                found
                for event in covered
                if event.synthetic and (found := self._state(key, event.version).boundary) is not None
            }
        )
        summary = self._summary(key, boundary)
        written = next((about for event in summary if (about := _about(event.message))), _NOTHING)
        return Lineage(
            summary=tuple(map(EventRef.of, summary)),
            boundary=boundary,
            covered=tuple(EventRef.of(event) for event in covered if not event.synthetic),
            through=tuple(self._lineage(key, found) for found in earlier),
            summarizer=_said(written, "name"),
            model=_said(written, "model"),
            prompt_sha256=_said(written, "prompt_sha256"),
            usage=written.get("usage"),
        )

    def _summaries_of(
        self, key: SessionKey, event: SessionEvent, state: SessionState
    ) -> Iterator[CarriedSummary]:
        """The summaries that carry the event on up to this state: that of the boundary that covered it, that
        of the one that covered this summary, and so on."""
        version = event.version
        while True:
            boundary = self._covered_by(key, version, state)
            if boundary is None:
                return
            summary = [one for one in self._summary(key, boundary) if one.version <= state.version]
            if not summary:
                return
            version = summary[-1].version
            in_view = version in RangeSet(state.view)
            yield CarriedSummary(tuple(map(EventRef.of, summary)), boundary, in_view)
            if in_view:
                return

    def _covered_by(self, key: SessionKey, version: int, state: SessionState) -> BoundaryRef | None:
        """The boundary that took the message at this version out of the view, found by halving."""
        if version in RangeSet(state.view):
            return None
        low, high = version, state.version  # in the view at `low`, not in it at `high`
        while high - low > 1:
            middle = (low + high) // 2
            if version in RangeSet(self._state(key, middle).view):
                low = middle
            else:
                high = middle
        covering = self._state(key, high).boundary  # `high` itself, unless a boundary carries no view
        return self._boundary(key, high if covering is None else covering)

    def _summary(self, key: SessionKey, boundary: BoundaryRef) -> list[SessionEvent]:
        """The messages of the boundary's summary, which stand right behind it."""
        first = boundary.version + 1
        found = (
            self._streams.entry_at(key.aggregate_id, key.session_id, version)
            for version in range(first, first + boundary.summary)
        )
        return [event for event in found if event is not None and event.message]

    def _explain_held(self, key: SessionKey, event: SessionEvent, state: SessionState) -> Explanation:
        boundary = self._newest_boundary(key, state)
        standing = boundary.standing(event.id) if boundary else Standing.SINCE
        awaited = [call.call_id for call in state.awaited if call.version == event.version]
        notes = [f"Its call {call!r} awaits its result, which keeps it in the view." for call in awaited]
        if event.branch is not None:
            notes.append(
                f"It belongs to branch {event.branch}: it is told to that branch and those below it only."
            )
        if event.is_stored_system:
            told = self._view(key, state).told_events(event.branch)
            if event.id in superseded_system(told):
                notes.append("A later system message replaces it: it is in the view and not sent.")
        match standing:
            case Standing.SINCE if boundary is None:
                sentence = "It is in the view: nothing was compacted by then."
            case Standing.SINCE:
                sentence = f"It is in the view: it came behind the newest boundary ({boundary})."
            case Standing.SUMMARY:
                sentence = f"It is in the view as part of the summary of {boundary}."
            case Standing.PINNED:
                sentence = (
                    f"It is in the view, pinned in front by {boundary}, because {_why(event, awaited)}."
                )
            case Standing.PRESERVED:
                sentence = f"It is in the view, kept as it is by {boundary}."
        reason = Reason(standing.value)
        return _told(
            key,
            event,
            state,
            reason,
            sentence,
            boundary=None if standing is Standing.SINCE else boundary,
            notes=tuple(notes),
        )

    def _explain_covered(self, key: SessionKey, event: SessionEvent, state: SessionState) -> Explanation:
        carried = list(self._summaries_of(key, event, state))
        boundary = carried[0].boundary if carried else self._covered_by(key, event.version, state)
        sentence = f"It is not in the view: covered by {boundary}"
        stands_in = carried[-1].summary if carried and carried[-1].in_view else ()
        if stands_in:
            names = " and ".join(str(ref.version) for ref in stands_in)
            steps = f" through {len(carried)} summaries" if len(carried) > 1 else ""
            sentence += f"; it stands in the summary at version{'s'[: len(stands_in) - 1]} {names}{steps}."
        elif carried:
            sentence += "; its summary left the view later, and no other stands for it."
        else:
            sentence += ", which has no summary."
        return _told(key, event, state, Reason.COVERED, sentence, boundary=boundary, stands_in=stands_in)


def _about(message: Message | None) -> Mapping[str, Any] | None:
    """What a summary says of how it was written."""
    about = (message.metadata or {}).get("summarizer") if message else None
    return cast("Mapping[str, Any]", about) if isinstance(about, Mapping) else None


def _said(about: Mapping[str, Any], name: str) -> str | None:
    value = about.get(name)
    return value if isinstance(value, str) else None


def _why(event: SessionEvent, awaited: list[str]) -> str:
    if awaited:
        return "a call of it awaits its result"
    if event.synthetic:
        return "it is an earlier summary that was kept"
    if event.role is Role.SYSTEM:
        return "it is a system message"
    return "the strategy kept it in front"


def _told(
    key: SessionKey,
    event: SessionEvent,
    state: SessionState,
    reason: Reason,
    sentence: str,
    *,
    boundary: BoundaryRef | None = None,
    stands_in: tuple[EventRef, ...] = (),
    notes: tuple[str, ...] = (),
) -> Explanation:
    return Explanation(
        session_id=key.session_id,
        event=EventRef.of(event),
        at=state.version,
        in_view=reason not in (Reason.NO_MESSAGE, Reason.NOT_YET, Reason.COVERED),
        reason=reason,
        sentence=sentence,
        boundary=boundary,
        stands_in=stands_in,
        notes=notes,
    )
