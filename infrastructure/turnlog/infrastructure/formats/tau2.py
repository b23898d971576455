"""Results of tau2-bench: each simulation is a session under its own id.

The simulated user has tools of its own. The assistant is never told of these calls, so they and their
results stand on the branch `user`, as calls of that branch's model; what the user then says is at the root.
Arguments, which are objects here, become compact JSON text. Times have no offset, so they say no instant:
they stay in the message's metadata beside usage, cost and the provider's answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from turnlog.domain.errors import InvalidMessageError
from turnlog.domain.json_text import to_json_text
from turnlog.domain.log import NewEvent
from turnlog.domain.messages import (
    Message,
    Part,
    ReasoningPart,
    Role,
    TextPart,
    ToolCallPart,
    ToolCallResponsePart,
)
from turnlog.infrastructure.formats.dialects import object_of
from turnlog.infrastructure.formats.imported import (
    ImportedEvent,
    ImportedSession,
    ImportReport,
    SessionIds,
    UnreadableFileError,
)
from turnlog.infrastructure.formats.json_source import JsonSource, Record, fields, items

NAME = "tau2"
USER_BRANCH = "user"

_SAID = frozenset(("role", "content", "tool_calls", "reasoning", "id", "error", "requestor"))
_ABOUT_SIMULATION = ("task_id", "trial", "seed", "start_time", "end_time", "termination_reason")


def recognises(value: object) -> bool:
    """Whether the record is a file of results."""
    simulations = items(fields(value).get("simulations"))
    return bool(simulations) and isinstance(fields(simulations[0]).get("messages"), list)


def sessions(
    source: JsonSource, record: Record, ids: SessionIds, report: ImportReport
) -> Iterator[ImportedSession]:
    """The simulations in the order of the file."""
    if not recognises(record.value):
        raise UnreadableFileError(source.path, record.line, "there are no results of simulations here")
    info = fields(record.value.get("info"))
    report.dropped("tasks", len(items(record.value.get("tasks"))))
    for index, simulation in enumerate(items(record.value["simulations"])):
        with source.at(record.line, f"simulation {index}"):
            simulation = object_of(simulation)
        session_id, next_id = ids.session(simulation.get("id"))
        entries: list[ImportedEvent] = []
        for position, raw in enumerate(items(simulation.get("messages"))):
            with source.at(record.line, f"simulation {index}, message {position}"):
                branch, message = _message(object_of(raw))
            entries.append(ImportedEvent(NewEvent(message=message, id=next_id(), branch=branch)))
            report.mapped("messages of the user's tools" if branch else "messages")
        yield ImportedSession(session_id, NAME, _metadata(info, simulation), tuple(entries))


def _message(raw: dict[str, Any]) -> tuple[str | None, Message]:
    """The branch that a message is on, and the message."""
    role, content = raw.get("role"), raw.get("content")
    if content is not None and not isinstance(content, str):
        raise InvalidMessageError("`content` is text or null.")
    metadata = {name: value for name, value in raw.items() if name not in _SAID and value is not None}
    calls = [_call(object_of(call)) for call in items(raw.get("tool_calls"))]
    is_of_user = raw.get("requestor") == "user" or (role == "user" and bool(calls))
    shape: dict[str, Any] = {"content": None} if content is None else {}
    if role == "user" and calls:
        shape["role"] = role
    parts: list[Part] = []
    if role == "tool":
        error = {"is_error": True} if raw.get("error") else {}
        parts.append(
            ToolCallResponsePart.model_validate({"id": raw.get("id"), "response": content or "", **error})
        )
    else:
        if isinstance(raw.get("reasoning"), str):
            parts.append(ReasoningPart(content=raw["reasoning"]))
        if content is not None:
            parts.append(TextPart(content=content))
    message = Message.model_validate(
        {
            "role": Role.ASSISTANT if role == "user" and calls else role,
            "parts": (*parts, *calls),
            "origin": NAME,
            "shape": shape or None,
            "metadata": metadata or None,
        }
    )
    return USER_BRANCH if is_of_user else None, message


def _call(call: dict[str, Any]) -> ToolCallPart:
    arguments = call.get("arguments")
    text = arguments if isinstance(arguments, str) else to_json_text(arguments or {})
    return ToolCallPart.model_validate({"id": call.get("id"), "name": call.get("name"), "arguments": text})


def _metadata(info: Mapping[str, Any], simulation: Mapping[str, Any]) -> dict[str, Any]:
    """What tells simulations apart. Settings of models are left out: they can hold keys."""
    metadata = {
        "domain": fields(info.get("environment_info")).get("domain_name"),
        "agent_model": fields(info.get("agent_info")).get("llm"),
        "user_model": fields(info.get("user_info")).get("llm"),
        **{name: simulation.get(name) for name in _ABOUT_SIMULATION},
        "reward": fields(simulation.get("reward_info")).get("reward"),
    }
    return {name: value for name, value in metadata.items() if value is not None}
