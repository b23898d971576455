"""Every store that the session service promises to work on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from eventsourcing.application import Application
from eventsourcing.domain import Aggregate, event
from eventsourcing.persistence import ApplicationRecorder, Cipher, ProgrammingError, StoredEvent
from eventsourcing.popo import POPOApplicationRecorder
from eventsourcing.postgres import PostgresApplicationRecorder
from eventsourcing.sqlite import SQLiteApplicationRecorder
from eventsourcing.utils import Environment
from tests.support.postgres import postgres_env

from turnlog.application.service import SessionService
from turnlog.application.sessions import Sessions
from turnlog.application.storage import unlocked
from turnlog.domain.messages import Message
from turnlog.infrastructure.postgres import SessionRows as PostgresRows
from turnlog.infrastructure.sqlite import SessionRows

BEGIN = datetime(2026, 5, 1, 12, tzinfo=UTC)


class WordCount:
    """Costs one token for each word."""

    def estimate(self, message: Message) -> int:
        """The words of the message."""
        return len((message.text or "").split())


class Order(Aggregate):
    """An aggregate of a host's own."""

    @event("Placed")
    def __init__(self, item: str) -> None:
        self.item = item

    @event("Renamed")
    def rename(self, item: str) -> None:
        """Another item."""
        self.item = item


class Shop(Application[UUID]):
    """A host's own application."""


class HostRecorder(SessionRows, SQLiteApplicationRecorder):
    """A host's own recorder, with rows about sessions in front."""


class PostgresHostRecorder(PostgresRows, PostgresApplicationRecorder):
    """A host's own recorder, which does something in the transaction itself."""

    def _insert_events(self, curs: Any, stored_events: Sequence[StoredEvent], **kwargs: Any) -> None:
        super()._insert_events(curs, stored_events, **kwargs)
        curs.execute("SELECT 1")


class OneStreamRecorder(POPOApplicationRecorder):
    """Saves one stream at a time, as event stores whose atomic unit is a stream do."""

    def insert_events(self, stored_events: Sequence[StoredEvent], **kwargs: Any) -> Sequence[int] | None:
        if len({stored.originator_id for stored in stored_events}) > 1:
            raise ProgrammingError("Only one stream can be appended to at a time")
        return super().insert_events(stored_events, **kwargs)


class OneStreamSessions(Sessions):
    """An application on a store whose atomic unit is one stream."""

    def construct_recorder(self) -> ApplicationRecorder:
        return OneStreamRecorder()


class Reversing(Cipher):
    """Stands in for a cipher: what is stored cannot be read without it."""

    def __init__(self, environment: Environment) -> None:
        pass

    def encrypt(self, plaintext: bytes) -> bytes:
        """The bytes in reverse."""
        return plaintext[::-1]

    def decrypt(self, ciphertext: bytes) -> bytes:
        """The bytes as they were."""
        return ciphertext[::-1]


@dataclass
class Store:
    """A place for sessions, with a clock that stands where the test puts it."""

    open_app: Callable[[], Application[UUID]]
    now: datetime = BEGIN

    def service(self, **settings: Any) -> SessionService:
        """A service without a memory of what others did on this store."""
        return SessionService(
            unlocked(self.open_app), token_estimator=WordCount(), clock=lambda: self.now, **settings
        )

    def pass_time(self, **span: float) -> None:
        """Move the clock."""
        self.now += timedelta(**span)


def in_memory(
    app_class: type[Application[UUID]] = Sessions, env: Mapping[str, str] | None = None
) -> Callable[[Path], Store]:
    """One application for all services: its data live as long as it does."""

    def make(folder: Path) -> Store:
        app = app_class(env=env)
        return Store(lambda: app)

    return make


def in_file(
    app_class: type[Application[UUID]] = Sessions, env: Mapping[str, str] | None = None
) -> Callable[[Path], Store]:
    """An application of its own for each service, all on one file."""

    def make(folder: Path) -> Store:
        return Store(lambda: app_class(env={**sqlite_env(folder / "sessions.db"), **(env or {})}))

    return make


def on_postgres(
    app_class: type[Application[UUID]] = Sessions, env: Mapping[str, str] | None = None
) -> Callable[[Path], Store]:
    """An application of its own for each service, all on one schema of the server."""

    def make(folder: Path) -> Store:
        settings = {**postgres_env(), **(env or {})}
        return Store(lambda: app_class(env=settings))

    return make


def sqlite_env(file: Path) -> dict[str, str]:
    """The framework's settings for this file."""
    return {"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": str(file)}


_HERE = "tests.contracts.stores"
_TEXT_IDS = {"ORIGINATOR_ID_TYPE": "text"}

STORES: Mapping[str, Callable[[Path], Store]] = {
    "memory": in_memory(),
    "memory-text-ids": in_memory(env=_TEXT_IDS),
    "sqlite": in_file(),
    "sqlite-plain-recorder": in_file(
        env={"APPLICATION_RECORDER_TOPIC": "eventsourcing.sqlite:SQLiteApplicationRecorder"}
    ),
    "sqlite-text-ids": in_file(env=_TEXT_IDS),
    "sqlite-compressed-ciphered": in_file(
        env={"COMPRESSOR_TOPIC": "zlib", "CIPHER_TOPIC": f"{_HERE}:Reversing"}
    ),
    "host-memory": in_memory(Shop),
    "host-sqlite": in_file(Shop),
    "host-sqlite-own-recorder": in_file(Shop, env={"APPLICATION_RECORDER_TOPIC": f"{_HERE}:HostRecorder"}),
    "postgres": on_postgres(),
    "postgres-plain-recorder": on_postgres(
        env={"APPLICATION_RECORDER_TOPIC": "eventsourcing.postgres:PostgresApplicationRecorder"}
    ),
    "postgres-text-ids": on_postgres(env={**_TEXT_IDS, "COMPRESSOR_TOPIC": "zlib"}),
    "postgres-plain-recorder-text-ids": on_postgres(
        env={**_TEXT_IDS, "APPLICATION_RECORDER_TOPIC": "eventsourcing.postgres:PostgresApplicationRecorder"}
    ),
    "host-postgres-own-recorder": on_postgres(
        Shop, env={"APPLICATION_RECORDER_TOPIC": f"{_HERE}:PostgresHostRecorder"}
    ),
    "one-stream": in_memory(OneStreamSessions),
}
"""By name, how to make a fresh one in a folder."""

HOST_STORES = tuple(name for name in STORES if name != "one-stream" and "text-ids" not in name)
"""Stores that a host's aggregates with UUIDs can be saved in together with a session."""
