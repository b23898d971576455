"""Calls of a scripted model, recorded as a chat records them: each prompt in the write of its message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from tests.audit.renderers import rendered

from turnlog.application.audit import PromptRecorder
from turnlog.application.chat.model import (
    ChatReply,
    ChatRequest,
    FinishReason,
    RenderedRequest,
    ToolDefinition,
)
from turnlog.application.chat.usage import Usage
from turnlog.application.service import SessionService
from turnlog.domain.filters import EventFilter
from turnlog.domain.log import EventType, NewEvent, SessionEvent
from turnlog.domain.messages import Message

FIND = ToolDefinition("find", "Finds a parcel.", {"type": "object", "properties": {"id": {"type": "string"}}})
USAGE = Usage(input_tokens=1000, output_tokens=100, cache_read_input_tokens=400, provider={"x": 1})


@dataclass(frozen=True)
class Call:
    """One request, before it leaves."""

    session_id: str
    turn_id: str
    branch: str | None
    version: int
    turn_from: int
    attempt: int
    rendered: RenderedRequest
    filter: EventFilter | None = None


@dataclass(frozen=True)
class Asked:
    """How a request is made of the view."""

    renderer: str = "test.openai/1"
    system: str | None = None
    beside: str | None = None
    """Call-only instructions, as a message in front."""
    aside: str | None = None
    """A message that is not stored, at the end."""
    shortens: bool = False
    filter: EventFilter | None = None
    tools: tuple[ToolDefinition, ...] = ()
    stream: bool = False
    adaptations: tuple[str, ...] = ()
    profile: dict[str, str] = field(default_factory=dict[str, str])
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    branch: str | None = None


class ScriptedChat:
    """Stores a message with the prompt that it causes, answers it, and keeps every body that it sent."""

    def __init__(self, sessions: SessionService, session_id: str, recorder: PromptRecorder) -> None:
        self._sessions = sessions
        self._sid = session_id
        self._recorder = recorder
        self._turns = 0
        self.sent: dict[tuple[str, int], bytes] = {}

    def say(self, text: str, asked: Asked, *, resends: Sequence[str] = (), answer: bool = True) -> str:
        """One turn; `resends` are adaptations with each of which the request is sent again."""
        view = self._sessions.view(self._sid)
        self._turns += 1
        message = Message.user(text)
        pending = _not_yet(message, view.version + 1, asked.branch)
        conversation = self._conversation(view.told_events(asked.branch), pending, asked)
        request = ChatRequest(
            tuple(conversation), asked.tools, asked.system, max_output_tokens=50, options=asked.options
        )
        call = Call(
            self._sid,
            f"turn {self._turns}",
            asked.branch,
            view.version + 1,
            view.version + 1,
            1,
            self._rendered(request, asked, asked.adaptations),
            asked.filter,
        )
        stored = self._sessions.append_events(
            self._sid, [NewEvent(message=message, branch=asked.branch), *self._recorder.prompt(call)]
        )
        call_id = stored[-1].id
        self.sent[call_id, 1] = call.rendered.body
        for attempt, adaptation in enumerate(resends, 2):
            again = self._rendered(request, asked, (*asked.adaptations, adaptation))
            call = replace(call, attempt=attempt, rendered=again)
            self._sessions.append_events(self._sid, self._recorder.prompt(call))
            self.sent[call_id, attempt] = again.body
        if answer:
            reply = ChatReply(Message.assistant(f"on {text}"), FinishReason.STOP, "stop", USAGE, "r-1", "m-1")
            recorded = self._recorder.reply(call, reply)
            assert recorded is not None
            answered = NewEvent(message=reply.message, branch=asked.branch)
            self._sessions.append_events(self._sid, [answered, recorded])
        return call_id

    def _conversation(
        self, told: Sequence[SessionEvent], pending: SessionEvent, asked: Asked
    ) -> list[SessionEvent]:
        events = list(told)
        if asked.filter is not None:
            kept = {event.id for event in asked.filter.apply(told)}
            events = [event for event in events if event.id in kept]
        if asked.shortens:
            events = [_shortened(event) for event in events]
        events.append(pending)
        if asked.beside is not None:
            events.insert(0, _not_yet(Message.system(asked.beside), -1, None))
        if asked.aside is not None:
            events.append(_not_yet(Message.user(asked.aside), -1, asked.branch))
        return events

    @staticmethod
    def _rendered(request: ChatRequest, asked: Asked, adaptations: Sequence[str]) -> RenderedRequest:
        return rendered(
            request,
            asked.renderer,
            stream=asked.stream,
            adaptations=adaptations,
            profile=asked.profile,
        )


def _not_yet(message: Message, version: int, branch: str | None) -> SessionEvent:
    return SessionEvent(
        "", EventType.MESSAGE, version, datetime.min.replace(tzinfo=UTC), branch=branch, message=message
    )


def _shortened(event: SessionEvent) -> SessionEvent:
    if event.message is None or len(event.message.text or "") < 20:
        return event
    shorter = Message.of(event.message.role, f"[{event.id}: {len(event.message.text or '')} characters]")
    return replace(event, message=shorter)
