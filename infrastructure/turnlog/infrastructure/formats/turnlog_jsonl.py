"""A whole log as JSON lines, out and in again, losslessly.

The first line says which session it is, `{"turnlog": 1, "session": …, "metadata": …}`; then every entry of
the log has a line, in order. Each line is compact JSON that can be written as UTF-8. `time` is the time
that the entry claims for itself, or else that of its recording, so a log that was imported is exported as
it was. A content that was redacted is a placeholder, with `redacted` beside it that says why, by whom and
when; an import takes the placeholder. A file may hold several logs, one after the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, cast

from turnlog.domain.compaction import CompactionResult
from turnlog.domain.errors import TurnlogError
from turnlog.domain.events import StreamEvent
from turnlog.domain.ids import check_id
from turnlog.domain.json_text import to_json_text
from turnlog.domain.log import RESERVED_TYPES, CompactionBoundary, EventType, NewEvent, SessionEvent
from turnlog.domain.messages import Message
from turnlog.domain.session import Session
from turnlog.infrastructure.formats.imported import (
    ImportedAbandonment,
    ImportedBoundary,
    ImportedEntry,
    ImportedEvent,
    ImportedSession,
    ImportReport,
    UnsupportedEventError,
)
from turnlog.infrastructure.formats.json_source import JsonSource, Record, fields, items

NAME = "turnlog"
VERSION = 1
_NOW = datetime(1970, 1, 1, tzinfo=UTC)
"""The time of the rehearsal, which nobody sees."""
_EVIDENCE = frozenset((EventType.PROMPT_CONTENT, EventType.PROMPT_RENDERED, EventType.MODEL_REPLIED))
"""What is about one log: versions, places, bytes. In another log it would be wrong."""
_NOT_IMPORTED = tuple(
    sorted(
        RESERVED_TYPES
        - {EventType.MESSAGE, EventType.COMPACTION, EventType.CALL_ABANDONED, EventType.REDACTION}
        - _EVIDENCE
    )
)


class MalformedExportError(TurnlogError):
    """A line is none that an export writes."""


def lines(session_id: str, metadata: Mapping[str, Any], events: Iterable[SessionEvent]) -> Iterator[str]:
    """The lines of the export, without line ends. `events` is the whole log, in order."""
    yield to_json_text({"turnlog": VERSION, "session": session_id, "metadata": dict(metadata)})
    for event in events:
        yield to_json_text(_line(event))


def recognises(value: object) -> bool:
    """Whether the record opens an export."""
    return "turnlog" in fields(value) and "session" in fields(value)


def sessions(
    source: JsonSource, records: Iterable[Record], report: ImportReport
) -> Iterator[ImportedSession]:
    """The exported logs, each as it was: ids, order, boundaries and all."""
    log: _Log | None = None
    begun: set[str] = set()
    line = 0
    for record in records:
        line = record.line
        with source.at(line):
            if recognises(record.value):
                if log:
                    yield log.session()
                log = _Log(record.value, begun, report)
            elif log:
                entry = fields(record.value)
                if entry.get("type") in _EVIDENCE:
                    report.dropped("recorded prompts and answers: they prove another log")
                    continue
                if entry.get("type") == EventType.REDACTION:
                    report.dropped("redactions: what they removed stands as a placeholder")
                    continue
                if entry.get("type") in _NOT_IMPORTED:
                    raise UnsupportedEventError(source.path, line, entry["type"])
                log.add(entry)
            else:
                raise MalformedExportError("An export begins with a line that has `turnlog` and `session`.")
    if log:
        with source.at(line):
            yield log.session()


class _Log:
    """A log that is read line by line, and rehearsed on a session in memory: writing it will not fail."""

    def __init__(self, header: Mapping[str, Any], begun: set[str], report: ImportReport) -> None:
        if header["turnlog"] is True or header["turnlog"] != VERSION:
            raise MalformedExportError(
                f"This is version {header['turnlog']!r} of the export; version {VERSION} can be read."
            )
        self._id = check_id("Session id", header["session"])
        if self._id in begun:
            raise MalformedExportError(f"Session {self._id!r} begins a second time in this file.")
        begun.add(self._id)
        self._metadata = _object(header, "metadata")
        self._report = report
        self._entries: list[ImportedEntry] = []
        self._ids: set[str] = set()
        self._rehearsal = Session.open(self._id, now=_NOW, metadata=self._metadata)
        self._view: dict[str, SessionEvent] = {}
        self._pass: tuple[ImportedBoundary, list[NewEvent]] | None = None

    def session(self) -> ImportedSession:
        if self._pass:
            raise MalformedExportError("The summary of the newest boundary is not complete.")
        return ImportedSession(self._id, NAME, self._metadata, tuple(self._entries))

    def add(self, line: dict[str, Any]) -> None:
        entry_id, kind = check_id("Event id", line.get("id")), EventType.of(_text(line, "type"))
        if entry_id in self._ids:
            raise MalformedExportError(f"Event {entry_id!r} stands twice in this log.")
        self._ids.add(entry_id)
        if self._pass:
            named, found = self._pass[0].boundary.summary, len(self._pass[1])
            if (entry_id, kind) != (named[found], EventType.MESSAGE) or line.get("synthetic") is not True:
                raise MalformedExportError(
                    "Behind a boundary stand the synthetic messages of its summary, in its order."
                )
        if kind == EventType.COMPACTION:
            self._add_boundary(entry_id, line)
        elif kind == EventType.CALL_ABANDONED:
            self._add_abandonment(entry_id, line)
        else:
            self._add_event(entry_id, kind, line)
        self._rehearsal.pending_events.clear()

    def _add_boundary(self, entry_id: str, line: Mapping[str, Any]) -> None:
        boundary = _boundary(_object(line, "boundary"), _optional(line, "branch"))
        entry = ImportedBoundary(entry_id, boundary, _time(line), _context(line))
        self._report.mapped("boundaries")
        self._entries.append(entry)
        self._pass = (entry, [])
        self._rehearse_pass()

    def _rehearse_pass(self) -> None:
        """Compact as the boundary says, as soon as the messages of its summary are read."""
        if self._pass is None or len(self._pass[1]) < len(self._pass[0].boundary.summary):
            return
        (entry, summary), self._pass = self._pass, None
        result = CompactionResult.of_boundary(entry.boundary, tuple(self._view.values()))
        recorded = self._rehearsal.compact(
            result, boundary_id=entry.id, summary=[(event.id or "", event) for event in summary], now=_NOW
        )
        written = [
            _placed(event.id or "", stored) for event, stored in zip(summary, recorded[1:], strict=True)
        ]
        kept = (*result.pinned_events, *written, *result.preserved_events)
        self._view = {event.id: event for event in kept}

    def _add_abandonment(self, entry_id: str, line: Mapping[str, Any]) -> None:
        payload = _object(line, "payload")
        event_id, call_id = _text(payload, "event_id"), _text(payload, "call_id")
        if event_id not in self._view:
            raise MalformedExportError(f"Event {event_id!r} has no call {call_id!r} that awaits a result.")
        self._rehearsal.abandon(
            event_id=entry_id,
            call_event_id=event_id,
            call_version=self._view[event_id].version,
            call_id=call_id,
            now=_NOW,
        )
        self._report.mapped("abandoned calls")
        self._entries.append(ImportedAbandonment(entry_id, event_id, call_id, _time(line), _context(line)))

    def _add_event(self, entry_id: str, kind: EventType, line: Mapping[str, Any]) -> None:
        message = Message.model_validate(_object(line, "message")) if kind == EventType.MESSAGE else None
        event = NewEvent(
            message=message,
            type=kind,
            payload=None if message else _object(line, "payload"),
            id=entry_id,
            branch=_optional(line, "branch"),
            synthetic=line.get("synthetic") is True,
            occurred_at=_time(line),
        )
        self._report.mapped("messages" if message else f"{kind} events")
        self._entries.append(ImportedEvent(event, _context(line)))
        if self._pass:
            self._pass[1].append(event)
            self._rehearse_pass()
            return
        stored = self._rehearsal.append(event, event_id=entry_id, now=_NOW)
        if message:
            self._view[entry_id] = _placed(entry_id, stored)


def _placed(event_id: str, stored: StreamEvent) -> SessionEvent:
    """The message as a pass names it: by its id and its version."""
    return SessionEvent(event_id, EventType.MESSAGE, stored.originator_version, stored.timestamp)


def _line(event: SessionEvent) -> dict[str, Any]:
    line: dict[str, Any] = {"id": event.id, "type": event.type}
    line["time"] = (event.occurred_at or event.timestamp).isoformat()
    if event.branch is not None:
        line["branch"] = event.branch
    if event.synthetic:
        line["synthetic"] = True
    if event.context:
        line["context"] = dict(event.context)
    if event.boundary:
        line["boundary"] = _boundary_line(event.boundary)
    elif event.message:
        line["message"] = event.message.to_dict()
    else:
        line["payload"] = dict(event.payload or {})
    if event.redacted:
        mark = event.redacted
        line["redacted"] = {"reason": mark.reason, "by": mark.by, "at": mark.at.isoformat()}
    return line


def _boundary_line(boundary: CompactionBoundary) -> dict[str, Any]:
    texts = {"strategy": boundary.strategy, "trigger": boundary.trigger}
    return {
        "pinned": list(boundary.pinned),
        "summary": list(boundary.summary),
        "preserved": list(boundary.preserved),
        "covered_count": boundary.covered_count,
        "tokens_saved": boundary.tokens_saved,
        **{name: text for name, text in texts.items() if text is not None},
    }


def _boundary(line: Mapping[str, Any], branch: str | None) -> CompactionBoundary:
    return CompactionBoundary(
        pinned=_texts(line, "pinned"),
        summary=_texts(line, "summary"),
        preserved=_texts(line, "preserved"),
        branch=branch,
        covered_count=_whole(line, "covered_count"),
        tokens_saved=_whole(line, "tokens_saved"),
        strategy=_optional(line, "strategy"),
        trigger=_optional(line, "trigger"),
    )


def _time(line: Mapping[str, Any]) -> datetime:
    text = _text(line, "time")
    try:
        time = datetime.fromisoformat(text)
        if time.tzinfo is None:
            raise MalformedExportError(f"`time` {text!r} has no offset.")
        time.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise MalformedExportError(f"`time` is {text!r}, which is no ISO time that UTC has.") from error
    return time


def _context(line: Mapping[str, Any]) -> dict[str, str]:
    context = _object(line, "context")
    if not all(isinstance(value, str) for value in context.values()):
        raise MalformedExportError("`context` holds texts only.")
    return context


def _object(line: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The object under this name, empty when there is none."""
    value = line.get(name, {})
    if not isinstance(value, dict):
        raise MalformedExportError(f"`{name}` must be an object.")
    return cast("dict[str, Any]", value)


def _texts(line: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = items(line.get(name))
    if not all(isinstance(item, str) for item in value):
        raise MalformedExportError(f"`{name}` must be a list of texts.")
    return tuple(value)


def _text(line: Mapping[str, Any], name: str) -> str:
    value = line.get(name)
    if not isinstance(value, str):
        raise MalformedExportError(f"`{name}` must be text.")
    return value


def _optional(line: Mapping[str, Any], name: str) -> str | None:
    return _text(line, name) if name in line else None


def _whole(line: Mapping[str, Any], name: str) -> int:
    value = line.get(name, 0)
    if not isinstance(value, int):
        raise MalformedExportError(f"`{name}` must be a whole number.")
    return value
