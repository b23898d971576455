"""System messages that stand in a row, as one message and apart again.

Of the stored system messages of a branch only the latest is sent. Those in a row belong together, so they are
stored as one message, with their parts in order; its shape says what each of them was. A system message
further down is a message of its own: it replaces those before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from turnlog.domain.messages import Message, Role
from turnlog.infrastructure.formats import _plain
from turnlog.infrastructure.formats._plain import Plain

_RUN = "run"


def joined(messages: Iterable[Message]) -> tuple[Message, ...]:
    """The messages, with one in place of every run of system messages."""
    found: list[Message] = []
    for is_system, neighbours in groupby(messages, key=lambda one: one.role is Role.SYSTEM):
        run = tuple(neighbours)
        found += [_joined(run)] if is_system else run
    return tuple(found)


def apart(said: Message, origin: str) -> Iterator[Message]:
    """The messages that `joined` was given, when they came from this format; else the message itself."""
    run: list[Plain] = _plain.shape_of(said, origin).get(_RUN, [])
    if sum(one["parts"] for one in run) != len(said.parts) or not run:
        yield said
        return
    start = 0
    for one in run:
        end = start + one["parts"]
        own = {"origin": origin, "shape": one.get("shape")}
        yield _plain.message(said.role, said.parts[start:end], own, one.get("fields", {}))
        start = end


def _joined(run: tuple[Message, ...]) -> Message:
    if len(run) == 1:
        return run[0]
    parts = tuple(part for one in run for part in one.parts)
    shape = {_RUN: [_member(one) for one in run]}
    return Message(role=Role.SYSTEM, parts=parts, origin=run[0].origin, shape=shape)


def _member(one: Message) -> Plain:
    further: Plain = {"shape": one.shape, "fields": dict(one.extra)}
    return {"parts": len(one.parts), **{name: value for name, value in further.items() if value}}
