"""The strategy of the boundary design: a window over the newest turns, and a summary of what leaves it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import cast

from turnlog.domain.compaction import (
    CompactionReason,
    CompactionRequest,
    CompactionResult,
    Summary,
    SummaryRequest,
    require_positive,
)
from turnlog.domain.errors import InvalidSettingError, shown
from turnlog.domain.log import SessionEvent, superseded_system
from turnlog.domain.steps import AnySummarizer, PassSteps, run_steps
from turnlog.domain.turns import (
    cut_at_turn,
    drawn_along,
    held_back,
    turn_safe,
    turn_starts,
    with_late_results,
)


class _Unit(StrEnum):
    EVENTS = "events"
    TURNS = "turns"
    TOKENS = "tokens"


@dataclass(frozen=True)
class CompactionWindow:
    """How much of the newest conversation stays. The cut moves to a turn start; the newest turn always stays.

    System messages, preamble and summaries use no slot of a window.
    """

    unit: _Unit
    size: int

    def __post_init__(self) -> None:
        require_positive("The size of a window", self.size)

    @classmethod
    def last_events(cls, count: int = 20) -> CompactionWindow:
        """The newest events of the root; those of branches stay or leave with their turn."""
        return cls(_Unit.EVENTS, count)

    @classmethod
    def last_turns(cls, count: int) -> CompactionWindow:
        """The newest turns."""
        return cls(_Unit.TURNS, count)

    @classmethod
    def token_budget(cls, tokens: int) -> CompactionWindow:
        """As many of the newest events as fit the budget, from which pinned messages are taken first."""
        return cls(_Unit.TOKENS, tokens)

    def raw_cut(
        self,
        turns: Sequence[SessionEvent],
        pinned_cost: int,
        request: CompactionRequest,
        pins: Collection[str] = (),
    ) -> int:
        """The index in front of the newest events that the window holds, on a turn start or not.

        Events of the turns whose ids are `pins` are in the pinned cost already.
        """
        match self.unit:
            case _Unit.EVENTS:
                places = [index for index, event in enumerate(turns) if event.branch is None]
                return places[-self.size] if self.size <= len(places) else 0
            case _Unit.TURNS:
                starts = turn_starts(turns)
                return starts[-self.size] if self.size <= len(starts) else 0
            case _Unit.TOKENS:
                left = self.size - pinned_cost
                for index in range(len(turns) - 1, -1, -1):
                    left -= 0 if turns[index].id in pins else request.tokens(turns[index])
                    if left < 0:
                        return index + 1
                return 0

    def __str__(self) -> str:
        return f"{self.size} tokens" if self.unit is _Unit.TOKENS else f"the last {self.size} {self.unit}"


@dataclass(frozen=True)
class WindowCompactionStrategy:
    """Keeps a window of the newest turns; what leaves is covered, and summarized if there is a summarizer.

    The latest stored system message of each branch and the preamble are pinned, and so are earlier summaries
    unless a summarizer is given, which replaces them by its own. `pins` are ids of events that stay verbatim
    when their turn leaves; a call and its results are pinned together. Pins that the view does not hold are
    in `pins_not_found` of the result.
    """

    window: CompactionWindow = CompactionWindow(_Unit.EVENTS, 20)
    summarizer: AnySummarizer | None = None
    pins: Collection[str] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.window, CompactionWindow):  # pyright: ignore[reportUnnecessaryIsInstance] # callers may be untyped
            raise InvalidSettingError(
                f"A window is made by CompactionWindow.last_turns(…) and the like, not {shown(self.window)}."
            )
        if self.summarizer is not None and not hasattr(self.summarizer, "summarize"):
            raise InvalidSettingError(
                f"A summarizer has a method `summarize`; {shown(self.summarizer)} has none."
            )
        object.__setattr__(self, "pins", _checked_pins(self.pins))

    @property
    def asked(self) -> AnySummarizer | None:
        """The summarizer."""
        return self.summarizer

    def compact(self, request: CompactionRequest) -> CompactionResult:
        """One pass over the view of the request."""
        return run_steps(self.steps(request), self.summarizer)

    def steps(self, request: CompactionRequest) -> PassSteps:
        """One pass over the view of the request, in steps."""
        held = {event.id for event in (*request.events, *(request.told or ()))}
        missing = tuple(sorted(pin for pin in self.pins if pin not in held))
        result = yield from self._steps(request)
        if not missing:
            return result
        names = ", ".join(map(repr, missing[:5])) + (" …" if len(missing) > 5 else "")
        details = (result.detail, f"pins that are not in the view: {names}")
        return replace(result, pins_not_found=missing, detail="; ".join(filter(None, details)))

    def _steps(self, request: CompactionRequest) -> PassSteps:
        found = _Found.of(request, self)
        if isinstance(found, CompactionResult):
            return found
        if request.cost(found.leaving) < request.min_gain:
            detail = _gain(request.cost(found.leaving), request)
            return CompactionResult(CompactionReason.GAIN_TOO_SMALL, detail=detail)
        if self.summarizer is None:
            return found.result(request, found.cut, Summary())
        question = SummaryRequest(
            prior_summary=found.summaries,
            covered=tuple(found.leaving),
            preserved=tuple(found.turns[found.cut :]),
            tokens=request.tokens,
            session_id=request.session_id,
            branch=request.branch,
            message_tokens=request.message_tokens,
        )
        summary = yield question
        if not summary.messages:
            return CompactionResult(summary.declined, detail=summary.detail)
        return found.result(request, found.cut_behind(question.covered_by(summary)), summary)

    def __str__(self) -> str:
        how = f" with {type(self.summarizer).__name__}" if self.summarizer else ""
        return f"window of {self.window}{how}"


@dataclass(frozen=True)
class _Found:
    """A view parted the way the window sees it, and where it would be cut."""

    events: tuple[SessionEvent, ...]
    pinned: tuple[SessionEvent, ...]
    pins: frozenset[str]
    summaries: tuple[SessionEvent, ...]
    replaces_summaries: bool
    turns: Sequence[SessionEvent]
    cut: int

    @classmethod
    def of(cls, request: CompactionRequest, strategy: WindowCompactionStrategy) -> _Found | CompactionResult:
        """The parts, or why nothing can leave."""
        superseded = superseded_system(request.events)
        system = [e for e in request.events if e.is_stored_system and e.id not in superseded]
        summaries = tuple(e for e in request.events if e.synthetic)
        conversation = [e for e in request.events if not e.is_stored_system and not e.synthetic]
        starts = turn_starts(conversation)
        if not starts:
            return CompactionResult(CompactionReason.NOTHING_TO_COVER)
        preamble, turns = with_late_results(conversation[: starts[0]], conversation[starts[0] :])
        pins = drawn_along(turns, strategy.pins) if strategy.pins else frozenset[str]()
        replaces = strategy.summarizer is not None
        always = (*system, *preamble, *(() if replaces else summaries))
        cost = request.cost((*always, *(event for event in turns if event.id in pins)))
        snapped = cut_at_turn(turns, strategy.window.raw_cut(turns, cost, request, pins))
        cut = held_back(conversation, turns, snapped, request.awaited_ids)
        if cut == 0:
            held = snapped > 0 and turn_safe(turns, snapped) > 0
            return CompactionResult(
                CompactionReason.AWAITED_CALL if held else CompactionReason.NOTHING_TO_COVER
            )
        found = cls(request.events, (*system, *preamble), pins, summaries, replaces, turns, cut)
        return found if found.leaving else CompactionResult(CompactionReason.NOTHING_TO_COVER)

    @property
    def leaving(self) -> list[SessionEvent]:
        """The events of the turns in front of the cut that are not pinned."""
        return [event for event in self.turns[: self.cut] if event.id not in self.pins]

    def cut_behind(self, count: int) -> int:
        """The cut among the turns behind so many leaving events; a turn starts there."""
        leaving = self.leaving
        if count == len(leaving):
            return self.cut
        return next(index for index, event in enumerate(self.turns) if event.id == leaving[count].id)

    def result(self, request: CompactionRequest, cut: int, summary: Summary) -> CompactionResult:
        """The pass that cuts the turns here."""
        pinned = (
            *self.pinned,
            *(event for event in self.turns[:cut] if event.id in self.pins),
            *(() if self.replaces_summaries else self.summaries),
        )
        preserved = tuple(self.turns[cut:])
        kept = {event.id for event in (*pinned, *preserved)}
        covered = tuple(event for event in self.events if event.id not in kept)
        messages = summary.stored_messages()
        superseded = superseded_system(self.events)
        left = request.cost(event for event in covered if event.id not in superseded)
        saved = max(0, left - sum(map(request.message_tokens, messages)))
        if saved < request.min_gain:
            return CompactionResult(CompactionReason.GAIN_TOO_SMALL, detail=_gain(saved, request))
        return CompactionResult(
            CompactionReason.COMPACTED,
            covered_events=covered,
            pinned_events=pinned,
            preserved_events=preserved,
            summary=messages,
            tokens_estimated_saved=saved,
            detail=summary.detail,
        )


def _checked_pins(pins: object) -> frozenset[str]:
    """The ids, or `InvalidSettingError`."""
    if isinstance(pins, str):
        raise InvalidSettingError(f"`pins` are ids of events, as in pins=[{pins!r}], not one text.")
    if not isinstance(pins, Collection):
        raise InvalidSettingError(f"`pins` are ids of events, as in pins=[event.id], not {shown(pins)}.")
    given = cast("Collection[object]", pins)
    for pin in given:
        if not isinstance(pin, str):
            hint = "give its id, event.id" if isinstance(pin, SessionEvent) else "give the id of an event"
            raise InvalidSettingError(f"A pin is the id of an event, not {shown(pin)}: {hint}.")
    return frozenset(pin for pin in given if isinstance(pin, str))


def _gain(saved: int, request: CompactionRequest) -> str:
    return f"{saved:,} tokens would be saved, the minimum gain is {request.min_gain:,}"
