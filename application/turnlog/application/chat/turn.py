"""A turn of a chat: what came of it, and what is told while it runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from turnlog.application.chat.model import FinishReason, ReasoningDelta, TextDelta
from turnlog.application.chat.usage import Usage
from turnlog.application.turns import CallReference
from turnlog.domain.compaction import CompactionResult
from turnlog.domain.log import SessionEvent
from turnlog.domain.messages import Message, Role, ToolCallPart, ToolCallResponsePart


@dataclass(frozen=True)
class Turn:
    """What one `send` did.

    `messages` are those of the turn in order, also those that a filter did not store; `events` are the stored
    ones. `usage` is the sum over its calls, each answer holds its own. `finish_reason` is that of the newest
    answer, None when no model was asked. `compaction` is the newest pass that was run, None when the trigger
    did not fire; what a pass raised is in `compaction_error`. `awaiting` are calls whose results are still to
    come. `is_repeat` says that the turn was stored already and no model was asked.
    """

    session_id: str
    turn_id: str
    messages: tuple[Message, ...]
    events: tuple[SessionEvent, ...]
    finish_reason: FinishReason | None = None
    usage: Usage | None = None
    compaction: CompactionResult | None = None
    compaction_error: Exception | None = None
    awaiting: tuple[CallReference, ...] = ()
    is_repeat: bool = False

    @property
    def answer(self) -> Message | None:
        """The newest answer of the model."""
        return next((one for one in reversed(self.messages) if one.role is Role.ASSISTANT), None)

    @property
    def text(self) -> str:
        """The text of the newest answer, empty when it has none."""
        answer = self.answer
        return (answer.text if answer else None) or ""


@dataclass(frozen=True)
class ToolCallStarted:
    """A tool is called."""

    call: ToolCallPart


@dataclass(frozen=True)
class ToolCallFinished:
    """A tool answered. `result` is what the model is told, None when the result comes later."""

    call: ToolCallPart
    result: ToolCallResponsePart | None


@dataclass(frozen=True)
class MessageStored:
    """A message of the turn is in the log."""

    event: SessionEvent


@dataclass(frozen=True)
class Compacted:
    """The session was compacted."""

    result: CompactionResult


@dataclass(frozen=True)
class TurnFinished:
    """The turn is over; nothing follows."""

    turn: Turn


TurnEvent: TypeAlias = (
    TextDelta | ReasoningDelta | ToolCallStarted | ToolCallFinished | MessageStored | Compacted | TurnFinished
)
"""What a streamed turn tells, in order."""


def total(usages: Iterable[Usage]) -> Usage | None:
    """The sum of what calls used, None without any; a figure that no call said stays None."""
    given = list(usages)
    if not given:
        return None
    sums: dict[str, Any] = {}
    for name in Usage.__dataclass_fields__:
        figures = [figure for one in given if (figure := getattr(one, name)) is not None]
        if name != "provider" and figures:
            sums[name] = sum(figures)
    return Usage(**sums)
