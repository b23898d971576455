"""Read models that follow the log by the framework's projections."""

from turnlog.application.projections.errors import (
    ProjectionStoppedError,
    ReadModelBehindError,
    ReadModelOutdatedError,
    UnboundFollowerError,
)
from turnlog.application.projections.materialised import MaterialisedViews
from turnlog.application.projections.running import SessionProjectionRunner, SupervisedRunner
from turnlog.application.projections.stored_view import StoredView, ToldRow
from turnlog.application.projections.view_projection import ViewProjection
from turnlog.application.projections.view_store import MemoryViewStore, ViewStore

__all__ = [
    "MaterialisedViews",
    "MemoryViewStore",
    "ProjectionStoppedError",
    "ReadModelBehindError",
    "ReadModelOutdatedError",
    "SessionProjectionRunner",
    "StoredView",
    "SupervisedRunner",
    "ToldRow",
    "UnboundFollowerError",
    "ViewProjection",
    "ViewStore",
]
