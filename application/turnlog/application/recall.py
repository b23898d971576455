"""Use cases: finding again what was said, in the view or not."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import islice
from typing import Any, Final, cast
from uuid import UUID

from turnlog.application.core import ServiceCore
from turnlog.application.ports import SessionRow
from turnlog.application.stored_events import entry_in, unreadable
from turnlog.domain.errors import UnreadableEventError, shown
from turnlog.domain.events import STREAM_EVENTS, MessageAppended, StreamEvent
from turnlog.domain.guards import require_kind
from turnlog.domain.json_text import check_json, from_json_text
from turnlog.domain.log import SessionEvent
from turnlog.domain.query import EventQuery, InvalidArgumentError, said_at
from turnlog.domain.state import RangeSet

_READ = 100
"""Candidates that are read at once."""

_LISTED = 500
"""Sessions that are listed at once."""


class Recall(ServiceCore):
    """The use cases that search the whole log of sessions, covered and synthetic messages included.

    A search that starts after an append returned finds what was appended. On a store with an index the
    index narrows what is read; every result is checked against the stored text, with or without it.
    """

    def search_events(self, session_id: str, query: EventQuery) -> tuple[SessionEvent, ...]:
        """The messages of the session that meet the query, in log order; empty when there is no session.

        `archived` marks those that are no longer in the view. Raises `UnreadableEventError` for a damaged
        message that may meet the query.
        """
        _check_query(query)
        aggregate_id = self._key(session_id).aggregate_id
        state = self._streams.state(aggregate_id)
        if state is None or state.is_deleted:
            return ()
        versions = self._recall_candidates((aggregate_id,), query)
        found = self._recalled(aggregate_id, session_id, query, versions)
        return self._with_archived(islice(found, *query.limits))

    def search_all(
        self, query: EventQuery, *, where: Mapping[str, Any] | None = None
    ) -> tuple[SessionEvent, ...]:
        """The messages of all sessions whose metadata hold the values of `where`, that meet the query.

        They are ordered by the time they were said, then by session id and version. For the sessions of one
        principal: `where={SessionAttributes.PRINCIPAL_NAME: "ada"}`. Raises `UnreadableEventError` for a
        damaged message that may meet the query: what cannot be read is never "not found".
        """
        _check_query(query)
        if where is not None:
            require_kind("`where`", where, Mapping, "a mapping of metadata, as in {'user.name': 'ada'}")
        wanted = dict(where or {})
        check_json(wanted, "where")
        sessions = list(self._searched_sessions(wanted))
        versions = self._recall_candidates([row.aggregate_id for row in sessions], query)
        found = (
            event
            for row in sessions
            for event in self._recalled(row.aggregate_id, row.session_id, query, versions)
        )
        first, end = query.limits
        ordered = sorted(found, key=_order) if end is None else heapq.nsmallest(end, found, key=_order)
        return self._with_archived(ordered[first:])

    def _recall_candidates(
        self, aggregate_ids: Sequence[UUID], query: EventQuery
    ) -> Mapping[UUID, Sequence[int]] | None:
        try:
            return None if self._recall_index is None else self._recall_index.candidates(aggregate_ids, query)
        except UnreadableEventError as error:
            raise self._streams.named(error) from error.__cause__

    def _recalled(
        self,
        aggregate_id: UUID,
        session_id: str,
        query: EventQuery,
        candidates: Mapping[UUID, Sequence[int]] | None,
    ) -> Iterator[SessionEvent]:
        """The events that match, in order, among the candidates or in the whole log."""
        try:
            for event in self._searched_events(aggregate_id, candidates):
                if isinstance(event, MessageAppended) and query.matches_text(message_text(event)):
                    entry = entry_in(event, session_id)
                    if entry is not None and query.matches(entry):
                        yield entry
        except UnreadableEventError as error:
            raise error.of(session_id) from error.__cause__

    def _searched_events(
        self, aggregate_id: UUID, candidates: Mapping[UUID, Sequence[int]] | None
    ) -> Iterator[StreamEvent]:
        index = self._recall_index
        if candidates is None or index is None:
            yield from self._streams.log(aggregate_id)
            return
        versions = iter(candidates.get(aggregate_id, ()))
        while some := tuple(islice(versions, _READ)):
            yield from index.messages(aggregate_id, some)

    def _searched_sessions(self, where: Mapping[str, Any]) -> Iterator[SessionRow]:
        """The sessions of the scope whose metadata hold these values."""
        if any(where.get(name, value) != value for name, value in self._scope.items()):
            return
        criteria = {**where, **self._scope}
        before: int | None = None
        while True:
            page = self._directory.newest(self._namespace, limit=_LISTED, before=before, where=criteria)
            yield from page
            if len(page) < _LISTED:
                return
            before = page[-1].position

    def _with_archived(self, events: Iterable[SessionEvent]) -> tuple[SessionEvent, ...]:
        """The events, those outside the view marked; what was deleted meanwhile is left out."""
        results = tuple(events)
        views: dict[str, RangeSet] = {}
        for name in _sessions(results):
            state = self._streams.state(self._key(name).aggregate_id)
            if state is not None and not state.is_deleted:
                views[name] = RangeSet(state.view)
        return tuple(
            event if event.version in views[event.session_id] else replace(event, archived=True)
            for event in results
            if event.session_id in views
        )


OTHER_TOPICS: Final = [event.TOPIC for event in STREAM_EVENTS if event is not MessageAppended]
"""Topics of events in the stream of a session that are no messages. A search reads what has no such topic."""


def message_text(event: MessageAppended) -> str | None:
    """The text of the message as `Message.text` gives it, read without making the message."""
    if event.is_redacted:
        return None
    try:
        content = cast("Mapping[str, Any]", from_json_text(event.content or "{}"))
        texts = [part["content"] for part in content.get("parts", ()) if part["type"] == "text"]
        return "\n".join(texts) if texts else None
    except Exception as error:
        raise unreadable(event, error) from error


def _check_query(query: object) -> None:
    if not isinstance(query, EventQuery):
        example = query if isinstance(query, str) else "…"
        raise InvalidArgumentError(
            f"A search takes an EventQuery, as in EventQuery(keywords={shown(example)}), not {shown(query)}."
        )


def _sessions(events: Iterable[SessionEvent]) -> set[str]:
    return {event.session_id for event in events}


def _order(event: SessionEvent) -> tuple[datetime, str, int]:
    return said_at(event), event.session_id, event.version
