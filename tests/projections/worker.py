"""Processes of their own: python worker.py COMMAND FILE …"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.projections.activity import env_of, service_on

from turnlog.application.projections import SupervisedRunner, ViewProjection
from turnlog.application.projections.batches import Positioned
from turnlog.application.sessions import Sessions
from turnlog.domain.messages import Message
from turnlog.infrastructure.sqlite import SqliteViewStore


def append(file: str, name: str, count: str) -> None:
    """Append so many messages, each in a write of its own."""
    with service_on(Path(file)) as sessions:
        sessions.find_or_create(name)
        for number in range(int(count)):
            sessions.append_message(name, Message.user(f"heron {number}"), event_id=f"{name}-{number}")


class SlowStore(SqliteViewStore):
    """Applies event by event, and says so, for somebody to kill it in between."""

    def apply(self, batch: Sequence[Positioned]) -> None:
        for item in batch:
            super().apply([item])
            print(item.position, flush=True)
            time.sleep(0.002)


def follow(file: str, kind: str = "plain") -> None:
    """Run the view's runner until the input ends."""
    runner = SupervisedRunner(
        application_class=Sessions,
        projection_class=ViewProjection,
        view_class=SlowStore if kind == "slow" else SqliteViewStore,
        env=env_of(Path(file)),
    )
    with runner:
        print("following", flush=True)
        sys.stdin.read()


COMMANDS: dict[str, Callable[..., None]] = {"append": append, "follow": follow}

if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    COMMANDS[command](*arguments)
