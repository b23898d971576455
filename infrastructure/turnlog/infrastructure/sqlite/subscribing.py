"""Subscriptions on SQLite, which the framework's recorder lacks; across processes too.

A write of the same process wakes them at once. Writes of others are seen in `PRAGMA data_version`, which
costs a few microseconds to ask and needs nobody to notify: nothing can be lost.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from threading import Lock
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from eventsourcing.persistence import (
    ApplicationRecorder,
    ListenNotifySubscription,
    OperationalError,
    StoredEvent,
    Subscription,
)
from eventsourcing.sqlite import SQLITE3_DEFAULT_LOCK_TIMEOUT, SQLiteApplicationRecorder

from turnlog.application.ports import require_in_front

if TYPE_CHECKING:
    _RecorderBehind = SQLiteApplicationRecorder
else:
    _RecorderBehind = object

POLL: Final = 0.02
"""Seconds between two looks at whether another process wrote."""

_PATIENCE: Final = 50
"""Looks after which the log is read in any case."""


class SqliteSubscription(ListenNotifySubscription[SQLiteApplicationRecorder]):
    """Yields what was recorded behind `gt`, and then what is recorded, by whichever process."""

    def wake(self) -> None:
        """Read what is new now."""
        self._has_been_notified.set()

    def _loop_on_pull(self) -> None:
        try:
            with closing(_Changes(self._recorder)) as changes:
                while not self._has_been_stopped:
                    changes.note()  # before the log is read: what is written from here on is another change
                    self._pull()
                    self._wait(changes)
        except BaseException as error:
            if self._thread_error is None:
                self._thread_error = error
            self.stop()

    def _wait(self, changes: _Changes) -> None:
        for _ in range(_PATIENCE):
            if self._has_been_notified.wait(POLL) or self._has_been_stopped or changes.are_new():
                return


class _Changes:
    """Whether anybody wrote to the database, asked on a connection of its own."""

    def __init__(self, recorder: SQLiteApplicationRecorder) -> None:
        pool = recorder.datastore.pool
        timeout = pool.lock_timeout or SQLITE3_DEFAULT_LOCK_TIMEOUT
        self._connection: sqlite3.Connection | None = None
        if not pool.is_sqlite_memory_mode:  # there all connections share one version
            try:
                self._connection = sqlite3.connect(pool.db_name, uri=True, timeout=timeout)
            except sqlite3.OperationalError as error:
                raise OperationalError(error) from error
        self._noted = 0

    def note(self) -> None:
        """Remember the present state."""
        self._noted = self._version()

    def are_new(self) -> bool:
        """Whether somebody wrote since; always in memory, where that is not known."""
        return self._connection is None or self._version() != self._noted

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()

    def _version(self) -> int:
        if self._connection is None:
            return 0
        try:
            return int(self._connection.execute("PRAGMA data_version").fetchone()[0])
        except sqlite3.OperationalError as error:
            raise OperationalError(error) from error


class SqliteSubscriptions(_RecorderBehind):
    """A mixin in front of an SQLite recorder: `class Recorder(SqliteSubscriptions, HostRecorder)`.

    `SessionRows` has it already. With it the framework's `ApplicationSubscription` and `ProjectionRunner` run
    on SQLite.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        require_in_front(cls, SqliteSubscriptions, SQLiteApplicationRecorder)
        super().__init_subclass__(**kwargs)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._subscriptions: WeakSet[SqliteSubscription] = WeakSet()
        self._subscriptions_lock = Lock()

    def subscribe(
        self, gt: int | None = None, topics: Sequence[str] = ()
    ) -> Subscription[ApplicationRecorder]:
        """What was recorded behind the notification `gt`, and then what is recorded, in order."""
        subscription = SqliteSubscription(self, gt=gt, topics=topics)
        with self._subscriptions_lock:
            self._subscriptions.add(subscription)
        return subscription

    def insert_events(self, stored_events: Sequence[StoredEvent], **kwargs: Any) -> Sequence[int] | None:
        """Store the events, then wake the subscriptions of this process."""
        ids = super().insert_events(stored_events, **kwargs)
        self.wake()
        return ids

    def wake(self) -> None:
        """Let the subscriptions of this process read what is new."""
        if self._subscriptions:
            with self._subscriptions_lock:
                subscriptions = tuple(self._subscriptions)
            for subscription in subscriptions:
                subscription.wake()


class SqliteFollowableRecorder(SqliteSubscriptions, SQLiteApplicationRecorder):
    """The framework's SQLite recorder with subscriptions, without rows about sessions."""
