"""The errors of the store beneath, as errors of turnlog."""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from itertools import count
from traceback import walk_tb
from types import TracebackType
from typing import TypeVar

from eventsourcing.persistence import (
    ConnectionPoolClosedError,
    ConnectionUnavailableError,
    DatabaseError,
    DataError,
    IntegrityError,
    InterfaceError,
    InternalError,
    MapperDeserialisationError,
    NotSupportedError,
    OperationalError,
    PersistenceError,
    ProgrammingError,
)
from eventsourcing.utils import TopicError

from turnlog.domain.errors import (
    StorageClosedError,
    StorageDeniedError,
    StorageError,
    StorageFullError,
    StorageLockedError,
    StorageReadOnlyError,
    StorageUnavailableError,
    UnreadableEventError,
    WriteUncertainError,
)

T = TypeVar("T")

FENCE = "turnlog: rows about sessions are kept in this database, and this writer does not write them"
"""What a database with rows says to a process that would write events without them."""

END_IS_GONE = "turnlog: the row of this session tells of events that its log does not have"
"""What a database with rows says to whoever would write in the place of events that are gone."""

_LOCKED_ATTEMPTS = 3
_CREATING_ATTEMPTS = 12
_STARTING = 10.0
"""Seconds in which processes that start at once make a store. SQLite lets those who find a new file wait for
nothing: it refuses at once."""

_LOCKED = ("locked", "busy", "lock timeout", "deadlock")
_CREATING = (
    "tuple concurrently updated",
    "pg_type_typname_nsp_index",
    "pg_class_relname_nsp_index",
    "pg_proc_proname_args_nsp_index",
)
"""What PostgreSQL says to processes that create the same tables at once: only one of them did."""

_DUPLICATE_TABLE = "42P07"
"""The same, although it was asked for IF NOT EXISTS."""

_KINDS: Mapping[str, type[PersistenceError]] = {
    kind.__name__: kind
    for kind in (
        *(DataError, IntegrityError, InterfaceError, InternalError, OperationalError, ProgrammingError),
        *(NotSupportedError, DatabaseError),
    )
}
"""By the name that a driver's error has, the framework's."""

_FULL = frozenset(("53100", "SQLITE_FULL", "SQLITE_IOERR_WRITE"))
_READ_ONLY = frozenset(("25006",))
_DENIED = frozenset(("42501", "SQLITE_PERM", "SQLITE_AUTH"))
_UNSYNCED = frozenset(("SQLITE_IOERR_FSYNC", "SQLITE_IOERR_DIR_FSYNC", "SQLITE_IOERR_TRUNCATE"))
"""Error codes of PostgreSQL, and names of those of SQLite."""


_READ_MODEL = "turnlog_"
"""With what the names of tables begin that are derived from the log; on PostgreSQL it is behind a name."""


