"""turnlog's own framework application, and what makes a host's application cheap for sessions."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, ClassVar
from uuid import UUID

from eventsourcing.application import Application, ProcessingEvent, Repository
from eventsourcing.persistence import EventStore, Recording
from eventsourcing.utils import Environment, EnvType

from turnlog.application.settings import refused_setting
from turnlog.application.streams import resume
from turnlog.domain.events import StreamEvent
from turnlog.domain.session import Session

ROWS_RECORDERS = {
    "eventsourcing.postgres": "turnlog.infrastructure.postgres:PostgresSessionRecorder",
    "eventsourcing.sqlite": "turnlog.infrastructure.sqlite:SqliteSessionRecorder",
}
"""The recorder that keeps rows about sessions, by persistence module."""

TRANSCODER = "turnlog.application.transcoding:QuickJSONTranscoder"
"""What reads the framework's JSON in less time."""


class Sessions(Application[UUID]):
    """An application that holds sessions only: in memory, unless its environment says otherwise."""

    name = "Sessions"
    env: ClassVar[dict[str, str]] = {}

    def __init__(self, env: EnvType | None = None) -> None:
        try:
            super().__init__(env)
        except BaseException as error:
            with suppress(AttributeError):  # that far it did not come
                self.close()  # else its connections stay open until it is collected, in whichever thread
            refused = refused_setting(self.construct_env(self.name, env), error)
            if refused is None:
                raise
            raise refused from error

    def construct_env(self, name: str, env: EnvType | None = None) -> Environment:
        """The environment, with the recorder that keeps rows where there is one for the module."""
        given = super().construct_env(name, env)
        recorder = ROWS_RECORDERS.get(given.get("PERSISTENCE_MODULE") or "")
        values = dict(given)
        if not given.get("TRANSCODER_TOPIC"):
            values["TRANSCODER_TOPIC"] = TRANSCODER
        if recorder and not given.get("APPLICATION_RECORDER_TOPIC"):
            values["APPLICATION_RECORDER_TOPIC"] = recorder
        if given.get("SQLITE_DBNAME") == ":memory:":
            # Each connection of a pool would open a database of its own.
            values["SQLITE_DBNAME"] = f"file:turnlog-{secrets.token_hex(8)}?mode=memory&cache=shared"
        return Environment(name, values)

    def save(self, *objs: Any, **kwargs: Any) -> list[Recording[UUID]]:
        """As the framework does, which first asks of each object what it is: a tenth of an append.

        A recorder that keeps rows about sessions gets the events too, and need not read them from their
        stored form.
        """
        if len(objs) != 1 or type(objs[0]) is not Session:
            return super().save(*objs, **kwargs)
        saved: ProcessingEvent[UUID] = ProcessingEvent()
        saved.events.extend(objs[0].collect_events())
        saved.aggregates[objs[0].id] = objs[0]
        saved.saved_kwargs.update(kwargs, recorded=saved.events)
        recordings = self._record(saved)
        self._take_snapshots(saved)
        self._notify(recordings)
        self.notify(saved.events)
        return recordings

    def construct_repository(self) -> Repository[UUID]:
        """The framework's repository, with anchors as its snapshots."""
        repository = super().construct_repository()
        repository.snapshot_store = AnchorSnapshots(repository.event_store, repository.snapshot_store)
        return repository


class _Snapshot:
    """The session at one version, in the form that a repository takes for a snapshot."""

    def __init__(self, session: Session) -> None:
        self.originator_id = session.id
        self.originator_version = session.version
        self._session = session

    def mutate(self, _: object) -> Session:
        return self._session


class AnchorSnapshots(EventStore[UUID]):
    """Answers a repository's question for a snapshot from the anchors in the log of a session.

    A host installs it once, and `app.repository.get` of a session is one read:

        app.repository.snapshot_store = AnchorSnapshots(app.events, app.repository.snapshot_store)

    For other aggregates the store that was there before is asked.
    """

    def __init__(self, events: EventStore[UUID], others: EventStore[UUID] | None = None) -> None:
        super().__init__(events.mapper, events.recorder)
        self._events = events
        self._others = others

    def get(
        self,
        originator_id: UUID,
        *,
        gt: int | None = None,
        lte: int | None = None,
        desc: bool = False,
        limit: int | None = None,
    ) -> Iterator[Any]:
        """The newest state of the stream up to `lte`, as one snapshot."""
        newest = next(iter(self._events.get(originator_id, lte=lte, desc=True, limit=1)), None)
        if isinstance(newest, StreamEvent):
            state = resume(self._events, originator_id, newest)
            yield _Snapshot(Session.of_state(originator_id, state))
        elif self._others is not None:
            yield from self._others.get(originator_id, gt=gt, lte=lte, desc=desc, limit=limit)
