"""Files that commands write: never the database, never what the command reads, and none that exists."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from turnlog.infrastructure.cli.failures import CommandUsageError
from turnlog.infrastructure.cli.settings import Settings
from turnlog.infrastructure.whole_files import FileTakenError, is_stream, write_whole

STDOUT: Final = Path("-")
"""Names standard output where a file is asked for."""

_BESIDE: Final = ("", "-wal", "-shm", "-journal")
"""What SQLite adds to the name of a database for the files beside it."""


def require_output(
    settings: Settings, path: Path, *, force: bool, inputs: Iterable[Path | None] = ()
) -> None:
    """Raise unless the file may be written.

    `CommandUsageError` for the database, the files beside it and the `inputs` of the command, however they
    are spelled; `FileTakenError` for any other file that is there, unless `force`.
    """
    if path == STDOUT:
        return
    require_apart(settings, path)
    for given in inputs:
        if given is not None and _is_same(path, given):
            raise CommandUsageError(f"{str(path)!r} is read by this command. Name another file to write.")
    if path.is_file() and not force and not is_stream(path):
        raise FileTakenError(path)


def require_apart(settings: Settings, path: Path) -> None:
    """Raise `CommandUsageError` for the database and the files beside it."""
    if any(_is_same(path, file) for file in _database_files(settings)):
        raise CommandUsageError(
            f"{str(path)!r} is the database {str(settings.database)!r} or belongs to it, and is never "
            "overwritten. Name another file to write."
        )


def require_pages_apart(settings: Settings, path: Path) -> None:
    """Raise `CommandUsageError` where a further page beside this one could be the database."""
    name = re.compile(rf"{re.escape(path.stem)}-[0-9]+{re.escape(path.suffix)}")
    for file in _database_files(settings):
        if name.fullmatch(file.name) and _is_same(path.parent, file.parent):
            raise CommandUsageError(f"A page beside {str(path)!r} could be {str(file)!r}. Name another file.")


def write_output(path: Path, texts: Iterable[str | bytes], *, force: bool) -> None:
    """Write the file as a whole, or to standard output."""
    if path != STDOUT:
        write_whole([(path, texts)], replace=force)
        return
    sys.stdout.flush()
    for text in texts:
        sys.stdout.buffer.write(text.encode() if isinstance(text, str) else text)
    sys.stdout.buffer.flush()


def _database_files(settings: Settings) -> Iterator[Path]:
    if isinstance(settings.database, Path):
        for database in {settings.database.absolute(), settings.database.resolve()}:
            for added in _BESIDE:
                yield Path(f"{database}{added}")


def _is_same(one: Path, other: Path) -> bool:
    """Whether both name the same file, through links as well, or would if it were there."""
    if one.resolve() == other.resolve():
        return True
    return one.exists() and other.exists() and one.samefile(other)
