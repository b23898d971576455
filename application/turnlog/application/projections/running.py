"""Runners: the framework's, made fast where it is far behind, and one that survives what a database does."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from threading import Event, Lock, Thread
from types import TracebackType
from typing import Any, Final, Generic, Protocol, Self, TypeVar, cast, runtime_checkable

from eventsourcing.application import Application
from eventsourcing.persistence import (
    ApplicationRecorder,
    Mapper,
    PersistenceError,
    ProgrammingError,
    TrackingRecorder,
)
from eventsourcing.projection import ApplicationSubscription, Projection, ProjectionRunner
from eventsourcing.utils import EnvType

from turnlog.application.projections.batches import Positioned, pages
from turnlog.application.projections.errors import (
    NoSubscriptionsError,
    ProjectionStoppedError,
    ReadModelOutdatedError,
    UnboundFollowerError,
)
from turnlog.application.projections.nudging import nudge
from turnlog.application.projections.waiting import poll
from turnlog.application.settings import refused_setting, refused_store
from turnlog.domain.errors import InvalidSettingError, StorageError
from turnlog.domain.guards import require_number

TStore = TypeVar("TStore", bound=TrackingRecorder)

_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 5.0

_logger = logging.getLogger("turnlog")


@runtime_checkable
class _TakesPages(Protocol):
    def process_page(self, page: Sequence[Positioned]) -> None: ...


@runtime_checkable
class _Binds(Protocol):
    def bind(self, recorder: ApplicationRecorder, mapper: Mapper[Any]) -> None: ...


class SessionProjectionRunner(ProjectionRunner[Application[Any], TStore], Generic[TStore]):
    """The framework's runner, which applies what is missing at its start in pages, and loses no wake-up.

    Raises `NoSubscriptionsError` for an application whose log cannot be followed, `InvalidSettingError` for a
    store or a setting that does not fit the persistence module.
    """

    def __init__(
        self,
        *,
        application_class: type[Application[Any]],
        projection_class: type[Projection[TStore]],
        view_class: type[TStore],
        env: EnvType | None = None,
    ) -> None:
        try:
            super().__init__(
                application_class=application_class,
                projection_class=projection_class,
                view_class=view_class,
                env=env,
            )
        except NotImplementedError:
            raise NoSubscriptionsError(application_class.name) from None
        except Exception as error:
            named = self._construct_env(application_class.name, env)
            wrong_store = refused_store(named, view_class) if isinstance(error, AssertionError) else None
            refused = wrong_store or refused_setting(named, error)
            if refused is None:
                raise
            raise refused from error

    @staticmethod
    def _process_events_loop(
        subscription: ApplicationSubscription[Any],
        projection: Any,
        is_stopping: Event,
        runner: Any,
    ) -> None:
        nudging = Thread(target=nudge, args=(subscription, is_stopping), daemon=True)
        nudging.start()
        caught_up = _CaughtUp(subscription, projection, is_stopping)
        ProjectionRunner._process_events_loop(
            cast("ApplicationSubscription[Any]", caught_up), projection, is_stopping, runner
        )
        nudging.join()


class _CaughtUp:
    """The events of a subscription, behind those that are applied in pages before the first is asked for."""

    def __init__(
        self, subscription: ApplicationSubscription[Any], projection: Any, is_stopping: Event
    ) -> None:
        self._subscription = subscription
        self._projection = projection
        self._is_stopping = is_stopping
        self._applied: int | None = None

    def __iter__(self) -> Any:
        if isinstance(self._projection, _Binds):
            self._projection.bind(self._subscription.recorder, self._subscription.mapper)
        if isinstance(self._projection, _TakesPages):
            self._catch_up(self._projection)
        for event, tracking in self._subscription:
            if self._applied is None or tracking.notification_id > self._applied:
                yield event, tracking

    def _catch_up(self, projection: _TakesPages) -> None:
        store = cast("Projection[Any]", self._projection).view
        self._applied = store.max_tracking_id(self._subscription.name)
        for page in pages(self._subscription.recorder, self._subscription.mapper, self._applied):
            if self._is_stopping.is_set():
                return
            projection.process_page(page)
            self._applied = page[-1].position


class SupervisedRunner(Generic[TStore]):
    """Keeps a projection running: when the database fails, a new runner goes on from the tracking row.

    What the handler of an event raises on its own is not tried again: it would raise again, and to leave the
    event out would be a gap. Then the runner stops, and `wait`, `run_forever` and the end of the context
    raise `ProjectionStoppedError`.
    """

    def __init__(
        self,
        *,
        application_class: type[Application[Any]],
        projection_class: type[Projection[TStore]],
        view_class: type[TStore],
        env: EnvType | None = None,
    ) -> None:
        self._application_class = application_class
        self._projection_class = projection_class
        self._view_class = view_class
        self._env = env
        self._is_stopping = Event()
        self._has_ended = Event()
        self._runner: SessionProjectionRunner[TStore] | None = None
        self._view_in_use = Lock()  # who asks for its position does so on a connection that stays open
        self._reached: int | None = None
        self._error: BaseException | None = None
        self.restarts = 0
        """How often a new runner had to be made."""
        self._thread = Thread(target=self._supervise, name=f"turnlog-{projection_class.name}", daemon=True)
        self._thread.start()

    def wait(self, position: int | None, timeout: float = 1.0) -> None:
        """Wait until this position is applied; `TimeoutError`, `ProjectionStoppedError`."""

        def is_there() -> bool:
            self._raise_error()
            reached = self._position()
            return position is None or (reached is not None and reached >= position)

        if not poll(is_there, timeout):
            raise TimeoutError(f"Position {position} was not applied in {timeout:g} seconds.")

    def run_forever(self, timeout: float | None = None) -> None:
        """Block until it is stopped or gives up; `ProjectionStoppedError`."""
        if timeout is not None:
            require_number("`timeout` (seconds)", timeout)
        self._has_ended.wait(timeout)
        self._raise_error()

    def stop(self) -> None:
        """Stop, and wait until what is being processed is recorded."""
        self._is_stopping.set()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
        if error is None:
            self._raise_error()

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    def _supervise(self) -> None:
        pause = _FIRST_PAUSE
        try:
            while not self._is_stopping.is_set():
                before = self._position()
                try:
                    self._run()
                    return
                except (PersistenceError, StorageError, OSError) as error:
                    if isinstance(error, (ProgrammingError, ReadModelOutdatedError, NoSubscriptionsError)):
                        raise
                    _logger.warning(
                        "The projection %s failed (%s); it goes on from its tracking row.",
                        self._projection_class.name,
                        type(error).__name__,
                    )
                if self._position() != before:
                    pause = _FIRST_PAUSE
                self.restarts += 1
                self._is_stopping.wait(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
        except BaseException as error:
            if isinstance(error, (StorageError, InvalidSettingError, UnboundFollowerError)):
                self._error = error
            else:
                self._error = ProjectionStoppedError(self._projection_class.name, self._position())
                self._error.__cause__ = error
        finally:
            self._has_ended.set()

    def _run(self) -> None:
        runner = self._runner = SessionProjectionRunner[TStore](
            application_class=self._application_class,
            projection_class=self._projection_class,
            view_class=self._view_class,
            env=self._env,
        )
        try:
            with runner:
                while not self._is_stopping.is_set() and not runner.is_interrupted.is_set():
                    runner.is_interrupted.wait(0.05)
        finally:
            self._reached = self._position()
            with self._view_in_use:
                self._runner = None
                _close(runner.view)

    def _position(self) -> int | None:
        with self._view_in_use:
            runner = self._runner
            if runner is None:
                return self._reached
            try:
                return runner.view.max_tracking_id(runner.app_name)
            except (PersistenceError, StorageError):
                return self._reached


def _close(view: TrackingRecorder) -> None:
    """Close the connections of a store; the framework leaves them open, and each new runner has new ones."""
    close = getattr(getattr(view, "datastore", None), "close", None)
    if close is not None:
        close()
