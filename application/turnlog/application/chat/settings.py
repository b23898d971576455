"""How a chat runs its turns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, Literal, TypeAlias

from turnlog.application.chat.recording import CallRecorder, NoRecorder
from turnlog.application.chat.tools import ToolSet
from turnlog.application.compacting import OnRace
from turnlog.domain.compaction import CompactionStrategy, CompactionTrigger, require_positive
from turnlog.domain.errors import InvalidSettingError, shown
from turnlog.domain.filters import EventFilter, MessageFilter
from turnlog.domain.guards import require_callable, require_kind, require_methods, require_number

SystemPlacement: TypeAlias = Literal["first", "in_place"]

_KINDS: Final[tuple[tuple[str, type[object], str], ...]] = (
    ("filter", EventFilter, "an EventFilter"),
    ("store", MessageFilter, "a MessageFilter"),
    ("instructions", str, "text"),
    ("default_principal", str, "text"),
    ("on_race", OnRace, "OnRace.SKIP or OnRace.REBASE"),
    ("lease", timedelta, "a timedelta, as in timedelta(minutes=1)"),
)
_PORTS: Final[tuple[tuple[str, tuple[str, ...], str], ...]] = (
    ("strategy", ("compact",), "a strategy, as WindowCompactionStrategy(CompactionWindow.last_turns(10))"),
    ("recorder", ("prompt", "reply"), "a recorder, as PromptRecorder(sessions)"),
)


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
        for name, kind, meant in _KINDS:
            if getattr(self, name) is not None:
                require_kind(f"`{name}`", getattr(self, name), kind, meant)
        for name, methods, meant in _PORTS:
            if getattr(self, name) is not None:
                require_methods(f"`{name}`", getattr(self, name), methods, meant)
        if self.trigger is not None:
            require_callable(
                "`trigger`", self.trigger, "a function of the request, as TokenCountTrigger(16_000)"
            )
        if self.trigger is not None and self.strategy is None:
            raise InvalidSettingError(
                "A trigger needs a strategy, as in "
                "strategy=WindowCompactionStrategy(CompactionWindow.last_turns(10))."
            )
        if self.tool_time_limit is not None:
            require_number("`tool_time_limit` (seconds, None for no limit)", self.tool_time_limit, above=True)
        if self.lease <= timedelta(0):
            raise InvalidSettingError(f"`lease` must be positive, it is {self.lease}.")
        if self.system not in ("first", "in_place"):
            raise InvalidSettingError(f"`system` is 'first' or 'in_place', not {shown(self.system)}.")

    @property
    def counts(self) -> bool:
        """Whether tokens have to be counted at all."""
        return self.trigger is not None or self.max_request_tokens is not None
