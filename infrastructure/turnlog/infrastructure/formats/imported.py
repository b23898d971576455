"""What reading a file of conversations gives: sessions to be written, a report, and typed errors."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeAlias

from turnlog.domain.errors import InvalidIdError, TurnlogError
from turnlog.domain.ids import check_id
from turnlog.domain.log import CompactionBoundary, NewEvent

_PLURAL = re.compile(r"\b(answer|call|exchange|message|record|redaction|set|task)s\b")


class ImportFileError(TurnlogError):
    """A file cannot be imported. Nothing of it was written."""


class UnreadableFileError(ImportFileError):
    """The file is damaged, truncated or holds what cannot be kept; `line` is where, when it is known."""

    def __init__(self, path: Path, line: int | None, reason: str) -> None:
        place = f"{path}, line {line}" if line else str(path)
        super().__init__(f"{place}: {reason.rstrip('.')}. Nothing was imported: mend the file and try again.")
        self.path = path
        self.line = line
        self.reason = reason


class UnsupportedEventError(ImportFileError):
    """An exported log holds an event of a type that only turnlog writes and this release cannot import."""

    def __init__(self, path: Path, line: int, event_type: str) -> None:
        super().__init__(
            f"{path}, line {line}: events of type {event_type} are written by turnlog alone, and this "
            "release cannot import them. Nothing was imported: use the release that exported the log or a "
            "later one."
        )
        self.path = path
        self.line = line
        self.event_type = event_type


class UnknownFormatError(ImportFileError):
    """The content is of no format that can be imported, or the format that was asked for does not exist."""

    def __init__(self, subject: object, known: tuple[str, ...]) -> None:
        super().__init__(f"{subject}. Formats that can be imported: {', '.join(known)}.")
        self.known = known


class FileTooLargeError(ImportFileError):
    """A JSON document, or one line of a JSONL file, is larger than allowed. Both figures are bytes."""

    def __init__(self, path: Path, size: int, max_size: int, line: int | None = None) -> None:
        what = (
            f"{path} has {size} bytes" if line is None else f"{path}, line {line}, has {size} bytes or more"
        )
        super().__init__(f"{what}; at most {max_size} are read at once. Raise the limit (--max-size).")
        self.path = path
        self.size = size
        self.max_size = max_size
        self.line = line


@dataclass(frozen=True, slots=True)
class ImportedEvent:
    """A message or an event of the application's own. It has an id, so that a second import is a repeat.

    `may_grow` says that a later state of the file may hold more parts of this message under the same id.
    """

    event: NewEvent
    context: Mapping[str, str] = field(default_factory=dict[str, str])
    may_grow: bool = False


@dataclass(frozen=True, slots=True)
class ImportedBoundary:
    """A COMPACTION boundary of an exported log. The messages of its summary follow it, in its order."""

    id: str
    boundary: CompactionBoundary
    occurred_at: datetime | None = None
    context: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class ImportedAbandonment:
    """An awaited call of an exported log that will get no result."""

    id: str
    event_id: str
    call_id: str
    occurred_at: datetime | None = None
    context: Mapping[str, str] = field(default_factory=dict[str, str])


ImportedEntry: TypeAlias = ImportedEvent | ImportedBoundary | ImportedAbandonment
"""One entry of an imported log."""


@dataclass(frozen=True, slots=True)
class ImportedSession:
    """One conversation of a file, in the order of its log. `source` is the name of the format."""

    id: str
    source: str
    metadata: Mapping[str, Any]
    entries: tuple[ImportedEntry, ...]

    @property
    def events(self) -> tuple[NewEvent, ...]:
        """The messages and the application's own events, without boundaries."""
        return tuple(entry.event for entry in self.entries if isinstance(entry, ImportedEvent))


class Fate(StrEnum):
    """What became of something that a file holds."""

    MAPPED = "mapped"
    KEPT = "kept as it came"
    DROPPED = "dropped"
    NOTED = "noted"


class ImportReport:
    """How much of a file was mapped, kept as it came, or dropped, by kind, and what else is to be known."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[Fate, str]] = Counter()

    def mapped(self, what: str, count: int = 1) -> None:
        """Part of the conversation."""
        self._add(Fate.MAPPED, what, count)

    def kept(self, what: str, count: int = 1) -> None:
        """In the log, but outside the conversation or in the file's own form."""
        self._add(Fate.KEPT, what, count)

    def dropped(self, what: str, count: int = 1) -> None:
        """Not in the log."""
        self._add(Fate.DROPPED, what, count)

    def noted(self, what: str, count: int = 1) -> None:
        """In the log, but not as a reader of the file would expect."""
        self._add(Fate.NOTED, what, count)

    def of(self, fate: Fate) -> dict[str, int]:
        """The kinds of this fate, in the order in which they were met."""
        return {what: count for (its, what), count in self.counts.items() if its is fate}

    def lines(self) -> list[str]:
        """One line for people per fate and kind, as in `mapped: 12 messages`."""
        return [f"{fate}: {_counted(count, what)}" for fate in Fate for what, count in self.of(fate).items()]

    def _add(self, fate: Fate, what: str, count: int) -> None:
        if count:
            self.counts[fate, what] += count


@dataclass(frozen=True, slots=True)
class ImportedFile:
    """A file that was checked to its end.

    `sessions()` reads it a second time and gives one conversation at a time, so that a long file need not be
    held; it raises `UnreadableFileError` when the file was changed in between.
    """

    path: Path
    format: str
    sha256: str
    session_count: int
    entry_count: int
    report: ImportReport
    sessions: Callable[[], Iterator[ImportedSession]]


@dataclass(slots=True)
class SessionIds:
    """Ids of the sessions and events of one file: the data's own, or made from its hash and the position.

    The same file gives the same ids, so a second import completes the first and repeats nothing.
    """

    digest: str
    _taken: set[str] = field(default_factory=set[str])
    _count: int = 0

    def session(self, own: object = None) -> tuple[str, Callable[[], str]]:
        """The id of the next session, and what gives the ids of its events one after the other."""
        position = self._count
        self._count += 1
        made = f"{self.digest[:16]}-{position}"
        session_id = own if isinstance(own, str) and self._is_free(own) else made
        self._taken.add(session_id)
        numbers = iter(range(1 << 62))
        return session_id, lambda: f"{made}-{next(numbers)}"

    def _is_free(self, own: str) -> bool:
        try:
            check_id("Session id", own)
        except InvalidIdError:
            return False
        return own not in self._taken


def _counted(count: int, what: str) -> str:
    """The number and the kind, of which one is not several."""
    return f"{count} {_PLURAL.sub(lambda found: found[1], what, count=1) if count == 1 else what}"
