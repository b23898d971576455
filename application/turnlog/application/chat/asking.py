"""What a model is asked: the view, the messages of the turn, and what goes with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from turnlog.application.chat.calibration import Estimate, ratio_of
from turnlog.application.chat.model import ChatRequest
from turnlog.application.chat.recording import UnstoredMessage
from turnlog.application.chat.settings import ChatSettings
from turnlog.application.chat.shortening import Shortened, shortened
from turnlog.domain.filters import EventFilter
from turnlog.domain.log import SessionEvent, superseded_system
from turnlog.domain.messages import Role
from turnlog.domain.view import View


@dataclass(frozen=True)
class Aside:
    """A message of the turn that is not stored; it stands behind the event of this version."""

    behind: int
    event: SessionEvent


@dataclass(frozen=True)
class Asked:
    """A request, and how it came about."""

    request: ChatRequest
    version: int
    estimate: Estimate | None = None
    placeholders: Mapping[str, str] = field(default_factory=dict[str, str])
    left_out: tuple[str, ...] = ()
    unstored: tuple[UnstoredMessage, ...] = ()


@dataclass(frozen=True)
class Asking:
    """Makes the requests of one turn. `beside` are events that stand for instructions and tools."""

    settings: ChatSettings
    tokens: Callable[[SessionEvent], int]
    model: str
    branch: str | None
    chosen: EventFilter | None
    instructions: tuple[SessionEvent, ...]

    @property
    def beside(self) -> tuple[SessionEvent, ...]:
        """What goes with each request and is not in the view."""
        return (*self.instructions, *self.settings.tools.events)

    def cost_of(self, request: ChatRequest) -> int:
        """The tokens of the request, by our own estimate."""
        events = [event for event in request.conversation if isinstance(event, SessionEvent)]
        return self._cost((*events, *self.settings.tools.events))

    def ask(
        self,
        view: View,
        turn_from: int,
        asides: Sequence[Aside],
        pending: Sequence[SessionEvent],
        limit: int | None,
    ) -> Asked:
        """The request over this view. Of the turn, which begins at a version, everything is sent.

        `pending` are messages that are stored with the request; `limit` is in tokens of the provider.
        """
        told = view.told_events(self.branch)
        before = [event for event in told if event.synthetic or event.version < turn_from]
        own = [event for event in told if not event.synthetic and event.version >= turn_from]
        chosen = self._chosen(before)
        front, history, turn = self._parted(chosen, [*_with_asides(own, asides), *pending])
        cut = self._shortened(front, history, turn, limit, told)
        conversation = (*front, *history, *cut.events)
        is_view = len(chosen) == len(before) and not (asides or cut.placeholders or cut.left_out)
        stored_with = sum(event.version >= 0 for event in pending)
        return Asked(
            ChatRequest(
                conversation=conversation,
                tools=self.settings.tools.definitions,
                max_output_tokens=self.settings.max_output_tokens,
                options=self.settings.options,
                cache=self.settings.cache,
                system_in_place=self.settings.system == "in_place",
            ),
            version=view.version + stored_with,
            estimate=self._estimate(conversation, len(told) + stored_with) if is_view else None,
            placeholders=cut.placeholders,
            left_out=cut.left_out,
            unstored=tuple(
                UnstoredMessage(place, event.message)
                for place, event in enumerate(conversation)
                if event.message and event.version < 0
            ),
        )

    def _chosen(self, events: Sequence[SessionEvent]) -> list[SessionEvent]:
        """What the filter leaves; instructions use no slot of `last_n` or a page."""
        if self.chosen is None:
            return list(events)
        uncut = replace(self.chosen, last_n=None, page=None, page_size=None)
        kept = {e.id for e in self.chosen.apply(event for event in events if event.role is not Role.SYSTEM)}
        kept |= {event.id for event in events if event.role is Role.SYSTEM and uncut.matches(event)}
        return [event for event in events if event.id in kept]

    def _parted(
        self, history: list[SessionEvent], turn: list[SessionEvent]
    ) -> tuple[list[SessionEvent], list[SessionEvent], list[SessionEvent]]:
        """Instructions, what stands in front of the turn, and the turn. Superseded instructions are gone."""
        superseded = superseded_system([*history, *turn])
        history = [event for event in history if event.id not in superseded]
        turn = [event for event in turn if event.id not in superseded]
        if self.settings.system == "in_place":
            return list(self.instructions), history, turn
        front = [event for event in (*history, *turn) if event.role is Role.SYSTEM]
        return (
            [*front, *self.instructions],
            [event for event in history if event.role is not Role.SYSTEM],
            [event for event in turn if event.role is not Role.SYSTEM],
        )

    def _shortened(
        self,
        front: Sequence[SessionEvent],
        history: Sequence[SessionEvent],
        turn: Sequence[SessionEvent],
        limit: int | None,
        told: Sequence[SessionEvent],
    ) -> Shortened:
        if limit is None:
            return Shortened(tuple(turn))
        beside = self._cost((*front, *history, *self.settings.tools.events))
        budget = int(limit / ratio_of(told, self.model)) - beside
        return shortened(turn, budget, self.settings.keep_tool_results, self.tokens)

    def _estimate(self, conversation: Sequence[SessionEvent], events: int) -> Estimate | None:
        if not self.settings.counts:
            return None
        return Estimate(self._cost((*conversation, *self.settings.tools.events)), events, self.model)

    def _cost(self, events: Sequence[SessionEvent]) -> int:
        return sum(map(self.tokens, events))


def _with_asides(events: Sequence[SessionEvent], asides: Sequence[Aside]) -> list[SessionEvent]:
    """The stored events of the turn with the others where they were said."""
    if not asides:
        return list(events)
    placed = [(event.version, 0, event) for event in events]
    placed += ((aside.behind, 1 + order, aside.event) for order, aside in enumerate(asides))
    return [event for _, _, event in sorted(placed, key=lambda one: one[:2])]
