"""The stores that every scenario and every pass of the conformance cases runs on."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from tests.support.postgres import postgres_env

from turnlog.application.service import SessionService
from turnlog.application.sessions import Sessions
from turnlog.domain.estimation import TokenEstimator
from turnlog.domain.messages import Message


class NoTokens:
    """An estimator for what needs none: every message costs nothing."""

    def estimate(self, message: Message) -> int:  # noqa: ARG002 - the port's argument
        """Nothing."""
        return 0


@dataclass
class Store:
    """One place where sessions are kept. `path` is its file, where processes can share it."""

    env: Mapping[str, str]
    is_shared: bool
    path: Path | None = None
    _services: list[SessionService] = field(default_factory=list[SessionService])

    def service(self, token_estimator: TokenEstimator | None = None) -> SessionService:
        """A service on this store. Each has an application of its own where the store can be shared."""
        first = self._services[0] if self._services and not self.is_shared else None
        estimator = token_estimator or NoTokens()
        service = (
            SessionService(first.app, token_estimator=estimator)
            if first
            else SessionService(Sessions(env=dict(self.env)), token_estimator=estimator)
        )
        self._services.append(service)
        return service

    def close(self) -> None:
        """Close every application of the store."""
        for app in {id(service.app): service.app for service in self._services}.values():
            app.close()


def _memory(_: Path) -> Store:
    return Store({}, is_shared=False)


def _sqlite(folder: Path, **more: str) -> Store:
    path = folder / "sessions.db"
    env = {
        "PERSISTENCE_MODULE": "eventsourcing.sqlite",
        "SQLITE_DBNAME": str(path),
        "SQLITE_LOCK_TIMEOUT": "30",
        **more,
    }
    return Store(env, is_shared=True, path=path)


def _sqlite_without_rows(folder: Path) -> Store:
    return _sqlite(folder, APPLICATION_RECORDER_TOPIC="eventsourcing.sqlite:SQLiteApplicationRecorder")


def _postgres(_: Path, **more: str) -> Store:
    return Store({**postgres_env(), **more}, is_shared=True)


def _postgres_without_rows(folder: Path) -> Store:
    return _postgres(folder, APPLICATION_RECORDER_TOPIC="eventsourcing.postgres:PostgresApplicationRecorder")


StoreMaker: TypeAlias = Callable[[Path], Store]
"""Makes a fresh store; what it keeps on disk goes into the folder."""

STORES: dict[str, StoreMaker] = {"memory": _memory, "postgres": _postgres, "sqlite": _sqlite}
"""A further store is one more entry here."""

OTHERS: dict[str, StoreMaker] = {
    "postgres-without-rows": _postgres_without_rows,
    "sqlite-without-rows": _sqlite_without_rows,
}
"""Stores that erase, whose recorders write no rows about sessions."""


@contextmanager
def open_store(name: str, folder: Path) -> Generator[Store]:
    """The store of this name, closed behind the block."""
    store = {**STORES, **OTHERS}[name](folder)
    try:
        yield store
    finally:
        store.close()
