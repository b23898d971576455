"""The errors of the store beneath, as errors of turnlog."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from itertools import count
from typing import TypeVar

from eventsourcing.persistence import (
    ConnectionPoolClosedError,
    IntegrityError,
    OperationalError,
    PersistenceError,
    ProgrammingError,
)

from turnlog.domain.errors import StorageError, StorageLockedError

T = TypeVar("T")

_LOCKED_ATTEMPTS = 3
_CREATING_ATTEMPTS = 12
_LOCKED = ("locked", "busy", "lock timeout", "deadlock")
_CREATING = ("tuple concurrently updated", "pg_type_typname_nsp_index", "pg_class_relname_nsp_index")
"""What PostgreSQL says to processes that create the same tables at once: only one of them did."""


@contextmanager
def storage_errors() -> Generator[None]:
    """Raise what a database says as a `StorageError`; what the writer understands stays what it is."""
    try:
        yield
    except (IntegrityError, ProgrammingError) as error:
        if _is_about_tables(error) or is_locked(error):
            raise storage_error(error) from error
        raise
    except PersistenceError as error:
        raise storage_error(error) from error


def storage_error(error: Exception) -> StorageError:
    """The error of ours for what a database said."""
    said = str(error)
    if is_locked(error):
        return StorageLockedError(
            "The database stayed locked by another writer; nothing was written. "
            "Try again, or raise SQLITE_LOCK_TIMEOUT or POSTGRES_LOCK_TIMEOUT (seconds)."
        )
    if "file is not a database" in said or "malformed" in said:
        return StorageError(f"This is not a database that can be read ({said}). Name another file.")
    if "no such table" in said or "no such column" in said or "has no column" in said:
        return StorageError(f"This database was not made by turnlog ({said}). Name another file.")
    if _state_of(error) == "3F000":
        return StorageError(f"The database refused: {said}. Create it, or name another one.")
    if _is_about_tables(error) and "does not exist" in said:
        return StorageError(
            f"The tables of turnlog are not in this database ({said.splitlines()[0]}). Name another one, or "
            "let an application make them once with CREATE_TABLE=yes."
        )
    if isinstance(error, ConnectionPoolClosedError):
        return StorageError("The service, or the application it runs on, was closed.")
    return StorageError(f"The database refused: {said}")


def is_locked(error: BaseException) -> bool:
    """Whether the database was busy with somebody else's write."""
    said = str(error)
    if _is_creating(error):
        return True
    return isinstance(error, OperationalError) and any(word in said for word in _LOCKED)


def _is_creating(error: BaseException | None) -> bool:
    said = str(error)
    return isinstance(error, PersistenceError) and any(word in said for word in _CREATING)


def _is_about_tables(error: BaseException) -> bool:
    """Whether PostgreSQL refused because of the tables, their owner or schema: error classes 42 and 3F."""
    return _state_of(error).startswith(("42", "3F"))


def _state_of(error: BaseException) -> str:
    """The error code of PostgreSQL, if it is one of its errors."""
    return str(getattr(error.__cause__, "sqlstate", None))


def unlocked(action: Callable[[], T]) -> T:
    """What the action returns, tried again a few times while the database is locked."""
    for attempt in count(1):
        try:
            with storage_errors():
                return action()
        except StorageLockedError as error:
            if attempt == (_CREATING_ATTEMPTS if _is_creating(error.__cause__) else _LOCKED_ATTEMPTS):
                raise
            pause(attempt)
    raise AssertionError("unreachable")


def pause(attempt: int) -> None:
    """Wait a little, longer with each attempt and never the same for two writers."""
    time.sleep(random.uniform(0.5, 1.0) * min(0.05, 0.001 * 2**attempt))  # noqa: S311 - no secret
