"""Stored events read back. One that was damaged is an error that names it, whatever is wrong with it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from datetime import datetime, timedelta
from functools import cache
from typing import Any, cast

from eventsourcing.persistence import Mapper, PersistenceError, StoredEvent
from eventsourcing.utils import TopicError

from turnlog.application.ports import StoredRow
from turnlog.domain.entries import entry_of, message_entry
from turnlog.domain.errors import ErasureTargetError, TurnlogError, UnreadableEventError
from turnlog.domain.events import (
    ContentEvent,
    ContentRedacted,
    ExpiryMoved,
    MessageAppended,
    MetadataUpdated,
    SessionOpened,
    StreamEvent,
    as_uuid,
)
from turnlog.domain.json_text import from_json_text
from turnlog.domain.log import SessionEvent

_logger = logging.getLogger("turnlog")


def event_of(mapper: Mapper[Any], row: StoredEvent) -> Any:
    """The event of a stored row. Raises `UnreadableEventError` when it is not one that can be read."""
    try:
        event = mapper.to_domain_event(row)
    except (TurnlogError, PersistenceError):
        raise
    except Exception as error:  # whatever transcoder, compressor, cipher and topic say to such bytes
        raise _of_row(row, undecoded(error)) from error
    if isinstance(event, StreamEvent):
        flaw = _flaw(vars(event), type(event))
        if flaw is not None:
            raise unreadable(event, flaw)
    return event


def event_if_readable(mapper: Mapper[Any], row: StoredEvent) -> Any:
    """The event of a stored row, None where it cannot be read: that is said in the log of the process."""
    try:
        return event_of(mapper, row)
    except UnreadableEventError as error:
        _logger.warning("Rows about sessions are made without an event: %s", error)
        return None


def stream_event_of(mapper: Mapper[Any], row: StoredEvent) -> StreamEvent:
    """The event of a row in the stream of a session."""
    event = event_of(mapper, row)
    if not isinstance(event, StreamEvent):
        raise _of_row(row, f"it is a {type(event).__name__}")
    return event


def target_of(
    redaction: ContentRedacted, row: StoredEvent | None, mapper: Mapper[Any]
) -> tuple[StoredEvent, ContentEvent]:
    """The row and event whose content a redaction removes, of what is stored at the version that it names.

    Raises `ErasureTargetError` where that is not what it names, and `UnreadableEventError`.
    """
    aggregate_id = as_uuid(redaction.originator_id).hex
    if row is None:
        raise ErasureTargetError(aggregate_id, redaction.redacted_version)
    target = event_of(mapper, row)
    if not isinstance(target, ContentEvent) or not (
        target.is_redacted or target.commitment_value() == redaction.commitment_kept
    ):
        raise ErasureTargetError(aggregate_id, redaction.redacted_version, "is not the one that was redacted")
    return row, target


def decoder_of(mapper: Mapper[Any]) -> Callable[[bytes], Any] | None:
    """What reads the state of a stored event, where that is all that the mapper does with it."""
    is_all = type(mapper) is Mapper and mapper.compressor is None and mapper.cipher is None
    return mapper.transcoder.decode if is_all else None


def usual_message(decode: Callable[[bytes], Any], row: StoredRow, session_id: str) -> SessionEvent | None:
    """The entry of a message, made without the event in between: that takes half the time.

    None for any other event, and where something is wrong: the way through the event says what.
    """
    version, topic, state = row
    if topic != MessageAppended.TOPIC:
        return None
    try:
        stored = decode(state)
        if "class_version" in stored or _flaw(stored, MessageAppended) is not None:
            return None
        return message_entry(stored, version, session_id)
    except Exception:  # whatever such bytes make of it
        return None


def entry_in(event: StreamEvent, session_id: str) -> SessionEvent | None:
    """The entry that a reader sees, None for events about the session itself.

    Raises `UnreadableEventError` when the content is not what is written there.
    """
    try:
        return entry_of(event, session_id)
    except (TurnlogError, ValueError, TypeError, KeyError) as error:
        said = str(error).partition("\n")[0]
        why = f"the content of version {event.originator_version}: {said}"
        raise unreadable(event, why, session_id or None) from error
    except Exception as error:
        raise unreadable(event, error, session_id or None) from error


def metadata_in(event: StreamEvent) -> Mapping[str, Any]:
    """The metadata that an event sets. Raises `UnreadableEventError` as `entry_in` does."""
    content = event.content_fields()[0]
    if not content:
        return {}
    try:
        found = from_json_text(content)
    except Exception as error:
        raise unreadable(event, error) from error
    if not isinstance(found, dict):
        raise unreadable(event, "its metadata are no mapping")
    return cast("dict[str, Any]", found)


def _flaw(stored: Mapping[str, object], event_class: type[StreamEvent]) -> str | None:
    """What is said of fields without which no event of this class can be read."""
    required = _required(event_class)
    if not required <= stored.keys():
        return f"{event_class.TOPIC} without its field {min(required - stored.keys())!r}"
    time = stored["timestamp"]
    if not isinstance(time, datetime) or time.tzinfo is None:
        return "its timestamp is no time"
    if type(stored.get("event_id", "")) is not str:
        return "its id is no text"
    return None


def require_kinds(event: StreamEvent) -> None:
    """Raise `UnreadableEventError` for a field that is missing or not of its kind."""
    wrong = wrong_field(event)
    if wrong is not None:
        raise unreadable(event, wrong)


def require_rows(event: StreamEvent) -> None:
    """Raise `UnreadableEventError` unless all can be read that rows about sessions are made of.

    What a message says is none of that.
    """
    (require_kinds if isinstance(event, MessageAppended) else require_readable)(event)


def is_of_newer_version(error: UnreadableEventError) -> bool:
    """Whether the event is of a kind that this version does not know: another one can read it."""
    return isinstance(error.__cause__, TopicError)


def wrong_field(event: StreamEvent) -> str | None:
    """What is said of the first field that is missing or not of its kind."""
    kinds, values = kinds_of(type(event)), vars(event)
    for name in sorted(_required(type(event)) - values.keys() - {"content"}):
        return f"its field {name} is missing"
    for name, value in values.items():
        if name in kinds and not _is_of(value, kinds[name]):
            return f"its field {name} is not of its kind"
    return None


def require_readable(event: StreamEvent) -> None:
    """Raise `UnreadableEventError` unless all that is read of an event can be read."""
    require_kinds(event)
    try:
        event.require_whole()
    except Exception as error:
        raise unreadable(event, error) from error
    entry_in(event, "")
    if isinstance(event, (SessionOpened, MetadataUpdated)) and not event.is_redacted:
        metadata_in(event)
    try:
        if isinstance(event, (SessionOpened, ExpiryMoved)) and event.expires_at is not None:
            datetime.fromisoformat(event.expires_at)
        if isinstance(event, SessionOpened):
            event.state_after(None)
    except Exception as error:
        raise unreadable(event, error) from error


def unreadable(
    event: StreamEvent, why: Exception | str, session_id: str | None = None
) -> UnreadableEventError:
    """The error that says why an event cannot be read."""
    if session_id is None and isinstance(event, SessionOpened):
        session_id = vars(event).get("session_id")
    said = why if isinstance(why, str) else _said(why)
    aggregate_id = as_uuid(event.originator_id).hex
    return UnreadableEventError(said, aggregate_id, event.originator_version, session_id)


@cache
def _required(event_class: type[StreamEvent]) -> frozenset[str]:
    """The fields that each stored event of this class has."""
    required = {
        field.name
        for field in fields(event_class)
        if field.default is MISSING and not field.name.startswith("originator_")
    }
    return frozenset(required | ({"content"} if event_class is MessageAppended else set()))


@cache
def kinds_of(event_class: type[StreamEvent]) -> Mapping[str, str]:
    """The kind of each field, as it is declared: `str`, `int`, `list[str]` or `datetime`."""
    return {
        field.name: str(field.type).removesuffix(" | None")
        for field in fields(event_class)
        if not field.name.startswith("originator_")
    }


def _is_of(value: object, kind: str) -> bool:
    match kind:
        case "str":
            return type(value) is str
        case "int":
            return type(value) is int
        case "list[str]":
            return type(value) is list and all(type(one) is str for one in cast("list[object]", value))
        case _:
            return isinstance(value, datetime) and value.utcoffset() == timedelta(0)


def _of_row(row: StoredEvent, said: str) -> UnreadableEventError:
    return UnreadableEventError(said, as_uuid(row.originator_id).hex, row.originator_version)


def undecoded(error: Exception) -> str:
    """Why a row gives no event, in words and without what is stored there."""
    return "its kind is not known" if isinstance(error, TopicError) else "its bytes cannot be decoded"


def _said(error: Exception) -> str:
    """Why an event cannot be read, in words and without what is stored there."""
    return error.reason if isinstance(error, UnreadableEventError) else "what it holds cannot be decoded"
