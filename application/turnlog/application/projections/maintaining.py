"""Rebuilding and checking the read models of a store."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from turnlog.application.ledger import LEDGER_MODEL
from turnlog.domain.errors import InvalidSettingError, StorageError

MODELS: Final = ("view", "recall", "directory", LEDGER_MODEL)
"""The names of the read models, and of the ledger: appends rely on it, and it follows from the log too."""

ERASURES: Final = "erasures"
"""What is known of deletions and redactions: no read model, and made anew by whoever writes."""

Progress = Callable[[int], object]
"""Told how many more events were read."""


@dataclass(frozen=True)
class Rebuilt:
    """A read model that was rebuilt: of how many events of sessions, and at which position it stands.

    `was_gone` says that tables of it had been dropped. What is known of deletions and redactions is made anew
    where it was, and told as the model `erasures`.
    """

    model: str
    events: int
    position: int
    was_gone: bool = False


@dataclass(frozen=True)
class MissingEvents:
    """Events that were recorded and are not in the log: a session's from one version to another.

    `session_id` is only known where the log does not tell it and a row about the session did.
    """

    aggregate_id: str
    first: int
    last: int
    session_id: str | None = None


@dataclass(frozen=True)
class RepeatedId:
    """An event id that a session has twice in the log, as its repeat came while the ledger lacked it."""

    aggregate_id: str
    event_id: str
    first: int
    second: int


@dataclass(frozen=True)
class Difference:
    """What a read model has that the log does not lead to, or lacks.

    `version` is that of an event in the log, which no rebuild repairs: with the model `log` one that cannot
    be read, with `ledger` one whose id is that of an event in front of it.
    """

    model: str
    detail: str
    session_id: str | None = None
    aggregate_id: str | None = None
    version: int | None = None


@dataclass(frozen=True)
class Comparison:
    """Read models compared with the log: the position at which each stands, and what differs.

    `behind` says by how many events a model is behind the log, which is no difference. All events that are
    counted are those of sessions: none of a host's own aggregates, and no entries of ids that are streams.
    """

    differences: tuple[Difference, ...]
    positions: dict[str, int]
    behind: dict[str, int]
    events: int

    @property
    def is_equal(self) -> bool:
        """Whether nothing differs."""
        return not self.differences


class ReadModels(ABC):
    """The read models of one store and its ledger of event ids: rebuilt from its log, and compared with it.

    Where no recorder writes rows about sessions, the ledger is streams of the log and no model of these.
    """

    @abstractmethod
    def log_size(self) -> int:
        """How many events the log has, for an estimate."""

    @abstractmethod
    def present(self) -> tuple[str, ...]:
        """The names of those that the store has; the view is made by its first rebuild."""

    @abstractmethod
    def lost(self) -> Mapping[str, Sequence[str]]:
        """By model, and for what is known of deletions under `erasures`, the tables that were dropped."""

    @abstractmethod
    def rebuild(
        self, models: Collection[str] | None = None, progress: Progress | None = None
    ) -> tuple[Rebuilt, ...]:
        """Make the models anew from the log, without names all. Readers have the former rows until the new
        ones are complete.

        Writers go on meanwhile; new and former rows are exchanged in one transaction. A rebuild that is
        interrupted leaves nothing behind. Events that cannot be read are passed over, unless no event can, or
        more than a thousand cannot: `UnreadableEventError`. Raises `StorageError`, `InvalidSettingError`.
        """

    @abstractmethod
    def broken_links(self) -> tuple[tuple[str, int], ...]:
        """Aggregate id and version of events that do not follow on those in front of them.

        They were found by the rebuilds so far: the log was changed, and `SessionAudit.verify` says more.
        """

    @abstractmethod
    def missing_events(self) -> tuple[MissingEvents, ...]:
        """Events that are gone from the middle or the end of a session, found by the rebuilds so far.

        The end is the newest event that a row of the directory or of the view told of before.
        """

    @abstractmethod
    def repeated_ids(self) -> tuple[RepeatedId, ...]:
        """Event ids that are in the log twice, found by the rebuilds of the ledger so far.

        One whose second event was redacted is none of them any more.
        """

    @abstractmethod
    def unreadable_events(self) -> tuple[tuple[str, int], ...]:
        """Aggregate id and version of events that the rebuilds so far could not read.

        The models are made without them: a message among them is a candidate of every search.
        """

    @abstractmethod
    def compare(self, progress: Progress | None = None) -> Comparison:
        """Replay the log and compare its read models with what it leads to. Writes nothing.

        Raises `StorageError`.
        """


def wanted_models(models: Collection[str] | None, *, keeps_ledger: bool) -> frozenset[str]:
    """Which of the models are meant. Raises `InvalidSettingError`, `StorageError`."""
    if models is None:
        return frozenset(MODELS if keeps_ledger else (name for name in MODELS if name != LEDGER_MODEL))
    wanted = frozenset(models)
    if not wanted or not wanted <= set(MODELS):
        raise InvalidSettingError(f"The read models are {', '.join(MODELS)}, not {sorted(wanted)}.")
    if LEDGER_MODEL in wanted and not keeps_ledger:
        raise StorageError(
            "The ledger of this store is streams in its log, so there are no rows of it to rebuild."
        )
    return wanted
