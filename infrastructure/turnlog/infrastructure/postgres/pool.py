"""Connections to PostgreSQL: bounded in number and in waiting, and noticed when they are dead."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Thread, current_thread
from typing import Any, NoReturn, TypeVar, cast

import psycopg
import psycopg_pool
from eventsourcing.persistence import InterfaceError, OperationalError, PersistenceError
from eventsourcing.postgres import ConnectionPool, PostgresDatastore
from psycopg import Connection

from turnlog.application.storage import kind_of
from turnlog.domain.errors import StorageClosedError, StorageUnavailableError, WriteUncertainError

T = TypeVar("T")


class _LastReturnedFirst(deque[T]):
    """What the pool takes from its left is what it put in last."""

    def popleft(self) -> T:
        return self.pop()


class BoundedConnectionPool(ConnectionPool[Connection[Any]]):
    """The framework's pool, whose refusals are `StorageUnavailableError`: it would repeat its own ten times.

    A host's own pool for a store with sessions derives from it, or is left as it is. It hands out the
    connection that was used last: the fewer are in use, the warmer is what the server keeps for each.
    """

    _failure: psycopg.Error | None = None
    """What the newest try to connect ended with, None when it succeeded."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._pool = _LastReturnedFirst[Connection[Any]]()

    def _connect(self, timeout: float | None = None) -> Connection[Any]:
        """The pool tries in threads of its own and tells only its logger why it fails; so that is kept."""
        try:
            connection = super()._connect(timeout)
        except psycopg.Error as error:
            self._failure = error
            raise
        self._failure = None
        return connection

    def open(self, wait: bool = False, timeout: float = 30) -> None:
        """Open it; a pool that was closed stays closed."""
        try:
            super().open(wait, timeout)
        except psycopg.OperationalError as error:
            self._refuse(error)

    def getconn(self, timeout: float | None = None) -> Connection[Any]:
        """A connection, or `StorageUnavailableError` when none is to be had in time."""
        try:
            return super().getconn(timeout)
        except psycopg.OperationalError as error:
            self._refuse(error)

    def reconnect_failed(self) -> None:
        """Try again while callers wait: who comes during the last try would wait for nobody."""
        super().reconnect_failed()
        with self._lock:
            if self._waiting:
                self._maybe_grow_pool()

    def close(self, timeout: float = 5.0) -> None:
        """Close it. A worker of its own, which may find it unused, would wait for itself: another does it."""
        if current_thread() in self._workers:
            Thread(target=super().close, args=(timeout,), daemon=True).start()
        else:
            super().close(timeout)

    def _refuse(self, error: psycopg.OperationalError) -> NoReturn:
        if isinstance(error, psycopg_pool.PoolTimeout):
            raise StorageUnavailableError(self._refusal(error)) from self._failure or error
        if isinstance(error, psycopg_pool.TooManyRequests):  # whatever became of tries to connect
            raise StorageUnavailableError(
                f"No connection to PostgreSQL was to be had ({error}): so many wait already. Nothing was "
                "written. Try again, or raise POSTGRES_MAX_WAITING or POSTGRES_MAX_OVERFLOW."
            ) from error
        raise StorageClosedError from error

    def _refusal(self, error: Exception) -> str:
        if self._failure is not None:
            return (
                f"No connection to PostgreSQL was to be had ({error}): {one_line(self._failure)} Nothing "
                "was written. Check host, port, user and password, and that the server runs; "
                "POSTGRES_CONNECT_TIMEOUT (seconds) says how long is tried."
            )
        return (
            f"No connection to PostgreSQL was to be had ({error}): the server does not answer, or all "
            f"{self.max_size} connections are in use. Nothing was written. Try again, or raise "
            "POSTGRES_MAX_OVERFLOW or POSTGRES_CONNECT_TIMEOUT (seconds)."
        )


def one_line(error: Exception) -> str:
    """What the driver says, its lines as sentences on one line, the last one ended as well."""
    lines = (" ".join(line.split()) for line in str(error).splitlines())
    return " ".join(line if line.endswith((".", "?", "!", ":")) else f"{line}." for line in lines if line)


def bound(datastore: PostgresDatastore) -> None:
    """Let the datastore take its connections from such a pool from now on.

    Whoever has one of the pool before it may finish.
    """
    pool = datastore.pool
    if type(pool) is not ConnectionPool:
        return
    limit = max(1, int(pool.timeout))
    given = cast("dict[str, Any]", pool.kwargs)
    datastore.pool = BoundedConnectionPool(
        get_password_func=pool.get_password_func,
        connection_class=Connection[Any],
        kwargs={
            "connect_timeout": limit,
            "tcp_user_timeout": limit * 1000,  # data that a dead network does not take
            **given,
        },
        min_size=pool.min_size,
        max_size=pool.max_size,
        open=False,
        configure=_configured(datastore.after_connect_func()),
        check=ConnectionPool.check_connection if datastore.pre_ping else None,
        timeout=pool.timeout,
        max_waiting=pool.max_waiting,
        max_lifetime=pool.max_lifetime,
        reconnect_timeout=pool.timeout,  # else the next try may be far off when the server is back
    )
    pool.close()  # its threads would go on


def _configured(configure: Callable[[Connection[Any]], None]) -> Callable[[Connection[Any]], None]:
    """Transactions see what was committed while they waited for a lock, whatever is set for the role."""

    def configured(connection: Connection[Any]) -> None:
        configure(connection)
        connection.execute("SET default_transaction_isolation = 'read committed'")

    return configured


def on_connection(datastore: PostgresDatastore, action: Callable[[Connection[Any]], T]) -> T:
    """What the action returns, which leaves the connection without a transaction.

    The framework's `get_connection` at a third of its price: what else that one does is for transactions.
    """
    pool = datastore.pool
    if pool.closed:
        with datastore.get_connection():
            pass  # that opens it
    try:
        connection = pool.getconn()
        try:
            return action(connection)
        finally:
            pool.putconn(connection)
    except psycopg.Error as error:
        raise (kind_of(error) or PersistenceError)(str(error)) from error


def once_more(datastore: PostgresDatastore, action: Callable[[], T], *, writes: bool) -> T:
    """What the action returns; when its connection turned out to be dead, that of a second try.

    A write must be one that can be repeated: of a first try that was stored the second says `IntegrityError`.
    Raises `WriteUncertainError` when the second one fails in the same way.
    """
    try:
        return action()
    except (OperationalError, InterfaceError) as error:
        if not _is_lost(error):
            raise
    datastore.pool.check()  # the others in the pool may be as dead
    try:
        return action()
    except (OperationalError, InterfaceError, StorageUnavailableError) as error:
        if writes and (isinstance(error, StorageUnavailableError) or _is_lost(error)):
            raise WriteUncertainError from error
        raise


def _is_lost(error: Exception) -> bool:
    """Whether the connection broke, or the server ended it; anything else the server says of the command."""
    state = getattr(error.__cause__, "sqlstate", None)
    return state is None or state.startswith("57P")
