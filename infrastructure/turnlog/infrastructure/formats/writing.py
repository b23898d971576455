"""Writing an imported conversation into a service, so that a second run completes what a crash left."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from turnlog.application import SessionService
from turnlog.domain.errors import TurnlogError
from turnlog.domain.log import NewEvent, SessionEvent
from turnlog.infrastructure.formats.imported import (
    ImportedAbandonment,
    ImportedBoundary,
    ImportedEntry,
    ImportedEvent,
    ImportedSession,
)

BATCH = 200
"""Events that are appended in one write."""


class LogsDivergedError(TurnlogError):
    """The session exists and its log is no beginning of the file's, nor the file's of it."""

    def __init__(self, session_id: str, version: int) -> None:
        super().__init__(
            f"Session {session_id!r} exists and its log differs from the file at version {version}. "
            "Nothing of it was written: import the file into another database."
        )
        self.session_id = session_id
        self.version = version


@dataclass(frozen=True)
class WrittenSession:
    """What became of one conversation: entries that this run wrote, and entries that were there before."""

    id: str
    written: int
    held: int


def write_session(
    service: SessionService,
    session: ImportedSession,
    *,
    batch: int = BATCH,
    on_progress: Callable[[int], object] = lambda _: None,
) -> WrittenSession:
    """Append what the service does not hold of the conversation, `batch` events a write, with their ids.

    A log that is there already must be a beginning of the file's; it may also go on behind it. The session
    never expires, unless somebody says so later. `on_progress` is told how many entries are done with.
    Raises `LogsDivergedError`, `SessionIdUnavailableError` for a session that was deleted, and what the
    service raises.
    """
    service.find_or_create(session.id, metadata=session.metadata, time_to_live=None)
    held = _held(service.iter_events(session.id), session)
    on_progress(held)
    for step in _steps(session.entries[held:], batch):
        _write(service, session.id, step)
        on_progress(len(step))
    return WrittenSession(session.id, len(session.entries) - held, held)


def _held(stored: Iterable[SessionEvent], session: ImportedSession) -> int:
    """How many of the entries the log holds. What compactions added to it since is passed over."""
    entries, held = session.entries, 0
    for event in stored:
        if held == len(entries):
            break
        if _is_same(event, entries[held]):
            held += 1
        elif event.message and not event.synthetic:
            raise LogsDivergedError(session.id, event.version)
    return held


def _is_same(event: SessionEvent, entry: ImportedEntry) -> bool:
    """The same id, or the same content: a file that has grown gives its events other ids."""
    if not isinstance(entry, ImportedEvent):
        return event.id == entry.id
    if event.id == entry.event.id:
        return True
    return event.boundary is None and _content(NewEvent.of(event)) == _content(entry.event)


def _content(event: NewEvent) -> NewEvent:
    return replace(event, id=None, occurred_at=None)


def _steps(entries: Sequence[ImportedEntry], batch: int) -> Iterator[Sequence[ImportedEntry]]:
    """What is written at once: a boundary with its summary, an abandoned call, or a batch of events."""
    place = 0
    while place < len(entries):
        first = entries[place]
        if isinstance(first, ImportedBoundary):
            size = 1 + len(first.boundary.summary)
        elif isinstance(first, ImportedAbandonment):
            size = 1
        else:
            rest = entries[place : place + batch]
            alike = next(groupby(rest, key=lambda e: isinstance(e, ImportedEvent) and dict(e.context)))[1]
            size = len(list(alike))
        yield entries[place : place + size]
        place += size


def _write(service: SessionService, session_id: str, step: Sequence[ImportedEntry]) -> None:
    first = step[0]
    events = [entry.event for entry in step if isinstance(entry, ImportedEvent)]
    match first:
        case ImportedBoundary():
            service.restore_boundary(
                session_id,
                first.id,
                first.boundary,
                events,
                occurred_at=first.occurred_at,
                context=first.context,
            )
        case ImportedAbandonment():
            service.abandon(
                session_id,
                first.event_id,
                first.call_id,
                abandonment_id=first.id,
                occurred_at=first.occurred_at,
                context=first.context,
            )
        case ImportedEvent():
            service.append_events(session_id, events, context=first.context)
