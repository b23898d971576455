"""Reading the streams of sessions: states from anchors, entries by version, views by ranges."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from threading import Lock
from typing import Any, Generic, TypeVar
from uuid import UUID

from eventsourcing.application import Application
from eventsourcing.persistence import EventStore, PersistenceError, StoredEvent

from turnlog.application.ports import SessionRowsRecorder, StoredRow
from turnlog.application.storage import storage_errors
from turnlog.application.stored_events import (
    decoder_of,
    entry_in,
    event_of,
    stream_event_of,
    unreadable,
    usual_message,
)
from turnlog.domain.errors import MissingEventError, SessionNotFoundError, TurnlogError, UnreadableEventError
from turnlog.domain.events import (
    STREAM_EVENTS,
    EventErased,
    EventIdTaken,
    ExpiryMoved,
    HoldPlaced,
    MetadataUpdated,
    SessionDeleted,
    SessionOpened,
    StreamEvent,
)
from turnlog.domain.log import SessionEvent
from turnlog.domain.session import fold
from turnlog.domain.state import SessionState, near_ranges
from turnlog.domain.view import View

PAGE = 500
"""Events that are read at once when a whole log is walked through."""

_TOPICS = frozenset(event_class.TOPIC for event_class in STREAM_EVENTS)

_NEAR = 32
"""Versions between two ranges that are cheaper to read along than to skip by another query."""

K = TypeVar("K")
V = TypeVar("V")


class Lru(Generic[K, V]):
    """A small map that forgets what was not used for longest; safe between threads."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._items: OrderedDict[K, V] = OrderedDict()
        self._lock = Lock()

    def get(self, key: K) -> V | None:
        """The value, None when it is not held."""
        with self._lock:
            value = self._items.get(key)
            if value is not None:
                self._items.move_to_end(key)
            return value

    def put(self, key: K, value: V) -> None:
        """Hold the value."""
        with self._lock:
            self._items[key] = value
            self._items.move_to_end(key)
            while len(self._items) > self._size:
                self._items.popitem(last=False)

    def drop(self, key: K) -> None:
        """Forget the value."""
        with self._lock:
            self._items.pop(key, None)


def resume(events: EventStore[UUID], aggregate_id: Any, newest: StreamEvent) -> SessionState:
    """The state behind the newest event: as it carries it, or folded from the anchor that it names."""
    try:
        carried = newest.state_carried()
        if carried is not None:
            return carried
        anchor = newest.anchor or 0
        rows = events.recorder.select_events(aggregate_id, gt=anchor - 1, lte=newest.originator_version)
        tail = [stream_event_of(events.mapper, row) for row in rows]
        state = fold(tail[1:], tail[0].state_carried())
        assert state is not None  # noqa: S101 - the named anchor carries a state
    except UnreadableEventError as error:
        if error.version is not None:
            raise
        raise unreadable(newest, error) from error
    except (TurnlogError, PersistenceError):
        raise
    except Exception as error:  # no state, one that is none, or events between it and here that are not its
        raise unreadable(newest, error) from error
    return state


