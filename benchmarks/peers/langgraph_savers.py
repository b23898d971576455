"""LangGraph: a graph of `MessagesState` over `SqliteSaver` or `PostgresSaver`.

A checkpoint is the whole state, so each append writes all messages again.
"""

from __future__ import annotations

from collections.abc import Sized
from contextlib import ExitStack
from importlib import import_module
from typing import Any, ClassVar

from benchmarks.peers.peer import CONVERSATION, WINDOW, Peer, next_text, pragmas, text_of

CONFIG = {"configurable": {"thread_id": CONVERSATION}}
NODE = "told"


class LangGraphThread(Peer):
    """A thread on SQLite."""

    name = "LangGraph"
    distributions: ClassVar[tuple[str, ...]] = ("langgraph", "langgraph-checkpoint-sqlite")
    without: ClassVar[dict[str, str]] = {
        "compact": "loses the log",
        "search": "no search",
    }
    graph: Any
    saver: Any
    _opened: ExitStack

    def saver_in(self, opened: ExitStack) -> Any:
        """The saver, opened."""
        sqlite: Any = import_module("langgraph.checkpoint.sqlite")
        return opened.enter_context(sqlite.SqliteSaver.from_conn_string(str(self.file)))

    async def open(self) -> None:
        """Compile the graph with its saver."""
        graphs: Any = import_module("langgraph.graph")
        self._opened = ExitStack()
        self.saver = self.saver_in(self._opened)
        builder = graphs.StateGraph(graphs.MessagesState)
        builder.add_node(NODE, _nothing_new)
        builder.add_edge(graphs.START, NODE)
        self.graph = builder.compile(checkpointer=self.saver)

    async def create(self) -> None:
        """The first message does it."""

    async def fill(self, count: int) -> None:
        """One update with all messages."""
        self._add([text_of(number, count) for number in range(count)])

    async def append(self) -> object:
        """One update with one message."""
        return self._add([next_text(self)])

    async def window(self) -> Sized:
        """The end of the state's messages: the saver reads a state whole."""
        messages: list[object] = self.graph.get_state(CONFIG).values["messages"]
        return messages[-WINDOW:]

    def _add(self, texts: list[str]) -> object:
        core: Any = import_module("langchain_core.messages")
        messages = [core.HumanMessage(text) for text in texts]
        return self.graph.update_state(CONFIG, {"messages": messages}, as_node=NODE)

    async def durability(self) -> tuple[str, ...]:
        """As the saver's connection has them."""
        return pragmas(self.saver.conn.execute)

    async def close(self) -> None:
        """Close the saver."""
        self._opened.close()


class LangGraphThreadOnPostgres(LangGraphThread):
    """A thread on PostgreSQL."""

    distributions: ClassVar[tuple[str, ...]] = ("langgraph", "langgraph-checkpoint-postgres")

    def saver_in(self, opened: ExitStack) -> Any:
        """The saver, with its tables."""
        postgres: Any = import_module("langgraph.checkpoint.postgres")
        saver = opened.enter_context(postgres.PostgresSaver.from_conn_string(self.place))
        saver.setup()
        return saver

    async def durability(self) -> tuple[str, ...]:
        """The server's, which is the same for all."""
        return ()


def _nothing_new(state: Any) -> dict[str, object]:  # noqa: ARG001
    return {}
