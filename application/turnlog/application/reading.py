"""Use cases: reading the log and the view."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from turnlog.application.core import ServiceCore
from turnlog.application.writing import SessionKey
from turnlog.domain.errors import (
    InvalidFilterError,
    SessionNotFoundError,
    UnknownEventError,
    shown,
)
from turnlog.domain.filters import EventFilter
from turnlog.domain.ids import check_id
from turnlog.domain.log import SessionEvent
from turnlog.domain.messages import Message
from turnlog.domain.state import RangeSet, SessionState
from turnlog.domain.turns import turn_starts
from turnlog.domain.view import View


@dataclass(frozen=True)
class SessionUsage:
    """How much there is: in the view that the model is told, and in the whole log. Tokens are estimates."""

    turns: int
    events: int
    tokens: int
    log_turns: int
    log_events: int
    log_tokens: int


class Reading(ServiceCore):
    """The use cases that read."""

    def get_events(self, session_id: str, criteria: EventFilter | None = None) -> tuple[SessionEvent, ...]:
        """The entries of the log that meet the criteria, in order; empty when there is no session.

        Without criteria that is the whole log, boundaries and custom events included. `archived` marks the
        messages that are no longer in the view.
        """
        if criteria is not None and not isinstance(criteria, EventFilter):  # pyright: ignore[reportUnnecessaryIsInstance] # callers may be untyped
            raise InvalidFilterError(
                f"The criteria are an EventFilter, as in EventFilter(keyword='rose'), not {shown(criteria)}."
            )
        key = self._key(session_id)
        state = self._streams.state(key.aggregate_id)
        if state is None or state.is_deleted:
            return ()
        try:
            return self._matching(key, state, criteria or EventFilter())
        except SessionNotFoundError:  # it was deleted while it was read
            return ()

    def iter_events(self, session_id: str) -> Iterator[SessionEvent]:
        """The whole log as `get_events` gives it, read page by page, as it was at the first step.

        What stands in front of an event that cannot be read is given before `UnreadableEventError` is raised.
        """
        key = self._key(session_id)
        yield from self._entries(key, self._writer.current(key))

    def get_messages(self, session_id: str, criteria: EventFilter | None = None) -> tuple[Message, ...]:
        """The messages of the log that meet the criteria, covered ones included; empty without a session."""
        return tuple(event.message for event in self.get_events(session_id, criteria) if event.message)

    def get_event(self, session_id: str, event_id: str | int) -> SessionEvent:
        """One entry of the log by its id, or by its version as a number. Raises `UnknownEventError`."""
        key = self._key(session_id)
        self._writer.current(key)
        if isinstance(event_id, int):
            version: int | None = event_id
        else:
            version = self._locate(key, check_id("Event id", event_id))
        entry = None if version is None else self._streams.entry_at(key.aggregate_id, session_id, version)
        if entry is None:
            raise UnknownEventError(session_id, event_id)
        return entry

    def version(self, session_id: str) -> int:
        """The version of the session's newest event; 0 when there is no session."""
        state = self._streams.state(self._key(session_id).aggregate_id)
        return 0 if state is None or state.is_deleted else state.version

    def view(
        self, session_id: str, *, at_version: int | None = None, at_time: datetime | None = None
    ) -> View:
        """What makes up the view: now, behind the event of a version, or behind the last event at a time.

        Raises `UnknownVersionError` for a version that is not reached, or a time before the session.
        """
        key = self._key(session_id)
        state = self._writer.current(key)
        if at_version is not None or at_time is not None:
            state = self._state_at(key, state, at_version, at_time)
        return self._streams.view(key.aggregate_id, session_id, state)

    def usage(self, session_id: str) -> SessionUsage:
        """How much is in the view and in the log. The log is read once, later calls read what is new."""
        key = self._key(session_id)
        state = self._writer.current(key)
        view = self._streams.view(key.aggregate_id, session_id, state)
        request = self._request(session_id, state, view)
        turns, events, tokens = self._log_totals(key, state)
        return SessionUsage(
            turns=len(turn_starts(view.events)),
            events=len(view.events),
            tokens=request.cost_of_view(),
            log_turns=turns,
            log_events=events,
            log_tokens=tokens,
        )

    def _matching(
        self, key: SessionKey, state: SessionState, criteria: EventFilter
    ) -> tuple[SessionEvent, ...]:
        if criteria.last_n is None:
            return criteria.apply(self._entries(key, state))
        newest: list[SessionEvent] = []
        for event in self._entries(key, state, backwards=True):
            if criteria.matches(event):
                newest.append(event)
                if len(newest) == criteria.last_n:
                    break
        return tuple(reversed(newest))

    def _entries(
        self, key: SessionKey, state: SessionState, *, backwards: bool = False
    ) -> Iterator[SessionEvent]:
        in_view = RangeSet(state.view)
        for entry in self._streams.entries(
            key.aggregate_id, key.session_id, upto=state.version, backwards=backwards
        ):
            if entry.message and entry.version not in in_view:
                yield SessionEvent.read(**vars(entry), archived=True)
            else:
                yield entry

    def _log_totals(self, key: SessionKey, state: SessionState) -> tuple[int, int, int]:
        known = (key.aggregate_id, state.redacted)
        upto, turns, events, tokens = self._totals.get(known) or (-1, 0, 0, 0)
        counts = self._token_counts()
        for entry in self._streams.entries(key.aggregate_id, key.session_id, after=upto, upto=state.version):
            turns += entry.starts_turn
            events += 1
            tokens += counts.of_event(entry)
        self._totals.put(known, (max(upto, state.version), turns, events, tokens))
        return turns, events, tokens
