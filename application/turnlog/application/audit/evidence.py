"""A session as it is stored, event by event: taken out of one store, and put into another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any, cast
from uuid import UUID

from eventsourcing.persistence import IntegrityError

from turnlog.application.audit.core import AuditCore
from turnlog.application.audit.errors import AuditError
from turnlog.application.ledger import StreamLedger
from turnlog.application.storage import unlocked
from turnlog.application.streams import id_form, present
from turnlog.domain.attributes import SessionAttributes
from turnlog.domain.errors import SessionIdUnavailableError, shown
from turnlog.domain.events import ContentEvent, SessionOpened, StreamEvent
from turnlog.domain.ids import aggregate_id
from turnlog.domain.json_text import from_json_text
from turnlog.domain.session import Session, fold


class ForeignEvidenceError(AuditError):
    """The stored events are of another namespace, or of another principal's session."""

    def __init__(self, session_id: str, what: str, theirs: str, ours: str) -> None:
        super().__init__(
            f"Session {shown(session_id)} is of {what} {shown(theirs)}, here it is {shown(ours)}: "
            f"restore it with a service of that {what}. Its chain holds both."
        )
        self.session_id = session_id


@dataclass(frozen=True)
class StoredSession:
    """A session as its stored events: what the chain is about. `events` begin with version 0."""

    session_id: str
    namespace: str
    aggregate_id: UUID
    events: tuple[StreamEvent, ...]


class Evidencing(AuditCore):
    """Stored events out and in again, such that every chain value stays what it is."""

    def stored(self, session_id: str) -> StoredSession:
        """The session event by event, as it is now. Raises `SessionNotFoundError`."""
        key, state = self._opened(session_id)
        log = self._streams.log(key.aggregate_id, upto=state.version)
        events = tuple(present(event, session_id) for event in log)
        return StoredSession(session_id, self._namespace, key.aggregate_id, events)

    def restore(self, events: Sequence[StreamEvent]) -> str:
        """Write the stored events of a session as they were, in one write; returns the session's id.

        What `stored` gave elsewhere has the same chain values, versions and views here. Nothing is verified:
        that is for `verify`, or for who read the events. Raises `SessionIdUnavailableError` when the id is or
        was used here, `ForeignEvidenceError` for another namespace than that of this service, or for a
        session that is not of its principal.
        """
        opened = cast("SessionOpened", events[0])
        self._require_own(opened, events)
        state = fold(events)
        assert state is not None  # noqa: S101 - there is an event
        own_id = aggregate_id(opened.session_id, self._namespace)
        if self._streams.state(own_id) is not None:
            raise SessionIdUnavailableError(opened.session_id)
        session = Session.of_state(own_id, state)
        own = [_copy(event, own_id) for event in events]
        session.pending_events.extend(own)
        ledger = self._writer.ledger
        saved = self._writer.open(session)
        if not saved and self._writer.ledger is not ledger:  # it was found to save one stream at a time
            session.pending_events[:] = own
            saved = self._writer.open(session)
        newest = self._streams.event_at(own_id, state.version) if saved else None
        if newest is None or newest.chain != state.head:  # somebody else was faster
            raise SessionIdUnavailableError(opened.session_id)
        if not self._writer.ledger.atomic:
            self._save_entries(own)
        return opened.session_id

    def _require_own(self, opened: SessionOpened, events: Sequence[StreamEvent]) -> None:
        if (opened.namespace or "") != self._namespace:
            raise ForeignEvidenceError(
                opened.session_id, "namespace", opened.namespace or "", self._namespace
            )
        if self._principal is not None and _owner(events) != self._principal:
            raise ForeignEvidenceError(opened.session_id, "principal", "another", self._principal)

    def _save_entries(self, events: Sequence[StreamEvent]) -> None:
        """The ledger of the events, on stores where it cannot be part of their write."""
        form = id_form(self._app)
        for entry in StreamLedger(self._streams).entries_for(events):
            vars(entry)["originator_id"] = form(entry.originator_id)
            try:
                unlocked(partial(self._app.save, entry))
            except IntegrityError:  # the settling of a later write was first
                continue


def _copy(event: StreamEvent, own_id: UUID) -> StreamEvent:
    """The same event; the writer gives it the id in the form of its store."""
    copied = copy(event)
    vars(copied)["originator_id"] = own_id
    return copied


def _owner(events: Sequence[StreamEvent]) -> object:
    """The principal that the newest metadata name."""
    state = fold(events)
    if state is None or state.metadata_version is None:
        return None
    content = cast("ContentEvent", events[state.metadata_version]).content
    metadata = cast("Mapping[str, Any]", from_json_text(content or "{}"))
    return metadata.get(SessionAttributes.PRINCIPAL_NAME)
