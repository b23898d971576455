"""What an application on SQLAlchemy has beside its recorder."""

from __future__ import annotations

from typing import cast
from uuid import UUID

from eventsourcing.application import Application
from eventsourcing.utils import strtobool
from eventsourcing_sqlalchemy.recorders import SQLAlchemyApplicationRecorder

from turnlog.application.aids import StoreAids
from turnlog.infrastructure.sqlalchemy.cleaning import cleaner_for
from turnlog.infrastructure.sqlalchemy.eraser import SqlalchemyEraser


def aids(app: Application[UUID]) -> StoreAids:
    """An eraser where this database can be cleaned and its table of erasures is there or may be made."""
    recorder = cast("SQLAlchemyApplicationRecorder", app.recorder)
    cleaner = cleaner_for(recorder)
    if cleaner is None:
        return StoreAids()
    eraser = SqlalchemyEraser(recorder, app, cleaner)
    may_create = bool(strtobool(app.env.get("CREATE_TABLE") or "yes"))
    return StoreAids(eraser=eraser if eraser.has_table(create=may_create) else None)
