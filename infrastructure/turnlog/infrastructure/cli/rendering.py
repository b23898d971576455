"""Events as people read them on a terminal."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from rich.text import Text

from turnlog.application.turns import CallReference
from turnlog.domain.log import CompactionBoundary, SessionEvent
from turnlog.domain.messages import (
    Message,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolCallResponsePart,
)
from turnlog.domain.query import said_at
from turnlog.domain.rendering import event_text, response_text
from turnlog.infrastructure.cli.output import one_line, one_line_of, visible

STYLES = {"system": "magenta", "user": "bold cyan", "assistant": "green", "tool": "yellow"}
"""The style of each role."""

_COVERED = "·"


def event_line(event: SessionEvent, width: int | None) -> Text:
    """The event on one line: version, whether it left the view, when it was said (UTC), and what it says."""
    left = f"{event.version:>6} {_COVERED if event.archived else ' '} {said_at(event):%H:%M:%S}  "
    style = "dim" if event.archived else STYLES.get(event.role or "", "bold")
    text = said(event)
    room = None if width is None else max(20, width - len(left))
    return Text.assemble((left, "dim"), (one_line(text) if room is None else one_line_of(text, room), style))


def message_block(event: SessionEvent, open_calls: Collection[CallReference] = ()) -> Text:
    """The message in full: a line that says whose it is, then its parts. Calls that are open say so."""
    message = event.message or Message.system(None)
    about = [f"version {event.version}"]
    if event.branch is not None:
        about.append(f"branch {one_line(event.branch)}")
    if event.synthetic:
        about.append("summary")
    role = message.role.value
    block = Text.assemble((role, STYLES[role]), (f"  {' · '.join(about)}", "dim"))
    for part in message.parts:
        block.append("\n").append_text(_part(part))
        if isinstance(part, ToolCallPart) and CallReference(event.id, part.id or "") in open_calls:
            block.append(f"  (call {visible(part.id or '')} waits for approval or for later work)", "blue")
    return block


def boundary_text(boundary: CompactionBoundary) -> str:
    """What a boundary did, in one sentence."""
    kept = len(boundary.pinned) + len(boundary.preserved)
    summary = f", {len(boundary.summary)} of summary" if boundary.summary else ""
    why = " when ".join(filter(None, (boundary.strategy, boundary.trigger)))
    return (
        f"Compaction: {boundary.covered_count:,} left the view, {kept:,} kept{summary}, "
        f"about {boundary.tokens_saved:,} tokens saved{f' ({why})' if why else ''}"
    )


def said(event: SessionEvent) -> str:
    """What the entry says, whoever says it; not yet safe for a terminal."""
    branch = f"[{event.branch}] " if event.branch is not None else ""
    if event.boundary:
        return branch + boundary_text(event.boundary)
    if event.message:
        return f"{branch}{'(summary) ' if event.synthetic else ''}{event_text(event)}"
    payload = json.dumps(event.payload or {}, ensure_ascii=False)
    return branch + (_in_words(event) or f"{event.type} {payload}")


def _in_words(event: SessionEvent) -> str | None:
    """What an event of turnlog's own types says; None for one of an application."""
    about = event.payload or {}
    match event.type:
        case "REDACTION":
            named = f" ({about['event_id']})" if "event_id" in about else ""
            what = f"version {about.get('version')}{named}"
            return f"Redaction of {what} by {about.get('by')}: {about.get('reason')}"
        case "CALL_ABANDONED":
            return f"Call {about.get('call_id')} of event {about.get('event_id')} was abandoned"
        case "PROMPT_CONTENT":
            return "(recorded) system text or tools of prompts"
        case "PROMPT_RENDERED":
            told = f"told the view at version {about.get('view')}, {about.get('bytes', 0):,} bytes"
            return f"(recorded) {about.get('call')}: {about.get('model') or 'a model'} is asked, {told}"
        case "MODEL_REPLIED":
            usage: Mapping[str, Any] = about.get("usage") or {}
            told = used(usage.get("input_tokens"), usage.get("output_tokens"), " tokens")
            ended = about.get("finish_reason") or "answered"
            return f"(recorded) {about.get('call')}: {', '.join(filter(None, (ended, told)))}"
        case _:
            return None


def used(into: int | None, out: int | None, unit: str = "") -> str:
    """The tokens of a call that are known; nothing when none are.

    >>> used(1200, None, " tokens")
    '1,200 tokens in'
    """
    known = ((into, f"{unit} in"), (out, f"{'' if into is not None else unit} out"))
    return ", ".join(f"{count:,}{what}" for count, what in known if count is not None)


def _part(part: Part) -> Text:
    match part:
        case TextPart():
            return Text(visible(part.content))
        case ReasoningPart():
            return Text(f"(thought) {visible(part.content or '')}", "dim italic")
        case ToolCallPart():
            return Text(f"→ {visible(part.name)}({visible(part.arguments)})", "blue")
        case ToolCallResponsePart():
            name = part.name or part.id or ""
            return Text.assemble((f"← {visible(name)}: ", "blue"), visible(response_text(part)))
        case _:
            kept = {name: value for name, value in part.to_dict().items() if name not in ("type", "content")}
            return Text(f"[{visible(part.type)}] {visible(json.dumps(kept, ensure_ascii=False))}", "dim")
