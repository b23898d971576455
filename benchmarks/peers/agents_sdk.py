"""The OpenAI Agents SDK: `SQLiteSession`, and `SQLAlchemySession` on PostgreSQL."""

from __future__ import annotations

from collections.abc import Sized
from importlib import import_module
from typing import Any, ClassVar

from benchmarks.peers.peer import CONVERSATION, WINDOW, Peer, next_text, pragmas, text_of


class AgentsSession(Peer):
    """`SQLiteSession` on a file: the write-ahead log, and what SQLite was built with for `synchronous`."""

    name = "Agents SDK"
    distributions: ClassVar[tuple[str, ...]] = ("openai-agents",)
    without: ClassVar[dict[str, str]] = {
        "compact": "OpenAI's service",
        "search": "no search",
    }
    session: Any

    async def open(self) -> None:
        """Make the session object."""
        agents: Any = import_module("agents")
        self.session = agents.SQLiteSession(CONVERSATION, self.file)

    async def create(self) -> None:
        """The first message does it."""

    async def fill(self, count: int) -> None:
        """A hundred in each call."""
        for first in range(0, count, 100):
            await self.session.add_items(
                [_item(text_of(number, count)) for number in range(first, min(first + 100, count))]
            )

    async def append(self) -> object:
        """Add one item."""
        return await self.session.add_items([_item(next_text(self))])

    async def window(self) -> Sized:
        """The newest items."""
        items: list[object] = await self.session.get_items(limit=WINDOW)
        return items

    async def durability(self) -> tuple[str, ...]:
        """As the connection of this thread has them, which is made as those of the others are."""
        return pragmas(self.session._get_connection().execute)

    async def close(self) -> None:
        """Close the session object."""
        self.session.close()


class AgentsSessionOnPostgres(AgentsSession):
    """`SQLAlchemySession` over asyncpg."""

    distributions: ClassVar[tuple[str, ...]] = ("openai-agents", "sqlalchemy", "asyncpg")
    engine: Any

    async def open(self) -> None:
        """Make the engine and the session object."""
        memory: Any = import_module("agents.extensions.memory")
        asyncio_of: Any = import_module("sqlalchemy.ext.asyncio")
        self.engine = asyncio_of.create_async_engine(asyncpg_url(self.place))
        self.session = memory.SQLAlchemySession(CONVERSATION, engine=self.engine, create_tables=True)

    async def durability(self) -> tuple[str, ...]:
        """The server's, which is the same for all."""
        return ()

    async def close(self) -> None:
        """Dispose of the engine."""
        await self.engine.dispose()


def asyncpg_url(dsn: str) -> str:
    """The address as SQLAlchemy wants it for asyncpg."""
    return dsn.replace("postgresql://", "postgresql+asyncpg://", 1)


def _item(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}
