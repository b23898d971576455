"""The ledger: at which version each event id is, so that a repeated append is known for what it is.

An entry is written in the same save as its event and never looked up before. Ids that the service makes
itself, `<version>-<80 random bits>`, say their version and need no entry.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final, Protocol
from uuid import UUID

from eventsourcing.application import Application
from eventsourcing.persistence import IntegrityError

from turnlog.application.ports import SessionRowsRecorder
from turnlog.application.storage import storage_errors
from turnlog.application.streams import SessionStreams, id_form
from turnlog.domain.events import EventIdTaken, StreamEvent, as_uuid
from turnlog.domain.ids import entry_id, own_event_id_version

LEDGER_MODEL: Final = "ledger"
"""What the ledger is called among what is compared with the log and made anew from it."""


class Ledger(Protocol):
    """Where the versions of event ids are kept."""

    atomic: bool
    """Whether entries are written in one transaction with their events."""

    def entries_for(self, events: Sequence[StreamEvent]) -> list[Any]:
        """What has to be saved together with these events."""
        ...

    def version_of(self, aggregate_id: UUID, event_id: str) -> int | None:
        """The version that the ledger has for the id."""
        ...

    def settle(self, aggregate_id: UUID) -> None:
        """Write what a former write of the stream still owes, where entries are not atomic."""
        ...


class RowLedger:
    """Entries are rows that the recorder derives itself."""

    atomic = True

    def __init__(self, recorder: SessionRowsRecorder) -> None:
        self._recorder = recorder

    def entries_for(self, events: Sequence[StreamEvent]) -> list[Any]:  # noqa: ARG002 - the recorder makes them
        """Nothing: the recorder writes the rows."""
        return []

    def version_of(self, aggregate_id: UUID, event_id: str) -> int | None:
        """The version in the row of the id."""
        return self._recorder.version_of(aggregate_id, event_id)

    def settle(self, aggregate_id: UUID) -> None:
        """Nothing is ever owed."""


class StreamLedger:
    """Entries are aggregates of one event, saved in the same call: any store that saves several streams."""

    atomic = True

    def __init__(self, streams: SessionStreams) -> None:
        self._streams = streams

    def entries_for(self, events: Sequence[StreamEvent]) -> list[Any]:
        """One entry for each event whose id does not say its version."""
        return [entry for event in events if (entry := _entry(event)) is not None]

    def version_of(self, aggregate_id: UUID, event_id: str) -> int | None:
        """The version in the entry of the id."""
        return self._streams.entry_version(entry_id(aggregate_id, event_id))

    def settle(self, aggregate_id: UUID) -> None:
        """Nothing is ever owed."""


class TrailingLedger:
    """Entries are streams that follow their events, for stores whose atomic unit is one stream.

    Whoever writes next to a session first stores the entries of its newest write, and given ids are looked up
    before a write: the version check of the stream makes that exact.
    """

    atomic = False

    def __init__(self, app: Application[UUID], streams: SessionStreams) -> None:
        self._app = app
        self._streams = streams
        self._id_of = id_form(app)

    def entries_for(self, events: Sequence[StreamEvent]) -> list[Any]:  # noqa: ARG002 - they follow later
        """Nothing can be saved together with the events."""
        return []

    def version_of(self, aggregate_id: UUID, event_id: str) -> int | None:
        """The version in the entry of the id, or of the event in the newest write that still owes it."""
        version = self._streams.entry_version(entry_id(aggregate_id, event_id))
        if version is not None:
            return version
        newest = (event for event in self._newest_write(aggregate_id) if event_id_of(event) == event_id)
        return next((event.originator_version for event in newest), None)

    def settle(self, aggregate_id: UUID) -> None:
        """Store the entries of the newest write, the oldest first, so that a crash in between loses none."""
        owed: list[EventIdTaken] = []
        for event in self._newest_write(aggregate_id):
            entry = _entry(event)
            if entry is not None:
                if self._streams.entry_version(as_uuid(entry.originator_id)) is not None:
                    break
                owed.append(entry)
        for entry in reversed(owed):
            vars(entry)["originator_id"] = self._id_of(entry.originator_id)
            try:
                with storage_errors():
                    self._app.save(entry)
            except IntegrityError:  # another writer settled it
                continue

    def _newest_write(self, aggregate_id: UUID) -> Iterator[StreamEvent]:
        """The events of the newest write, the newest first: those of one time."""
        written_at: datetime | None = None
        for event in self._streams.log(aggregate_id, backwards=True):
            if written_at is not None and event.timestamp != written_at:
                return
            written_at = event.timestamp
            yield event


def _entry(event: StreamEvent) -> EventIdTaken | None:
    event_id = needs_entry(event)
    if event_id is None:
        return None
    return EventIdTaken(
        originator_id=entry_id(as_uuid(event.originator_id), event_id),
        originator_version=0,
        timestamp=event.timestamp,
        version=event.originator_version,
    )


def needs_entry(event: StreamEvent) -> str | None:
    """The id of the event if the ledger must hold it, None when the id says the version itself."""
    event_id = event_id_of(event)
    if event_id is None or own_event_id_version(event_id) == event.originator_version:
        return None
    return event_id


def event_id_of(event: StreamEvent) -> str | None:
    """The id of the log entry that the event is, None for events about the session itself."""
    return vars(event).get("event_id") if type(event).IS_ENTRY else None
