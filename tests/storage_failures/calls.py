"""The calls that write, each of which has to say the same when a store refuses."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.support.conformance_stores import NoTokens

from turnlog.application.service import SessionService
from turnlog.domain.log import SessionEvent
from turnlog.domain.messages import Message
from turnlog.domain.window import CompactionWindow, WindowCompactionStrategy

SID = "s"
_LAST = WindowCompactionStrategy(CompactionWindow.last_turns(1))

WRITES: Mapping[str, Callable[[SessionService], object]] = {
    "append": lambda sessions: sessions.append_message(SID, Message.user("new")),
    "append with an id": lambda sessions: sessions.append_message(SID, Message.user("new"), event_id="new"),
    "create": lambda sessions: sessions.create("new"),
    "compact": lambda sessions: sessions.compact(SID, None, _LAST),
    "metadata": lambda sessions: sessions.update_metadata(SID, {"title": "new"}),
    "extend": lambda sessions: sessions.extend(SID, None),
    "hold": lambda sessions: sessions.hold(SID, "Case 7", by="ada"),
    "delete": lambda sessions: sessions.delete(SID),
}


def service(env: Mapping[str, str]) -> SessionService:
    """A service on the store of these settings."""
    return SessionService(env=dict(env), token_estimator=NoTokens())


def prepare(env: Mapping[str, str]) -> tuple[SessionEvent, ...]:
    """A session of three turns; its log."""
    with service(env) as sessions:
        sessions.create(SID)
        for number in range(3):
            sessions.append_message(SID, Message.user(f"hello {number}"), event_id=f"e{number}")
        sessions.list_sessions()
        return sessions.get_events(SID)


def logged(env: Mapping[str, str]) -> tuple[SessionEvent, ...]:
    """The log as a service of its own reads it."""
    with service(env) as sessions:
        return sessions.get_events(SID)
