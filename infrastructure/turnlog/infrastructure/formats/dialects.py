"""The two chat APIs whose messages files hold as they were sent: how each is recognised and read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

from turnlog.domain.errors import InvalidMessageError
from turnlog.domain.messages import Message, Role
from turnlog.infrastructure.formats import anthropic_messages, openai_chat
from turnlog.infrastructure.formats.imported import ImportReport
from turnlog.infrastructure.formats.json_source import fields, items, text

_ROLES = frozenset(("system", "developer", "user", "assistant", "tool", "function"))
_ANTHROPIC_BLOCKS = frozenset(
    ("tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use", "mcp_tool_use")
)


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer of a model: the message, when it was given, and the choice as the response has it."""

    message: Message
    occurred_at: datetime | None = None
    raw: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one API writes a conversation.

    `conversation` gives the system messages in front and the messages behind them of a request body;
    `answers` the answers of a response body, none when it holds none.
    """

    name: str
    speaks: Callable[[Mapping[str, Any]], bool]
    holds: Callable[[Mapping[str, Any]], bool]
    system: Callable[[Mapping[str, Any]], tuple[Message, ...]]
    messages: Callable[[dict[str, Any]], tuple[Message, ...]]
    answers: Callable[[Mapping[str, Any]], tuple[Answer, ...]]


def message_list(value: object) -> list[Any] | None:
    """The value when it is a list that begins with a message in the form of either API, else None."""
    found = items(value)
    return found if found and text(fields(found[0]), "role") in _ROLES else None


def object_of(raw: object) -> dict[str, Any]:
    """The raw message itself, refused when it is no JSON object."""
    if not isinstance(raw, dict):
        raise InvalidMessageError(f"A message is a JSON object, this is {type(raw).__name__}.")
    return cast("dict[str, Any]", raw)


def note_replaced(messages: Iterable[Message], report: ImportReport) -> None:
    """Count the system messages of a conversation that replace the one before."""
    count = sum(message.role is Role.SYSTEM for message in messages)
    report.noted("later system messages in place of earlier instructions", max(0, count - 1))


def _speaks_openai(exchange: Mapping[str, Any]) -> bool:
    return "choices" in fields(exchange.get("response")) or _url_ends(exchange, "/chat/completions")


def _openai_messages(raw: dict[str, Any]) -> tuple[Message, ...]:
    return (openai_chat.message(raw),)


def _openai_answers(response: Mapping[str, Any]) -> tuple[Answer, ...]:
    occurred_at = _time(response.get("created"))
    about = {name: response[name] for name in ("id", "model", "usage") if response.get(name) is not None}
    answers: list[Answer] = []
    for choice in items(response.get("choices")):
        raw = fields(fields(choice).get("message"))
        if raw:
            message = openai_chat.message(raw)
            metadata = {**about, "finish_reason": fields(choice).get("finish_reason")}
            metadata.update(message.metadata or {})
            answers.append(Answer(message.model_copy(update={"metadata": metadata}), occurred_at, choice))
    return tuple(answers)


def _time(seconds: object) -> datetime | None:
    try:
        return datetime.fromtimestamp(seconds, UTC) if isinstance(seconds, (int, float)) else None
    except (OverflowError, ValueError, OSError):
        return None


def _speaks_anthropic(exchange: Mapping[str, Any]) -> bool:
    return fields(exchange.get("response")).get("type") == "message" or _url_ends(exchange, "/v1/messages")


def _holds_anthropic(record: Mapping[str, Any]) -> bool:
    """Whether a list of messages, with what stands beside it, is in the form of Anthropic's API."""
    if "system" in record:
        return True
    blocks = (fields(b) for raw in items(record.get("messages")) for b in items(fields(raw).get("content")))
    return any(text(block, "type") in _ANTHROPIC_BLOCKS or "source" in block for block in blocks)


def _anthropic_system(record: Mapping[str, Any]) -> tuple[Message, ...]:
    value = record.get("system")
    return (anthropic_messages.system(value),) if value else ()


def _anthropic_answers(response: Mapping[str, Any]) -> tuple[Answer, ...]:
    if not items(response.get("content")):
        return ()
    return (Answer(anthropic_messages.message(response)),)


def _url_ends(exchange: Mapping[str, Any], path: str) -> bool:
    url = text(exchange, "url") or ""
    return url.partition("?")[0].rstrip("/").endswith(path)


OPENAI_CHAT = Dialect(
    name="openai_chat",
    speaks=_speaks_openai,
    holds=lambda record: not _holds_anthropic(record),
    system=lambda record: (),  # noqa: ARG005 - the system messages are in the list
    messages=_openai_messages,
    answers=_openai_answers,
)
ANTHROPIC_MESSAGES = Dialect(
    name="anthropic_messages",
    speaks=_speaks_anthropic,
    holds=_holds_anthropic,
    system=_anthropic_system,
    messages=anthropic_messages.messages,
    answers=_anthropic_answers,
)
