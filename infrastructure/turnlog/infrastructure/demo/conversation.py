"""The conversation that the demonstration plays; `airline.md` says where it comes from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.resources import files

from turnlog.domain.messages import Message, Role
from turnlog.infrastructure.formats import openai_chat


def turns() -> Iterator[tuple[Message, ...]]:
    """The messages turn by turn; the first turn begins with the instructions to the model."""
    data = json.loads(files("turnlog.infrastructure.demo").joinpath("airline.json").read_text("utf-8"))
    turn: list[Message] = []
    for message in openai_chat.messages(data["messages"]):
        if message.role is Role.USER and any(known.role is Role.USER for known in turn):
            yield tuple(turn)
            turn = []
        turn.append(message)
    yield tuple(turn)
