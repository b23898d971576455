"""Writing files such that they are there as a whole, or as they were before."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

from turnlog.domain.errors import TurnlogError

_OPEN_FILES = ("/dev/fd/", "/dev/stdout", "/dev/stderr", "/proc/")
"""Names of files that are open already, and so are written to as they are."""


class FileTakenError(TurnlogError):
    """A file that was to be written is there already. It was left as it is."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{str(path)!r} exists already. Name another file, or replace it with `replace=True` "
            "(--force on the command line)."
        )
        self.path = path


def write_whole(files: Iterable[tuple[Path, Iterable[str | bytes]]], *, replace: bool = False) -> None:
    """Write the texts (as UTF-8) or bytes of each file; when all of them are complete they get their names.

    A file that is replaced keeps its mode; a link stays one, its target is written. What is no regular file,
    as a device or a pipe, is written to as it is.

    Raises `FileTakenError` for a file that is there, unless `replace`, and `OSError`. Both leave nothing
    behind.
    """
    with ExitStack() as stack:
        complete: list[tuple[Path, Path]] = []
        for given, texts in files:
            if is_stream(given):
                with given.open("wb") as file:
                    file.writelines(map(_bytes, texts))
                continue
            path = given.resolve()
            _require_free(given, path, replace=replace)
            unfinished = _unfinished(given, path)
            stack.callback(unfinished.unlink, missing_ok=True)
            with unfinished.open("wb") as file:
                file.writelines(map(_bytes, texts))
            unfinished.chmod(path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask())
            complete.append((unfinished, path))
        for unfinished, path in complete:
            _require_free(path, path, replace=replace)
            unfinished.replace(path)


def is_stream(path: Path) -> bool:
    """Whether it is written to as it is: a device or a pipe, also one that the path leads to."""
    if path.exists() and not path.is_file() and not path.is_dir():
        return True
    return str(path.absolute()).startswith(_OPEN_FILES)


def _require_free(given: Path, path: Path, *, replace: bool) -> None:
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(given))
    if path.exists() and not replace:
        raise FileTakenError(given)


def _unfinished(given: Path, path: Path) -> Path:
    """A new file beside the one that is meant; an error names that one."""
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name[:100]}.", dir=path.parent)
    except OSError as error:
        raise type(error)(error.errno, error.strerror, str(given)) from None
    os.close(handle)
    return Path(name)


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


def _umask() -> int:
    """The mask of new files, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
