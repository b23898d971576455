"""What can be had in the database of a recorder that writes no rows about sessions itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from eventsourcing.application import Application
from eventsourcing.utils import resolve_topic

from turnlog.application.erasers import MemoryEraser
from turnlog.application.erasing import SessionEraser
from turnlog.application.ports import Directory, RecallIndex

_AIDS: Mapping[str, str] = {
    "eventsourcing.postgres": "turnlog.infrastructure.postgres:plain_aids",
    "eventsourcing.sqlite": "turnlog.infrastructure.sqlite:plain_aids",
    "eventsourcing_sqlalchemy.recorders": "turnlog.infrastructure.sqlalchemy:aids",
}
"""By the module of a recorder's class or of one that it derives from: a function of the application."""


@dataclass(frozen=True)
class StoreAids:
    """A directory and an index that are caught up by whoever asks them, and an eraser; None: not here."""

    directory: Directory | None = None
    recall: RecallIndex | None = None
    eraser: SessionEraser | None = None


def aids_of(app: Application[UUID]) -> StoreAids:
    """What this application's store has beside its recorder."""
    for recorder_class in type(app.recorder).__mro__:
        topic = _AIDS.get(recorder_class.__module__)
        if topic is not None:
            found = resolve_topic(topic)(app)
            assert isinstance(found, StoreAids)  # noqa: S101 - what the topics above name
            return found
    return StoreAids(eraser=MemoryEraser.of(app))
