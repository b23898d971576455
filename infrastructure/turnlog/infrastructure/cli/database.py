"""Opening the database of the command line, and finding a session in it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

from eventsourcing.persistence import PersistenceError

from turnlog.application import Sessions, SessionService
from turnlog.application.projections.errors import ReadModelOutdatedError
from turnlog.domain.errors import (
    SessionNotFoundError,
    StorageDeniedError,
    StorageError,
    StorageFullError,
    StorageLockedError,
    StorageReadOnlyError,
    UnknownEventError,
)
from turnlog.infrastructure.cli.failures import (
    AmbiguousIdError,
    DatabaseNotFoundError,
    ForeignDatabaseError,
    UnusableDatabaseError,
)
from turnlog.infrastructure.cli.postgres import application_on_postgres, on_postgres
from turnlog.infrastructure.cli.settings import Place

LAST = "@last"
"""Names the newest session."""

_CANDIDATES = 5
_TYPED = (
    StorageLockedError,
    StorageFullError,
    StorageReadOnlyError,
    StorageDeniedError,
    ReadModelOutdatedError,
)
"""Errors that say enough as they are."""

_PLAIN_RECORDER = "eventsourcing.sqlite:SQLiteApplicationRecorder"


@contextmanager
def reading(place: Place) -> Generator[SessionService]:
    """The sessions of an existing database, which is opened such that it cannot be changed."""
    opened = _reading_file(place) if isinstance(place, Path) else on_postgres(place, "read")
    with opened as service:
        yield service


@contextmanager
def changing(place: Place, *, create: bool = False) -> Generator[SessionService]:
    """The sessions of a database that may be written; with `create` it is made if it does not exist."""
    if isinstance(place, Path):
        opened = _changing_file(place, create=create)
    else:
        opened = on_postgres(place, "create" if create else "change")
    with opened as service:
        yield service


@contextmanager
def _reading_file(path: Path) -> Generator[SessionService]:
    if not path.exists():
        raise DatabaseNotFoundError(path)
    _require_file(path)
    with _opened(path, "mode=ro", _tables(path)) as service:
        yield service


@contextmanager
def _changing_file(path: Path, *, create: bool) -> Generator[SessionService]:
    if not path.exists():
        if not create:
            raise DatabaseNotFoundError(path)
        if not path.absolute().parent.is_dir():
            raise UnusableDatabaseError(path, "its folder does not exist")
    else:
        _require_file(path)
    tables = _tables(path) if path.exists() else frozenset[str]()
    with _opened(path, "mode=rwc" if create else "mode=rw", tables, create=create) as service:
        yield service


@contextmanager
def application(place: Place, *, read_only: bool = False) -> Generator[Sessions]:
    """The application on an existing database, without a service, which refuses outdated read models."""
    if isinstance(place, Path):
        opened = _application_on_file(place, read_only=read_only)
    else:
        opened = application_on_postgres(place, "read" if read_only else "change")
    with opened as app:
        yield app


@contextmanager
def _application_on_file(path: Path, *, read_only: bool) -> Generator[Sessions]:
    if not path.exists():
        raise DatabaseNotFoundError(path)
    _require_file(path)
    env = _env(path, "mode=ro" if read_only else "mode=rw", _tables(path))
    try:
        app = Sessions(env=env)
    except _TYPED:
        raise
    except (StorageError, PersistenceError, sqlite3.Error) as error:
        raise _refused(path, error.__cause__ or error) from error
    with app:
        yield app


def _require_file(path: Path) -> None:
    if not path.is_file():
        raise UnusableDatabaseError(path, "it is not a regular file")


def session_id(service: SessionService, given: str) -> str:
    """The id of the session that is meant: `@last`, an id, or the beginning of one id only.

    Raises `SessionNotFoundError` and `AmbiguousIdError`.
    """
    if given == LAST:
        newest = service.list_sessions(limit=1)
        if not newest:
            raise SessionNotFoundError(LAST)
        return newest[0].session_id
    if service.find(given):
        return given
    found = [row.session_id for row in service.sessions_with_prefix(given, limit=_CANDIDATES + 1)]
    if not found:
        raise SessionNotFoundError(given)
    if len(found) > 1:
        raise AmbiguousIdError(given, found[:_CANDIDATES], more=len(found) > _CANDIDATES)
    return found[0]


def event_id(service: SessionService, session_id: str, given: str) -> str:
    """The id of the event that is meant: an id, or else a version, as `log` shows it.

    Raises `UnknownEventError`.
    """
    try:
        return service.get_event(session_id, given).id
    except UnknownEventError:
        if not given.isdecimal():
            raise
        return service.get_event(session_id, int(given)).id


def position(service: SessionService, given: str) -> int:
    """The place of the session that is meant in the order of the sessions; raises as `session_id` does."""
    found = session_id(service, given)
    exact = service.sessions_with_prefix(found, limit=1)  # nothing that begins with it comes in front of it
    if not exact or exact[0].session_id != found:
        raise SessionNotFoundError(found)
    return exact[0].position


@contextmanager
def _opened(
    path: Path, mode: str, tables: frozenset[str], *, create: bool = False
) -> Generator[SessionService]:
    env = _env(path, mode, tables, create=create)
    try:
        service = SessionService(env=env)
    except _TYPED:
        raise
    except (StorageError, sqlite3.Error) as error:
        raise _refused(path, error.__cause__ or error) from error
    with service:
        yield service


def _env(path: Path, mode: str, tables: frozenset[str], *, create: bool = False) -> dict[str, str]:
    """What names the database to the framework; refuses what is no database with sessions."""
    env = {
        "PERSISTENCE_MODULE": "eventsourcing.sqlite",
        "SQLITE_DBNAME": _uri(path, mode),
        "CREATE_TABLE": "no" if mode == "mode=ro" else "yes",
    }
    if "turnlog_event_ids" not in tables and "turnlog_fence_of_stored_events" not in tables:
        if "stored_events" in tables:  # a host's application with a recorder that keeps no rows of ours
            env["APPLICATION_RECORDER_TOPIC"] = _PLAIN_RECORDER
        elif tables or not create:
            if path.stat().st_size == 0:
                raise UnusableDatabaseError(path, "it is empty, nothing was ever written to it")
            raise ForeignDatabaseError(path)
    if mode == "mode=ro" and _is_backup(path):
        raise UnusableDatabaseError(
            path,
            "it is not in WAL mode: of a backup `turnlog restore` makes a "
            "database, any other file is read once a program has opened it for writing",
        )
    return env


def _tables(path: Path) -> frozenset[str]:
    try:
        with closing(sqlite3.connect(_uri(path, "mode=ro"), uri=True)) as connection:
            rows = connection.execute(
                "SELECT name FROM sqlite_master WHERE type IN ('table', 'trigger')"
            ).fetchall()
    except sqlite3.Error as error:
        raise _refused(path, error) from error
    return frozenset(name for (name,) in rows)


def _is_backup(path: Path) -> bool:
    """Whether it is in the mode of a single file: the framework would have to change that to read it."""
    with path.open("rb") as file:
        return file.read(20)[18:] == b"\1\1"


def _uri(path: Path, mode: str) -> str:
    path = path.absolute()
    untouched = not path.with_name(path.name + "-wal").exists() and not os.access(path.parent, os.W_OK)
    # SQLite makes files beside a database in WAL mode even to read it; where it cannot, nobody writes either.
    return f"{path.as_uri()}?{mode}{'&immutable=1' if mode == 'mode=ro' and untouched else ''}"


def _refused(path: Path, error: BaseException) -> StorageError:
    said = str(error)
    if "locked" in said or "busy" in said:
        return StorageLockedError(
            f"The database {str(path)!r} is locked by another program. Try again later."
        )
    if "malformed" in said:
        said += "; restore a backup, as docs/howto/damaged-log.md says"
    return UnusableDatabaseError(path, said)