class _StorageErrors(AbstractContextManager[None]):
    """A class, since a generator would cost every read and write a microsecond."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            _raise_translated(error)


class _WritingErrors(AbstractContextManager[None]):
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            return
        said = error
        try:
            _raise_translated(error)
        except StorageError as translated:
            said = translated
        if not isinstance(said, StorageError) or isinstance(said, WriteUncertainError):
            return
        if _broke_off(said.__cause__):
            raise WriteUncertainError(_said(said.__cause__)) from said
        if said is not error:
            raise said from said.__cause__


_STORAGE_ERRORS = _StorageErrors()
_WRITING_ERRORS = _WritingErrors()


def storage_errors() -> AbstractContextManager[None]:
    """Raise what a database says as a `StorageError`; what the writer understands stays what it is.

    What a mapper cannot read is an `UnreadableEventError`.
    """
    return _STORAGE_ERRORS


def writing_errors() -> AbstractContextManager[None]:
    """The same around a save: where it broke off such that nobody knows, `WriteUncertainError`."""
    return _WRITING_ERRORS


def _raise_translated(error: BaseException) -> None:
    """Raise what this error of the framework or a driver is to a caller; return where it is left as it is.

    When a command of PostgreSQL fails before the framework has sent those behind it, it raises what became of
    the latter ("pipeline aborted"); the reason is what it wanted to raise.
    """
    said = (_reason(error) if isinstance(error, OperationalError) else None) or error
    if isinstance(said, (IntegrityError, ProgrammingError)):
        if _is_about_tables(said) or is_locked(said) or _state_of(said) in _DENIED:
            raise storage_error(said) from said
        if FENCE in str(said) or END_IS_GONE in str(said):
            raise storage_error(said) from said
    elif isinstance(said, (PersistenceError, ConnectionPoolClosedError, sqlite3.Error)):
        raise storage_error(said) from said
    elif isinstance(said, (TopicError, MapperDeserialisationError)):
        raise UnreadableEventError(str(said).splitlines()[0]) from said
    if said is not error:
        raise said from said.__cause__


def _reason(error: OperationalError) -> PersistenceError | None:
    if type(error.__cause__).__name__ != "PipelineAborted":
        return None
    for frame, _ in walk_tb(error.__traceback__):
        wanted = frame.f_locals.get("exc") if frame.f_code.co_name == "insert_events" else None
        if isinstance(wanted, Exception) and (kind := kind_of(wanted)) is not None:
            reason = kind(str(wanted))
            reason.__cause__ = wanted
            return reason
    return None


def kind_of(error: Exception) -> type[PersistenceError] | None:
    """Which error of the framework's this one of a driver is; their names are those of Python's DB-API."""
    names = (cls.__name__ for cls in type(error).__mro__)
    return next((_KINDS[name] for name in names if name in _KINDS), None)


def storage_error(error: Exception) -> StorageError:
    """The error of ours for what a database said."""
    said = _said(error)
    if is_locked(error):
        return StorageLockedError(
            "The database stayed locked by another writer; nothing was written. "
            "Try again, or raise SQLITE_LOCK_TIMEOUT or POSTGRES_LOCK_TIMEOUT (seconds)."
        )
    if FENCE in said:
        return StorageError(
            "Rows about sessions are kept in this database by now, and this process does not write them: "
            "nothing was written. Put SessionRows in front of its recorder (or leave "
            "APPLICATION_RECORDER_TOPIC unset), and start it anew."
        )
    if END_IS_GONE in said:
        return StorageError(
            "The newest events of the session are gone: its log ends before the version that its row tells "
            "of. Nothing was written. `turnlog check` names them: restore them from a backup, or go on "
            "without them after `turnlog rebuild`."
        )
    if isinstance(error, ConnectionUnavailableError):
        return StorageUnavailableError(
            f"No connection to the database was to be had ({said}): all of this process are in use. Nothing "
            "was written. Try again, or let fewer threads read at once."
        )
    state, name = _state_of(error), _sqlite_name(error)
    if state in _FULL or name in _FULL:
        return StorageFullError(said)
    if state in _READ_ONLY or name.startswith("SQLITE_READONLY"):
        return StorageReadOnlyError(said)
    if state in _DENIED or name in _DENIED:
        return StorageDeniedError(said)
    if "malformed" in said:
        return StorageError(
            f"The file of the database is damaged ({said}): restore a backup, as docs/howto/damaged-log.md "
            "says."
        )
    if "file is not a database" in said:
        return StorageError(f"This is not a database that can be read ({said}). Name another file.")
    if "no such table" in said or "no such column" in said or "has no column" in said:
        if said.removeprefix("no such table: ").removeprefix("main.").startswith((_READ_MODEL, "tracking")):
            return StorageError(
                f"A table of turnlog is missing ({said}). Nothing was written: `turnlog rebuild` makes it "
                "anew from the log."
            )
        return StorageError(
            f"This database was not made by turnlog, or by another version of it ({said}). "
            "Nothing was written: name another file, or use that version."
        )
    if name.startswith("SQLITE_CANTOPEN"):
        return StorageError(
            f"The database file cannot be opened ({said}): it is no file, its folder does not exist, or this "
            "user may not. Nothing was written."
        )
    if state == "3F000":
        return StorageError(f"The database refused: {said}. Create it, or name another one.")
    if _is_about_tables(error) and "does not exist" in said and f"_{_READ_MODEL}" in said:
        return StorageError(
            f"A table of turnlog is missing ({said}). Nothing was written: `turnlog rebuild` makes it anew, "
            "with what the log has for it; in a database without any, an application with CREATE_TABLE=yes "
            "does."
        )
    if _is_about_tables(error) and "does not exist" in said:
        return StorageError(
            f"The tables of turnlog are not in this database ({said}). Name another one, or "
            "let an application make them once with CREATE_TABLE=yes."
        )
    if _is_closed(error):
        return StorageClosedError()
    if _is_lost(error):
        return StorageUnavailableError(f"The server of the database does not answer ({said}). Try again.")
    return StorageError(f"The database refused: {said.rstrip('.')}.")


def is_locked(error: BaseException) -> bool:
    """Whether the database was busy with somebody else's write."""
    if _is_creating(error):
        return True
    is_refusal = isinstance(error, (OperationalError, sqlite3.OperationalError))
    return is_refusal and any(word in str(error) for word in _LOCKED)


