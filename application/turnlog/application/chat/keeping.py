"""Keeping the marks of running turns alive, while a model or a tool takes long."""

from __future__ import annotations

import logging
import threading
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta

from turnlog.application.chat.engine import TurnEngine
from turnlog.application.service import SessionService

_logger = logging.getLogger("turnlog")


class MarkKeeper:
    """Renews the marks of all turns of a chat from one daemon thread, which lives while turns run.

    It looks three times per lease, so a mark is renewed before it expires, and one of a dead process is not.
    """

    def __init__(self, lease: timedelta) -> None:
        self._interval = lease.total_seconds() / 3
        self._lock = threading.Lock()
        self._turns: dict[int, tuple[SessionService, TurnEngine]] = {}
        self._thread: threading.Thread | None = None

    @contextmanager
    def keeping(self, sessions: SessionService, turn: TurnEngine) -> Generator[None]:
        """Keep the mark of this turn while the block runs."""
        with self._lock:
            self._turns[id(turn)] = (sessions, turn)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="turnlog-marks", daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._lock:
                self._turns.pop(id(turn), None)

    def _run(self) -> None:
        pause = threading.Event()
        while True:
            pause.wait(self._interval)
            with self._lock:
                turns = list(self._turns.values())
                if not turns:
                    self._thread = None
                    return
            for sessions, turn in turns:
                self._renew(sessions, turn)

    @staticmethod
    def _renew(sessions: SessionService, turn: TurnEngine) -> None:
        if not turn.is_marked:
            return
        try:
            sessions.record_turn(turn.session_id, (), turn.mark)
        except Exception as error:
            _logger.warning("The mark of a turn could not be renewed: %s.", type(error).__name__)
