"""The view: the messages that the model is told, projected from the log."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

from turnlog.domain.errors import BrokenBoundaryError
from turnlog.domain.ids import check_branch, is_ancestor
from turnlog.domain.log import EventType, SessionEvent
from turnlog.domain.messages import Message


@dataclass(frozen=True)
class View:
    """The message events that make up the view, in order, and the version of the log that it shows."""

    events: tuple[SessionEvent, ...] = ()
    version: int = 0
    named: tuple[str, ...] = field(default=(), compare=False, repr=False)
    """While the summary of the newest boundary is still to come: all that the boundary names, in order."""

    def __repr__(self) -> str:
        return f"View({len(self.events)} messages, version={self.version})"

    def __len__(self) -> int:
        return len(self.events)

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages of the view, in order, those of all branches."""
        return tuple(event.message for event in self.events if event.message)

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """The ids of the view, in order."""
        return tuple(event.id for event in self.events)

    def told_events(self, branch: str | None = None) -> tuple[SessionEvent, ...]:
        """The events that the model of this branch is told: its own and those of its ancestors."""
        if branch is not None:
            check_branch(branch)
        return tuple(event for event in self.events if is_ancestor(event.branch, branch))

    def told(self, branch: str | None = None) -> tuple[Message, ...]:
        """The messages that the model of this branch is told; for the root those without a branch."""
        return tuple(event.message for event in self.told_events(branch) if event.message)


def project(log: Iterable[SessionEvent]) -> View:
    """The view of a whole log: what the newest boundary names, then every later message it does not name.

    Raises `BrokenBoundaryError` when the newest boundary names what the log does not hold as a message.
    """
    log = tuple(log)
    version = log[-1].version if log else 0
    at = next((i for i in range(len(log) - 1, -1, -1) if log[i].boundary), None)
    messages = {event.id: event for event in log if event.type == EventType.MESSAGE}
    if at is None:
        return View(tuple(messages.values()), version)
    boundary = log[at].boundary
    assert boundary is not None  # noqa: S101 - that is how it was found
    missing = [name for name in boundary.named if name not in messages]
    if missing:
        raise BrokenBoundaryError(log[at].id, missing)
    named = set(boundary.named)
    later = (e for e in log[at + 1 :] if e.type == EventType.MESSAGE and e.id not in named)
    return View((*(messages[name] for name in boundary.named), *later), version)


def evolve(view: View, event: SessionEvent) -> View:
    """The view after one more event. Over a log of the service it equals `project` of that log.

    The summary of a boundary follows it in the same write; until its messages come, the view lacks them.
    """
    if event.boundary:
        held = {known.id: known for known in view.events}
        ahead = set(event.boundary.summary)
        missing = [name for name in event.boundary.named if name not in held and name not in ahead]
        if missing:
            raise BrokenBoundaryError(event.id, missing)
        kept = tuple(held[name] for name in event.boundary.named if name in held)
        return View(
            kept, event.version, event.boundary.named if len(kept) < len(event.boundary.named) else ()
        )
    if event.type != EventType.MESSAGE:
        return View(view.events, event.version, view.named)
    if event.id not in view.named:
        return View((*view.events, event), event.version)
    in_front = set(view.named[: view.named.index(event.id)])
    place = sum(known.id in in_front for known in view.events)
    events = (*view.events[:place], event, *view.events[place:])
    return View(events, event.version, view.named if len(events) < len(view.named) else ())


def replay(events: Iterable[SessionEvent]) -> View:
    """The view after these events, one by one."""
    view = View()
    for event in events:
        view = evolve(view, event)
    return view
