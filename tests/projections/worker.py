"""Processes of their own: python worker.py COMMAND FILE …"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from eventsourcing.sqlite import SQLiteCursor
from tests.projections.activity import env_of, service_on

from turnlog.application.projections import MessageFollowed, SupervisedRunner, ViewProjection
from turnlog.application.projections.batches import Positioned
from turnlog.application.sessions import Sessions
from turnlog.domain.messages import Message
from turnlog.infrastructure.sqlite import SqliteReadModels, SqliteViewStore


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


def rebuild(file: str) -> None:
    """Rebuild all read models, and stay in the middle of it."""

    def told(_: int) -> None:
        print("reading", flush=True)
        time.sleep(60)

    with service_on(Path(file)) as sessions:
        SqliteReadModels(sessions.app).rebuild(progress=told)


def journal(file: str, kind: str = "plain") -> None:
    """Run a follower until the input ends; a slow one says what it handles."""
    from tests.projections.test_following import Journal, Writes

    class Slow(Writes):
        def message(self, into: SQLiteCursor, message: MessageFollowed) -> None:
            super().message(into, message)
            print(f"handled {message.position}", flush=True)
            time.sleep(0.01)

        def process_page(self, page: Sequence[Positioned]) -> None:
            for item in page:
                super().process_page([item])

    runner = SupervisedRunner(
        application_class=Sessions,
        projection_class=Slow if kind == "slow" else Writes,
        view_class=Journal,
        env=env_of(Path(file)),
    )
    with runner:
        print("following", flush=True)
        sys.stdin.read()


COMMANDS: dict[str, Callable[..., None]] = {
    "append": append,
    "follow": follow,
    "rebuild": rebuild,
    "journal": journal,
}

if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    COMMANDS[command](*arguments)
