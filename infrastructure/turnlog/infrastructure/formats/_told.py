"""What a request is made of: the instructions and the conversation that one model is told."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from turnlog.domain.log import EventType, SessionEvent, superseded_system
from turnlog.domain.messages import Message, Role
from turnlog.domain.view import View


@dataclass(frozen=True)
class Told:
    """System messages that are in force, and the events of all other messages in order."""

    system: tuple[Message, ...]
    conversation: tuple[SessionEvent, ...]


def told(view: View | Iterable[SessionEvent | Message], branch: str | None, system: str | None) -> Told:
    """What the model of this branch is told. A given `system` takes the place of the stored instructions."""
    if not isinstance(view, View):
        view = View(tuple(_event(entry, place) for place, entry in enumerate(view)))
    events = view.told_events(branch)
    superseded = superseded_system(events)
    instructions = [Message.system(system)] if system is not None else []
    for event in events:
        is_in_force = event.id not in superseded and (event.synthetic or system is None)
        if event.message and event.role is Role.SYSTEM and is_in_force:
            instructions.append(event.message)
    return Told(tuple(instructions), tuple(event for event in events if event.role is not Role.SYSTEM))


def _event(entry: SessionEvent | Message, place: int) -> SessionEvent:
    if isinstance(entry, SessionEvent):
        return entry
    return SessionEvent(
        f"#{place}", EventType.MESSAGE, place, datetime.min.replace(tzinfo=UTC), message=entry
    )
