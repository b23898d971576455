"""Rebuilding and checking the read models of a store."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

MODELS: Final = ("view", "recall", "directory")
"""The names of the read models."""

Progress = Callable[[int], object]
"""Told how many more events were read."""


@dataclass(frozen=True)
class Rebuilt:
    """A read model that was rebuilt: how many events it was made of, and at which position it stands."""

    model: str
    events: int
    position: int


@dataclass(frozen=True)
class Difference:
    """What a read model has that the log does not lead to, or lacks."""

    model: str
    detail: str
    session_id: str | None = None
    aggregate_id: str | None = None


@dataclass(frozen=True)
class Comparison:
    """Read models compared with the log: the position at which each stands, and what differs.

    `behind` says by how many events a model is behind the log, which is no difference.
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
    """The read models of one store: rebuilt from its log, and compared with it."""

    @abstractmethod
    def log_size(self) -> int:
        """How many events the log has, for an estimate."""

    @abstractmethod
    def present(self) -> tuple[str, ...]:
        """The names of the read models that the store has; the view is made by its first rebuild."""

    @abstractmethod
    def rebuild(
        self, models: Collection[str] = MODELS, progress: Progress | None = None
    ) -> tuple[Rebuilt, ...]:
        """Make the models anew from the log. Readers have the former rows until the new ones are complete.

        Writers go on meanwhile; new and former rows are exchanged in one transaction. A rebuild that is
        interrupted leaves nothing behind. Raises `StorageError`, `InvalidSettingError`.
        """

    @abstractmethod
    def broken_links(self) -> tuple[tuple[str, int], ...]:
        """Aggregate id and version of events that do not follow on those in front of them.

        They were found by the rebuilds so far: the log was changed, and `SessionAudit.verify` says more.
        """

    @abstractmethod
    def compare(self, progress: Progress | None = None) -> Comparison:
        """Replay the log and compare its read models with what it leads to. Writes nothing.

        Raises `StorageError`.
        """