def _is_creating(error: BaseException | None) -> bool:
    said = str(error)
    if not isinstance(error, PersistenceError):
        return False
    return _state_of(error) == _DUPLICATE_TABLE or any(word in said for word in _CREATING)


def _is_about_tables(error: BaseException) -> bool:
    """Whether PostgreSQL refused because of the tables, their owner or schema: error classes 42 and 3F."""
    return _state_of(error).startswith(("42", "3F"))


def _state_of(error: BaseException) -> str:
    """The error code of PostgreSQL, if it is one of its errors."""
    return str(getattr(error.__cause__, "sqlstate", None))


def _sqlite_name(error: BaseException) -> str:
    """The name of the error code of SQLite, if it is one of its errors."""
    raised = error if isinstance(error, sqlite3.Error) else error.__cause__
    return str(getattr(raised, "sqlite_errorname", None))


def _is_closed(error: BaseException) -> bool:
    """Whether the pool was closed from which a connection was asked."""
    return isinstance(error, ConnectionPoolClosedError) or type(error.__cause__).__name__ == "PoolClosed"


def _is_lost(error: BaseException | None) -> bool:
    """Whether the connection to a server broke, was ended, or was not to be had."""
    if not isinstance(error, (OperationalError, InterfaceError)) or _is_closed(error):
        return False
    state = getattr(error.__cause__, "sqlstate", "")
    return state is None or state.startswith(("08", "57P"))


def _broke_off(error: BaseException | None) -> bool:
    """Whether a write ended such that it may be stored: without an answer, or by a disk that did not sync."""
    return error is not None and (_is_lost(error) or _sqlite_name(error) in _UNSYNCED)


def _said(error: BaseException | None) -> str:
    """What a database said, without where in its own functions it was."""
    return next(iter(str(error).splitlines()), "")


def started(action: Callable[[], T]) -> T:
    """What the action returns that opens a store, tried again while others make it."""
    return unlocked(action, patience=_STARTING)


def unlocked(action: Callable[[], T], *, patience: float = 0.0) -> T:
    """What the action returns, tried again while the database is locked: a few times, and for so long."""
    until = time.monotonic() + patience
    for attempt in count(1):
        try:
            with storage_errors():
                return action()
        except StorageLockedError as error:
            most = _CREATING_ATTEMPTS if _is_creating(error.__cause__) else _LOCKED_ATTEMPTS
            if attempt >= most and time.monotonic() >= until:
                raise
            pause(attempt)
    raise AssertionError("unreachable")


def pause(attempt: int) -> None:
    """Wait a little, longer with each attempt and never the same for two writers."""
    time.sleep(random.uniform(0.5, 1.0) * min(0.05, 0.001 * 2 ** min(attempt, 6)))  # noqa: S311 - no secret
