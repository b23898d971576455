"""Use cases: what is appended to a log."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeAlias

from turnlog.application.batch import Batch
from turnlog.application.context import merged_context
from turnlog.application.core import ServiceCore
from turnlog.application.writing import Also
from turnlog.domain.compaction import CompactionResult
from turnlog.domain.errors import InvalidBoundaryError, InvalidEventError, UnknownEventError, shown
from turnlog.domain.guards import require_kind
from turnlog.domain.ids import check_id
from turnlog.domain.log import CompactionBoundary, EventType, NewEvent, SessionEvent
from turnlog.domain.messages import Message
from turnlog.domain.session import Session

Appendable: TypeAlias = Message | NewEvent | SessionEvent
"""What can be appended: a message, a new event with its id and branch, or an event of another log."""


class Appending(ServiceCore):
    """The use cases that append to a log."""

    def append_message(
        self,
        session_id: str,
        message: Message,
        *,
        event_id: str | None = None,
        branch: str | None = None,
        occurred_at: datetime | None = None,
        context: Mapping[str, str] | None = None,
        also: Also = (),
    ) -> SessionEvent:
        """Append one message and return it as it is stored.

        With an `event_id` that the session holds already it is a repeat: nothing changes, and `is_repeat` and
        `differs` of the returned event say so.
        """
        new = NewEvent(message=message, id=event_id, branch=branch, occurred_at=occurred_at)
        return self.append_events(session_id, (new,), context=context, also=also)[0]

    def append_event(
        self,
        session_id: str,
        event: Appendable | EventType | str,
        payload: Mapping[str, Any] | None = None,
        *,
        event_id: str | None = None,
        branch: str | None = None,
        occurred_at: datetime | None = None,
        context: Mapping[str, str] | None = None,
        also: Also = (),
    ) -> SessionEvent:
        """Append one event: a type of the application's own with its JSON payload, or anything appendable.

        What a `NewEvent` or the event of a log says itself is not said otherwise: `InvalidEventError`.
        """
        new = _event_of(event, payload, event_id, branch, occurred_at)
        return self.append_events(session_id, (new,), context=context, also=also)[0]

    def append_events(
        self,
        session_id: str,
        events: Sequence[Appendable],
        *,
        expected_version: int | None = None,
        context: Mapping[str, str] | None = None,
        also: Also = (),
    ) -> tuple[SessionEvent, ...]:
        """Append in one write and return what is stored, in the order given; repeats are left out.

        With an `expected_version` that is not the session's, `VersionConflictError` and nothing is written,
        unless the batch holds nothing but repeats. With host objects in `also` a lost race raises it as well.
        """
        key = self._key(session_id)
        batch = Batch(key, NewEvent.each_of(events), expected_version, merged_context(context))
        if not batch.events:
            self._writer.current(key)
            return ()
        tries = itertools.count()

        def decide(session: Session) -> None:
            exact = self._writer.ledger.atomic and (callable(also) or len(also) == 0)
            batch.record(session, self._now(), self._locate, look_up=next(tries) > 0 or not exact)

        self._writer.write(key, decide, also=also, at_version=expected_version)
        return batch.stored(lambda version: self._streams.entry_at(key.aggregate_id, session_id, version))

    def abandon(
        self,
        session_id: str,
        event_id: str,
        call_id: str,
        *,
        abandonment_id: str | None = None,
        occurred_at: datetime | None = None,
        context: Mapping[str, str] | None = None,
        also: Also = (),
    ) -> SessionEvent:
        """Give up waiting for the result of an awaited call of this event; its turn may leave the view then.

        Raises `UnknownEventError`, `CallNotAwaitedError`.
        """
        key = self._key(session_id)
        check_id("Event id", event_id)
        if abandonment_id is not None:
            check_id("Event id", abandonment_id)
        require_kind("`call_id`", call_id, str, "the id of a call, a text")
        self._writer.current(key)
        call_version = self._locate(key, event_id)
        if call_version is None:
            raise UnknownEventError(session_id, event_id)

        def decide(session: Session, own_id: Callable[[int], str]) -> None:
            session.abandon(
                event_id=abandonment_id or own_id(0),
                call_event_id=event_id,
                call_version=call_version,
                call_id=call_id,
                now=self._now(),
                occurred_at=occurred_at,
                context=merged_context(context),
            )

        return self._record_once(key, abandonment_id, decide, also)[0]

    def restore_boundary(
        self,
        session_id: str,
        boundary_id: str,
        boundary: CompactionBoundary,
        summary: Sequence[NewEvent] = (),
        *,
        occurred_at: datetime | None = None,
        context: Mapping[str, str] | None = None,
        also: Also = (),
    ) -> tuple[SessionEvent, ...]:
        """Record a boundary of an exported log, with the messages of its summary behind it and all ids kept.

        A boundary that the session holds already is a repeat. Raises `InvalidBoundaryError` when it names
        what is not in the view.
        """
        key = self._key(session_id)
        check_id("Event id", boundary_id)
        require_kind("`boundary`", boundary, CompactionBoundary, "a CompactionBoundary")
        if tuple(event.id for event in summary) != boundary.summary:
            raise InvalidBoundaryError(
                "The summary messages must be those that the boundary names, in order."
            )

        def decide(session: Session, own_id: Callable[[int], str]) -> None:  # noqa: ARG001 - all ids are given
            view = self._streams.view(key.aggregate_id, session_id, session.state)
            self._refuse_taken(key, boundary.summary)
            session.compact(
                CompactionResult.of_boundary(boundary, view.events),
                boundary_id=boundary_id,
                summary=[(event.id or "", replace(event, synthetic=True)) for event in summary],
                now=self._now(),
                branch=boundary.branch,
                covered_count=boundary.covered_count,
                strategy=boundary.strategy,
                trigger=boundary.trigger,
                occurred_at=occurred_at,
                context=merged_context(context),
            )

        return self._record_once(key, boundary_id, decide, also)


def _event_of(
    event: Appendable | EventType | str,
    payload: Mapping[str, Any] | None,
    event_id: str | None,
    branch: str | None,
    occurred_at: datetime | None,
) -> NewEvent:
    """The event with what the call says of it."""
    if isinstance(event, Message):
        return NewEvent(message=event, payload=payload, id=event_id, branch=branch, occurred_at=occurred_at)
    if isinstance(event, str):
        held: Mapping[str, Any] = {} if payload is None else payload
        return NewEvent(
            type=EventType.of(event), payload=held, id=event_id, branch=branch, occurred_at=occurred_at
        )
    new = NewEvent.of(event)
    for name, said, own in (
        ("payload", payload, new.payload),
        ("event_id", event_id, new.id),
        ("branch", branch, new.branch),
        ("occurred_at", occurred_at, new.occurred_at),
    ):
        if said is not None and said != own:
            raise InvalidEventError(
                f"The event that is given says its own {name}: the call cannot say {shown(said)} instead."
            )
    return new
