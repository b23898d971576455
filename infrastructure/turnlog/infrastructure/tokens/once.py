"""Warnings that are given once per process."""

from __future__ import annotations

import logging
from threading import Lock

_log = logging.getLogger("turnlog")
_lock = Lock()
_given: set[tuple[object, ...]] = set()


def warn_once(message: str, *args: object) -> None:
    """Log the warning, unless the process has logged it with these arguments before."""
    with _lock:
        if (message, *args) in _given:
            return
        _given.add((message, *args))
    _log.warning(message, *args)
