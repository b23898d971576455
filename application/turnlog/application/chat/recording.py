"""The seam for those who record what a model was told: an event with each request, one with each answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol, TypeAlias

from turnlog.application.chat.model import ChatReply, RenderedRequest
from turnlog.domain.filters import EventFilter
from turnlog.domain.log import EventType, NewEvent, SessionEvent
from turnlog.domain.messages import Message

_NO_TIME = datetime.min.replace(tzinfo=UTC)

Recorded: TypeAlias = NewEvent | Sequence[NewEvent] | None
"""Events that go into the same write, or none."""


@dataclass(frozen=True)
class UnstoredMessage:
    """A message of a request that is not in the log, and its place in the request's conversation."""

    place: int
    message: Message


@dataclass(frozen=True)
class ModelCall:
    """One request to a model, before it leaves.

    `version` is that of the view that was rendered: the version which the message that causes the call gets
    in the same write. `filter` chose among the events in front of the turn, which begins at `turn_from`.
    `placeholders` are the texts sent in place of tool results, by the id of their event; `left_out` the ids
    of events of the turn that were not sent at all. What was sent and is in no log is in `unstored`.
    `attempt` counts from 1 within the call; an attempt whose body differs is recorded again. `seconds` is how
    long the answer took, once it is whole.
    """

    session_id: str
    turn_id: str
    branch: str | None
    version: int
    turn_from: int
    attempt: int
    rendered: RenderedRequest
    seconds: float | None = None
    filter: EventFilter | None = None
    placeholders: Mapping[str, str] = field(default_factory=dict[str, str])
    left_out: tuple[str, ...] = ()
    unstored: tuple[UnstoredMessage, ...] = ()


class CallRecorder(Protocol):
    """Makes the events that record a call. It is asked while nothing is held and must not write itself."""

    def prompt(self, call: ModelCall) -> Recorded:
        """What is written in front of the request, in the write of the message that causes it.

        It may be asked again for a call that another writer overtook: only the last answer is written.
        """
        ...

    def reply(self, call: ModelCall, reply: ChatReply) -> Recorded:
        """What is written with the answer."""
        ...


class NoRecorder:
    """Records nothing."""

    def prompt(self, call: ModelCall) -> Recorded:  # noqa: ARG002 - the protocol's argument
        """Nothing."""
        return None

    def reply(self, call: ModelCall, reply: ChatReply) -> Recorded:  # noqa: ARG002 - the protocol's arguments
        """Nothing."""
        return None


def as_events(recorded: Recorded) -> tuple[NewEvent, ...]:
    """The events that were given, none or one of them included."""
    if recorded is None:
        return ()
    return (recorded,) if isinstance(recorded, NewEvent) else tuple(recorded)


def unstored(
    message: Message, *, branch: str | None = None, version: int = -1, synthetic: bool = False
) -> SessionEvent:
    """A message in the form of an event of the log, though it is not there; with a version: not yet."""
    return SessionEvent(
        "", EventType.MESSAGE, version, _NO_TIME, branch=branch, synthetic=synthetic, message=message
    )
