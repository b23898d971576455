"""The four strategies of the archive design.

They archive every superseded system message on every pass, keep the latest of each branch where it was
stored, and keep summaries where they are. What is left, the real events, is cut at a turn start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from turnlog.domain.compaction import (
    CompactionReason,
    CompactionRequest,
    CompactionResult,
    Summary,
    SummaryRequest,
    require_positive,
)
from turnlog.domain.errors import InvalidSettingError
from turnlog.domain.guards import require_methods
from turnlog.domain.log import SessionEvent, superseded_system
from turnlog.domain.messages import Message
from turnlog.domain.rendering import event_text
from turnlog.domain.steps import AnySummarizer, PassSteps, run_steps
from turnlog.domain.summarizing import (
    INSTRUCTIONS,
    SHADOW_PROMPT,
    EventFormatter,
    FailureCallback,
    PromptSummarizer,
    TextModel,
)
from turnlog.domain.turns import cut_at_turn, held_back, turn_safe, turn_starts, with_late_results


@dataclass(frozen=True)
class _Active:
    """The active events, parted the way all four strategies see them."""

    events: tuple[SessionEvent, ...]
    superseded: frozenset[str]
    system: tuple[SessionEvent, ...]
    summaries: tuple[SessionEvent, ...]
    real: tuple[SessionEvent, ...]

    @classmethod
    def of(cls, events: tuple[SessionEvent, ...]) -> _Active:
        superseded = superseded_system(events)
        return cls(
            events,
            superseded,
            tuple(e for e in events if e.is_stored_system and e.id not in superseded),
            tuple(e for e in events if e.synthetic),
            tuple(e for e in events if not e.is_stored_system and not e.synthetic),
        )


@dataclass(frozen=True)
class SlidingWindowCompactionStrategy:
    """Keeps the newest `max_events` real events without a branch, from the next turn start on."""

    max_events: int = 20

    def __post_init__(self) -> None:
        require_positive("max_events", self.max_events)

    def compact(self, request: CompactionRequest) -> CompactionResult:
        """One pass over the active events."""
        active = _Active.of(request.events)
        cut = _cut(request, active.real, _newest(active.real, self.max_events))
        return _archived(request, active, active.real[:cut])

    def __str__(self) -> str:
        return f"sliding window of {self.max_events} events"


@dataclass(frozen=True)
class TurnWindowCompactionStrategy:
    """Keeps the newest `max_turns` turns, and what stands in front of the first turn."""

    max_turns: int = 10

    def __post_init__(self) -> None:
        require_positive("max_turns", self.max_turns)

    def compact(self, request: CompactionRequest) -> CompactionResult:
        """One pass over the active events."""
        active = _Active.of(request.events)
        first = min(turn_starts(active.real), default=len(active.real))
        _, turns = with_late_results(active.real[:first], active.real[first:])
        starts = turn_starts(turns)
        if len(starts) <= self.max_turns:
            return _archived(request, active, ())
        cut = held_back(active.real, turns, starts[-self.max_turns], request.awaited_ids)
        return _archived(request, active, turns[:cut])

    def __str__(self) -> str:
        return f"turn window of {self.max_turns} turns"


@dataclass(frozen=True)
class TokenCountCompactionStrategy:
    """Keeps the longest run of newest real events within `max_tokens`, system messages and summaries off."""

    max_tokens: int = 4000

    def __post_init__(self) -> None:
        require_positive("max_tokens", self.max_tokens)

    def compact(self, request: CompactionRequest) -> CompactionResult:
        """One pass over the active events."""
        active = _Active.of(request.events)
        left = self.max_tokens - request.cost((*active.system, *active.summaries))
        raw = len(active.real)
        while raw > 0 and left >= (cost := request.tokens(active.real[raw - 1])):
            left -= cost
            raw -= 1
        return _archived(request, active, active.real[: _cut(request, active.real, raw)])

    def __str__(self) -> str:
        return f"token count of {self.max_tokens} tokens"


@dataclass(frozen=True)
class RecursiveSummarizationCompactionStrategy:
    """Summarizes what leaves, the earlier summaries included, in front of the first event that is kept.

    The model is asked only when something is cut. A blank answer calls `on_failure` and archives superseded
    system messages only; a failing call calls it too and is raised. In place of the model a summarizer can be
    given, which has its own settings.
    """

    model: TextModel | AnySummarizer
    max_events_to_keep: int = 10
    overlap_size: int = 2
    shadow_prompt: str = SHADOW_PROMPT
    instructions: str = INSTRUCTIONS
    format_event: EventFormatter = event_text
    on_failure: FailureCallback | None = None
    _summarizer: AnySummarizer = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        require_positive("max_events_to_keep", self.max_events_to_keep)
        if not callable(self.model):
            require_methods(
                "`model`",
                self.model,
                ("summarize",),
                "a function of the prompt or a summarizer with `summarize`",
            )
            object.__setattr__(self, "_summarizer", self.model)
            return
        summarizer = PromptSummarizer(
            self.model,
            self.overlap_size,
            self.shadow_prompt,
            self.instructions,
            self.format_event,
            self.on_failure,
        )
        if self.overlap_size >= self.max_events_to_keep:
            raise InvalidSettingError(
                f"overlap_size ({self.overlap_size}) must be smaller than max_events_to_keep "
                f"({self.max_events_to_keep})."
            )
        object.__setattr__(self, "_summarizer", summarizer)

    @property
    def asked(self) -> AnySummarizer:
        """What asks the model."""
        return self._summarizer

    def compact(self, request: CompactionRequest) -> CompactionResult:
        """One pass over the active events."""
        return run_steps(self.steps(request), self._summarizer)

    def steps(self, request: CompactionRequest) -> PassSteps:
        """One pass over the active events, in steps."""
        active = _Active.of(request.events)
        cut = _cut(request, active.real, _newest(active.real, self.max_events_to_keep))
        if cut == 0:
            return _archived(request, active, ())
        if request.cost(active.real[:cut]) < request.min_gain:
            return _archived(request, active, (), declined=CompactionReason.GAIN_TOO_SMALL)
        question = SummaryRequest(
            active.summaries,
            active.real[:cut],
            active.real[cut:],
            request.tokens,
            request.session_id,
            request.branch,
            request.message_tokens,
        )
        summary = yield question
        if not summary.messages:
            return _archived(request, active, (), declined=summary.declined, detail=summary.detail)
        return _archived(request, active, active.real[: question.covered_by(summary)], summary=summary)

    def __str__(self) -> str:
        return f"recursive summarization keeping {self.max_events_to_keep} events"


def _newest(real: Sequence[SessionEvent], count: int) -> int | None:
    """The index of the newest `count` events without a branch, None when there are no more than these."""
    places = [index for index, event in enumerate(real) if event.branch is None]
    return places[-count] if len(places) > count else None


def _cut(request: CompactionRequest, real: Sequence[SessionEvent], raw_cut: int | None) -> int:
    return 0 if raw_cut is None else turn_safe(real, cut_at_turn(real, raw_cut), request.awaited_ids)


def _archived(
    request: CompactionRequest,
    active: _Active,
    leaving: Sequence[SessionEvent],
    *,
    summary: Summary | None = None,
    declined: CompactionReason = CompactionReason.NOTHING_TO_COVER,
    detail: str = "",
) -> CompactionResult:
    """The result of archiving these real events, and what no pass keeps."""
    leaves = {event.id for event in leaving} | active.superseded
    messages: tuple[Message, ...] = ()
    if summary is not None:
        leaves |= {event.id for event in active.summaries}
        messages = summary.stored_messages()
        detail = summary.detail
    kept = [event for event in active.events if event.id not in leaves]
    covered = tuple(event for event in active.events if event.id in leaves)
    if not covered:
        return CompactionResult(declined, detail=detail)
    first = active.real[len(leaving)].id if messages else None
    place = next((i for i, event in enumerate(kept) if event.id == first), 0)
    gone = request.cost(event for event in covered if event.id not in active.superseded)
    return CompactionResult(
        CompactionReason.COMPACTED,
        covered_events=covered,
        pinned_events=tuple(kept[:place]),
        preserved_events=tuple(kept[place:]),
        summary=messages,
        tokens_estimated_saved=max(0, gone - sum(map(request.message_tokens, messages))),
        detail=detail,
    )
