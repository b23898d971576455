"""Our own sessions: version check, repeats, hash chain, directory and search index included."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from benchmarks.core import STRATEGY, TRIGGER
from benchmarks.peers.peer import CONVERSATION, RARE, WINDOW, Peer, next_text, text_of
from benchmarks.postgres import settings
from turnlog.application import SessionService
from turnlog.domain import (
    CompactionWindow,
    EventQuery,
    Message,
    NewEvent,
    SessionEvent,
    WindowCompactionStrategy,
)
from turnlog.infrastructure.sqlite import SqliteSessionRecorder

EXACTLY = WindowCompactionStrategy(CompactionWindow.last_events(WINDOW))


class Ours(Peer):
    """A `SessionService` on SQLite."""

    name = "turnlog"
    sessions: SessionService

    def env(self) -> dict[str, str]:
        """The settings of the application."""
        return {"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": str(self.file)}

    async def open(self) -> None:
        """Make the service."""
        self.sessions = SessionService(env=self.env())

    async def create(self) -> None:
        """Create the session."""
        self.sessions.create(CONVERSATION)

    async def fill(self, count: int) -> None:
        """Append in batches of 20, and compact whenever the trigger fires."""
        for first in range(0, count, 20):
            batch = [
                NewEvent(message=Message.user(text_of(number, count)))
                for number in range(first, min(first + 20, count))
            ]
            self.sessions.append_events(CONVERSATION, batch)
            self.sessions.compact(CONVERSATION, TRIGGER, STRATEGY)

    async def append(self) -> object:
        """Append one message."""
        return self.sessions.append_message(CONVERSATION, Message.user(next_text(self)))

    async def before(self, operation: str) -> None:
        """The window's messages in the view, or twenty more when they are to be taken out of it."""
        if operation == "window" and len(self.sessions.view(CONVERSATION)) > WINDOW:
            self.sessions.compact(CONVERSATION, None, EXACTLY)
        if operation == "compact":
            messages = [Message.user(next_text(self)) for _ in range(20)]
            self.sessions.append_events(CONVERSATION, messages)
            self.sessions.view(CONVERSATION)

    async def window(self) -> Sequence[Message]:
        """What the model is told."""
        return self.sessions.view(CONVERSATION).told()

    async def compact(self) -> object:
        """Reduce the view to the window's messages."""
        return self.sessions.compact(CONVERSATION, None, EXACTLY)

    async def search(self) -> Sequence[SessionEvent]:
        """Search the whole log."""
        return self.sessions.search_events(CONVERSATION, EventQuery(keywords=RARE))

    async def durability(self) -> tuple[str, ...]:
        """As the pool's writer has them."""
        recorder = cast("SqliteSessionRecorder", self.sessions.app.recorder)
        found: list[str] = []
        with recorder.datastore.transaction(commit=False) as cursor:
            for name in ("journal_mode", "synchronous"):
                cursor.execute(f"PRAGMA {name}")
                found.append(f"{name}={cursor.fetchone()[0]}")
        return tuple(found)

    async def close(self) -> None:
        """Close the service."""
        self.sessions.close()


class OursOnPostgres(Ours):
    """A `SessionService` on PostgreSQL."""

    def env(self) -> dict[str, str]:
        """The settings of the application."""
        return settings(self.place, "public", None)

    async def durability(self) -> tuple[str, ...]:
        """The server's, which is the same for all."""
        return ()
