"""One compaction pass: what it is asked, what it answers, and the ports it works through."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from typing import Any, Protocol

from turnlog.domain.errors import InvalidBoundaryError, InvalidPlanError, InvalidSettingError, shown
from turnlog.domain.log import CompactionBoundary, EventType, SessionEvent, superseded_system
from turnlog.domain.messages import Message, Role
from turnlog.domain.turns import call_pairs, open_awaited, safe_stops, turn_starts, with_late_results
from turnlog.domain.view import View


class CompactionReason(StrEnum):
    """Why a pass did what it did."""

    COMPACTED = "compacted"
    TRIGGER_DID_NOT_FIRE = "trigger did not fire"
    NOTHING_TO_COVER = "nothing to cover"
    AWAITED_CALL = "an awaited call keeps everything in the view"
    SUMMARIZER_DECLINED = "summarizer declined"
    SUMMARY_BLANK = "summary was blank"
    SUMMARY_TRUNCATED = "summary was cut at its length limit"
    SUMMARY_CALLS_TOOLS = "summary asked for tools"
    SUMMARY_REFUSED = "the model refused to summarize"
    SUMMARY_INTERRUPTED = "summary broke off"
    SUMMARY_OVER_LIMIT = "summary was longer than its limit"
    SUMMARY_NOT_SMALLER = "summary was not smaller than what it would replace"
    SUMMARIZER_WINDOW_TOO_SMALL = "what would be covered does not fit the summarizer's own window"
    GAIN_TOO_SMALL = "too little would be saved"
    COOLING_DOWN = "cooling down after repeated failures"
    TARGET_UNREACHABLE = "what always stays is larger than the target"
    RACE_LOST = "lost the race against another writer"


@dataclass(frozen=True)
class CompactionRequest:
    """What triggers and strategies look at: the view, and what its events cost.

    `awaited` are the ids of events with a call that awaits its result; by default they are found in the view.
    In a pass with a branch `view` holds what the branch owns, and `told` all that it is told. A pass has to
    save `min_gain` tokens; a model is asked only when what leaves costs that much.
    """

    view: View
    tokens: Callable[[SessionEvent], int]
    message_tokens: Callable[[Message], int]
    session_id: str = ""
    branch: str | None = None
    awaited: frozenset[str] | None = None
    told: tuple[SessionEvent, ...] | None = None
    min_gain: int = 0

    @property
    def events(self) -> tuple[SessionEvent, ...]:
        """The message events of the view, in order."""
        return self.view.events

    @property
    def awaited_ids(self) -> frozenset[str]:
        """The ids of events that hold a call which awaits its result."""
        return open_awaited(self.events) if self.awaited is None else self.awaited

    def cost(self, events: Iterable[SessionEvent]) -> int:
        """The tokens of these events."""
        return sum(map(self.tokens, events))

    def cost_of_view(self) -> int:
        """The tokens of what is sent: what is told, without superseded system messages."""
        told = self.events if self.told is None else self.told
        superseded = superseded_system(told)
        return self.cost(event for event in told if event.id not in superseded)


@dataclass(frozen=True)
class CompactionResult:
    """What a pass did, or why it did nothing. Events are in view order, tokens are estimates.

    A strategy returns it with the messages of the new summary; recorded by the service it holds `version`,
    the version of the session afterwards, and `boundary`, the COMPACTION event. `detail` says in figures what
    the reason leaves open. Where a target was set, `floor` are the tokens that no pass can take away: system
    message, preamble, tools and the newest turn. `pins_not_found` are pins of the strategy that name nothing
    in the view: misspelt, of another session, or covered before they were pinned.
    """

    reason: CompactionReason
    covered_events: tuple[SessionEvent, ...] = ()
    pinned_events: tuple[SessionEvent, ...] = ()
    preserved_events: tuple[SessionEvent, ...] = ()
    summary: tuple[Message, ...] = ()
    tokens_estimated_saved: int = 0
    tokens_before: int | None = None
    tokens_after: int | None = None
    version: int | None = None
    boundary: SessionEvent | None = None
    summary_events: tuple[SessionEvent, ...] = ()
    detail: str = ""
    target: int | None = None
    floor: int | None = None
    pins_not_found: tuple[str, ...] = ()

    @property
    def is_target_reachable(self) -> bool:
        """False when what always stays costs more than the target: then another pass does not help."""
        return self.target is None or self.floor is None or self.floor <= self.target

    @property
    def is_unchanged(self) -> bool:
        """Whether nothing left the view and nothing was written."""
        return self.reason is not CompactionReason.COMPACTED

    @property
    def compacted_events(self) -> tuple[SessionEvent, ...]:
        """What is active afterwards, in order: pinned, the events of the summary, preserved."""
        if len(self.summary_events) < len(self.summary):
            raise InvalidPlanError("The messages of the summary are no events yet: use `written` first.")
        return (*self.pinned_events, *self.summary_events, *self.preserved_events)

    def written(
        self, ids: Sequence[str], *, session_id: str, timestamp: datetime, branch: str | None = None
    ) -> CompactionResult:
        """This result of a strategy with its summary as events, for a log that is held as a list."""
        events = tuple(
            SessionEvent(
                id=event_id,
                type=EventType.MESSAGE,
                version=0,
                timestamp=timestamp,
                session_id=session_id,
                branch=branch,
                synthetic=True,
                message=message,
            )
            for event_id, message in zip(ids, self.summary, strict=True)
        )
        return replace(self, summary_events=events)

    @classmethod
    def of_boundary(cls, boundary: CompactionBoundary, events: Sequence[SessionEvent]) -> CompactionResult:
        """The pass that led from a view of these events to the boundary, its summary aside.

        Raises `InvalidBoundaryError` when the boundary names what is not among them.
        """
        held = {event.id: event for event in events}
        missing = [name for name in (*boundary.pinned, *boundary.preserved) if name not in held]
        if missing:
            raise InvalidBoundaryError(
                f"The boundary names {missing[0]!r}, which is no message of the current view."
            )
        named = set(boundary.named)
        return cls(
            CompactionReason.COMPACTED,
            covered_events=tuple(event for event in events if event.id not in named),
            pinned_events=tuple(held[name] for name in boundary.pinned),
            preserved_events=tuple(held[name] for name in boundary.preserved),
            tokens_estimated_saved=boundary.tokens_saved,
        )

    def checked_against(self, events: Sequence[SessionEvent]) -> CompactionResult:
        """This result of a strategy over a view of these events, with the view's own events in it, and its
        summary as data.

        Raises `InvalidBoundaryError` unless each message of the view is named once, preserved ones in view
        order, and the cut is turn-safe: the newest turn stays whole, and what stays of the turns behind what
        is pinned begins with one.
        """
        place = {event.id: index for index, event in enumerate(events)}
        covered, pinned, preserved = (
            [place.get(event.id, -1) for event in group]
            for group in (self.covered_events, self.pinned_events, self.preserved_events)
        )
        if sorted((*covered, *pinned, *preserved)) != list(range(len(events))):
            raise InvalidBoundaryError(
                "A strategy names each message of the view once, as covered, pinned or preserved."
            )
        if preserved != sorted(preserved):
            raise InvalidBoundaryError("A strategy names preserved messages in the order of the view.")
        self.check_turn_safe(events)
        self._check_turns(events)
        if type(self.tokens_estimated_saved) is not int:  # what is stored in another form could not be read
            raise InvalidBoundaryError(
                f"A pass saves a whole number of tokens, not {shown(self.tokens_estimated_saved)}."
            )
        return replace(
            self,
            covered_events=tuple(events[index] for index in covered),
            pinned_events=tuple(events[index] for index in pinned),
            preserved_events=tuple(events[index] for index in preserved),
            summary=tuple(map(as_data, self.summary)),
            tokens_estimated_saved=max(0, self.tokens_estimated_saved),
        )

    def _check_turns(self, events: Sequence[SessionEvent]) -> None:
        left = {event.id for event in self.covered_events}
        pinned = {event.id for event in self.pinned_events}
        conversation = [event for event in events if not event.is_stored_system and not event.synthetic]
        first = min(turn_starts(conversation), default=len(conversation))
        _, turns = with_late_results(conversation[:first], conversation[first:])
        newest = max(turn_starts(turns), default=0)
        if any(event.id in left for event in turns[newest:]):
            raise InvalidBoundaryError("The newest turn always stays in the view as a whole.")
        kept = next((event for event in turns if event.id not in left and event.id not in pinned), None)
        if kept is not None and not kept.starts_turn:
            raise InvalidBoundaryError(f"What stays of the turns would begin inside one, at {kept.id!r}.")

    def check_turn_safe(self, events: Sequence[SessionEvent]) -> None:
        """`InvalidBoundaryError` when the pass would part a call of these events from its result."""
        left = {event.id for event in self.covered_events}
        for call, result in call_pairs(events):
            if (events[call].id in left) != (events[result].id in left):
                raise InvalidBoundaryError(
                    f"The pass would part the call in {events[call].id!r} from its result in "
                    f"{events[result].id!r}: a strategy keeps or covers both."
                )


@dataclass(frozen=True)
class SummaryRequest:
    """What a summarizer is given; stored system messages are in none of the three.

    `prior_summary` are the messages of the summary that the new one replaces, `covered` the turns that leave
    the view, `preserved` what stays behind the summary.
    """

    prior_summary: tuple[SessionEvent, ...]
    covered: tuple[SessionEvent, ...]
    preserved: tuple[SessionEvent, ...]
    tokens: Callable[[SessionEvent], int]
    session_id: str = ""
    branch: str | None = None
    message_tokens: Callable[[Message], int] | None = None

    @cached_property
    def stops(self) -> tuple[int, ...]:
        """Where a summary may end, as numbers of covered events: in front of a turn, or at the end.

        None of them parts a call from its result.
        """
        return safe_stops(self.covered)

    def replaced_cost(self, covers: int | None = None) -> int:
        """The tokens of what a summary replaces: the prior summary and so many covered events, or all."""
        return sum(map(self.tokens, (*self.prior_summary, *self.covered[:covers])))

    def cost_of(self, *messages: Message) -> int:
        """The tokens of messages that are no events yet."""
        if self.message_tokens is not None:
            return sum(map(self.message_tokens, messages))
        return sum(self.tokens(_unstored(message)) for message in messages)

    def covered_by(self, summary: Summary) -> int:
        """How many of the covered events, from the first on, the summary stands for."""
        if summary.covers is None:
            return len(self.covered)
        if type(summary.covers) is not int or summary.covers not in self.stops:
            raise InvalidSettingError(
                f"A summary covers whole turns, one of {', '.join(map(str, self.stops[:10]))} events here, "
                f"not {shown(summary.covers)}: use `SummaryRequest.stops`."
            )
        return summary.covers


@dataclass(frozen=True)
class Summary:
    """The messages that stand for what was covered; none of them when the summarizer declines.

    A summary that has seen only the first turns says so by `covers`, one of `SummaryRequest.stops`; the other
    turns stay in the view. What is known of its making (`summarizer`, `model`, `usage`, `prompt_sha256` and
    `calls`, how often the model was asked) is kept with it in the log. `detail` tells more of why it was
    declined, or covers less.
    """

    messages: tuple[Message, ...] = ()
    declined: CompactionReason = field(default=CompactionReason.SUMMARIZER_DECLINED)
    covers: int | None = None
    summarizer: str | None = None
    model: str | None = None
    usage: Mapping[str, Any] | None = None
    prompt_sha256: str | None = None
    calls: int | None = None
    detail: str = ""

    @property
    def about(self) -> dict[str, Any]:
        """What is known of its making, as JSON."""
        known = {
            "name": self.summarizer,
            "model": self.model,
            "prompt_sha256": self.prompt_sha256,
            "calls": self.calls,
            "usage": None if self.usage is None else dict(self.usage),
        }
        return {name: value for name, value in known.items() if value is not None}

    def stored_messages(self) -> tuple[Message, ...]:
        """The messages as they are stored: the last one tells of its making, under `summarizer`."""
        if not self.messages or not self.about:
            return self.messages
        *others, last = self.messages
        metadata = {**(last.metadata or {}), "summarizer": self.about}
        return (*others, last.model_copy(update={"metadata": metadata}))


class CompactionSummarizer(Protocol):
    """Writes the summary of what leaves the view. It is called while no lock and no transaction is held.

    Returns its messages, usually a user message and an assistant message; nothing when it declines. A system
    message among them is stored as what an assistant said (`as_data`). What it raises reaches the caller of
    `compact`, and nothing is written.
    """

    def summarize(self, request: SummaryRequest) -> Summary | Sequence[Message]:
        """The summary of the covered turns and the prior summary."""
        ...


class AsyncCompactionSummarizer(Protocol):
    """`CompactionSummarizer` for asyncio: `AsyncSessionService.compact` awaits it on the loop."""

    async def summarize(self, request: SummaryRequest) -> Summary | Sequence[Message]:
        """The summary of the covered turns and the prior summary."""
        ...


class CompactionStrategy(Protocol):
    """Decides what leaves the view. It changes nothing itself."""

    def compact(self, request: CompactionRequest) -> CompactionResult:
        """What would be covered, pinned and preserved, and the summary in between."""
        ...


class CompactionTrigger(Protocol):
    """Says whether it is time to compact. A plain function is one; it should be cheap."""

    def __call__(self, request: CompactionRequest, /) -> bool:
        """Whether to compact now."""
        ...


def as_data(message: Message) -> Message:
    """The message of a summary; a system message as what an assistant said.

    What was once said must not become an instruction, whoever wrote the summary.
    """
    if message.role is not Role.SYSTEM:
        return message
    return message.model_copy(update={"role": Role.ASSISTANT, "origin": None, "shape": None})


def require_positive(what: str, value: int) -> int:
    """The value itself, or `InvalidSettingError`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:  # pyright: ignore[reportUnnecessaryIsInstance] # callers may be untyped
        raise InvalidSettingError(f"{what} must be a positive whole number, not {shown(value)}.")
    return value


def name_of(rule: object) -> str:
    """How a boundary reports a trigger or a strategy: as it shows itself, or by the name of the function."""
    name = getattr(rule, "__name__", None)
    text = name if isinstance(name, str) else str(rule)
    return text.encode("utf-8", "backslashreplace").decode()[:200]


def _unstored(message: Message) -> SessionEvent:
    """A message as an event, for who counts events."""
    return SessionEvent("unstored", EventType.MESSAGE, 0, datetime.min, message=message)
