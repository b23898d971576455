"""When to compact. Any function of a `CompactionRequest` is a trigger too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from turnlog.domain.compaction import CompactionRequest, CompactionTrigger, name_of, require_positive
from turnlog.domain.errors import InvalidSettingError
from turnlog.domain.guards import require_callable, require_kind, require_number
from turnlog.domain.turns import turn_starts


@dataclass(frozen=True)
class TurnCountTrigger:
    """Fires when the view holds more than `turns` turns (messages of the user, however many calls each has).

    One turn with a hundred tool results is one turn: combine it with a `TokenCountTrigger`.
    """

    turns: int

    def __post_init__(self) -> None:
        require_positive("The number of turns", self.turns)

    def __call__(self, request: CompactionRequest, /) -> bool:
        """Whether the view holds more turns than the limit."""
        return len(turn_starts(request.events)) > self.turns

    def __str__(self) -> str:
        return f"more than {self.turns} turns"


@dataclass(frozen=True)
class TokenCountTrigger:
    """Fires when what would be sent costs at least `tokens`.

    Counted are the latest stored system message, summaries and conversation of the view as it is now, and
    `overhead`: a figure of tokens for tool schemas and templates, which are not in the log.
    """

    tokens: int
    overhead: int = 0

    def __post_init__(self) -> None:
        require_positive("The number of tokens", self.tokens)
        require_number("The overhead", self.overhead)

    def __call__(self, request: CompactionRequest, /) -> bool:
        """Whether the view costs the limit or more."""
        return request.cost_of_view() + self.overhead >= self.tokens

    def __str__(self) -> str:
        return f"at least {self.tokens} tokens"


@dataclass(frozen=True)
class CompositeCompactionTrigger:
    """Fires when one of its triggers does."""

    triggers: Sequence[CompactionTrigger]

    def __post_init__(self) -> None:
        require_kind("`triggers`", self.triggers, Sequence, "a list, as in [TurnCountTrigger(20)]")
        if not self.triggers:
            raise InvalidSettingError("A composite trigger needs at least one trigger.")
        for trigger in self.triggers:
            require_callable("A trigger", trigger, "a function of the request, as TurnCountTrigger(20)")

    @classmethod
    def any_of(cls, *triggers: CompactionTrigger) -> CompositeCompactionTrigger:
        """A trigger that fires when one of these does; they are asked in order."""
        return cls(triggers)

    def __call__(self, request: CompactionRequest, /) -> bool:
        """Whether one of the triggers fires."""
        return any(trigger(request) for trigger in self.triggers)

    def __str__(self) -> str:
        return " or ".join(map(name_of, self.triggers))
