"""Stores of further persistence modules, each on something of its own."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import pytest
from tests.contracts.stores import Store

from turnlog.application.service import SessionService
from turnlog.application.sessions import Sessions


def _shared(env: dict[str, str]) -> Store:
    return Store(lambda: Sessions(env=env))


@contextmanager
def sqlalchemy(folder: Path) -> Generator[Store]:
    """The module for SQLAlchemy, on an SQLite file."""
    env = {
        "PERSISTENCE_MODULE": "eventsourcing_sqlalchemy",
        "SQLALCHEMY_URL": f"sqlite:///{folder / 'sessions.db'}",
    }
    opened: list[Sessions] = []

    def app() -> Sessions:
        opened.append(Sessions(env=env))
        return opened[-1]

    yield Store(app)
    for one in opened:
        cast("Any", one.factory).datastore.engine.dispose()  # the module does not


@contextmanager
def umadb(folder: Path) -> Generator[Store]:
    """The module for UmaDB, on a server out of its wheel."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    program = Path(sys.executable).with_name("umadb")
    file = str(folder / "sessions.uma")
    command = [str(program), "--listen", address, "--db-path", file, "--zero-fill-pages", "false"]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_for(address, server)
        yield _shared({"PERSISTENCE_MODULE": "eventsourcing_umadb", "UMADB_URI": f"http://{address}"})
    finally:
        server.terminate()
        server.wait()
        (folder / "sessions.uma").unlink()


def _wait_for(address: str, server: subprocess.Popen[bytes]) -> None:
    host, _, port = address.partition(":")
    while server.poll() is None:
        with suppress(ConnectionRefusedError), socket.create_connection((host, int(port))):
            return
    raise AssertionError("The server did not start.")


MODULES = {"sqlalchemy": sqlalchemy, "umadb": umadb}


@pytest.fixture(params=MODULES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """Each of the modules."""
    with MODULES[request.param](tmp_path) as opened:
        yield opened


@pytest.fixture
def sessions(store: Store) -> Iterator[SessionService]:
    """A service on the store."""
    with store.service() as service:
        yield service
        service.app.close()
