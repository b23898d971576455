"""Copies of a database: made while it is used, and brought back as a new file."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from contextlib import closing, suppress
from pathlib import Path

from turnlog.application.erasing import BackupError


def back_up(db_name: str, file: str, *, timeout: float) -> None:
    """Copy the database, as it is at one moment, into a file that does not exist yet.

    Raises `BackupError` and then leaves no file; `sqlite3.Error` for what the database says.
    """
    with closing(sqlite3.connect(db_name, uri=True, timeout=timeout)) as source:
        _copy(source, Path(file))


def restore(file: str | Path, database: str | Path) -> None:
    """Bring a backup back as a database file that does not exist yet.

    Never over one that is in use: its readers and writers remember versions that the backup does not have.
    Afterwards `SessionService.erasures` says which sessions have to be deleted again. Raises `BackupError`.
    """
    if not Path(file).is_file():
        raise BackupError(f"There is no backup at {file}: name the file of a backup.")
    try:
        with closing(sqlite3.connect(f"{Path(file).absolute().as_uri()}?mode=ro", uri=True)) as source:
            if source.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
                raise BackupError(f"{file} is damaged. Name another backup.")
            if not source.execute("SELECT 1 FROM sqlite_master WHERE name = 'turnlog_sessions'").fetchone():
                raise BackupError(f"{file} is no backup of sessions. Name another file.")
            _copy(source, Path(database))
    except sqlite3.Error as error:
        raise BackupError(f"{file} cannot be read as a backup ({error}). Name another file.") from error


def _copy(source: sqlite3.Connection, target: Path) -> None:
    """Copy page by page into a file beside the target, which then gets its name if that is free."""
    if target.exists():
        raise BackupError(f"{target} exists. Name a file that does not, nothing is ever overwritten.")
    for log in (f"{target}-wal", f"{target}-journal"):  # SQLite would replay it into the copy
        if Path(log).exists():
            raise BackupError(f"{log} is left of another database. Name another file, or move it away.")
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    except OSError as error:
        raise BackupError(f"No file can be made in {target.parent} ({error.strerror}).") from error
    os.close(handle)
    try:
        with closing(sqlite3.connect(name)) as copy:
            source.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")  # one file, without a log beside it
        try:
            os.link(name, target)
        except FileExistsError as error:
            raise BackupError(f"{target} was made meanwhile. Name a file that does not exist.") from error
    finally:
        with suppress(FileNotFoundError):
            Path(name).unlink()
