"""The eraser for stores in memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Self
from uuid import UUID

from eventsourcing.application import Application
from eventsourcing.popo import POPOAggregateRecorder

from turnlog.application.erasing import Erased, SessionEraser
from turnlog.application.stored_events import event_of
from turnlog.application.streams import id_form
from turnlog.domain.events import ContentEvent, ContentRedacted, EventErased, SessionDeleted


class MemoryEraser(SessionEraser):
    """Replaces the events that the framework's in-memory recorder holds.

    Places in its list are notification ids, so nothing is ever removed from it.
    """

    def __init__(self, app: Application[UUID], recorder: POPOAggregateRecorder) -> None:
        self._mapper = app.mapper
        self._id_of = id_form(app)
        self._recorder = recorder

    @classmethod
    def of(cls, app: Application[UUID]) -> Self | None:
        """The eraser of this application, None when it does not hold its events in memory."""
        recorder = app.recorder
        return cls(app, recorder) if isinstance(recorder, POPOAggregateRecorder) else None

    def erase(self, aggregate_id: UUID) -> None:
        """Put an erased event in the place of each event in front of the tombstone."""
        originator_id = self._id_of(aggregate_id)
        # The framework's recorder has no public way to replace an event.
        events = self._recorder._stored_events  # pyright: ignore[reportPrivateUsage]
        index = self._recorder._stored_events_index  # pyright: ignore[reportPrivateUsage]
        with self._recorder._database_lock:  # pyright: ignore[reportPrivateUsage]
            places = index[str(originator_id)]
            tombstone = event_of(self._mapper, events[places[max(places)]])
            if not isinstance(tombstone, SessionDeleted):
                return
            for version, place in places.items():
                if version < tombstone.originator_version:
                    stub = EventErased(
                        originator_id=originator_id,
                        originator_version=version,
                        timestamp=tombstone.timestamp,
                    )
                    events[place] = self._mapper.to_stored_event(stub)

    @property
    def redacts(self) -> bool:
        """It can."""
        return True

    def redact(self, redactions: Sequence[ContentRedacted]) -> None:
        """Put its marker over the content of each event that is named."""
        # The framework's recorder has no public way to replace an event.
        events = self._recorder._stored_events  # pyright: ignore[reportPrivateUsage]
        index = self._recorder._stored_events_index  # pyright: ignore[reportPrivateUsage]
        with self._recorder._database_lock:  # pyright: ignore[reportPrivateUsage]
            for redaction in redactions:
                place = index[str(redaction.originator_id)][redaction.redacted_version]
                target = event_of(self._mapper, events[place])
                if isinstance(target, ContentEvent) and not target.is_redacted:
                    events[place] = self._mapper.to_stored_event(target.redacted_by(redaction))

    def scrub(self) -> str | None:
        """Nothing is left of what was replaced in memory."""
        return None

    def pending(self) -> int:
        """None ever wait."""
        return 0

    def purge(self, before: datetime) -> int:  # noqa: ARG002 - the port's argument
        """Nothing can be removed here."""
        return 0

    def erased(self) -> Iterable[Erased]:
        """Nothing that outlasts the process."""
        return ()
