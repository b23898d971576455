"""What a request is made of: the instructions and the conversation that one model is told."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import dropwhile

from turnlog.domain.errors import InvalidEventError, shown
from turnlog.domain.log import EventType, SessionEvent, superseded_system
from turnlog.domain.messages import Message, Role
from turnlog.domain.view import View

_MEANT = "A request is made of a view, or of a list of messages, as in [Message.user(…)], not of {}."


@dataclass(frozen=True)
class Told:
    """System messages that are in force, and the events of all other messages in order."""

    system: tuple[Message, ...]
    conversation: tuple[SessionEvent, ...]


def told(
    view: View | Iterable[SessionEvent | Message],
    branch: str | None,
    system: str | None,
    in_place: bool = False,
) -> Told:
    """What the model of this branch is told. A given `system` takes the place of the stored instructions.

    `in_place` leaves all system messages in the conversation, replaced ones too: what was sent stays.
    """
    if not isinstance(view, View):
        if isinstance(view, (str, Message)) or not isinstance(view, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance] # callers may be untyped
            raise InvalidEventError(_MEANT.format(shown(view)))
        view = View(tuple(_event(entry, place) for place, entry in enumerate(view)))
    events = view.told_events(branch)
    if in_place:
        return _told_in_place(events, system)
    superseded = superseded_system(events)
    instructions = [Message.system(system)] if system is not None else []
    for event in events:
        is_in_force = event.id not in superseded and (event.synthetic or system is None)
        if event.message and event.role is Role.SYSTEM and is_in_force:
            instructions.append(event.message)
    return Told(tuple(instructions), tuple(event for event in events if event.role is not Role.SYSTEM))


def _told_in_place(events: Iterable[SessionEvent], system: str | None) -> Told:
    is_replaced = system is not None
    kept = (e for e in events if not (is_replaced and e.role is Role.SYSTEM and not e.synthetic))
    return Told((Message.system(system),) if system is not None else (), tuple(kept))


def _event(entry: SessionEvent | Message, place: int) -> SessionEvent:
    if isinstance(entry, SessionEvent):
        return entry
    if not isinstance(entry, Message):  # pyright: ignore[reportUnnecessaryIsInstance] # callers may be untyped
        raise InvalidEventError(_MEANT.format(shown(entry)))
    return SessionEvent(
        f"#{place}", EventType.MESSAGE, place, datetime.min.replace(tzinfo=UTC), message=entry
    )


def deepest_branch(conversation: Iterable[SessionEvent | Message]) -> str | None:
    """The branch that is told a conversation which holds nothing but what its model is told."""
    branches = (entry.branch for entry in conversation if isinstance(entry, SessionEvent))
    return max(filter(None, branches), key=lambda branch: branch.count("."), default=None)


def instructions_first(given: Told) -> Told:
    """With the system messages in front of the conversation among the instructions."""
    rest = tuple(dropwhile(lambda event: event.role is Role.SYSTEM, given.conversation))
    first = given.conversation[: len(given.conversation) - len(rest)]
    return Told((*given.system, *(event.message for event in first if event.message)), rest)
