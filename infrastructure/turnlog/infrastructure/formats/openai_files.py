"""Files of plain message lists: a list, records with `messages` or `traj`, one record or many, JSON or JSONL.

A record may be the body of a request, with `system` and `model` beside its messages. Its `id`, when it has
one that can be used, is the id of the session, and its further plain values are metadata. System messages in
a row are one stored message; one further down replaces those before it, and the report counts them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from turnlog.domain.attributes import SessionAttributes
from turnlog.domain.log import NewEvent
from turnlog.domain.messages import Message
from turnlog.infrastructure.formats import _system_runs
from turnlog.infrastructure.formats.dialects import Dialect, message_list, note_replaced, object_of
from turnlog.infrastructure.formats.imported import (
    ImportedEvent,
    ImportedSession,
    ImportReport,
    SessionIds,
    UnreadableFileError,
)
from turnlog.infrastructure.formats.json_source import JsonSource, Record, fields, items

_LISTS = ("messages", "traj")


def recognises(value: object, dialect: Dialect) -> bool:
    """Whether the record holds message lists in the form of this API."""
    conversations = _conversations(value)
    if not conversations or message_list(conversations[0]["messages"]) is None:
        return False
    return dialect.holds(conversations[0])


def sessions(
    source: JsonSource, record: Record, dialect: Dialect, ids: SessionIds, report: ImportReport
) -> Iterator[ImportedSession]:
    """The conversations of one record, each a session."""
    conversations = _conversations(record.value)
    if not conversations:
        raise UnreadableFileError(source.path, record.line, "there is no list of messages here")
    for index, conversation in enumerate(conversations):
        messages: list[Message] = []
        with source.at(record.line, f"conversation {index}"):
            messages += dialect.system(conversation)
        for position, raw in enumerate(conversation["messages"]):
            with source.at(record.line, f"conversation {index}, message {position}"):
                messages += dialect.messages(object_of(raw))
        stored = _system_runs.joined(messages)
        report.mapped("messages", len(stored))
        note_replaced(stored, report)
        session_id, next_id = ids.session(conversation.get("id"))
        entries = tuple(ImportedEvent(NewEvent(message=message, id=next_id())) for message in stored)
        yield ImportedSession(session_id, dialect.name, _metadata(conversation, report), entries)


def _conversations(value: object) -> list[dict[str, Any]]:
    """The records of a value, each with its list under `messages`; empty when one of them has none."""
    if message_list(value):
        return [{"messages": value}]
    records = [fields(record) for record in (items(value) or [value])]
    found = [_with_messages(record) for record in records]
    return [record for record in found if record] if all(found) else []


def _with_messages(record: dict[str, Any]) -> dict[str, Any] | None:
    name = next((name for name in _LISTS if isinstance(record.get(name), list)), None)
    if name is None:
        return None
    return {**{key: item for key, item in record.items() if key != name}, "messages": record[name]}


def _metadata(conversation: Mapping[str, Any], report: ImportReport) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    for name, value in conversation.items():
        if name == "model" and isinstance(value, str):
            metadata[SessionAttributes.MODEL] = value
        elif isinstance(value, (str, int, float)) and name != "system":
            metadata[name] = value
        elif name not in ("messages", "system") and value is not None:
            report.dropped(f"`{name}` of records")
    return metadata
