"""Rows about sessions in SQLite, in the transaction of the events: the ledger of ids and the directory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from eventsourcing.persistence import Mapper, ProgrammingError, StoredEvent
from eventsourcing.sqlite import SQLiteApplicationRecorder, SQLiteCursor

from turnlog.application.ports import Directory, SessionRowsRecorder
from turnlog.application.storage import storage_errors
from turnlog.domain.events import StreamEvent, as_uuid
from turnlog.infrastructure.sqlite import directory, ledger

_OUR_TOPICS = "turnlog.domain.events:"

if TYPE_CHECKING:
    _RecorderBehind = SQLiteApplicationRecorder
else:
    _RecorderBehind = object


class SessionRows(SessionRowsRecorder, _RecorderBehind):
    """A mixin in front of an SQLite application recorder: `class Recorder(SessionRows, HostRecorder)`.

    It derives its rows from the stored events themselves, so they are right whoever calls `save`. Named by
    APPLICATION_RECORDER_TOPIC; the service binds the application's mapper.
    """

    _mapper: Mapper[Any] | None = None

    def bind(self, mapper: Mapper[Any]) -> None:
        """Read stored events through this mapper from now on."""
        self._mapper = mapper

    def version_of(self, aggregate_id: UUID, event_id: str) -> int | None:
        """The version of the event with this id, None when the stream holds none."""
        with storage_errors(), self.datastore.transaction(commit=False) as cursor:
            return ledger.version_of(cursor, aggregate_id, event_id)

    @property
    def directory(self) -> Directory:
        """The directory of the sessions in this file."""
        return directory.SqliteDirectory(self.datastore)

    def construct_create_table_statements(self) -> list[str]:
        """The recorder's own tables, and the ones of the rows."""
        return [*super().construct_create_table_statements(), *ledger.CREATE, *directory.CREATE]

    def _insert_events(
        self, c: SQLiteCursor, stored_events: Sequence[StoredEvent], **kwargs: Any
    ) -> Sequence[int] | None:
        streams = _by_stream(self._stream_events(stored_events))
        ids = super()._insert_events(c, stored_events, **kwargs)
        for aggregate_id, events in streams.items():
            ledger.insert(c, aggregate_id, events)
            directory.insert(c, aggregate_id, events)
        return ids

    def _stream_events(self, stored_events: Sequence[StoredEvent]) -> Iterator[StreamEvent]:
        for stored in stored_events:
            if stored.topic.startswith(_OUR_TOPICS):
                if self._mapper is None:
                    raise ProgrammingError(
                        "This recorder keeps rows about sessions, but no mapper is bound to it: "
                        "construct SessionService(app) before anything is saved."
                    )
                event = self._mapper.to_domain_event(stored)
                if isinstance(event, StreamEvent):
                    yield event


class SqliteSessionRecorder(SessionRows, SQLiteApplicationRecorder):
    """The framework's SQLite recorder with rows about sessions."""


def _by_stream(events: Iterator[StreamEvent]) -> dict[UUID, list[StreamEvent]]:
    streams: dict[UUID, list[StreamEvent]] = {}
    for event in events:
        streams.setdefault(as_uuid(event.originator_id), []).append(event)
    return streams
