"""What other parts of a system are told of sessions, in the order of the log."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from eventsourcing.persistence import ApplicationRecorder, Mapper

from turnlog.application.projections.batches import Positioned
from turnlog.application.storage import storage_errors
from turnlog.application.stored_events import entry_in, event_of
from turnlog.application.streams import Lru
from turnlog.domain.entries import context_of
from turnlog.domain.events import EventErased, SessionDeleted, SessionOpened, StreamEvent, as_uuid
from turnlog.domain.log import SessionEvent

_REMEMBERED = 4096
"""Sessions whose names are remembered."""


@dataclass(frozen=True)
class Followed:
    """Something that happened to a session, at a position of the log.

    `session_id` is None only for the deletion of a session whose name was erased before it was read; the
    `aggregate_id` is always there and always the same.
    """

    position: int
    aggregate_id: UUID
    session_id: str | None
    namespace: str
    version: int
    timestamp: datetime


@dataclass(frozen=True)
class SessionBegan(Followed):
    """A session was opened."""

    context: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class _WithEvent(Followed):
    event: SessionEvent


class MessageFollowed(_WithEvent):
    """A message joined the log, a synthetic one too."""


class BoundaryFollowed(_WithEvent):
    """A compaction was recorded. Its summary follows in the messages behind it."""


class EventFollowed(_WithEvent):
    """An event of another type was recorded, the application's own or one of ours outside the view."""


@dataclass(frozen=True)
class SessionEnded(Followed):
    """A session was deleted. Unless `keeps_content`, nothing can be read of it any more."""

    keeps_content: bool = False
    context: dict[str, str] = field(default_factory=dict[str, str])


class FollowedReader:
    """Stored events as what followers are told. Names of sessions are read from their opening."""

    def __init__(self, recorder: ApplicationRecorder, mapper: Mapper[Any]) -> None:
        self._recorder = recorder
        self._mapper = mapper
        self._names: Lru[UUID, tuple[str, str]] = Lru(_REMEMBERED)

    def read(self, item: Positioned) -> Followed | None:
        """What there is to tell; None for what followers need not know, and for what was erased meanwhile."""
        event = item.event
        if event is None or isinstance(event, EventErased):
            return None
        name = self._name_of(event)
        if name is None and not isinstance(event, SessionDeleted):
            return None
        session_id, namespace = name or (None, "")
        place = (
            item.position,
            as_uuid(event.originator_id),
            session_id,
            namespace,
            event.originator_version,
            event.timestamp,
        )
        if isinstance(event, SessionOpened):
            return SessionBegan(*place, context_of(event))
        if isinstance(event, SessionDeleted):
            return SessionEnded(*place, bool(event.keeps_content), context_of(event))
        entry = entry_in(event, session_id or "")
        if entry is None:
            return None
        kind = MessageFollowed if entry.message else BoundaryFollowed if entry.boundary else EventFollowed
        return kind(*place, entry)

    def _name_of(self, event: StreamEvent) -> tuple[str, str] | None:
        """Session id and namespace; None where no session is opened, or not any more."""
        aggregate_id = as_uuid(event.originator_id)
        known = self._names.get(aggregate_id)
        if known is not None:
            return known
        opening: object = event
        if not isinstance(event, SessionOpened):
            with storage_errors():
                first = self._recorder.select_events(event.originator_id, lte=0, limit=1)
            opening = event_of(self._mapper, first[0]) if first else None
        if not isinstance(opening, SessionOpened):
            return None
        name = (opening.session_id, opening.namespace or "")
        self._names.put(aggregate_id, name)
        return name
