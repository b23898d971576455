"""Read models made anew from the log beside those in use, whatever database has them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar
from uuid import UUID

from eventsourcing.domain import OriginatorVersionError
from eventsourcing.persistence import Mapper, StoredEvent

from turnlog.application.projections.batches import OUR_TOPICS, Positioned
from turnlog.application.projections.links import Links
from turnlog.application.projections.maintaining import (
    ERASURES,
    MissingEvents,
    Progress,
    ReadModels,
    Rebuilt,
    RepeatedId,
)
from turnlog.application.stored_events import event_of, require_kinds, require_readable
from turnlog.domain.errors import StorageError, UnreadableEventError
from turnlog.domain.events import ContentEvent, EventIdTaken, StreamEvent, as_uuid
from turnlog.domain.session import fold
from turnlog.domain.state import SessionState

C = TypeVar("C")
"""What a transaction gives: a cursor."""

Read = TypeVar("Read", contravariant=True)

PAGE: Final = 1000
"""Events that are read at once."""

_MOST_REPEATED: Final = 1000
"""Ids that the log has twice that are noted."""

_MOST_UNREADABLE: Final = 1000
"""Events that cannot be read of which the places are noted."""

_TRIES: Final = 20
"""How often the last transaction is begun anew because much was written, or a session deleted, meanwhile."""


class StoredLog(ABC, Generic[C]):
    """The log of a recorder by position, read within any transaction.

    An event that cannot be read is noted in `unreadable`, by its position with stream and version, and passed
    over. With `lenient` any number of these is, and whether each event can be read is looked at more closely;
    otherwise it is an error when they are too many, as under another key.
    """

    def __init__(self, mapper: Mapper[Any], *, lenient: bool = False) -> None:
        self.mapper = mapper
        self.unreadable: dict[int, tuple[UUID, int]] = {}
        self.links = Links(compares=not lenient)
        self.repeated: dict[RepeatedId, None] = {}
        self._lenient = lenient
        self.is_careful = lenient
        """Whether each event is looked at in every field that is read of it, which takes time."""
        self._has_read = False
        self._gaps: dict[int, tuple[int, int]] = {}
        self._moved: set[tuple[UUID, int]] = set()

    @abstractmethod
    def newest(self, cursor: C) -> int:
        """The position of the newest event, 0 without any."""

    def page(self, cursor: C, after: int, upto: int) -> list[Positioned]:
        """The next events up to a position, those of each session in the order of their versions.

        Where somebody exchanged versions, what belongs in front of an event is looked up and put there.
        """
        page: list[Positioned] = []
        for item in self.next(cursor, after, upto):
            event = item.event
            if event is None:
                if place := self.unreadable.get(item.position):
                    self.links.pass_over(*place)
                page.append(item)
            elif self._moved and (as_uuid(event.originator_id), event.originator_version) in self._moved:
                page.append(Positioned(item.position, None))
            else:
                page += self._in_front(cursor, item.position, event)
                self.links.follow(event)
                page.append(item)
        return page

    def events_in(self, page: Sequence[Positioned]) -> int:
        """How many events of sessions a page has, those included that cannot be read."""
        return sum(item.event is not None or item.position in self.unreadable for item in page)

    def _in_front(self, cursor: C, position: int, event: StreamEvent) -> Iterator[Positioned]:
        """What the log has behind this event although its version is in front; a page may be read again."""
        gap = self._gaps.get(position) or self.links.gap_in_front(event)
        if gap is None:
            return
        aggregate_id = as_uuid(event.originator_id)
        for one in self.stream(cursor, aggregate_id, *gap):
            self._gaps[position] = gap
            self._moved.add((aggregate_id, one.originator_version))
            self.links.follow(one)
            yield Positioned(position, one)

    @abstractmethod
    def next(self, cursor: C, after: int, upto: int) -> list[Positioned]:
        """The next events up to a position, in the order of the log."""

    @abstractmethod
    def is_deleted_behind(self, cursor: C, aggregate_id: UUID, position: int) -> bool:
        """Whether the session was deleted behind this position."""

    @abstractmethod
    def stream(self, cursor: C, aggregate_id: UUID, first: int, last: int) -> list[StreamEvent]:
        """The events of a session at these versions, in order."""

    @abstractmethod
    def said(self, cursor: C, aggregate_id: UUID, first: int, last: int) -> list[int]:
        """The versions of messages of a session among these, in order."""

    def carried_view(self, cursor: C, aggregate_id: UUID, version: int) -> list[int] | None:
        """The versions of the messages in the view that the event at a version carries or names."""
        state = self._state(cursor, aggregate_id, version)
        if state is None:
            return None
        return [
            said
            for first, last in state.view
            for said in self.said(cursor, aggregate_id, first, min(last, version))
        ]

    def read(self, position: int, stored: StoredEvent) -> StreamEvent | None:
        """The event at a position; None for what is no event of a session, or cannot be read."""
        if not stored.topic.startswith(OUR_TOPICS) or stored.topic == EventIdTaken.TOPIC:
            return None
        try:
            event = event_of(self.mapper, stored)
            if isinstance(event, StreamEvent):
                (require_readable if self.is_careful else require_kinds)(event)
        except Exception:
            if len(self.unreadable) < _MOST_UNREADABLE:
                self.unreadable[position] = as_uuid(stored.originator_id), stored.originator_version
            elif not self._lenient and position not in self.unreadable:
                raise
            return None
        self._has_read = True
        return event if isinstance(event, StreamEvent) else None

    def note_repeat(self, cursor: C, aggregate_id: UUID, event_id: str, first: int, second: int) -> None:
        """Remember that an id is at two versions, unless the content of one of them was redacted since."""
        if len(self.repeated) < _MOST_REPEATED:
            for version in (first, second):
                if any(one.is_redacted for one in self._contents(cursor, aggregate_id, version)):
                    return
            self.repeated[RepeatedId(aggregate_id.hex, event_id, first, second)] = None

    def forget_repeats(self, aggregate_id: UUID) -> None:
        """The session was deleted."""
        for one in [one for one in self.repeated if one.aggregate_id == aggregate_id.hex]:
            del self.repeated[one]

    def _contents(self, cursor: C, aggregate_id: UUID, version: int) -> list[ContentEvent]:
        found = self.stream(cursor, aggregate_id, version, version)
        return [event for event in found if isinstance(event, ContentEvent)]

    def require_some(self) -> None:
        """`UnreadableEventError` when no event could be read: that is another key, no damage."""
        if self.unreadable and not self._has_read:
            aggregate_id, version = next(iter(self.unreadable.values()))
            raise UnreadableEventError("nor can any other", aggregate_id.hex, version)

    def _state(self, cursor: C, aggregate_id: UUID, version: int) -> SessionState | None:
        newest = self.stream(cursor, aggregate_id, version, version)
        if not newest:
            return None
        try:
            carried = newest[0].state_carried()
            if carried is not None:
                return carried
            tail = self.stream(cursor, aggregate_id, newest[0].anchor or 0, version)
            return fold(tail[1:], tail[0].state_carried())
        except (OriginatorVersionError, IndexError, UnreadableEventError, ValueError):
            return None


Log = TypeVar("Log", bound=StoredLog[Any])


class ReplayedModels(ReadModels, Generic[Log]):
    """Read models that are made of a log, and what making them found."""

    _log: Log

    @staticmethod
    def _told(names: Sequence[str], gone: Collection[str], position: int, events: int) -> tuple[Rebuilt, ...]:
        """What was rebuilt, of which these were gone."""
        made = [*names, ERASURES] if ERASURES in gone else names
        return tuple(Rebuilt(name, events, position, name in gone) for name in made)

    def _note_gone(self, missing: Iterable[MissingEvents], newest: int) -> None:
        """Remember what is gone from the ends of sessions; `StorageError` where that is the whole log."""
        for one in missing:
            if newest == 0:
                raise StorageError(
                    "The log has no event, and rows tell of sessions: its table was emptied or made anew. "
                    "Nothing was changed, for these rows are all that is left: restore the log from a backup."
                )
            self._log.links.note(one)

    def broken_links(self) -> tuple[tuple[str, int], ...]:
        """Events that rebuilds found not to follow on those in front of them."""
        return tuple(self._log.links.broken)

    def missing_events(self) -> tuple[MissingEvents, ...]:
        """Events that rebuilds found to be gone."""
        return tuple(self._log.links.missing)

    def repeated_ids(self) -> tuple[RepeatedId, ...]:
        """Ids that rebuilds of the ledger found twice."""
        return tuple(self._log.repeated)

    def unreadable_events(self) -> tuple[tuple[str, int], ...]:
        """Events that rebuilds could not read."""
        return tuple((aggregate_id.hex, version) for aggregate_id, version in self._log.unreadable.values())


class Builder(Protocol[Read]):
    """One read model while it is made."""

    name: str

    def begin(self, cursor: Read) -> None:
        """Make the tables beside."""
        ...

    def apply(self, cursor: Read, page: Sequence[Positioned]) -> None:
        """Go on by a page of the log."""
        ...

    def settle(self, cursor: Read, upto: int) -> None:
        """Complete what is made of the events up to this position, before writers are kept waiting."""
        ...

    def finish(self, cursor: Read, tail: Sequence[Positioned]) -> bool:
        """Apply the last events under the lock; False when that would take long and is better done before."""
        ...

    def swap(self, cursor: Read) -> None:
        """Put it in the place of the real one, in the transaction of the caller."""
        ...


@dataclass(frozen=True)
class Replay(Generic[C]):
    """One rebuild: pages are applied in transactions of their own, the last events in that of the exchange.

    `take_the_lock` keeps writers waiting until the transaction ends, `track` moves the tracking rows.
    """

    log: StoredLog[C]
    builders: Sequence[Builder[C]]
    transaction: Callable[[], AbstractContextManager[C]]
    take_the_lock: Callable[[C], None]
    track: Callable[[C, int], None]

    def run(self, progress: Progress | None) -> tuple[int, int]:
        """The position at which the new rows stand, and how many events that is. Raises `StorageError`."""
        with self.transaction() as cursor:
            for builder in self.builders:
                builder.begin(cursor)
        last = events = 0

        def told(page: Sequence[Positioned]) -> None:
            nonlocal events
            events += self.log.events_in(page)
            if progress is not None:
                progress(len(page))

        for _ in range(_TRIES):
            last = self._catch_up(last, told)
            swapped = self._swap(last)
            if swapped is not None:
                newest, more = swapped
                return newest, events + more
        raise StorageError(
            "Sessions were written or deleted all the time, so the rows could not be completed. Nothing was "
            "changed: run the rebuild again when fewer are."
        )

    def _catch_up(self, last: int, told: Callable[[Sequence[Positioned]], None]) -> int:
        """Apply what is there, page by page."""
        while True:
            try:
                with self.transaction() as cursor:
                    newest = self.log.newest(cursor)
                    page = self.log.page(cursor, last, newest)
                    with _applying(page):
                        for builder in self.builders:
                            builder.apply(cursor, page)
            except UnreadableEventError:
                if self.log.is_careful:
                    raise
                self.log.is_careful = True  # so that what could not be applied is passed over
                continue
            last = page[-1].position if page else newest
            told(page)
            if last >= newest:
                break
        with self.transaction() as cursor:
            for builder in self.builders:
                builder.settle(cursor, last)
        return last

    def _swap(self, last: int) -> tuple[int, int] | None:
        """Apply the rest and exchange the rows; the newest position and how much the rest was.

        None when there is too much of it.
        """
        self.log.require_some()
        try:
            with self.transaction() as cursor:
                self.take_the_lock(cursor)
                newest = self.log.newest(cursor)
                tail = self.log.page(cursor, last, newest)
                if (tail[-1].position if tail else last) < newest:
                    raise _TooMuchLeftError
                with _applying(tail):
                    finished = all(builder.finish(cursor, tail) for builder in self.builders)
                if not finished:
                    raise _TooMuchLeftError
                for builder in self.builders:
                    builder.swap(cursor)
                self.track(cursor, newest)
        except _TooMuchLeftError:
            return None
        except UnreadableEventError:
            if self.log.is_careful:
                raise
            self.log.is_careful = True
            return None
        return newest, self.log.events_in(tail)


@contextmanager
def _applying(page: Sequence[Positioned]) -> Generator[None]:
    """While a page is applied: what fails because of an event is said of that event."""
    try:
        yield
    except (TypeError, ValueError, LookupError, AttributeError):
        for item in page:
            if item.event is not None:
                require_readable(item.event)
        raise


class _TooMuchLeftError(Exception):
    """The rest is too much to be done while all others wait."""
