"""The strategy of the boundary design: a window over the newest turns, and a summary of what leaves it."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import cast

from turnlog.domain.compaction import (
    CompactionReason,
    CompactionRequest,
    CompactionResult,
    CompactionSummarizer,
    Summary,
    SummaryRequest,
    require_positive,
)
from turnlog.domain.errors import InvalidSettingError, shown
from turnlog.domain.log import SessionEvent, superseded_system
from turnlog.domain.messages import Message
from turnlog.domain.turns import cut_at_turn, held_back, turn_safe, turn_starts, with_late_results


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

    def raw_cut(self, turns: Sequence[SessionEvent], pinned_cost: int, request: CompactionRequest) -> int:
        """The index in front of the newest events that the window holds, on a turn start or not."""
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
                    left -= request.tokens(turns[index])
                    if left < 0:
                        return index + 1
                return 0

    def __str__(self) -> str:
        return f"{self.size} tokens" if self.unit is _Unit.TOKENS else f"the last {self.size} {self.unit}"


@dataclass(frozen=True)
class WindowCompactionStrategy:
    """Keeps a window of the newest turns; what leaves is covered, and summarized if there is a summarizer.

    The latest stored system message of each branch and the preamble are pinned, and so are earlier summaries
    unless a summarizer is given, which replaces them by its own.
    """

    window: CompactionWindow = CompactionWindow(_Unit.EVENTS, 20)
    summarizer: CompactionSummarizer | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.window, CompactionWindow):  # pyright: ignore[reportUnnecessaryIsInstance] # callers may be untyped
            raise InvalidSettingError(
                f"A window is made by CompactionWindow.last_turns(…) and the like, not {shown(self.window)}."
            )
        if self.summarizer is not None and not hasattr(self.summarizer, "summarize"):
            raise InvalidSettingError(
                f"A summarizer has a method `summarize`; {shown(self.summarizer)} has none."
            )

    def compact(self, request: CompactionRequest) -> CompactionResult:
        """One pass over the view of the request."""
        superseded = superseded_system(request.events)
        system = [e for e in request.events if e.is_stored_system and e.id not in superseded]
        summaries = tuple(e for e in request.events if e.synthetic)
        conversation = [e for e in request.events if not e.is_stored_system and not e.synthetic]
        starts = turn_starts(conversation)
        if not starts:
            return CompactionResult(CompactionReason.NOTHING_TO_COVER)
        preamble, turns = with_late_results(conversation[: starts[0]], conversation[starts[0] :])
        pinned = (*system, *preamble, *(() if self.summarizer else summaries))
        snapped = cut_at_turn(turns, self.window.raw_cut(turns, request.cost(pinned), request))
        cut = held_back(conversation, turns, snapped, request.awaited_ids)
        if cut == 0:
            held = snapped > 0 and turn_safe(turns, snapped) > 0
            return CompactionResult(
                CompactionReason.AWAITED_CALL if held else CompactionReason.NOTHING_TO_COVER
            )
        prior = summaries if self.summarizer else ()
        summary = self._summarize(request, prior, turns[:cut], turns[cut:])
        if not summary.messages and self.summarizer:
            return CompactionResult(summary.declined)
        kept = {event.id for event in (*pinned, *turns[cut:])}
        covered = tuple(event for event in request.events if event.id not in kept)
        return CompactionResult(
            CompactionReason.COMPACTED,
            covered_events=covered,
            pinned_events=pinned,
            preserved_events=tuple(turns[cut:]),
            summary=summary.messages,
            tokens_estimated_saved=self._saved(request, covered, superseded, summary.messages),
        )

    def _summarize(
        self,
        request: CompactionRequest,
        prior: tuple[SessionEvent, ...],
        covered: Sequence[SessionEvent],
        preserved: Sequence[SessionEvent],
    ) -> Summary:
        if self.summarizer is None:
            return Summary()
        answer = self.summarizer.summarize(
            SummaryRequest(
                prior, tuple(covered), tuple(preserved), request.tokens, request.session_id, request.branch
            )
        )
        summary = answer if isinstance(answer, Summary) else Summary(_messages(answer))
        if any(message.tool_calls or message.tool_responses for message in summary.messages):
            return Summary(declined=CompactionReason.SUMMARY_CALLS_TOOLS)
        if summary.messages and all(_is_blank(message) for message in summary.messages):
            return Summary(declined=CompactionReason.SUMMARY_BLANK)
        return summary

    @staticmethod
    def _saved(
        request: CompactionRequest,
        covered: Sequence[SessionEvent],
        superseded: frozenset[str],
        summary: Sequence[Message],
    ) -> int:
        left = request.cost(event for event in covered if event.id not in superseded)
        return max(0, left - sum(map(request.message_tokens, summary)))

    def __str__(self) -> str:
        how = f" with {type(self.summarizer).__name__}" if self.summarizer else ""
        return f"window of {self.window}{how}"


def _messages(answer: object) -> tuple[Message, ...]:
    """The messages that a summarizer returned, none for None, or a word about what else it did."""
    if answer is None:
        return ()
    if isinstance(answer, Coroutine):
        answer.close()
        raise InvalidSettingError("The summarizer is asynchronous: `summarize` has to return the messages.")
    if isinstance(answer, (list, tuple)):
        listed = cast("Sequence[object]", answer)
        messages = tuple(one for one in listed if isinstance(one, Message))
        if len(messages) == len(listed):
            return messages
        answer = next(one for one in listed if not isinstance(one, Message))
    raise InvalidSettingError(f"A summarizer returns a list of messages or a `Summary`, not {shown(answer)}.")


def _is_blank(message: Message) -> bool:
    return not (message.text or "").strip()
