"""What happens to sessions, for read models to follow."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

from turnlog.application.service import SessionService
from turnlog.domain.compaction import SummaryRequest
from turnlog.domain.log import EventType, NewEvent
from turnlog.domain.messages import Message
from turnlog.domain.triggers import TurnCountTrigger
from turnlog.domain.view import View
from turnlog.domain.window import CompactionWindow, WindowCompactionStrategy

PLAIN = "eventsourcing.sqlite:SQLiteApplicationRecorder"
FOLLOWABLE = "turnlog.infrastructure.sqlite:SqliteFollowableRecorder"


class Words:
    """Counts words."""

    def estimate(self, message: Message) -> int:
        return len((message.text or "").split())


def env_of(path: Path, recorder: str | None = None) -> dict[str, str]:
    env = {"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": str(path)}
    return {**env, "APPLICATION_RECORDER_TOPIC": recorder} if recorder else env


def service_on(path: Path, recorder: str | None = None) -> SessionService:
    return SessionService(env=env_of(path, recorder), token_estimator=Words())


class Summarizer:
    """Says how much it was given."""

    def summarize(self, request: SummaryRequest) -> list[Message]:
        said = f"{len(request.covered)} messages about a heron"
        return [Message.user("What was said?"), Message.assistant(said)]


def compact(sessions: SessionService, name: str, turns: int = 1, *, summary: bool = True) -> None:
    window = CompactionWindow.last_turns(turns)
    strategy = WindowCompactionStrategy(window, Summarizer() if summary else None)
    sessions.compact(name, TurnCountTrigger(1), strategy)


def turn(sessions: SessionService, name: str, text: str = "a heron", branch: str | None = None) -> None:
    said = (Message.user(text), Message.assistant(f"about {text}"))
    sessions.append_events(name, [NewEvent(message=message, branch=branch) for message in said])


class Life:
    """Random steps in the life of a few sessions, the same for the same seed."""

    def __init__(self, sessions: SessionService, seed: int) -> None:
        self._sessions = sessions
        self._random = random.Random(seed)
        self.names: list[str] = []
        self._made = 0

    def step(self) -> None:
        sessions, chance = self._sessions, self._random
        if not self.names or chance.random() < 0.12:
            self._made += 1
            name = f"session {self._made}"
            sessions.create(name, metadata={"user.name": chance.choice(("ada", "bob")), "n": self._made})
            self.names.append(name)
        name = chance.choice(self.names)
        kind = chance.choice(("turn",) * 8 + ("compact", "compact", "bare", "branch", "event", "meta", "end"))
        match kind:
            case "turn":
                turn(sessions, name, f"heron {chance.randint(1, 99)}")
            case "branch":
                turn(sessions, name, "aside", branch="scout")
            case "compact":
                compact(sessions, name, chance.randint(1, 3))
            case "bare":
                compact(sessions, name, chance.randint(1, 3), summary=False)
            case "event":
                sessions.append_event(name, EventType.of("ACME.AUDIT"), {"heron": 1})
            case "meta":
                sessions.update_metadata(name, {"title": f"heron {chance.randint(1, 9)}"})
            case _:
                self.names.remove(name)
                sessions.delete(name)


def live(sessions: SessionService, seed: int, steps: int) -> Life:
    life = Life(sessions, seed)
    for _ in range(steps):
        life.step()
    return life


def views(sessions: SessionService, names: list[str]) -> Mapping[str, View]:
    return {name: sessions.view(name) for name in names}
