"""Keys per session: without its key nobody can read a session, not even in a backup."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Protocol
from uuid import UUID

from eventsourcing.persistence import StoredEvent

from turnlog.domain.errors import TurnlogError


class SessionShreddedError(TurnlogError):
    """The key of the session was destroyed; nothing can be written to it any more."""

    def __init__(self) -> None:
        super().__init__("The key of this session was destroyed. Nothing was written: open another session.")


class KeyStore(Protocol):
    """Where the keys of sessions are kept, outside the database of the sessions. May raise `StorageError`."""

    def key(self, aggregate_id: UUID) -> bytes | None:
        """The key, None when there is none or it was destroyed."""
        ...

    def key_or_new(self, aggregate_id: UUID) -> bytes | None:
        """The key, made when there never was one; two callers at once get the same. None when destroyed."""
        ...

    def destroy(self, aggregate_ids: Iterable[UUID]) -> None:
        """Destroy the keys of these sessions for good; no new one is made for them later."""
        ...


class SessionShredder(ABC):
    """A mapper that can make a session unreadable, wherever copies of it are."""

    @abstractmethod
    def shred(self, aggregate_ids: Iterable[UUID]) -> None:
        """Make these sessions unreadable for good. Raises `StorageError`."""

    @abstractmethod
    def unsealed(self, stored: StoredEvent) -> bytes:
        """What the transcoder wrote, without keys, compression and cipher."""
