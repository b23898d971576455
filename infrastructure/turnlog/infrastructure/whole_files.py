"""Writing files such that they are there as a whole, or as they were before."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path


def write_whole(files: Iterable[tuple[Path, Iterable[str | bytes]]]) -> None:
    """Write the texts (as UTF-8) or bytes of each file; when all of them are complete they get their names.

    A file that is replaced keeps its mode. Raises `OSError`, and then leaves nothing behind.
    """
    with ExitStack() as stack:
        complete: list[tuple[Path, Path]] = []
        for path, texts in files:
            if path.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
            handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
            unfinished = Path(name)
            stack.callback(unfinished.unlink, missing_ok=True)
            with os.fdopen(handle, "wb") as file:
                file.writelines(text.encode() if isinstance(text, str) else text for text in texts)
            unfinished.chmod(path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask())
            complete.append((unfinished, path))
        for unfinished, path in complete:
            unfinished.replace(path)


def _umask() -> int:
    """The mask of new files, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
