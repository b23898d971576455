"""The body that each released renderer makes; `python -m tests.audit.golden_bodies` adds what is new.

A body that is there never changes: bodies of recorded calls are made of it. A fix is a renderer of its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from turnlog.application.chat import ChatRequest, ToolDefinition
from turnlog.domain.log import EventType, SessionEvent
from turnlog.domain.messages import BlobPart, Message, ReasoningPart, TextPart, ToolCallPart
from turnlog.infrastructure.models.renderers import RENDERERS

FILE = Path(__file__).parent / "golden" / "bodies.json"
_TIME = datetime(2031, 5, 1, 8, tzinfo=UTC)
_PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

_MESSAGES = (
    Message.system("Be kind."),
    Message.user(
        [
            TextPart(content="Where is it? ≠ 漢字 🙂 \ud800"),
            BlobPart(modality="image", mime_type="image/png", content=_PIXEL),
        ]
    ),
    Message.assistant(
        [
            ReasoningPart(content="I have to look."),
            TextPart(content="Let me see."),
            ToolCallPart(id="c1", name="find", arguments='{"parcel": 1}'),
            ToolCallPart(id="c2", name="find", arguments="no JSON"),
        ]
    ),
    Message.tool("In Lund.", id="c1"),
    Message.user("What happened so far?"),
    Message.assistant("A parcel was found."),
    Message.user("And the other one?"),
)
_FIND = ToolDefinition(
    "find", "Finds a parcel.", {"type": "object", "properties": {"parcel": {"type": "integer"}}}
)

CASES: Mapping[str, Mapping[str, Any]] = {
    "plain": {},
    "streamed": {"stream": True},
    "system, tools and options": {
        "request": {
            "system": "Be brief.",
            "tools": (_FIND,),
            "options": {"temperature": 0.5},
            "max_output_tokens": 99,
        }
    },
    "system in place": {"request": {"system_in_place": True, "cache": True}},
    "elsewhere": {
        "profile": {"server": "other", "provider": "deepseek"},
        "request": {"max_output_tokens": 7},
    },
    "adapted": {"adaptations": ("alternate", "no_temperature"), "request": {"options": {"temperature": 0.5}}},
}


def bodies() -> dict[str, str]:
    """By renderer and case, the body as today's code makes it."""
    made: dict[str, str] = {}
    for renderer, render in RENDERERS.items():
        for case, given in CASES.items():
            body = render(
                ChatRequest(_conversation(), **given.get("request", {})),
                "m-1",
                stream=bool(given.get("stream")),
                adaptations=frozenset(given.get("adaptations", ())),
                profile=given.get("profile", {}),
            )
            made[f"{renderer}: {case}"] = body.decode()
    return made


def kept() -> dict[str, str]:
    """The bodies that are committed."""
    stored: dict[str, str] = json.loads(FILE.read_text("utf-8")) if FILE.exists() else {}
    return stored


def _conversation() -> tuple[SessionEvent, ...]:
    return tuple(
        SessionEvent(f"e{version}", EventType.MESSAGE, version, _TIME, message=message)
        for version, message in enumerate(_MESSAGES, 1)
    )


def main() -> None:
    """Add the bodies that are not there yet; those that are there stay as they are."""
    made = {**bodies(), **kept()}
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(json.dumps(made, ensure_ascii=False, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