class SessionStreams:
    """Reads of one application. States are read afresh; parsed entries of views are remembered."""

    def __init__(self, app: Application[UUID], *, views: int = 128) -> None:
        self._events = app.events
        self._decode = decoder_of(app.events.mapper)
        self._id_of: Callable[[UUID], Any] = id_form(app)
        self._known: Lru[tuple[UUID, int | None], dict[int, SessionEvent | None]] = Lru(views)
        self._redacted: dict[UUID, int] = {}

    def event_at(self, aggregate_id: UUID, version: int) -> StreamEvent | None:
        """The stored event at this version."""
        return next(iter(self._read(aggregate_id, gt=version - 1, lte=version)), None)

    def is_free(self, aggregate_id: UUID) -> bool:
        """Whether nothing is stored under this id, not even behind an opening event that is gone.

        A recorder that keeps rows finds out itself, in the transaction.
        """
        if isinstance(self._events.recorder, SessionRowsRecorder):
            return True
        with storage_errors():
            return not self._select(aggregate_id, limit=1)

    def state(self, aggregate_id: UUID, version: int | None = None) -> SessionState | None:
        """The newest state, or the one at this version; None when the stream is empty up to there."""
        with storage_errors():
            newest = next(iter(self._read(aggregate_id, lte=version, desc=True, limit=1)), None)
            if newest is None:
                return None
            if isinstance(newest, (SessionDeleted, EventErased)):  # by whichever process
                self.forget(aggregate_id)
            try:
                state = resume(self._events, self._id_of(aggregate_id), newest)
            except UnreadableEventError as error:
                raise self.named(error) from error.__cause__
            if state.redacted is not None and state.redacted > self._redacted.get(aggregate_id, -1):
                self.forget(aggregate_id, state.redacted)
            return state

    def known_state(self, aggregate_id: UUID) -> SessionState | None:
        """The newest state, as far as readable events tell it, where the newest event cannot be read.

        It is enough to end the session, not to go on with it. Of an event that cannot be read its kind still
        counts: a legal hold is taken to be on, metadata to be those in force, and a session whose expiry was
        moved not to expire. Raises `UnreadableEventError`
        where nothing of a session can be read, and for a kind of event that this version does not know.
        """
        try:
            return self.state(aggregate_id)
        except UnreadableEventError as error:
            behind: list[StoredEvent] = []
            for row in (row for page in self._pages(aggregate_id, -1, None, True) for row in page):
                state = self._carried(row)
                if state is not None:
                    for later in reversed(behind):
                        state = self._moved(state, later)
                    return state.but(head=self._recorded_head(aggregate_id, state))
                if row.topic not in _TOPICS:
                    break
                behind.append(row)
            raise error

    def _carried(self, row: StoredEvent) -> SessionState | None:
        """The state that an event carries, None also where it cannot be read."""
        try:
            return self._event(row).state_carried()
        except UnreadableEventError:
            return None

    def _moved(self, state: SessionState, row: StoredEvent) -> SessionState:
        """The state behind the next event, of which only its kind may be known."""
        version = row.originator_version
        try:
            event = self._event(row)
            return event.stamped(event.evolve(state))
        except (UnreadableEventError, TypeError, ValueError, LookupError, AttributeError):
            state = state.but(version=version)
        match row.topic:
            case HoldPlaced.TOPIC:
                return state.but(holds=(*state.holds, version))
            case MetadataUpdated.TOPIC:
                return state.but(metadata_version=version)
            case ExpiryMoved.TOPIC:
                return state.but(expires_at=None)
            case SessionDeleted.TOPIC | EventErased.TOPIC:
                return state.but(is_deleted=True)
            case _:
                return state

    def _recorded_head(self, aggregate_id: UUID, state: SessionState) -> str:
        """The chain value of the newest event as the row of the session has it; else the newest known one."""
        recorder = self._events.recorder
        head = recorder.recorded_head(aggregate_id) if isinstance(recorder, SessionRowsRecorder) else None
        return head.chain if head is not None and head.version == state.version else state.head

    def forget(self, aggregate_id: UUID, redacted: int | None = None) -> None:
        """Drop the remembered texts of a session that was deleted, or from which something was redacted.

        Texts that another thread read before the redaction at this version are not used either.
        """
        self._known.drop(self._key_of(aggregate_id))
        if redacted is not None:
            self._redacted[aggregate_id] = redacted

    def _key_of(self, aggregate_id: UUID) -> tuple[UUID, int | None]:
        return aggregate_id, self._redacted.get(aggregate_id)

    def entry_at(self, aggregate_id: UUID, session_id: str, version: int) -> SessionEvent | None:
        """The entry at this version, None when there is none or the event is about the session itself."""
        event = self.event_at(aggregate_id, version)
        return entry_in(event, session_id) if event else None

    def log(
        self, aggregate_id: UUID, *, after: int = -1, upto: int | None = None, backwards: bool = False
    ) -> Iterator[StreamEvent]:
        """The stored events behind `after`, page by page."""
        for rows in self._pages(aggregate_id, after, upto, backwards):
            with storage_errors():
                page = [self._event(row) for row in rows]
            yield from page

    def lost(self, aggregate_id: UUID, after: int, upto: int) -> Iterator[tuple[int, int]]:
        """The versions behind `after` up to this one that the log does not have: first and last of each run.

        Rows are read once, and none is decoded.
        """
        expected = after + 1
        for rows in self._pages(aggregate_id, after, upto, False):
            for row in rows:
                if row.originator_version > expected:
                    yield expected, row.originator_version - 1
                expected = row.originator_version + 1
        if expected <= upto:
            yield expected, upto

    def entries(
        self,
        aggregate_id: UUID,
        session_id: str,
        *,
        after: int = -1,
        upto: int | None = None,
        backwards: bool = False,
    ) -> Iterator[SessionEvent]:
        """The entries behind `after`, page by page; what stands in front of an unreadable one is given."""
        for events in self._pages(aggregate_id, after, upto, backwards):
            for event in events:
                with storage_errors():
                    entry = self._entry(event.originator_id, _row_of(event), session_id)
                if entry is not None:
                    yield entry

    def _pages(
        self, aggregate_id: UUID, low: int, high: int | None, backwards: bool
    ) -> Iterator[Sequence[StoredEvent]]:
        while True:
            with storage_errors():
                rows = self._select(aggregate_id, gt=low, lte=high, desc=backwards, limit=PAGE)
            yield rows
            if len(rows) < PAGE:
                return
            if backwards:
                high = rows[-1].originator_version - 1
            else:
                low = rows[-1].originator_version

    def view(self, aggregate_id: UUID, session_id: str, state: SessionState) -> View:
        """The view of this state. Its texts are read once and then remembered while they are in the view."""
        key = self._key_of(aggregate_id)
        known = self._known.get(key) or {}
        versions = [
            version for first, last in state.view for version in range(first, min(last, state.version) + 1)
        ]
        missing = [version for version in versions if version not in known]
        if missing:
            read = self._read_versions(aggregate_id, session_id, missing)
            if gone := [version for version in missing if version not in read]:
                raise MissingEventError("it is gone", aggregate_id.hex, gone[0], session_id)
            known = {**known, **read}
            self._known.put(key, {version: known[version] for version in versions if version in known})
        found = (known[version] for version in versions)
        return View(tuple(event for event in found if event is not None), state.version)

    def version_at(self, aggregate_id: UUID, time: datetime, newest: SessionState) -> int | None:
        """The version of the last event recorded at or before this time, None when there is none."""
        if newest.modified_on <= time:
            return newest.version
        if time < newest.created_on:
            return None
        low, high = 0, newest.version
        while high - low > 1:
            middle = (low + high) // 2
            event = self.event_at(aggregate_id, middle)
            if event is not None and event.timestamp <= time:
                low = middle
            else:
                high = middle
        return low

    def entry_version(self, entry: UUID) -> int | None:
        """What a ledger entry that is a stream says."""
        with storage_errors():
            for row in self._events.recorder.select_events(self._id_of(entry), limit=1):
                event = event_of(self._events.mapper, row)
                return event.version if isinstance(event, EventIdTaken) else None
        return None

    def entries_at(
        self, aggregate_id: UUID, session_id: str, versions: Iterable[int]
    ) -> dict[int, SessionEvent]:
        """The messages at these versions, as they are now: a redaction by another process is seen."""
        found = self._read_versions(aggregate_id, session_id, versions)
        return {version: entry for version, entry in found.items() if entry is not None}

    def _read_versions(
        self, aggregate_id: UUID, session_id: str, versions: Iterable[int]
    ) -> dict[int, SessionEvent | None]:
        """By version the message, None for what is none."""
        wanted = set(versions)
        found: dict[int, SessionEvent | None] = {}
        stored_id = self._id_of(aggregate_id)
        with storage_errors():
            for row in self._rows(stored_id, list(near_ranges(((one, one) for one in wanted), _NEAR))):
                version = row[0]
                if version in wanted:
                    entry = self._entry(stored_id, row, session_id)
                    found[version] = entry if entry and entry.message else None
        return found

    def _rows(self, stored_id: Any, ranges: Sequence[tuple[int, int]]) -> Iterable[StoredRow]:
        """The rows of these ranges: in one read where the store can do that."""
        recorder = self._events.recorder
        rows = (
            recorder.select_ranges(stored_id, ranges) if isinstance(recorder, SessionRowsRecorder) else None
        )
        if rows is not None:
            return rows
        return (
            _row_of(event)
            for first, last in ranges
            for event in recorder.select_events(stored_id, gt=first - 1, lte=last)
        )

    def _read(self, aggregate_id: UUID, **criteria: Any) -> list[StreamEvent]:
        with storage_errors():
            return [self._event(row) for row in self._select(aggregate_id, **criteria)]

    def _select(self, aggregate_id: UUID, **criteria: Any) -> Sequence[StoredEvent]:
        return self._events.recorder.select_events(self._id_of(aggregate_id), **criteria)

    def _entry(self, stored_id: Any, row: StoredRow, session_id: str) -> SessionEvent | None:
        usual = None if self._decode is None else usual_message(self._decode, row, session_id)
        if usual is not None:
            return usual
        return entry_in(present(self._event(StoredEvent(stored_id, *row)), session_id), session_id)

    def _event(self, row: StoredEvent) -> StreamEvent:
        try:
            return stream_event_of(self._events.mapper, row)
        except UnreadableEventError as error:
            raise self.named(error) from error.__cause__

    def named(self, error: UnreadableEventError) -> UnreadableEventError:
        """The error with the id of its session, where the opening event still says it."""
        if error.session_id is not None or error.aggregate_id is None:
            return error
        with suppress(UnreadableEventError), storage_errors():
            for row in self._events.recorder.select_events(self._id_of(UUID(error.aggregate_id)), lte=0):
                opened = stream_event_of(self._events.mapper, row)
                if isinstance(opened, SessionOpened):
                    return error.of(opened.session_id)
        return error


def _row_of(event: StoredEvent) -> StoredRow:
    return event.originator_version, event.topic, event.state


def present(event: StreamEvent, session_id: str) -> StreamEvent:
    """The event itself; `SessionNotFoundError` when it was erased since the state that led here was read."""
    if isinstance(event, EventErased):
        raise SessionNotFoundError(session_id)
    return event


def id_form(app: Application[UUID]) -> Callable[[UUID], Any]:
    """How this application's store takes an aggregate id: as a UUID, or as text."""
    kind = (app.env.get("ORIGINATOR_ID_TYPE") or "uuid").lower()
    return str if kind == "text" else _unchanged


def _unchanged(aggregate_id: UUID) -> UUID:
    return aggregate_id
