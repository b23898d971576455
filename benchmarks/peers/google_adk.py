"""Google's Agent Development Kit: `DatabaseSessionService` over aiosqlite or asyncpg."""

from __future__ import annotations

import time
from collections.abc import Sized
from importlib import import_module
from typing import Any, ClassVar

from benchmarks.peers.agents_sdk import asyncpg_url
from benchmarks.peers.peer import CONVERSATION, WINDOW, Peer, next_text, text_of, use_wal

NAMES = {"app_name": "bench", "user_id": "ada", "session_id": CONVERSATION}


class AdkSession(Peer):
    """The service on SQLite. It leaves the rollback journal on, so the file gets a write-ahead log first."""

    name = "Google ADK"
    distributions: ClassVar[tuple[str, ...]] = ("google-adk", "sqlalchemy", "aiosqlite")
    without: ClassVar[dict[str, str]] = {
        "compact": "by a model",
        "search": "not the log",
    }
    service: Any
    session: Any = None

    def url(self) -> str:
        """The address of the database."""
        if not self.file.exists():
            use_wal(self.file)
        return f"sqlite+aiosqlite:///{self.file}"

    async def open(self) -> None:
        """Make the service."""
        sessions: Any = import_module("google.adk.sessions")
        self.service = sessions.DatabaseSessionService(self.url())

    async def create(self) -> None:
        """Create the session."""
        await self.service.create_session(**NAMES)

    async def fill(self, count: int) -> None:
        """Rows of its own model, a thousand in a transaction: its events can be appended one by one only."""
        schema: Any = import_module("google.adk.sessions.schemas.v1")
        asyncio_of: Any = import_module("sqlalchemy.ext.asyncio")
        session = await self.service.get_session(**NAMES)
        start = time.time() - count / 1000
        make = asyncio_of.async_sessionmaker(self.service.db_engine)
        for first in range(0, count, 1000):
            async with make.begin() as transaction:
                transaction.add_all(
                    schema.StorageEvent.from_event(session, _event(text_of(n, count), start + n / 1000))
                    for n in range(first, min(first + 1000, count))
                )

    async def append(self) -> object:
        """Append one event to the session as it was loaded."""
        return await self.service.append_event(self.session, _event(next_text(self), time.time()))

    async def before(self, operation: str) -> None:
        """The session is loaded, once: its runner does that in each turn."""
        if operation == "append" and self.session is None:
            self.session = await self._newest()

    async def window(self) -> Sized:
        """The newest events."""
        events: list[object] = (await self._newest()).events
        return events

    async def _newest(self) -> Any:
        sessions: Any = import_module("google.adk.sessions.base_session_service")
        return await self.service.get_session(
            **NAMES, config=sessions.GetSessionConfig(num_recent_events=WINDOW)
        )

    async def durability(self) -> tuple[str, ...]:
        """As a connection of the engine has them."""
        found: list[str] = []
        async with self.service.db_engine.connect() as connection:
            for name in ("journal_mode", "synchronous"):
                answer = await connection.exec_driver_sql(f"PRAGMA {name}")
                found.append(f"{name}={answer.scalar()}")
        return tuple(found)

    async def close(self) -> None:
        """Dispose of the engine."""
        await self.service.close()


class AdkSessionOnPostgres(AdkSession):
    """The service on PostgreSQL."""

    distributions: ClassVar[tuple[str, ...]] = ("google-adk", "sqlalchemy", "asyncpg")

    def url(self) -> str:
        """The address of the database."""
        return asyncpg_url(self.place)

    async def durability(self) -> tuple[str, ...]:
        """The server's, which is the same for all."""
        return ()


def _event(text: str, timestamp: float) -> Any:
    events: Any = import_module("google.adk.events")
    types: Any = import_module("google.genai.types")
    content = types.Content(role="user", parts=[types.Part(text=text)])
    return events.Event(author="user", invocation_id="turn", content=content, timestamp=timestamp)
