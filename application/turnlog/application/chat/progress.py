"""How a turn begins, and what has happened in it so far."""

from __future__ import annotations

from dataclasses import dataclass, field

from turnlog.application.chat.asking import Aside
from turnlog.application.chat.model import FinishReason
from turnlog.application.chat.usage import Usage
from turnlog.application.turns import CallReference
from turnlog.domain.compaction import CompactionResult
from turnlog.domain.filters import EventFilter
from turnlog.domain.guards import require_number
from turnlog.domain.log import SessionEvent
from turnlog.domain.messages import Message


@dataclass(frozen=True)
class Opening:
    """How a turn begins: with a message of the user, or with what became of an awaited call (`settles`).

    Of an awaited call `result` is the answer; without one it is run (`runs`), or given up. A turn that
    `resumes` begins with the newest question of its branch, which is stored.
    """

    session_id: str
    message: Message | None = None
    branch: str | None = None
    principal: str | None = None
    key: str | None = None
    wait: float | None = None
    filter: EventFilter | None = None
    system: str | None = None
    settles: CallReference | None = None
    result: Message | None = None
    runs: bool = False
    resumes: bool = False

    def __post_init__(self) -> None:
        if self.wait is not None:
            require_number("`wait` (seconds)", self.wait)


@dataclass(eq=False)
class Entry:
    """A message of the turn, its place in it, and its event once it is stored."""

    message: Message
    place: int = 0
    event: SessionEvent | None = None
    must_store: bool = False


@dataclass(frozen=True)
class Settling:
    """What a write does to an awaited call."""

    answers: CallReference | None = None
    abandons: CallReference | None = None


@dataclass
class Progress:
    """What has happened in the turn so far. Of one that goes on, what is stored is known up to a version."""

    limit: int | None = None
    entries: list[Entry] = field(default_factory=list[Entry])
    asides: list[Aside] = field(default_factory=list[Aside])
    awaiting: list[CallReference] = field(default_factory=list[CallReference])
    usages: list[Usage] = field(default_factory=list[Usage])
    place: int = 0
    turn_from: int | None = None
    newest: int = -1
    known_until: int | None = None
    rounds: int = 0
    attempt: int = 1
    is_marked: bool = False
    is_repeat: bool = False
    finish_reason: FinishReason | None = None
    compaction: CompactionResult | None = None
    compaction_error: Exception | None = None
    compacts_in_between: bool = True
    waited: float = 0.0
    settling: Settling | None = None


class OvertakenError(Exception):
    """Another process began a turn before this one had stored anything: begin anew."""
