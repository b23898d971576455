"""Writing an imported conversation into a service, so that a second run completes what a crash left.

A file may have grown since it was imported. What it has more is appended. A stored message cannot change, so
when a message itself has more parts now (an answer or its results were not complete), these are appended as a
message of their own, under the id of the message with `+` and the number of parts that the log held before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from turnlog.application import AnySessionService, SessionService
from turnlog.application.async_service import sync_service
from turnlog.domain.errors import TurnlogError
from turnlog.domain.log import NewEvent, SessionEvent
from turnlog.domain.messages import Part
from turnlog.infrastructure.formats import _plain
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
    """What became of one conversation: entries that this run wrote, and entries that were there before.

    `grown` of the written ones are what messages had more than the log held. `differing` of the held ones
    are messages that the file has in another form now: the log keeps what it held.
    """

    id: str
    written: int
    held: int
    grown: int = 0
    differing: int = 0

    def notes(self) -> list[str]:
        """One line for people per thing that is to be known."""
        told = (
            (self.grown, "messages had grown since they were imported: what is new stands behind them"),
            (self.differing, "messages differ from what was imported: the log keeps what it held"),
        )
        return [f"{count} {what}" for count, what in told if count]


def write_session(
    service: AnySessionService,
    session: ImportedSession,
    *,
    batch: int = BATCH,
    on_progress: Callable[[int], object] = lambda _: None,
) -> WrittenSession:
    """Append what the service does not hold of the conversation, `batch` events a write, with their ids.

    A log that is there already must be a beginning of the file's, but for messages that may have grown in the
    file since; it may also go on behind it, if the file has nothing more. The session
    never expires, unless somebody says so later. `on_progress` is told how many entries are done with.
    Raises `LogsDivergedError`, `SessionIdUnavailableError` for a session that was deleted, and what the
    service raises.
    """
    service = sync_service(service)
    service.find_or_create(session.id, metadata=session.metadata, time_to_live=None)
    missing = _missing(service.iter_events(session.id), session)
    held = len(session.entries) - len(missing.entries)
    on_progress(held)
    written = grown = 0
    for step in _steps(missing.entries, batch):
        new = _write(service, session.id, step)
        written += len(new)
        grown += sum(_id(entry) in missing.grown for entry in new)
        on_progress(len(step))
    return WrittenSession(session.id, written, len(session.entries) - written, grown, missing.differing)


@dataclass(slots=True)
class _Missing:
    """What the log does not hold of a file, in order."""

    entries: list[ImportedEntry] = field(default_factory=list[ImportedEntry])
    grown: set[str | None] = field(default_factory=set[str | None])
    differing: int = 0


def _missing(stored: Iterable[SessionEvent], session: ImportedSession) -> _Missing:
    """Compare the log with the file. What compactions added to the log since is passed over."""
    held = _Held(session)
    for event in stored:
        held.add(event)
    missing = _Missing()
    for index, entry in enumerate(session.entries):
        parts = held.parts.get(index)
        if parts is None:
            missing.entries.append(entry)
        elif isinstance(entry, ImportedEvent) and entry.may_grow:
            more = _growth(entry.event, parts)
            if more is None:
                missing.differing += 1
            elif more.message and more.message.parts:
                missing.grown.add(more.id)
                missing.entries.append(replace(entry, event=more))
    if missing.entries and held.foreign is not None:
        raise LogsDivergedError(session.id, held.foreign)
    return missing


class _Held:
    """The entries of a file that the log holds, each with the parts of its message that are there.

    `foreign` is the version of the first message that is not in the file.
    """

    def __init__(self, session: ImportedSession) -> None:
        self._session = session
        self._index = {_id(entry): index for index, entry in enumerate(session.entries)}
        self._next = 0
        self.parts: dict[int, list[Part]] = {}
        self.foreign: int | None = None

    def add(self, event: SessionEvent) -> None:
        """Compare the next event of the log."""
        index = self._index_of(event)
        if index is None:
            if event.message and not event.synthetic and self.foreign is None:
                self.foreign = event.version
            return
        if self.foreign is not None or (event.message and self._is_out_of_order(index)):
            raise LogsDivergedError(self._session.id, event.version)
        self.parts.setdefault(index, []).extend(event.message.parts if event.message else ())
        while self._next in self.parts:
            self._next += 1

    def _index_of(self, event: SessionEvent) -> int | None:
        """By the id, that of a message that had grown too, or by the content of the next entry: ids made from
        the hash of a file are others when it has grown."""
        whole, _, size = event.id.rpartition(_MORE)
        index = self._index.get(event.id, self._index.get(whole) if size.isdecimal() else None)
        entries = self._session.entries
        if index is not None or event.boundary or self._next == len(entries):
            return index
        entry = entries[self._next]
        is_same = isinstance(entry, ImportedEvent) and _content(NewEvent.of(event)) == _content(entry.event)
        return self._next if is_same else None

    def _is_out_of_order(self, index: int) -> bool:
        """Late results stand in front of what the log has already, so files that grow may do this."""
        entry = self._session.entries[index]
        return index > self._next and not (isinstance(entry, ImportedEvent) and entry.may_grow)


_MORE = "+"


def _growth(event: NewEvent, held: Sequence[Part]) -> NewEvent | None:
    """A message of the parts that the log does not hold; None when it holds others than the file."""
    if event.message is None:
        return None
    more: list[Part] = list(event.message.parts)
    for part in held:
        if part not in more:
            return None
        more.remove(part)
    return replace(event, message=_plain.with_parts(event.message, more), id=f"{event.id}{_MORE}{len(held)}")


def _id(entry: ImportedEntry) -> str | None:
    return entry.event.id if isinstance(entry, ImportedEvent) else entry.id


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


def _write(
    service: SessionService, session_id: str, step: Sequence[ImportedEntry]
) -> Sequence[ImportedEntry]:
    """Write the step, and return what of it is new: another import may have written some of it meanwhile."""
    first = step[0]
    events = [entry.event for entry in step if isinstance(entry, ImportedEvent)]
    match first:
        case ImportedBoundary():
            stored = service.restore_boundary(
                session_id,
                first.id,
                first.boundary,
                events,
                occurred_at=first.occurred_at,
                context=first.context,
            )
        case ImportedAbandonment():
            stored = (
                service.abandon(
                    session_id,
                    first.event_id,
                    first.call_id,
                    abandonment_id=first.id,
                    occurred_at=first.occurred_at,
                    context=first.context,
                ),
            )
        case ImportedEvent():
            stored = service.append_events(session_id, events, context=first.context)
    if isinstance(first, ImportedEvent):
        return [entry for entry, event in zip(step, stored, strict=True) if not event.is_repeat]
    return () if stored[0].is_repeat else step
