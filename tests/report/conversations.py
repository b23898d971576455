"""Sessions that the tests of the report look at."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from random import Random
from typing import Any

from turnlog.application import SessionService
from turnlog.domain import (
    CompactionWindow,
    EventType,
    Message,
    NewEvent,
    Part,
    ReasoningPart,
    Session,
    SummaryRequest,
    ToolCallPart,
    ToolCallResponsePart,
    WindowCompactionStrategy,
)
from turnlog.domain.ids import aggregate_id

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


def record(
    sessions: SessionService,
    session_id: str,
    kind: str,
    event_id: str,
    payload: dict[str, Any],
    branch: str | None = None,
) -> int:
    """Appends an event of a type that only turnlog itself writes, as its recorder of calls does."""
    session: Session = sessions.app.repository.get(aggregate_id(session_id))
    new = NewEvent(type=EventType(kind), payload=payload, branch=branch)
    session.append(new, event_id=event_id, now=datetime.now(UTC))
    sessions.app.save(session)
    return session.version


def with_calls(sessions: SessionService) -> tuple[str, int]:
    """A session that was compacted, with one recorded call, and the version of its prompt."""
    session_id = of_parcels(sessions, 3)
    sessions.compact(session_id, None, last_turns(2, Digest()))
    system = {"content": "Answer in Swedish."}
    record(sessions, session_id, "PROMPT_CONTENT", "content-abc", system)
    said = sessions.append_message(session_id, Message.user("And now?"))
    shortened = {"of": 3, "message": {"role": "tool", "parts": [{"type": "text", "content": "[shortened]"}]}}
    unstored = {
        "message": {"role": "user", "parts": [{"type": "text", "content": "Never stored"}]},
        "plain": True,
    }
    prompt = {
        "call": "call-1",
        "attempt": 1,
        "view": said.version,
        "model": "some-model",
        "renderer": "openai.chat/1",
        "bytes": 4_321,
        "system": "abc",
        "told": ["0,2", shortened, "5-6,11", unstored],
        "settings": {"max_output_tokens": 99},
    }
    version = record(sessions, session_id, "PROMPT_RENDERED", "call-1", prompt)
    sessions.append_message(session_id, Message.assistant("In Lund."))
    usage = {"input_tokens": 1_234, "output_tokens": 5}
    reply = {"call": "call-1", "attempt": 1, "finish_reason": "stop", "usage": usage, "latency_ms": 810.4}
    record(sessions, session_id, "MODEL_REPLIED", "call-1/reply", reply)
    return session_id, version
