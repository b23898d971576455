"""A server on the loopback that answers with scripted bytes, one answer for each request."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

Chunk = bytes | threading.Event | float
"""Bytes that are sent at once, an event that is waited for before what follows, or seconds of silence."""


@dataclass(frozen=True)
class Request:
    """What a client sent; names of headers are in lower case."""

    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as plain data."""
        return json.loads(self.body)


@dataclass(frozen=True)
class Answer:
    """A response. `is_cut` closes the connection without the end of the body; no status closes it at once."""

    chunks: Sequence[Chunk] = ()
    status: int | None = 200
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    is_cut: bool = False


def json_answer(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    """A response with a JSON body."""
    return Answer([json.dumps(value).encode()], status, headers=headers or {})


def sse_answer(*events: object, is_done: bool = True, is_cut: bool = False) -> Answer:
    """A stream of events as OpenAI Chat sends them, each in a chunk of its own."""
    texts = [event if isinstance(event, str) else json.dumps(event) for event in events]
    chunks = [f"data: {text}\n\n".encode() for text in [*texts, *(["[DONE]"] if is_done else [])]]
    return Answer(chunks, content_type="text/event-stream", is_cut=is_cut)


Rule = Callable[[Request], Answer | None]


class ScriptedServer:
    """Answers requests in the order of the script, and keeps what was sent to it.

    A `rule` may answer in place of the script, as where a request is malformed. Without a script the answer
    has status 500 and says so.
    """

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.connections = 0
        self.closed_early = threading.Event()
        self.rule: Rule | None = None
        self._script: list[Answer] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._is_stopping = threading.Event()

    def script(self, *answers: Answer) -> None:
        """Answer the next requests with these."""
        self._script.extend(answers)

    def run(self) -> None:
        """Take connections until `stop`."""
        while not self._is_stopping.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._open.add(connection)
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """Close everything and wait for the threads."""
        self._is_stopping.set()
        for one in (self._listener, *list(self._open)):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for thread in self._threads:
            thread.join(5)

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as reader:
            try:
                while request := _read(reader):
                    self.requests.append(request)
                    if not self._answer(connection, self._next(request)):
                        return
            except (OSError, ValueError):
                self.closed_early.set()
            finally:
                self._open.discard(connection)

    def _next(self, request: Request) -> Answer:
        refused = self.rule(request) if self.rule else None
        if refused:
            return refused
        if not self._script:
            return json_answer({"error": {"message": "the script is over"}}, 500)
        return self._script.pop(0)

    def _answer(self, connection: socket.socket, answer: Answer) -> bool:
        """Send it; whether the connection stays open."""
        if answer.status is None:
            return False
        lines = {"content-type": answer.content_type, "transfer-encoding": "chunked", **answer.headers}
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        connection.sendall(f"HTTP/1.1 {answer.status} Scripted\r\n{head}\r\n".encode())
        for chunk in answer.chunks:
            if isinstance(chunk, threading.Event):
                self._wait(connection, chunk)
            elif isinstance(chunk, bytes):
                connection.sendall(b"%x\r\n%s\r\n" % (len(chunk), chunk))
            else:
                self._is_stopping.wait(chunk)
        if answer.is_cut:
            return False
        connection.sendall(b"0\r\n\r\n")
        return True

    def _wait(self, connection: socket.socket, event: threading.Event) -> None:
        """Wait for the event; notice a client that goes away meanwhile."""
        connection.settimeout(0.01)
        try:
            while not event.is_set() and not self._is_stopping.is_set():
                try:
                    if not connection.recv(1, socket.MSG_PEEK):
                        raise OSError("the client went away")
                except TimeoutError:
                    continue
        finally:
            connection.settimeout(None)


def _read(reader: Any) -> Request | None:
    start = reader.readline().split()
    if not start:
        return None
    headers: dict[str, str] = {}
    while line := reader.readline().strip():
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.lower()] = value.strip()
    return Request(start[1].decode(), headers, reader.read(int(headers.get("content-length", 0))))


@contextmanager
def scripted_server() -> Generator[ScriptedServer]:
    """A running server."""
    server = ScriptedServer()
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join(5)
