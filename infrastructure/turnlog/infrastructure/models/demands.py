"""What servers turned out to demand, remembered for the life of the process."""

from __future__ import annotations

import logging
from collections import defaultdict
from threading import Lock

from turnlog.infrastructure.models import addresses

_log = logging.getLogger("turnlog")


class Demands:
    """Names of adaptations by address and model."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], frozenset[str]] = defaultdict(frozenset)
        self._lock = Lock()

    def known(self, url: str, model: str) -> frozenset[str]:
        """What the server is known to demand for the model."""
        return self._known.get((url, model), frozenset())

    def learn(self, url: str, model: str, names: frozenset[str]) -> None:
        """Remember them; those that are new are logged as a warning, each once."""
        with self._lock:
            new = names - self._known[url, model]
            self._known[url, model] |= names
        for name in sorted(new):
            _log.warning(
                "The server at %s refuses a part of what is sent to model %s: adapted from now on (%s).",
                addresses.shown(url),
                model,
                name,
            )


DEMANDS = Demands()
"""Shared by all models of the process."""
