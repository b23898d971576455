"""What a turn can ask of whoever carries it out."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from turnlog.application.chat.model import ChatReply, RenderedRequest
from turnlog.application.chat.running import ToolJob, ToolOutcome
from turnlog.application.chat.turn import TurnEvent
from turnlog.application.compacting import OnRace
from turnlog.application.service import SessionService
from turnlog.domain.compaction import CompactionStrategy, CompactionTrigger

T = TypeVar("T")


@dataclass(frozen=True)
class Do:
    """Use the service; the result is sent back."""

    use: Callable[[SessionService], Any]


@dataclass(frozen=True)
class Compact:
    """Run one pass over the session; its result is sent back."""

    session_id: str
    trigger: CompactionTrigger | None
    strategy: CompactionStrategy
    branch: str | None
    on_race: OnRace


@dataclass(frozen=True)
class Ask:
    """Ask the model; `Answered` is sent back.

    `on_send` is told of bodies that differ, and says what is to be done before they leave.
    """

    rendered: RenderedRequest
    on_send: Callable[[RenderedRequest], Do | None]


@dataclass(frozen=True)
class Answered:
    """What is sent back for `Ask`: the answer, and the seconds until it was whole."""

    reply: ChatReply
    seconds: float


@dataclass(frozen=True)
class StartTools:
    """Make these calls side by side. `NextTool` gets what became of each."""

    jobs: tuple[ToolJob | ToolOutcome, ...]


@dataclass(frozen=True)
class NextTool:
    """Wait for the next call that is over."""


@dataclass(frozen=True)
class Pause:
    """Wait for so many seconds."""

    seconds: float


@dataclass(frozen=True)
class Tell:
    """Tell whoever listens."""

    event: TurnEvent


Step: TypeAlias = Do | Compact | Ask | StartTools | NextTool | Pause | Tell
Steps: TypeAlias = Generator[Step, Any, T]
"""Steps that end with a result. Results of steps are sent in, what failed is thrown in."""


class TurnCutError(BaseException):
    """Thrown into a turn that its caller leaves; `reply` is what came of an answer until then."""

    def __init__(self, reply: ChatReply | None = None) -> None:
        super().__init__("the turn was left")
        self.reply = reply
