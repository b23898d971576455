"""Compaction passes that wrote no boundary, kept in a stream of their own beside the session.

Version, view and log of the session stay as they were. A pass is kept without any text of the conversation.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, cast
from uuid import UUID, uuid5

from eventsourcing.application import Application
from eventsourcing.persistence import IntegrityError

from turnlog.application.storage import storage_errors
from turnlog.application.stored_events import unreadable
from turnlog.application.streams import SessionStreams, id_form
from turnlog.domain.chain import GENESIS, new_salt
from turnlog.domain.events import EventAppended
from turnlog.domain.ids import own_event_id
from turnlog.domain.json_text import checked_json_text, from_json_text
from turnlog.domain.log import EventType

_NAME: Final = "passes\0"
"""Ends in what no event id holds, so that it is the name of no ledger entry."""

_ATTEMPTS: Final = 5

_logger = logging.getLogger("turnlog")


def passes_id(aggregate_id: UUID) -> UUID:
    """The id of the stream of passes beside a session."""
    return uuid5(aggregate_id, _NAME)


@dataclass(frozen=True)
class SkippedPass:
    """A pass that changed nothing: why, and what was asked for. `error` is the kind of what it raised."""

    time: datetime
    session_version: int
    reason: str
    strategy: str
    trigger: str | None = None
    branch: str | None = None
    tokens_before: int | None = None
    error: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The pass as plain data."""
        return {**vars(self), "time": self.time.isoformat()}


class PassLog:
    """Writes and reads the passes of one application."""

    def __init__(self, app: Application[UUID], streams: SessionStreams) -> None:
        self._app = app
        self._streams = streams
        self._id_of = id_form(app)

    def keep(self, aggregate_id: UUID, now: datetime, details: Mapping[str, Any]) -> None:
        """Keep one pass. What goes wrong is logged: a pass that cannot be kept fails nobody's call."""
        try:
            for _ in range(_ATTEMPTS):
                if self._append(passes_id(aggregate_id), now, details):
                    return
            _logger.warning("A pass of session %s could not be kept: too many others wrote.", aggregate_id)
        except Exception as error:
            _logger.warning("A pass of session %s could not be kept: %s", aggregate_id, type(error).__name__)

    def read(self, aggregate_id: UUID) -> Iterator[SkippedPass]:
        """The passes that were kept, in order."""
        for event in self._streams.log(passes_id(aggregate_id)):
            if isinstance(event, EventAppended) and event.content is not None:
                yield _pass_in(event, event.content)

    def _append(self, stream: UUID, now: datetime, details: Mapping[str, Any]) -> bool:
        newest = next(self._streams.log(stream, backwards=True), None)
        version = 0 if newest is None else newest.originator_version + 1
        event = EventAppended(
            originator_id=stream,
            originator_version=version,
            timestamp=now if newest is None else max(now, newest.timestamp),
            event_id=own_event_id(version, secrets.token_hex(10)),
            type=str(EventType.COMPACTION_SKIPPED),
            content=checked_json_text(dict(details), "pass"),
            salt=new_salt(),
        )
        vars(event)["chain"] = event.linked_to(GENESIS if newest is None else newest.chain)
        vars(event)["originator_id"] = self._id_of(stream)
        try:
            with storage_errors():
                self._app.save(event)
        except IntegrityError:  # another pass was kept meanwhile
            return False
        return True


def _pass_in(event: EventAppended, content: str) -> SkippedPass:
    try:
        payload = cast("dict[str, Any]", from_json_text(content))
        return SkippedPass(time=event.timestamp, **payload)
    except Exception as error:
        raise unreadable(event, error) from error
