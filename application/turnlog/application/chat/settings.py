"""How a chat runs its turns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal, TypeAlias

from turnlog.application.chat.recording import CallRecorder, NoRecorder
from turnlog.application.chat.tools import ToolSet
from turnlog.application.compacting import OnRace
from turnlog.domain.compaction import CompactionStrategy, CompactionTrigger, require_positive
from turnlog.domain.errors import InvalidSettingError, shown
from turnlog.domain.filters import EventFilter, MessageFilter

SystemPlacement: TypeAlias = Literal["first", "in_place"]


@dataclass(frozen=True)
class ChatSettings:
    """What all turns of a chat have in common; `SessionChat` says what each means."""

    tools: ToolSet = field(default_factory=lambda: ToolSet(()))
    trigger: CompactionTrigger | None = None
    strategy: CompactionStrategy | None = None
    on_race: OnRace = OnRace.REBASE
    filter: EventFilter | None = None
    store: MessageFilter | None = None
    instructions: str | None = None
    system: SystemPlacement = "first"
    default_principal: str = "default"
    max_rounds: int = 50
    tool_time_limit: float | None = 60.0
    max_message_tokens: int | None = None
    max_request_tokens: int | None = None
    keep_tool_results: int = 5
    max_output_tokens: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    cache: bool = False
    lease: timedelta = timedelta(minutes=1)
    recorder: CallRecorder = field(default_factory=NoRecorder)

    def __post_init__(self) -> None:
        for name in ("max_rounds", "max_message_tokens", "max_request_tokens", "keep_tool_results"):
            value = getattr(self, name)
            if value is not None:
                require_positive(f"`{name}`", value)
        if self.trigger is not None and self.strategy is None:
            raise InvalidSettingError(
                "A trigger needs a strategy, as in "
                "strategy=WindowCompactionStrategy(CompactionWindow.last_turns(10))."
            )
        if self.tool_time_limit is not None and self.tool_time_limit <= 0:
            raise InvalidSettingError("`tool_time_limit` is in seconds and positive, or None for no limit.")
        if self.lease <= timedelta(0):
            raise InvalidSettingError(f"`lease` must be positive, it is {self.lease}.")
        if self.system not in ("first", "in_place"):
            raise InvalidSettingError(f"`system` is 'first' or 'in_place', not {shown(self.system)}.")

    @property
    def counts(self) -> bool:
        """Whether tokens have to be counted at all."""
        return self.trigger is not None or self.max_request_tokens is not None
