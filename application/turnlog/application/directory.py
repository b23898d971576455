"""The list of sessions for stores without rows of ours: in memory, caught up with the log on each question.

The reader pays: the first question of a process reads the whole notification log, later ones what is new.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from threading import Lock
from typing import Any
from uuid import UUID

from eventsourcing.application import Application
from eventsourcing.persistence import Notification

from turnlog.application.ports import Directory, SessionRow
from turnlog.application.storage import storage_errors
from turnlog.application.stored_events import event_of, is_of_newer_version, metadata_in, unreadable
from turnlog.domain.errors import UnreadableEventError
from turnlog.domain.events import (
    ExpiryMoved,
    MessageAppended,
    MetadataUpdated,
    SessionDeleted,
    SessionOpened,
    StreamEvent,
    as_uuid,
)
from turnlog.domain.json_text import sorted_json_text

_PAGE = 1000
_OUR_TOPICS = "turnlog.domain.events:"

_logger = logging.getLogger("turnlog")


@dataclass(frozen=True)
class _Listed:
    row: SessionRow
    namespace: str
    idle: timedelta | None


class CatchUpDirectory:
    """A directory that reads what is new in the notification log before it answers."""

    def __init__(self, app: Application[UUID]) -> None:
        self._recorder = app.recorder
        self._mapper = app.mapper
        self._lock = Lock()
        self._position: int | None = None
        self._listed: dict[UUID, _Listed] = {}
        self._reads = False

    def newest(
        self,
        namespace: str,
        *,
        limit: int,
        before: int | None = None,
        where: Mapping[str, Any] | None = None,
    ) -> Sequence[SessionRow]:
        """Sessions by creation, newest first."""
        rows = [row for row in self._rows(namespace, where) if before is None or row.position < before]
        return sorted(rows, key=lambda row: -row.position)[:limit]

    def with_prefix(
        self, namespace: str, prefix: str, *, limit: int, where: Mapping[str, Any] | None = None
    ) -> Sequence[SessionRow]:
        """Sessions whose id begins with the prefix."""
        rows = (row for row in self._rows(namespace, where) if row.session_id.startswith(prefix))
        return sorted(rows, key=lambda row: row.session_id)[:limit]

    def expired(
        self, namespace: str, at: datetime, *, where: Mapping[str, Any] | None = None
    ) -> Sequence[SessionRow]:
        """Sessions that expired at this time or before it."""
        rows = (row for row in self._rows(namespace, where) if row.expires_at and row.expires_at <= at)
        return sorted(rows, key=lambda row: (row.expires_at, row.position))

    def _rows(self, namespace: str, where: Mapping[str, Any] | None) -> list[SessionRow]:
        with self._lock:
            self._catch_up()
            rows = [listed.row for listed in self._listed.values() if listed.namespace == namespace]
        return [row for row in rows if _holds(row.metadata, where or {})]

    def _catch_up(self) -> None:
        while True:
            with storage_errors():
                page = self._recorder.select_notifications(
                    self._position, _PAGE, inclusive_of_start=self._position is None
                )
            for notification in page:
                if notification.topic.startswith(_OUR_TOPICS):
                    try:
                        self._follow(notification)
                    except UnreadableEventError as error:
                        if is_of_newer_version(error) or not self._reads_some(page):
                            raise
                        self._pass_over(notification, error)
                self._position = notification.id
            if len(page) < _PAGE:
                return

    def _follow(self, notification: Notification) -> None:
        event = event_of(self._mapper, notification)
        if isinstance(event, StreamEvent):
            self._apply(event, notification.id)
            self._reads = True

    def _reads_some(self, page: Sequence[Notification]) -> bool:
        """Whether any event can be read: otherwise all are under another key."""
        for notification in page:
            if not self._reads and notification.topic.startswith(_OUR_TOPICS):
                with suppress(UnreadableEventError):
                    self._reads = isinstance(event_of(self._mapper, notification), StreamEvent)
        return self._reads

    def _pass_over(self, notification: Notification, error: UnreadableEventError) -> None:
        """One damaged event must not keep the healthy sessions from being listed. A message is counted."""
        _logger.warning("Sessions are listed without an event: %s", error)
        listed = self._listed.get(as_uuid(notification.originator_id))
        if listed is not None and notification.topic == MessageAppended.TOPIC:
            row = replace(listed.row, messages=listed.row.messages + 1)
            self._listed[row.aggregate_id] = replace(listed, row=row)

    def _apply(self, event: StreamEvent, position: int) -> None:
        try:
            self._list(event, position)
        except UnreadableEventError:
            raise
        except Exception as error:
            raise unreadable(event, error) from error

    def _list(self, event: StreamEvent, position: int) -> None:
        aggregate_id = as_uuid(event.originator_id)
        if isinstance(event, SessionDeleted):
            self._listed.pop(aggregate_id, None)
            return
        if isinstance(event, SessionOpened):
            state = event.state_after(None)
            row = SessionRow(
                session_id=event.session_id,
                aggregate_id=aggregate_id,
                position=position,
                created_at=event.timestamp,
                modified_at=event.timestamp,
                expires_at=state.expires_at,
                version=event.originator_version,
                messages=0,
                metadata=metadata_in(event),
            )
            self._listed[aggregate_id] = _Listed(row, event.namespace or "", state.idle)
            return
        listed = self._listed.get(aggregate_id)
        if listed is None:
            return
        expires_at = listed.row.expires_at
        if isinstance(event, ExpiryMoved):
            expires_at = datetime.fromisoformat(event.expires_at) if event.expires_at else None
        elif isinstance(event, MessageAppended) and event.moves_idle_expiry and listed.idle is not None:
            expires_at = event.timestamp + listed.idle
        metadata = listed.row.metadata
        if isinstance(event, MetadataUpdated):
            metadata = metadata_in(event)
        row = replace(
            listed.row,
            metadata=metadata,
            modified_at=event.timestamp,
            expires_at=expires_at,
            version=event.originator_version,
            messages=listed.row.messages + isinstance(event, MessageAppended),
        )
        self._listed[aggregate_id] = replace(listed, row=row)


def _holds(metadata: Mapping[str, Any], where: Mapping[str, Any]) -> bool:
    return all(
        name in metadata and sorted_json_text(metadata[name]) == sorted_json_text(value)
        for name, value in where.items()
    )


@dataclass(frozen=True)
class CaughtUpDirectory:
    """A directory of rows in the store, which applies what is missing before it answers."""

    rows: Directory
    catch_up: Callable[[], object]

    def newest(
        self,
        namespace: str,
        *,
        limit: int,
        before: int | None = None,
        where: Mapping[str, Any] | None = None,
    ) -> Sequence[SessionRow]:
        """Sessions by creation, newest first."""
        self.catch_up()
        return self.rows.newest(namespace, limit=limit, before=before, where=where)

    def with_prefix(
        self, namespace: str, prefix: str, *, limit: int, where: Mapping[str, Any] | None = None
    ) -> Sequence[SessionRow]:
        """Sessions whose id begins with the prefix."""
        self.catch_up()
        return self.rows.with_prefix(namespace, prefix, limit=limit, where=where)

    def expired(
        self, namespace: str, at: datetime, *, where: Mapping[str, Any] | None = None
    ) -> Sequence[SessionRow]:
        """Sessions that expired at this time or before it."""
        self.catch_up()
        return self.rows.expired(namespace, at, where=where)
