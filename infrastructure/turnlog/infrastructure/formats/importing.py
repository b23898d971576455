"""Reading files of conversations: which format a file has, and what it holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypeAlias

from turnlog.infrastructure.formats import claude_code, exchanges, openai_files, tau2, turnlog_jsonl
from turnlog.infrastructure.formats.dialects import ANTHROPIC_MESSAGES, OPENAI_CHAT, Dialect
from turnlog.infrastructure.formats.imported import (
    ImportedFile,
    ImportedSession,
    ImportReport,
    SessionIds,
    UnknownFormatError,
    UnreadableFileError,
)
from turnlog.infrastructure.formats.json_source import JsonSource, Record

DEFAULT_MAX_SIZE = 256 * 1024 * 1024
"""Bytes of a JSON document, or of one line of a JSONL file, that are read when nothing else is said."""

_HEAD = 20
"""Records that are looked at to tell the format; the first may be damaged."""

Read: TypeAlias = Callable[
    [JsonSource, Iterable[Record], SessionIds, ImportReport], Iterator[ImportedSession]
]


@dataclass(frozen=True, slots=True)
class _Format:
    recognises: Callable[[object], bool]
    read: Read


def read_file(
    path: str | Path,
    *,
    format: str | None = None,  # noqa: A002 - as on the command line
    max_size: int = DEFAULT_MAX_SIZE,
) -> ImportedFile:
    """The conversations of a file, which is checked to its end before this returns. Nothing is written.

    The format is recognised by the content, never by the name, unless `format` says it. A JSON document, or
    each line of a JSONL file, may have `max_size` bytes. Raises `UnreadableFileError` (damaged, truncated,
    malformed; with line and reason), `UnknownFormatError` and `FileTooLargeError`.
    """
    if format is not None and format not in FORMATS:
        raise UnknownFormatError(f"There is no format {format!r}", KNOWN_FORMATS)
    source = JsonSource.open(Path(path), max_size)
    name = format or _recognised(source)
    report = ImportReport()
    session_count = entry_count = 0
    for session in _sessions(source, name, report):
        session_count += 1
        entry_count += len(session.entries)
    if not session_count:
        reason = "; ".join([f"it holds no conversation that can be read as {name}", *report.lines()])
        raise UnreadableFileError(source.path, None, reason)
    return ImportedFile(
        path=source.path,
        format=name,
        sha256=source.sha256,
        session_count=session_count,
        entry_count=entry_count,
        report=report,
        sessions=lambda: _sessions(source, name, ImportReport()),
    )


def _sessions(source: JsonSource, name: str, report: ImportReport) -> Iterator[ImportedSession]:
    return FORMATS[name].read(source, source.records(), SessionIds(source.sha256), report)


def _recognised(source: JsonSource) -> str:
    for record in islice(source.records(), _HEAD):
        for name, format_ in FORMATS.items():
            if format_.recognises(record.value):
                return name
    raise UnknownFormatError(f"The content of {source.path} is of no known format", KNOWN_FORMATS)


def _dialect(dialect: Dialect) -> _Format:
    """Recorded exchanges and plain message lists of one API."""

    def recognises(value: object) -> bool:
        return exchanges.recognises(value, dialect) or openai_files.recognises(value, dialect)

    def read(
        source: JsonSource, records: Iterable[Record], ids: SessionIds, report: ImportReport
    ) -> Iterator[ImportedSession]:
        for record in records:
            form = exchanges if exchanges.is_envelope(record.value) else openai_files
            yield from form.sessions(source, record, dialect, ids, report)

    return _Format(recognises, read)


def _read_tau2(
    source: JsonSource, records: Iterable[Record], ids: SessionIds, report: ImportReport
) -> Iterator[ImportedSession]:
    for record in records:
        yield from tau2.sessions(source, record, ids, report)


def _read_turnlog(
    source: JsonSource, records: Iterable[Record], _: SessionIds, report: ImportReport
) -> Iterator[ImportedSession]:
    return turnlog_jsonl.sessions(source, records, report)


FORMATS: dict[str, _Format] = {
    turnlog_jsonl.NAME: _Format(turnlog_jsonl.recognises, _read_turnlog),
    claude_code.NAME: _Format(claude_code.recognises, claude_code.sessions),
    tau2.NAME: _Format(tau2.recognises, _read_tau2),
    OPENAI_CHAT.name: _dialect(OPENAI_CHAT),
    ANTHROPIC_MESSAGES.name: _dialect(ANTHROPIC_MESSAGES),
}
KNOWN_FORMATS = tuple(FORMATS)
"""The names that `format=` takes."""
