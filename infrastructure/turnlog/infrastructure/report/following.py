"""The view along a whole log, step by step, and what it costs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from turnlog.domain.ids import is_ancestor
from turnlog.domain.log import EventType, SessionEvent, superseded_system
from turnlog.domain.view import View, evolve
from turnlog.infrastructure.report.calls import PROMPT


class FollowedView:
    """The view behind each event of a log. A message that joins it costs nothing but its place."""

    def __init__(self) -> None:
        self._base = View()
        self._later: list[SessionEvent] = []

    @property
    def is_whole(self) -> bool:
        """Whether no message of the newest boundary's summary is still to come."""
        return not self._base.named

    @property
    def events(self) -> tuple[SessionEvent, ...]:
        """The messages of the view, in order."""
        return (*self._base.events, *self._later)

    def step(self, event: SessionEvent) -> None:
        """Go on behind this event."""
        if event.boundary or self._base.named:
            self._base = evolve(View(self.events, event.version, self._base.named), event)
            self._later.clear()
        elif event.type == EventType.MESSAGE:
            self._later.append(event)


@dataclass(frozen=True)
class Step:
    """A boundary: where it took effect, and the tokens in the view in front of it and behind."""

    version: int
    until: int
    before: int
    after: int
    covered: int
    strategy: str | None


@dataclass
class Measures:
    """What a log costs: lists by version, from 0 to the newest. Tokens are estimates."""

    costs: list[int] = field(default_factory=list[int])
    in_view: list[int] = field(default_factory=list[int])
    in_log: list[int] = field(default_factory=list[int])
    boundaries: list[Step] = field(default_factory=list[Step])
    calls: list[int] = field(default_factory=list[int])
    messages: int = 0
    turns: int = 0
    opening: str = ""
    """What the first turn says, if it is text."""
    windows: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """The first and the last version of each part of the report."""

    @property
    def head(self) -> int:
        """The newest version."""
        return len(self.in_view) - 1


def measure(
    events: Iterable[SessionEvent],
    head: int,
    tokens: Callable[[SessionEvent], int],
    *,
    branch: str | None,
    messages_of_part: int,
) -> Measures:
    """Go through the log once, up to this version."""
    measures = Measures()
    followed = _Measured(measures, tokens, branch)
    first, held = 0, 0
    for event in events:
        if event.version > head:
            break
        if held >= messages_of_part and followed.view.is_whole and not event.boundary:
            measures.windows.append((first, event.version - 1))
            first, held = event.version, 0
        followed.step(event)
        held += event.type == EventType.MESSAGE
    followed.fill(head + 1)
    measures.windows.append((first, head))
    return measures


class _Measured:
    """Follows the view and writes down what it costs."""

    def __init__(self, measures: Measures, tokens: Callable[[SessionEvent], int], branch: str | None) -> None:
        self.view = FollowedView()
        self._measures = measures
        self._tokens = tokens
        self._branch = branch
        self._in_view = 0
        self._in_log = 0

    def fill(self, version: int) -> None:
        """What holds at all versions in front of this one that are no entries."""
        missing = version - len(self._measures.in_view)
        self._measures.costs.extend([0] * missing)
        self._measures.in_view.extend([self._in_view] * missing)
        self._measures.in_log.extend([self._in_log] * missing)

    def step(self, event: SessionEvent) -> None:
        """Write down what the log costs with this event."""
        measures = self._measures
        self.fill(event.version)
        cost = self._tokens(event) if event.message else 0
        measures.costs.append(cost)
        was_whole = self.view.is_whole
        before = self._in_view
        self.view.step(event)
        self._in_log += cost
        if event.boundary or not was_whole or event.is_stored_system:
            self._in_view = self._cost_of_view()
        elif event.message and is_ancestor(event.branch, self._branch):
            self._in_view += cost
        measures.in_view.append(self._in_view)
        measures.in_log.append(self._in_log)
        measures.messages += event.message is not None
        measures.turns += event.starts_turn
        if event.starts_turn and not measures.opening:
            measures.opening = (event.text or "").strip()
        if event.type == PROMPT and event.branch == self._branch:
            measures.calls.append(event.version)
        self._note(event, before, was_whole)

    def _note(self, event: SessionEvent, before: int, was_whole: bool) -> None:
        boundaries = self._measures.boundaries
        if event.boundary:
            strategy = event.boundary.strategy
            covered = event.boundary.covered_count
            boundaries.append(Step(event.version, event.version, before, self._in_view, covered, strategy))
        elif not was_whole:
            last = boundaries[-1]
            boundaries[-1] = Step(
                last.version, event.version, last.before, self._in_view, last.covered, last.strategy
            )

    def _cost_of_view(self) -> int:
        told = View(self.view.events).told_events(self._branch)
        superseded = superseded_system(told)
        costs = self._measures.costs
        return sum(costs[event.version] for event in told if event.id not in superseded)
