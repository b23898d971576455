"""What the service can use of the store beneath it, where the store has it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol, TypeAlias
from uuid import UUID

from eventsourcing.persistence import Mapper
from eventsourcing.utils import strtobool

from turnlog.application.erasing import NO_BACKUP, BackupError, SessionEraser
from turnlog.application.shredding import SessionShredder
from turnlog.domain.errors import InvalidSettingError
from turnlog.domain.events import MessageAppended
from turnlog.domain.query import EventQuery

RECALL: Final = "TURNLOG_RECALL_INDEX"
"""Set to `no`, nothing indexes what was said: an index is plain text, whatever encrypts the log."""

StoredRow: TypeAlias = tuple[int, str, bytes]
"""An event of a stream as it is stored: version, topic and state."""


def keeps_recall(env: Mapping[str, str], mapper: object) -> bool:
    """Whether an application with this environment has what was said indexed.

    Sessions with keys of their own have not, unless it is asked for.
    """
    return bool(strtobool(env.get(RECALL) or ("no" if isinstance(mapper, SessionShredder) else "yes")))


@dataclass(frozen=True)
class SessionRow:
    """A session as the directory lists it. Times are UTC; `position` orders sessions by their creation."""

    session_id: str
    aggregate_id: UUID
    position: int
    created_at: datetime
    modified_at: datetime
    expires_at: datetime | None
    version: int
    messages: int
    metadata: Mapping[str, Any]


@dataclass(frozen=True)
class RecordedHead:
    """The newest event of a session as its row has it: version and chain value.

    `is_purged` says that the erased events of a deleted session were removed.
    """

    version: int
    chain: str
    is_purged: bool = False


class Directory(Protocol):
    """The list of sessions, a read model that is exact: it shows what was committed before the question."""

    def newest(
        self,
        namespace: str,
        *,
        limit: int,
        before: int | None = None,
        where: Mapping[str, Any] | None = None,
    ) -> Sequence[SessionRow]:
        """Sessions by creation, newest first; `before` is the position to go on behind.

        With `where` those whose metadata hold each of its values under its key.
        """
        ...

    def with_prefix(
        self, namespace: str, prefix: str, *, limit: int, where: Mapping[str, Any] | None = None
    ) -> Sequence[SessionRow]:
        """Sessions whose id begins with the prefix, compared exactly, in the order of their ids."""
        ...

    def expired(
        self, namespace: str, at: datetime, *, where: Mapping[str, Any] | None = None
    ) -> Sequence[SessionRow]:
        """Sessions that expired at this time or before it, in the order of expiry."""
        ...


class RecallIndex(Protocol):
    """What narrows a search. It is exact at commit: it knows every message that was committed before."""

    def candidates(
        self, aggregate_ids: Sequence[UUID], query: EventQuery
    ) -> Mapping[UUID, Sequence[int]] | None:
        """By session the versions of messages among which are all that match, in order.

        None when the index cannot narrow this query, so that the logs have to be read. Raises `StorageError`.
        """
        ...

    def messages(self, aggregate_id: UUID, versions: Sequence[int]) -> Sequence[MessageAppended]:
        """The messages of a session at these versions, in order. Raises `StorageError`."""
        ...


def require_in_front(made: type, mixin: type, recorder: type) -> None:
    """`InvalidSettingError` for a class whose recorder would hide what the mixin does in front of it."""
    order = made.__mro__
    if recorder in order and order.index(recorder) < order.index(mixin):
        behind = next(base for base in made.__bases__ if issubclass(base, recorder))
        raise InvalidSettingError(
            f"{mixin.__name__} stands in front of the recorder, else nothing of it is called: "
            f"class {made.__name__}({mixin.__name__}, {behind.__name__})."
        )


class SessionRowsRecorder(ABC):
    """A recorder that writes rows about sessions in the transaction of the events themselves.

    The rows are derived from the stored events through the application's mapper, so they are right whoever
    saves. An unbound recorder refuses events of sessions.
    """

    keeps_recall = True
    """Whether it indexes what was said; without that every search reads the logs."""

    @abstractmethod
    def bind(self, mapper: Mapper[Any]) -> None:
        """Read stored events through this mapper from now on."""

    @abstractmethod
    def version_of(self, aggregate_id: UUID, event_id: str) -> int | None:
        """The version of the event with this id, None when the stream holds none."""

    @property
    @abstractmethod
    def directory(self) -> Directory:
        """The directory of the sessions in this store."""

    def select_ranges(
        self,
        originator_id: Any,  # noqa: ARG002 - for stores that can
        ranges: Iterable[tuple[int, int]],  # noqa: ARG002
    ) -> Sequence[StoredRow] | None:
        """The events of these ranges of versions, in one read; None where each range is a read."""
        return None

    @property
    def records_heads(self) -> bool:
        """Whether every session of the store, deleted ones included, has a row with its head."""
        return False

    def recorded_head(self, aggregate_id: UUID) -> RecordedHead | None:  # noqa: ARG002 - for stores that can
        """The head in the session's row, which each write of the session moves; None without a row."""
        return None

    def recorded_sessions(self) -> Iterator[UUID]:
        """The aggregate ids of all rows, those of deleted sessions included."""
        return iter(())

    @property
    def recall(self) -> RecallIndex | None:
        """The index of what was said in this store, None where it has none."""
        return None

    @property
    def eraser(self) -> SessionEraser | None:
        """What erases deleted sessions from this store, None where nothing can."""
        return None

    def backup(self, file: str) -> None:  # noqa: ARG002 - for stores that can
        """Copy the store, as it is at one moment, into a file that does not exist yet; or `BackupError`."""
        raise BackupError(NO_BACKUP)
