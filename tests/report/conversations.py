"""Sessions that the tests of the report look at."""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random

from turnlog.application import SessionService
from turnlog.domain import (
    CompactionWindow,
    EventType,
    Message,
    Part,
    ReasoningPart,
    SummaryRequest,
    ToolCallPart,
    ToolCallResponsePart,
    WindowCompactionStrategy,
)

AUDIT = EventType.of("ACME.AUDIT")
BRANCHES = (None, "orch", "orch.researcher", "other")


class Digest:
    """A summarizer that counts."""

    def summarize(self, request: SummaryRequest) -> Sequence[Message]:
        return [
            Message.user("What has happened so far?"),
            Message.assistant(f"{len(request.covered)} messages were said."),
        ]


def last_turns(turns: int, summarizer: Digest | None = None) -> WindowCompactionStrategy:
    return WindowCompactionStrategy(CompactionWindow.last_turns(turns), summarizer)


def of_parcels(sessions: SessionService, turns: int = 6, session_id: str = "parcels") -> str:
    """Instructions, then turns with a thought, a call, its result and an answer."""
    sessions.create(session_id, metadata={"title": "Parcels"})
    sessions.append_message(session_id, Message.system("You look after parcels. " * 20))
    for number in range(1, turns + 1):
        sessions.append_events(session_id, turn(number))
    return session_id


def turn(number: int) -> list[Message]:
    thought: list[Part] = [
        ReasoningPart(content=f"Parcel {number} has to be found."),
        ToolCallPart(id=f"c{number}", name="where", arguments=json.dumps({"parcel": number})),
    ]
    found = [ToolCallResponsePart(id=f"c{number}", name="where", response='{"place":"Lund"}')]
    return [
        Message.user(f"Where is parcel {number}?"),
        Message.assistant(thought),
        Message.tool(found),
        Message.assistant(f"Parcel {number} is in Lund."),
    ]


def at_random(sessions: SessionService, seed: int, steps: int) -> str:
    """Messages of all roles and branches, later instructions, events, passes with and without summaries."""
    random = Random(seed)
    session_id = f"random-{seed}"
    sessions.create(session_id)
    for number in range(steps):
        branch = random.choice(BRANCHES) if random.random() < 0.3 else None
        match random.choice("uuuuaaaasecC"):
            case "u":
                sessions.append_message(session_id, Message.user(f"{number}?"), branch=branch)
            case "a":
                sessions.append_message(session_id, Message.assistant(f"{number}."), branch=branch)
            case "s":
                sessions.append_message(session_id, Message.system(f"Rules {number}"), branch=branch)
            case "e":
                sessions.append_event(session_id, AUDIT, {"number": number})
            case "c":
                sessions.compact(session_id, None, last_turns(random.randint(1, 4)))
            case _:
                sessions.compact(session_id, None, last_turns(random.randint(1, 4), Digest()))
    return session_id
