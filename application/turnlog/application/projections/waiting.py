"""Waiting until a read model has got as far as the log, without the framework's first sleep of 100 ms."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Event
from typing import Final

from eventsourcing.persistence import TrackingRecorder, WaitInterruptedError

from turnlog.domain.guards import require_number

_FIRST: Final = 0.001
_LONGEST: Final = 0.05


def poll(is_there: Callable[[], bool], timeout: float, interrupt: Event | None = None) -> bool:
    """Ask at once and then in growing intervals, from 1 to 50 ms; False when the time is over.

    Raises the framework's `WaitInterruptedError`.
    """
    require_number("`timeout` (seconds)", timeout)
    deadline = time.monotonic() + timeout
    interval = _FIRST
    while not is_there():
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        pause = min(interval, left)
        if interrupt is None:
            time.sleep(pause)
        elif interrupt.wait(pause):
            raise WaitInterruptedError
        interval = min(interval * 2, _LONGEST)
    return True


class PromptWait(TrackingRecorder):
    """A mixin in front of a tracking recorder whose `wait` returns as soon as the tracking row says so."""

    def wait(
        self,
        application_name: str,
        notification_id: int | None,
        timeout: float = 1.0,
        interrupt: Event | None = None,
    ) -> None:
        """Wait for the tracking row; `TimeoutError` as the framework has it."""
        there = poll(lambda: self.has_tracking_id(application_name, notification_id), timeout, interrupt)
        if not there:
            raise TimeoutError(
                f"Notification {notification_id} of {application_name!r} was not processed in {timeout:g} s."
            )
