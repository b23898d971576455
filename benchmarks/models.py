"""How long a piece of a streamed answer takes from the server's socket to the caller.

Run it with `python -m benchmarks.models`. The server is a thread of this process, so the clock is one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import statistics
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager

from benchmarks.core import Row
from turnlog.application.chat import ChatRequest
from turnlog.domain import Message
from turnlog.infrastructure.models import AsyncOpenAIChatModel, OpenAIChatModel

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
ASKED = ChatRequest((Message.user("Count."),))
LIMIT = 1_000.0
"""Microseconds that the first piece may take."""


class Server:
    """Answers every request with pieces, a moment apart, and notes when each was sent."""

    def __init__(self, pieces: int) -> None:
        self._pieces = pieces
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.sent: list[float] = []

    def run(self) -> None:
        """Take connections until the listener is closed."""
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection, connection.makefile("rb") as reader:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                while reader.readline():
                    reader.read1(65_536)
                    self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        self.sent.clear()
        connection.sendall(HEAD)
        for place in range(self._pieces):
            time.sleep(0.002)
            choice = {"index": 0, "delta": {"content": f"{place} "}}
            event = b"data: %s\n\n" % json.dumps({"choices": [choice]}).encode()
            self.sent.append(time.perf_counter())
            connection.sendall(b"%x\r\n%s\r\n" % (len(event), event))
        end = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
        connection.sendall(b"%x\r\n%s\r\n0\r\n\r\n" % (len(end), end))

    def stop(self) -> None:
        """Take no more connections."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@contextmanager
def running(pieces: int) -> Generator[Server]:
    """A server in a thread."""
    server = Server(pieces)
    threading.Thread(target=server.run, daemon=True).start()
    try:
        yield server
    finally:
        server.stop()


def blocking(server: Server, calls: int) -> Iterator[list[float]]:
    """The times of the pieces of each call, in microseconds."""
    with OpenAIChatModel("a-model", base_url=server.url) as model:
        for _ in range(calls):
            came: list[float] = []
            with model.stream(model.render(ASKED, stream=True)) as pieces:
                for _piece in pieces:
                    came.append(time.perf_counter())
            yield delays(server, came)


async def with_asyncio(server: Server, calls: int) -> list[list[float]]:
    """The same with asyncio."""
    found: list[list[float]] = []
    async with AsyncOpenAIChatModel("a-model", base_url=server.url) as model:
        for _ in range(calls):
            came: list[float] = []
            async with model.stream(model.render(ASKED, stream=True)) as pieces:
                async for _piece in pieces:
                    came.append(time.perf_counter())
            found.append(delays(server, came))
    return found


def delays(server: Server, came: list[float]) -> list[float]:
    """Microseconds from sending to handing out, piece by piece."""
    return [(here - there) * 1e6 for here, there in zip(came, server.sent, strict=True)]


def rows(name: str, calls: list[list[float]]) -> Iterator[Row]:
    """The lines of one way of asking; the first call opens the connection and is left out."""
    for what, figures in (
        ("first piece", [call[0] for call in calls[1:]]),
        ("any piece", [delay for call in calls[1:] for delay in call]),
    ):
        median = statistics.median(figures)
        yield Row(f"{what}, {name}", f"{median:,.0f} µs", median / LIMIT, 1.0)


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="10 calls, not 50")
    calls = 11 if parser.parse_args().quick else 51
    print(f"| {'what':<44} | {'median':>17} | ratio | limit |      |")
    print(f"|{'-' * 46}|{'-' * 19}|{'-' * 7}|{'-' * 7}|{'-' * 6}|")
    with running(20) as server:
        for row in rows("sync", list(blocking(server, calls))):
            print(row)
        for row in rows("asyncio", asyncio.run(with_asyncio(server, calls))):
            print(row)


if __name__ == "__main__":
    main()
