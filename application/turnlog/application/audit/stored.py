"""Stored rows as events, and whether a row is exactly what the application's mapper writes for its event."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import Any
from uuid import UUID

from eventsourcing.application import Application
from eventsourcing.persistence import Mapper, StoredEvent

from turnlog.application.shredding import SessionShredder
from turnlog.application.storage import storage_errors
from turnlog.application.stored_events import kinds_of, undecoded, wrong_field
from turnlog.application.streams import PAGE, id_form
from turnlog.domain.events import STREAM_EVENTS, StreamEvent

_CLASSES: Mapping[str, type[StreamEvent]] = {event_class.TOPIC: event_class for event_class in STREAM_EVENTS}


class BrokenRowError(Exception):
    """A row that is no event of ours; `detail` says why."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class StoredStreams:
    """Reads the rows of one application such that one bad row does not hide the others."""

    def __init__(self, app: Application[UUID]) -> None:
        self._recorder = app.recorder
        self._mapper = app.mapper
        self._id_of = id_form(app)

    def rows(self, aggregate_id: UUID, upto: int | None) -> Iterator[tuple[int | None, StoredEvent | None]]:
        """Version and row of each event, in order; None for a row that the store cannot give.

        `upto` is the newest version that is known to exist.
        """
        low: int | None = None
        while True:
            try:
                page = self._select(aggregate_id, gt=low, limit=PAGE)
            except Exception:
                self.newest_row()
                first = 0 if low is None else low + 1
                low = yield from self._one_by_one(aggregate_id, first, upto)
                if low is None:
                    return
                continue
            yield from ((row.originator_version, row) for row in page)
            if len(page) < PAGE:
                return
            low = page[-1].originator_version

    def newest_row(self) -> int:
        """The position of the newest row of the store.

        Asked when something could not be read: a `StorageError` then says that no row is to blame.
        """
        with storage_errors():
            return self._recorder.max_notification_id() or 0

    def event(self, row: StoredEvent) -> StreamEvent:
        """The event of a row that is exactly what is written for it; `BrokenRowError` for any other row."""
        event_class = _CLASSES.get(row.topic)
        if event_class is None:
            raise BrokenRowError("its topic is none of a session's")
        try:
            plaintext = _plaintext(self._mapper, row)
            event = self._mapper.to_domain_event(row)
        except Exception as error:
            raise BrokenRowError(f"it cannot be read ({undecoded(error)})") from error
        if not isinstance(event, event_class) or type(event) is not event_class:
            raise BrokenRowError(f"it is no {event_class.__name__}")
        _check_fields(event)
        try:
            again = self._mapper.to_stored_event(event)
            written = _plaintext(self._mapper, again)
        except Exception as error:
            raise BrokenRowError(f"it cannot be written again ({type(error).__name__})") from error
        if plaintext != written:
            raise BrokenRowError("its bytes are not those that are written for it")
        return event

    def _one_by_one(
        self, aggregate_id: UUID, first: int, upto: int | None
    ) -> Generator[tuple[int | None, StoredEvent | None], None, int | None]:
        """One page of rows, each read alone. Returns where to go on behind, None at the end."""
        last = first + PAGE - 1 if upto is None else min(upto, first + PAGE - 1)
        for version in range(first, last + 1):
            try:
                yield from ((version, row) for row in self._select(aggregate_id, gt=version - 1, lte=version))
            except Exception:
                self.newest_row()
                yield version, None
        try:
            return last if self._select(aggregate_id, gt=last, limit=1) else None
        except Exception:
            self.newest_row()
            return last

    def _select(self, aggregate_id: UUID, **criteria: Any) -> list[StoredEvent]:
        return list(self._recorder.select_events(self._id_of(aggregate_id), **criteria))


def _plaintext(mapper: Mapper[Any], row: StoredEvent) -> bytes:
    """What the transcoder wrote, without compression and cipher."""
    if isinstance(mapper, SessionShredder):
        return mapper.unsealed(row)
    state = row.state
    if mapper.cipher:
        state = mapper.cipher.decrypt(state)
    if mapper.compressor:
        state = mapper.compressor.decompress(state)
    return state


def _check_fields(event: StreamEvent) -> None:
    """`BrokenRowError` for a field that the class does not know, is not of its kind, or stands elsewhere."""
    kinds = kinds_of(type(event))
    values = {name: value for name, value in vars(event).items() if not name.startswith("originator_")}
    if not values.keys() <= kinds.keys():
        raise BrokenRowError("it has a field that its class does not know")
    wrong = wrong_field(event)
    if wrong is not None:
        raise BrokenRowError(wrong)
    if list(values) != stored_order(event):
        raise BrokenRowError("its fields are not in their order")


def stored_order(event: StreamEvent) -> list[str]:
    """The names of the fields in the order in which an event is written: who rewrites one must keep it."""
    kinds, late = kinds_of(type(event)), ("state", "anchor")
    names = [name for name in kinds if name in vars(event) and name not in late]
    return [*names, *(name for name in late if name in vars(event))]
