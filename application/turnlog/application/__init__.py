"""The application: the session service and what it runs on."""

from turnlog.application.async_service import AsyncSessionService
from turnlog.application.context import event_context
from turnlog.application.ports import SessionRow
from turnlog.application.service import Capabilities, SessionDetails, SessionService, SessionUsage
from turnlog.application.sessions import AnchorSnapshots, Sessions

__all__ = [
    "AnchorSnapshots",
    "AsyncSessionService",
    "Capabilities",
    "SessionDetails",
    "SessionRow",
    "SessionService",
    "SessionUsage",
    "Sessions",
    "event_context",
]
