"""A TCP proxy in front of the PostgreSQL server that cuts connections where a test wants it."""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from threading import Lock, Thread
from types import TracebackType
from typing import Self

from tests.support.postgres import connection_settings, postgres_env


class CuttingProxy:
    """Passes everything on, until it is told to swallow the next answer to a write, or to be dead."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = Lock()
        self._open: set[socket.socket] = set()
        self._awaited: bytes | None = None
        self._refused: bytes | None = None
        self._is_last = False
        self._is_dead = False
        self.cuts = 0

    def __enter__(self) -> Self:
        Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._listener.close()
        self.cut_all()

    def env(self, schema: str | None = None) -> Mapping[str, str]:
        """The framework's settings for the server behind this proxy."""
        port = str(self._listener.getsockname()[1])
        return {**postgres_env(schema), "POSTGRES_HOST": "127.0.0.1", "POSTGRES_PORT": port}

    def cut_behind(self, command: str, *, for_good: bool = False) -> None:
        """Let the next command that holds this text be carried out, and cut instead of answering.

        With `for_good` the server is unreachable from then on.
        """
        self._is_last = for_good
        self._awaited = command.encode()

    def cut_before(self, command: str, *, for_good: bool = False) -> None:
        """Cut instead of passing on the next command that holds this text."""
        self._refused = command.encode()
        self._is_last = for_good

    def come_back(self) -> None:
        """Let the server be reached again."""
        self._is_dead = False

    def cut_all(self, *, for_good: bool = False) -> None:
        """Cut every connection; `for_good` makes the server unreachable from then on."""
        self._is_dead = for_good
        with self._lock:
            for one in self._open:
                _cut(one)
            self._open.clear()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self._is_dead:
                    _cut(client)
                    continue
                server = _to_server()
                with self._lock:
                    self._open |= {client, server}
                state = {"is_cut": False}
                Thread(target=self._pass_commands, args=(client, server, state), daemon=True).start()
                Thread(target=self._pass_answers, args=(client, server, state), daemon=True).start()

    def _pass_commands(self, client: socket.socket, server: socket.socket, state: dict[str, bool]) -> None:
        with suppress(OSError):
            while data := client.recv(65536):
                if self._refused is not None and self._refused in data:
                    self._refused = None
                    self._cut_here()
                    break
                if self._awaited is not None and self._awaited in data:
                    self._awaited = None
                    state["is_cut"] = True
                server.sendall(data)
        _cut(server)
        _cut(client)

    def _cut_here(self) -> None:
        self.cuts += 1
        if self._is_last:
            self.cut_all(for_good=True)

    def _pass_answers(self, client: socket.socket, server: socket.socket, state: dict[str, bool]) -> None:
        with suppress(OSError):
            while data := server.recv(65536):
                if state["is_cut"]:  # the answer comes when the transaction is committed
                    self._cut_here()
                    break
                client.sendall(data)
        _cut(client)
        _cut(server)


def _to_server() -> socket.socket:
    where = connection_settings()
    host, port = where["host"], where.get("port", "5432")
    if not host.startswith("/"):
        return socket.create_connection((host, int(port)))
    server = socket.socket(socket.AF_UNIX)
    server.connect(str(Path(host) / f".s.PGSQL.{port}"))
    return server


def _cut(one: socket.socket) -> None:
    with suppress(OSError):
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        one.shutdown(socket.SHUT_RDWR)
    one.close()
