"""What can go wrong on the command line, and the exit status that says so."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from eventsourcing.persistence import MapperDeserialisationError, PersistenceError
from eventsourcing.utils import TopicError

from turnlog.application.audit import NoSummaryError, UnknownCallError
from turnlog.application.chat import MissingKeyError, ModelError
from turnlog.application.storage import storage_error
from turnlog.domain.errors import (
    InvalidSettingError,
    LegalHoldError,
    SessionIdUnavailableError,
    SessionNotFoundError,
    StorageError,
    StorageLockedError,
    StorageUnavailableError,
    TurnInProgressError,
    TurnlogError,
    UnknownEventError,
    UnknownHoldError,
    UnknownVersionError,
    UnreadableEventError,
    VersionConflictError,
    WriteUncertainError,
    shown,
)
from turnlog.domain.query import InvalidArgumentError
from turnlog.infrastructure.cli.settings import Place, Status
from turnlog.infrastructure.formats.writing import LogsDivergedError


class CommandUsageError(TurnlogError):
    """The options of a command do not go together."""


class AmbiguousIdError(TurnlogError):
    """Several sessions have ids that begin as the given one."""

    def __init__(self, prefix: str, candidates: Sequence[str], *, more: bool) -> None:
        named = ", ".join(map(repr, candidates)) + (" and more" if more else "")
        super().__init__(f"Several sessions begin with {prefix!r}: {named}. Give more of the id.")
        self.prefix = prefix
        self.candidates = tuple(candidates)


class DatabaseNotFoundError(TurnlogError):
    """There is no database file of this name, and the command would not make one."""

    def __init__(self, path: Place) -> None:
        super().__init__(
            f"There is no database {str(path)!r}. Name one with --db or TURNLOG_DB, "
            "or make one with `turnlog import FILE`."
        )
        self.path = path


class InputFileError(TurnlogError):
    """A file that was named for an import is none. Nothing of any file was imported."""

    def __init__(self, path: Path) -> None:
        reason = "is not a regular file" if path.exists() else "does not exist"
        super().__init__(f"{path} {reason}. Nothing was imported: name another file.")
        self.path = path


class NothingRecordedError(TurnlogError):
    """The session holds nothing of the kind that was asked for."""


class NotYetBegunError(TurnlogError):
    """The session had not begun at the time that was asked for."""

    def __init__(self, session_id: str, asked: datetime, first: datetime) -> None:
        super().__init__(
            f"Session {shown(session_id)} had not begun at {asked.isoformat()}: its first event was recorded "
            f"at {first.isoformat()}. --at takes a time of recording: `time` in `turnlog log ID --json`."
        )
        self.session_id = session_id
        self.asked = asked
        self.first = first


class NotSummarizedError(TurnlogError):
    """No summary of a session came."""

    def __init__(self, session_id: str, reason: str) -> None:
        super().__init__(f"There is no summary of {shown(session_id)}: {reason}.")
        self.session_id = session_id


class ForeignDatabaseError(StorageError):
    """It is a database of something else."""

    def __init__(self, path: Place) -> None:
        super().__init__(f"{str(path)!r} is a database that was not made by turnlog. Name another one.")
        self.path = path


class UnknownApplicationError(StorageError):
    """The database has no sessions of the application that was named for it."""

    def __init__(self, place: Place, variable: str, named: str, known: Collection[str]) -> None:
        has = (
            f"It has those of {', '.join(sorted(known))}: name one of these" if known else "Name another one"
        )
        super().__init__(
            f"{str(place)!r} has no sessions of an application {named!r}, which {variable} names. {has}, "
            "or unset the variable."
        )
        self.place = place


class UnusableDatabaseError(StorageError):
    """It cannot be used as a database."""

    def __init__(self, path: Place, reason: str) -> None:
        super().__init__(f"The database {str(path)!r} cannot be used: {reason}.")
        self.path = path


class UnreachableDatabaseError(StorageError):
    """The server of the database cannot be reached, or does not let this user in."""

    def __init__(self, place: Place, reason: str) -> None:
        super().__init__(f"The database {str(place)!r} cannot be reached: {reason}")
        self.place = place


_STATUSES: tuple[tuple[type[Exception], Status], ...] = (
    (CommandUsageError, Status.USAGE),
    (AmbiguousIdError, Status.USAGE),
    (InvalidSettingError, Status.USAGE),
    (InvalidArgumentError, Status.USAGE),
    (DatabaseNotFoundError, Status.NOT_FOUND),
    (SessionNotFoundError, Status.NOT_FOUND),
    (UnknownVersionError, Status.NOT_FOUND),
    (NotYetBegunError, Status.NOT_FOUND),
    (UnknownEventError, Status.NOT_FOUND),
    (UnknownHoldError, Status.NOT_FOUND),
    (UnknownCallError, Status.NOT_FOUND),
    (NothingRecordedError, Status.NOT_FOUND),
    (NoSummaryError, Status.NOT_FOUND),
    (NotSummarizedError, Status.FOUND_OR_NOTHING_TO_DO),
    (MissingKeyError, Status.USAGE),
    (ModelError, Status.UNREACHABLE),
    (TurnInProgressError, Status.CONFLICT),
    (StorageLockedError, Status.CONFLICT),
    (UnreachableDatabaseError, Status.UNREACHABLE),
    (StorageUnavailableError, Status.UNREACHABLE),
    (WriteUncertainError, Status.UNREACHABLE),
    (VersionConflictError, Status.CONFLICT),
    (SessionIdUnavailableError, Status.CONFLICT),
    (LegalHoldError, Status.CONFLICT),
    (LogsDivergedError, Status.CONFLICT),
    (TurnlogError, Status.BAD_INPUT),
    (OSError, Status.BAD_INPUT),
)


_OPTIONS: Final[Mapping[str, str]] = {
    "`reason`": "--reason",
    "`by`": "--by",
    ", or give `api_key`": "",
    ": `send` one.": ": say one with --message.",
    "`replace=True` (--force on the command line)": "--force",
}
"""What the options are called where programs pass arguments, and what only programs can give."""


def told(error: Exception) -> str:
    """The message of the error and the notes on it, in the words of the command line."""
    message = str(error)
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        message = f"{error.filename}: {error.strerror}."
    if isinstance(error, SessionNotFoundError):
        message = message.replace("Create it first, or check its id.", "`turnlog sessions` lists them.")
    for argument, option in _OPTIONS.items():
        message = message.replace(argument, option)
    if isinstance(error, UnknownHoldError) and error.holds:
        message += " The option for that is --placed-at VERSION."
    return " ".join((message, *getattr(error, "__notes__", ())))


def typed(error: Exception) -> Exception:
    """The error itself, or the one of ours for what a database said."""
    if isinstance(error, (PersistenceError, sqlite3.Error)):
        return storage_error(error)
    if isinstance(error, (TopicError, MapperDeserialisationError)):
        return UnreadableEventError(str(error).splitlines()[0])
    return error


def status_of(error: Exception) -> Status | None:
    """The exit status for the error; None when nobody expected it."""
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), None)
