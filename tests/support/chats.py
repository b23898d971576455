"""Sessions for chats, and their logs in one line each."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from tests.support.conformance_stores import NoTokens

from turnlog.application.service import SessionService
from turnlog.domain import Message, SessionEvent, TokenEstimator, event_text

SID = "s"


class Characters:
    """Costs one, and one for each character of the rendering, results and arguments included."""

    def estimate(self, message: Message) -> int:
        """The cost of the message."""
        return 1 + len(event_text(message))


def service(
    path: Path,
    *,
    estimator: TokenEstimator | None = None,
    clock: Callable[[], datetime] | None = None,
) -> SessionService:
    """A service on this file, with an application of its own."""
    env = {
        "PERSISTENCE_MODULE": "eventsourcing.sqlite",
        "SQLITE_DBNAME": str(path),
        "SQLITE_LOCK_TIMEOUT": "30",
    }
    return SessionService(env=env, token_estimator=estimator or Characters(), clock=clock)


def without_tokens() -> SessionService:
    """A service in memory where nothing costs anything."""
    return SessionService(token_estimator=NoTokens())


def lines(sessions: SessionService, session_id: str = SID) -> list[str]:
    """The messages of the log, one line each."""
    return [event_text(event) for event in messages(sessions, session_id)]


def messages(sessions: SessionService, session_id: str = SID) -> list[SessionEvent]:
    """The message events of the log."""
    return [event for event in sessions.get_events(session_id) if event.message]
