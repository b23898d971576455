"""Recorded conversations: those of this repository, or those of the folder `TURNLOG_TRANSCRIPTS`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

_OWN = Path(__file__).parents[2] / "data" / "transcripts"
FOLDER = Path(os.environ.get("TURNLOG_TRANSCRIPTS") or _OWN)


def files(kind: str) -> list[Path]:
    """The transcripts of a kind, such as `openai_chat`."""
    return sorted(path for path in (FOLDER / kind).iterdir() if path.suffix in (".json", ".jsonl"))


def recorded_requests(path: Path) -> list[dict[str, Any]]:
    """The request bodies that a file recorded; none when it holds no exchanges."""
    return [one["request"] for one in _exchanges(_content(path))]


def conversations(path: Path) -> Iterator[list[dict[str, Any]]]:
    """The conversations of a file in the format of its provider, each as its messages in order.

    Of exchanges each is one conversation: the request's system text and messages, then the response; of the
    Responses API the items of both.
    """
    content = _content(path)
    if "exchanges" in content:
        for exchange in _exchanges(content):
            request, response = exchange["request"], exchange["response"]
            if "input" in request:
                yield [*_input_items(request), *response.get("output", ())]
                continue
            system = [{"role": "system", "content": request["system"]}] if "system" in request else []
            answers = [one["message"] for one in response.get("choices", ())]
            answers += [response] if response.get("type") == "message" else []
            yield [*system, *request["messages"], *answers]
    else:
        for record in content:
            yield record.get("traj") or record["messages"]


def answers(path: Path) -> list[dict[str, Any]]:
    """The answers that a file recorded, each as the provider's body."""
    return [one["response"] for one in _exchanges(_content(path)) if not one["response"].get("error")]


def _input_items(request: dict[str, Any]) -> list[Any]:
    given = request["input"]
    return [{"role": "user", "content": given}] if isinstance(given, str) else given


def claude_code_messages(path: Path) -> list[dict[str, Any]]:
    """The messages with a role of a Claude Code file, in the order of its lines."""
    return [record["message"] for record in _content(path) if _has_message(record)]


def _has_message(record: Any) -> bool:
    return isinstance(record, dict) and "role" in cast("dict[str, Any]", record).get("message", ())


def _exchanges(content: Any) -> list[dict[str, Any]]:
    if "exchanges" not in content:
        return []
    return list(content["exchanges"])


def _content(path: Path) -> Any:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".json":
        return json.loads(text)
    return [json.loads(line) for line in text.splitlines() if line.strip()]
