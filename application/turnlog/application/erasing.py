"""What a store must offer so that nothing of a deleted session's content is left in it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias, cast
from uuid import UUID

from eventsourcing.utils import resolve_topic

from turnlog.domain.errors import ErasureTargetError, StorageError, TurnlogError, UnreadableEventError
from turnlog.domain.events import ContentRedacted

Erasure: TypeAlias = Literal["done", "pending", "unsupported", "kept"]
"""What became of the content: no byte of it is left, some may be left until `sweep`, the store cannot erase,
or it was to be kept."""


@dataclass(frozen=True)
class Deletion:
    """A session that is gone for every reader. `version` is that of its tombstone.

    `reason` says why its content may still be in the store, None when it is not.
    """

    session_id: str
    version: int
    erasure: Erasure
    reason: str | None = None


@dataclass(frozen=True)
class Sweep:
    """What a sweep did: erasures that it completed and that still wait, and rows that it removed.

    `reason` says why some wait. `failures` are those that could not be carried out, as the log does not have
    what they name (`ErasureTargetError`), or it cannot be read (`UnreadableEventError`).
    """

    completed: int
    pending: int
    purged: int
    reason: str | None = None
    failures: tuple[StorageError, ...] = ()


@dataclass(frozen=True)
class Redaction:
    """A content that was removed from the log. `version` is that of the event that says so.

    `erasure` and `reason` say whether any byte of it may be left, as those of a deletion do. With
    `is_repeat` it had been removed before. `redacted` are the versions of all events whose content this call
    removed: that of the event itself, those of prompts that told it, and what followed by `cascade`.
    `summaries` (ids), `prompts` (ids of calls) and `metadata` (versions) may carry it on.
    """

    session_id: str
    event_id: str | None
    version: int
    erasure: Erasure
    reason: str | None = None
    is_repeat: bool = False
    redacted: tuple[int, ...] = ()
    summaries: tuple[str, ...] = ()
    prompts: tuple[str, ...] = ()
    metadata: tuple[int, ...] = ()


class Erased(NamedTuple):
    """A deletion or redaction as it is remembered: by the aggregate's id, which tells nothing of the session.

    A redaction also has the version of the event and the commitment that is left of its content.
    """

    aggregate_id: UUID
    deleted_at: datetime
    version: int | None = None
    commitment: str | None = None


@dataclass(frozen=True)
class ErasureDue:
    """What was deleted and is back, as after a restore: it must be deleted again.

    That is the session, or with an `event_version` the content of that event, which must be redacted again.
    """

    session_id: str
    deleted_at: datetime
    event_version: int | None = None
    event_id: str | None = None


class ErasureUnsupportedError(TurnlogError):
    """This store cannot erase content. A session that is named is deleted all the same."""

    def __init__(self, session_id: str | None = None) -> None:
        deleted = "" if session_id is None else f" Session {session_id!r} is gone for every reader."
        super().__init__(
            f"{UNSUPPORTED}{deleted} Content that is still stored has to be erased with the means of the "
            "database; `delete` takes `erase=False` where that is intended."
        )
        self.session_id = session_id


class BackupError(TurnlogError):
    """A backup or a restore was not made; nothing was changed."""


class UnreadableErasureError(TurnlogError):
    """A line in the list of erasures cannot be read. Nothing was listed."""

    def __init__(self, path: str, line: int) -> None:
        super().__init__(
            f"Line {line} of the list of erasures {path!r} cannot be read: it was damaged, and what it names "
            "may be here again. Nothing was listed: put back what stood there, or remove the line."
        )
        self.path = path
        self.line = line


ERASURES_FILE: Final = "TURNLOG_ERASURES_FILE"
_ERASURES_FILE_TOPIC: Final = "turnlog.infrastructure.erasures_file:ErasuresFile"

UNSUPPORTED: Final = "The persistence module cannot overwrite stored events."
NO_BACKUP: Final = "This store has no backup of its own: use the means of its database."


class SessionEraser(ABC):
    """Overwrites the events of deleted sessions, and sees to it that no old copy is left.

    May raise `StorageError`.
    """

    @abstractmethod
    def erase(self, aggregate_id: UUID) -> None:
        """Overwrite the events in front of the tombstone, unless the write of the tombstone did it."""

    @property
    def redacts(self) -> bool:
        """Whether it can remove the content of single events too."""
        return False

    def redact(self, redactions: Sequence[ContentRedacted]) -> None:  # noqa: ARG002 - for those that can
        """Put its marker over the content of each event that these redactions of one session name.

        Nothing where the write of the redactions did it. What is derived from the contents goes with them.
        """
        raise ErasureUnsupportedError

    def complete(self) -> Sequence[StorageError]:
        """Carry out what a process left undone that died behind a tombstone or a redaction.

        Returns why that cannot be done for some, which stay pending. Nothing where the recorder does it.
        """
        return ()

    @abstractmethod
    def scrub(self) -> str | None:
        """Remove the old copies of all that was overwritten so far; why some may be left, None if none is."""

    @abstractmethod
    def pending(self) -> int:
        """How many sessions were overwritten of which old copies may be left."""

    @abstractmethod
    def purge(self, before: datetime) -> int:
        """Remove the erased events of sessions deleted at this time or before it, but for version 0.

        Returns how many were removed. (id, version) of the tombstone and of version 0 stay taken, and no
        later event of such a session is accepted.
        """

    @abstractmethod
    def erased(self) -> Iterable[Erased]:
        """Every session that this store erased."""


@contextmanager
def gathered(failures: list[StorageError]) -> Generator[None]:
    """Gather why one deletion or redaction cannot be carried out, so that it keeps no other from being so."""
    try:
        yield
    except (ErasureTargetError, UnreadableEventError) as error:
        failures.append(error)


class ErasureList(Protocol):
    """Where deletions and redactions are remembered outside the store, so that they outlast a restore."""

    def add(self, erased: Iterable[Erased]) -> None:
        """Remember these; those that are remembered already are left out. `OSError`."""
        ...

    def since(self, at: datetime) -> list[Erased]:
        """Those at this time or after it, the oldest first. `UnreadableErasureError`, `OSError`."""
        ...


def erasure_list(env: Mapping[str, str]) -> ErasureList | None:
    """The list that the environment names, None if it names none."""
    path = env.get(ERASURES_FILE)
    return cast("ErasureList", resolve_topic(_ERASURES_FILE_TOPIC)(path)) if path else None


def remember(env: Mapping[str, str], erased: Iterable[Erased]) -> str | None:
    """Remember these outside the store, where a list is kept; what went wrong, None if nothing did."""
    listed = erasure_list(env)
    try:
        if listed is not None:
            listed.add(erased)
    except OSError as error:
        return f"The list of erasures could not be written ({error.strerror}): check {ERASURES_FILE}."
    return None
