"""A look at the log from time to time, for subscriptions whose notification may have been lost."""

from __future__ import annotations

from threading import Event
from typing import Any, Final

from eventsourcing.persistence import ListenNotifySubscription
from eventsourcing.projection import ApplicationSubscription

NUDGE: Final = 1.0
"""Seconds after which a subscription reads the log even if it was told of nothing new."""


def nudge(subscription: ApplicationSubscription[Any], is_stopping: Event) -> None:
    """Let the subscription look at the log every second, until it is stopped."""
    inner = subscription.subscription
    while not is_stopping.wait(NUDGE):
        if isinstance(inner, ListenNotifySubscription):
            inner._has_been_notified.set()  # pyright: ignore[reportPrivateUsage] # it has no other way
