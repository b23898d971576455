"""Recorded API calls, `{"exchanges": [{"url", "status", "request", "response"}]}`, as conversations.

A request and its answer are the history so far. An exchange whose request begins with that history continues
the conversation of the exchange before; any other one starts another conversation. Clients send an answer
back in a form of their own (as one text, without citations, reasoning in `<think>`), so answers are compared
by what they say and call; the log keeps the answer as the model gave it.

Instructions that a request has beside its messages are no part of the history: when they change, the new
ones are appended where they changed. System messages in a row are one stored message; one further down
replaces those before it, and the report counts them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from turnlog.domain.attributes import SessionAttributes
from turnlog.domain.json_text import to_json_text
from turnlog.domain.log import EventType, NewEvent
from turnlog.domain.messages import Message, Role, TextPart, ToolCallPart
from turnlog.infrastructure.formats import _system_runs
from turnlog.infrastructure.formats.dialects import Answer, Dialect, note_replaced, object_of
from turnlog.infrastructure.formats.imported import (
    ImportedEvent,
    ImportedSession,
    ImportReport,
    SessionIds,
)
from turnlog.infrastructure.formats.json_source import JsonSource, Record, fields, items

_THOUGHT = re.compile(r"^\s*<think>.*?</think>", re.DOTALL)


def is_envelope(value: object) -> bool:
    """Whether the record holds exchanges with any API."""
    return isinstance(fields(value).get("exchanges"), list)


def recognises(value: object, dialect: Dialect) -> bool:
    """Whether the record holds exchanges with this API."""
    return any(dialect.speaks(fields(exchange)) for exchange in items(fields(value).get("exchanges")))


def sessions(
    source: JsonSource, record: Record, dialect: Dialect, ids: SessionIds, report: ImportReport
) -> Iterator[ImportedSession]:
    """The conversations of one envelope, in the order of their first exchanges."""
    conversation: _Conversation | None = None
    converted: list[_Said] = []
    for index, exchange in enumerate(items(record.value["exchanges"])):
        with source.at(record.line, f"exchange {index}"):
            answers = _answers(object_of(exchange), dialect, report)
            if not answers:
                continue
            request = fields(exchange["request"])
            converted = _converted(items(request.get("messages")), converted, dialect)
            system, history = _History.of(dialect.system(request)), _History.of_said(converted)
            if conversation is None or not conversation.continues(history):
                if conversation:
                    yield conversation.finished(ids, report)
                conversation = _Conversation(dialect, request.get("model"))
            conversation.append(system, history, answers)
    if conversation:
        yield conversation.finished(ids, report)


def _answers(exchange: dict[str, Any], dialect: Dialect, report: ImportReport) -> tuple[Answer, ...]:
    """What the model answered; nothing when the call failed or was no call of this API."""
    status, response = exchange.get("status"), fields(exchange.get("response"))
    if not response or (isinstance(status, int) and status >= 400):
        report.dropped("failed exchanges")
        return ()
    if not dialect.speaks(exchange) or not items(fields(exchange.get("request")).get("messages")):
        report.dropped("exchanges with another API")
        return ()
    answers = dialect.answers(response)
    if answers:
        report.dropped("sets of tools and settings of requests")
    else:
        report.dropped("failed exchanges")
    return answers


@dataclass(frozen=True, slots=True)
class _Said:
    """A message of a request as it was sent, and what it became."""

    raw: Any
    messages: tuple[Message, ...]
    keys: tuple[Hashable, ...]


def _converted(raw: Sequence[Any], before: Sequence[_Said], dialect: Dialect) -> list[_Said]:
    """The messages of a request; those that the request before had at the same place are not read again."""
    said: list[_Said] = []
    for index, item in enumerate(raw):
        if index < len(before) and before[index].raw == item:
            said.append(before[index])
            continue
        messages = dialect.messages(object_of(item))
        said.append(_Said(item, messages, tuple(_key(message) for message in messages)))
    return said


@dataclass(frozen=True, slots=True)
class _History:
    messages: tuple[Message, ...]
    keys: tuple[Hashable, ...]

    @classmethod
    def of(cls, messages: tuple[Message, ...]) -> _History:
        return cls(messages, tuple(_key(message) for message in messages))

    @classmethod
    def of_said(cls, said: Sequence[_Said]) -> _History:
        messages = (message for one in said for message in one.messages)
        return cls(tuple(messages), tuple(key for one in said for key in one.keys))


@dataclass(slots=True)
class _Conversation:
    dialect: Dialect
    model: object
    system: tuple[Hashable, ...] = ()
    keys: list[Hashable] = field(default_factory=list[Hashable])
    events: list[tuple[Message, datetime | None] | Answer] = field(
        default_factory=list[tuple[Message, datetime | None] | Answer]
    )
    answers: tuple[Answer, ...] = ()

    def continues(self, history: _History) -> bool:
        """Whether this history is that of the conversation, with any of the newest answers, or more."""
        so_far = len(self.keys)
        return (
            len(history.keys) > so_far
            and list(history.keys[:so_far]) == self.keys
            and any(_key(answer.message) == history.keys[so_far] for answer in self.answers)
        )

    def append(self, system: _History, history: _History, answers: tuple[Answer, ...]) -> None:
        """What this exchange adds: the answer before, changed instructions, new messages."""
        known = len(self.keys)
        if self.answers:
            chosen = next(a for a in self.answers if _key(a.message) == history.keys[known])
            self._settle(chosen)
            known += 1
        changed = system.messages if system.keys != self.system else ()
        self.system = system.keys
        added = _system_runs.joined((*changed, *history.messages[known:]))
        self.events += [(message, None) for message in added]
        self.keys = list(history.keys)
        self.answers = answers

    def finished(self, ids: SessionIds, report: ImportReport) -> ImportedSession:
        """The conversation with its last answer."""
        self._settle(self.answers[0])
        session_id, next_id = ids.session()
        entries: list[ImportedEvent] = []
        for event in self.events:
            if isinstance(event, Answer):
                report.kept("answers that the conversation did not go on with")
                kind = EventType.of(f"{self.dialect.name.upper()}.CHOICE")
                entry = NewEvent(type=kind, payload=event.raw, id=next_id(), occurred_at=event.occurred_at)
            else:
                report.mapped("messages")
                entry = NewEvent(message=event[0], id=next_id(), occurred_at=event[1])
            entries.append(ImportedEvent(entry))
        note_replaced((event[0] for event in self.events if not isinstance(event, Answer)), report)
        metadata = {SessionAttributes.MODEL: self.model} if isinstance(self.model, str) else {}
        return ImportedSession(session_id, self.dialect.name, metadata, tuple(entries))

    def _settle(self, chosen: Answer) -> None:
        self.events.append((chosen.message, chosen.occurred_at))
        self.events += [answer for answer in self.answers if answer is not chosen]


def _key(message: Message) -> Hashable:
    """What a message says, whichever way a client writes it."""
    if message.role is Role.ASSISTANT:
        text = _THOUGHT.sub("", "".join(part.content for part in message.parts if isinstance(part, TextPart)))
        calls = tuple((call.name, _arguments(call)) for call in message.tool_calls)
        return message.role, "".join(text.split()), calls
    return message.role, tuple(_said_by(part.to_dict()) for part in message.parts)


def _arguments(call: ToolCallPart) -> str:
    try:
        return json.dumps(json.loads(call.arguments or "{}"), sort_keys=True)
    except (ValueError, RecursionError):
        return call.arguments


def _said_by(part: dict[str, Any]) -> str:
    """A part without what may change from request to request."""
    return to_json_text({name: value for name, value in part.items() if name != "cache_control"})
