"""Read models that follow the log by the framework's projections."""

from turnlog.application.projections.errors import (
    NoSubscriptionsError,
    ProjectionStoppedError,
    ReadModelBehindError,
    ReadModelOutdatedError,
    UnboundFollowerError,
)
from turnlog.application.projections.followed import (
    BoundaryFollowed,
    EventFollowed,
    Followed,
    MessageFollowed,
    SessionBegan,
    SessionEnded,
)
from turnlog.application.projections.following import (
    FollowerStore,
    MemoryFollowerStore,
    SessionFeed,
    SessionFollower,
)
from turnlog.application.projections.maintaining import (
    Comparison,
    Difference,
    MissingEvents,
    ReadModels,
    Rebuilt,
    RepeatedId,
)
from turnlog.application.projections.materialised import MaterialisedViews
from turnlog.application.projections.running import SessionProjectionRunner, SupervisedRunner
from turnlog.application.projections.stored_view import StoredView, ToldRow
from turnlog.application.projections.view_projection import ViewProjection
from turnlog.application.projections.view_store import MemoryViewStore, ViewStore

__all__ = [
    "BoundaryFollowed",
    "Comparison",
    "Difference",
    "EventFollowed",
    "Followed",
    "FollowerStore",
    "MaterialisedViews",
    "MemoryFollowerStore",
    "MemoryViewStore",
    "MessageFollowed",
    "MissingEvents",
    "NoSubscriptionsError",
    "ProjectionStoppedError",
    "ReadModelBehindError",
    "ReadModelOutdatedError",
    "ReadModels",
    "Rebuilt",
    "RepeatedId",
    "SessionBegan",
    "SessionEnded",
    "SessionFeed",
    "SessionFollower",
    "SessionProjectionRunner",
    "StoredView",
    "SupervisedRunner",
    "ToldRow",
    "UnboundFollowerError",
    "ViewProjection",
    "ViewStore",
]
