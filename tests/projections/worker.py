"""Processes of their own: python worker.py COMMAND SETTINGS …"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any

from tests.projections.databases import Database, database_of

from turnlog.application.projections import MessageFollowed, SupervisedRunner, ViewProjection
from turnlog.application.projections.batches import Positioned
from turnlog.application.sessions import Sessions
from turnlog.domain.messages import Message

MOST = 12
"""Steps after which a slow process goes no further, so that three of them leave something to do."""


def append(database: Database, name: str, count: str) -> None:
    """Append so many messages, each in a write of its own."""
    with database.service() as sessions:
        sessions.find_or_create(name)
        for number in range(int(count)):
            sessions.append_message(name, Message.user(f"heron {number}"), event_id=f"{name}-{number}")


def stay(steps: Iterator[int], pause: float) -> None:
    """Give somebody time to end this process, who may be late: behind a few steps for ever."""
    time.sleep(pause if next(steps) < MOST else 600)


def slow(kind: type[Any]) -> type[Any]:
    """A store that applies event by event, and says so, for somebody to kill it in between."""
    steps = count()

    apply: Callable[[Any, Sequence[Positioned]], None] = kind.apply

    def slowly(self: Any, batch: Sequence[Positioned]) -> None:
        for item in batch:
            apply(self, [item])
            print(item.position, flush=True)
            stay(steps, 0.002)

    return type("Slow", (kind,), {"apply": slowly})


def follow(database: Database, kind: str = "plain") -> None:
    """Run the view's runner until the input ends."""
    view_class: Any = database.view_class
    runner = SupervisedRunner(
        application_class=Sessions,
        projection_class=ViewProjection,
        view_class=slow(view_class) if kind == "slow" else view_class,
        env=database.env,
    )
    with runner:
        print("following", flush=True)
        sys.stdin.read()


def rebuild(database: Database) -> None:
    """Rebuild all read models, and stay in the middle of it."""

    def told(_: int) -> None:
        print("reading", flush=True)
        time.sleep(600)

    with database.service() as sessions:
        database.models(sessions.app).rebuild(progress=told)


def journal(database: Database, kind: str = "plain") -> None:
    """Run a follower until the input ends; a slow one says what it handles."""
    from tests.projections.journals import Writes, following

    steps = count()

    class Slow(Writes):
        def message(self, into: Any, message: MessageFollowed) -> None:
            super().message(into, message)
            print(f"handled {message.position}", flush=True)
            stay(steps, 0.01)

        def process_page(self, page: Sequence[Positioned]) -> None:
            for item in page:
                super().process_page([item])

    with following(database, Slow if kind == "slow" else Writes):
        print("following", flush=True)
        sys.stdin.read()


COMMANDS: dict[str, Callable[..., None]] = {
    "append": append,
    "follow": follow,
    "rebuild": rebuild,
    "journal": journal,
}

if __name__ == "__main__":
    command, settings, *arguments = sys.argv[1:]
    COMMANDS[command](database_of(json.loads(settings)), *arguments)
