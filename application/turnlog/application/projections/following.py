"""Following sessions: exactly once into a store of one's own, or as a feed of typed entries."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from threading import Event, Lock, Thread
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar, cast
from uuid import UUID

from eventsourcing.application import Application
from eventsourcing.persistence import (
    ApplicationRecorder,
    Mapper,
    PersistenceError,
    ProgrammingError,
    Tracking,
)
from eventsourcing.popo import POPOTrackingRecorder
from eventsourcing.projection import ApplicationSubscription, Projection

from turnlog.application.async_service import AnySessionService, sync_service
from turnlog.application.core import ServiceCore
from turnlog.application.projections.batches import Positioned
from turnlog.application.projections.errors import NoSubscriptionsError, UnboundFollowerError
from turnlog.application.projections.followed import (
    BoundaryFollowed,
    EventFollowed,
    Followed,
    FollowedReader,
    MessageFollowed,
    SessionBegan,
    SessionEnded,
)
from turnlog.application.projections.nudging import nudge
from turnlog.application.projections.waiting import PromptWait
from turnlog.application.storage import storage_errors
from turnlog.domain.errors import InvalidSettingError, StorageClosedError, StorageError, shown
from turnlog.domain.events import StreamEvent

T = TypeVar("T")

_HANDLERS: Final = ("began", "message", "boundary", "event", "ended")
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 5.0

_logger = logging.getLogger("turnlog")


class FollowerStore(PromptWait, Generic[T]):
    """Where a follower keeps what it makes of the log, with the position that it reached.

    What is handed to the handlers as `into` writes in the transaction that moves the position.
    """

    name: str = ""
    """The name of the tracking row; each follower of one store has its own."""

    @abstractmethod
    def follow(self, batch: Sequence[Positioned], handle: Callable[[T, Positioned], None]) -> None:
        """Handle what is new of the batch and move the position behind it, in one transaction.

        What raises leaves both as they were. Several processes may follow at once: each event is handled by
        one of them.
        """


class SessionFollower(Projection[FollowerStore[T]], Generic[T]):
    """Handles what happens to sessions, each position exactly once, in the order of the log.

    Derive from it, write the handlers that are needed, and run it by `SupervisedRunner`. `into` is what the
    store gives: a cursor on SQLite, the store itself in memory. A handler may be called again for an event
    whose transaction failed, so it does nothing but write to `into`. A method whose name looks like a
    misspelt handler is refused when the class is made.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name, value in vars(cls).items():
            meant = None if name.startswith("_") else get_close_matches(name, _HANDLERS, 1, 0.8)
            if name not in _HANDLERS and meant and callable(value):
                raise InvalidSettingError(
                    f"{cls.__name__}.{name} is no handler and would never be called: `{meant[0]}` is one. "
                    "Begin the name of a helper with an underscore."
                )

    def __init__(self, view: FollowerStore[T]) -> None:
        super().__init__(view)
        self._reader: FollowedReader | None = None

    def began(self, into: T, session: SessionBegan) -> None:
        """A session was opened."""

    def message(self, into: T, message: MessageFollowed) -> None:
        """A message joined the log."""

    def boundary(self, into: T, boundary: BoundaryFollowed) -> None:
        """A compaction was recorded."""

    def event(self, into: T, event: EventFollowed) -> None:
        """An event of another type was recorded."""

    def ended(self, into: T, session: SessionEnded) -> None:
        """A session was deleted: what was made of it has to go too."""

    def bind(self, recorder: ApplicationRecorder, mapper: Mapper[Any]) -> None:
        """Name sessions by this log. The runners do it."""
        self._reader = FollowedReader(recorder, mapper)

    def process_event(  # pyright: ignore[reportIncompatibleVariableOverride] # a method without dispatch
        self, domain_event: Any, tracking: Tracking
    ) -> None:
        """Handle one event."""
        event = domain_event if isinstance(domain_event, StreamEvent) else None
        self.process_page([Positioned(tracking.notification_id, event)])

    def process_page(self, page: Sequence[Positioned]) -> None:
        """Handle a page of events in one transaction."""
        if self._reader is None:
            raise UnboundFollowerError(type(self).name)
        self.view.follow(page, self._handle)

    def _handle(self, into: T, item: Positioned) -> None:
        assert self._reader is not None  # noqa: S101 - `process_page` asked
        followed = self._reader.read(item)
        if isinstance(followed, MessageFollowed):
            self.message(into, followed)
        elif isinstance(followed, BoundaryFollowed):
            self.boundary(into, followed)
        elif isinstance(followed, EventFollowed):
            self.event(into, followed)
        elif isinstance(followed, SessionBegan):
            self.began(into, followed)
        elif isinstance(followed, SessionEnded):
            self.ended(into, followed)


class MemoryFollowerStore(FollowerStore[Any], POPOTrackingRecorder):
    """A store in memory: derive from it with attributes of your own; handlers get the store itself."""

    def __init__(self) -> None:
        super().__init__()
        self._following = Lock()

    def follow(self, batch: Sequence[Positioned], handle: Callable[[Any, Positioned], None]) -> None:
        """Handle what is new, one by one."""
        with self._following:
            tracked = self.max_tracking_id("") or 0
            for item in batch:
                if item.position > tracked:
                    handle(self, item)
                    self.insert_tracking(Tracking(self.name, item.position))

    def max_tracking_id(self, application_name: str) -> int | None:  # noqa: ARG002 - one log
        """The position that was reached."""
        return super().max_tracking_id(self.name)


class SessionFeed:
    """What happens to the sessions of a service, as an iterator that waits for more.

    It begins behind the position `after`, or at the beginning of the log; a position that the log does not
    have yet is waited for. Whoever reads it remembers the position of what was processed; what is remembered
    in another place than the result may be seen again after a crash, by the same position. When the database
    fails it goes on where it was as soon as it can.
    Raises `NoSubscriptionsError` on a store that cannot be followed.

        with SessionFeed(sessions, after=position) as feed:
            for entry in feed: ...
    """

    def __init__(self, service: AnySessionService, *, after: int | None = None) -> None:
        service = sync_service(service)
        if after is not None and (isinstance(after, bool) or not isinstance(after, int) or after < 0):  # pyright: ignore[reportUnnecessaryIsInstance] # callers may be untyped
            raise InvalidSettingError(
                "`after` is the position of what was processed last, a whole number of at least 0, not "
                f"{shown(after)}."
            )
        if service.principal is not None:
            raise InvalidSettingError(
                "A feed shows the sessions of all principals: make it from the service itself, not a scope."
            )
        core = cast("ServiceCore", service)
        self._app = core.app
        self._namespace = core.namespace
        self._reader = FollowedReader(core.app.recorder, core.app.mapper)
        self._reached = after
        self._is_stopping = Event()
        self._subscription = _Nudged(self._app, after)

    def stop(self) -> None:
        """Let the iteration end, from whichever thread."""
        self._is_stopping.set()
        self._subscription.stop()

    def __enter__(self) -> Self:
        self._subscription.start()
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
        self._subscription.close()

    def __iter__(self) -> Iterator[Followed]:
        while not self._is_stopping.is_set():
            try:
                for event, tracking in self._subscription:
                    known = event if isinstance(event, StreamEvent) else None
                    followed = self._reader.read(Positioned(tracking.notification_id, known))
                    self._reached = tracking.notification_id
                    if followed is not None and self._is_ours(followed):
                        yield followed
                return
            except (PersistenceError, StorageError) as error:
                if isinstance(error, (ProgrammingError, StorageClosedError)):
                    raise
                _logger.warning("A feed failed (%s); it goes on where it was.", type(error).__name__)
            self._subscribe_anew()

    def _subscribe_anew(self) -> None:
        """As soon as the database is there again."""
        self._subscription.close()
        pause = _FIRST_PAUSE
        while not self._is_stopping.wait(pause):
            try:
                self._subscription = _Nudged(self._app, self._reached)
            except (PersistenceError, StorageError):
                pause = min(pause * 2, _LONGEST_PAUSE)
            else:
                self._subscription.start()
                break
        if self._is_stopping.is_set():  # perhaps before there was this subscription to stop
            self._subscription.stop()

    def _is_ours(self, followed: Followed) -> bool:
        """Whether it is of this namespace; of a deletion whose name is gone nobody can say."""
        return followed.session_id is None or followed.namespace == self._namespace


class _Nudged:
    """A subscription that looks at the log from time to time."""

    def __init__(self, app: Application[Any], after: int | None) -> None:
        self._subscription = _subscription(app, after)
        self._is_stopping = Event()
        self._nudging = Thread(target=nudge, args=(self._subscription, self._is_stopping), daemon=True)

    def start(self) -> None:
        self._subscription.__enter__()
        self._nudging.start()

    def __iter__(self) -> Iterator[tuple[Any, Tracking]]:
        return iter(self._subscription)

    def stop(self) -> None:
        self._is_stopping.set()
        self._subscription.stop()

    def close(self) -> None:
        self.stop()
        self._subscription.__exit__(None, None, None)
        if self._nudging.is_alive():
            self._nudging.join()


def _subscription(app: Application[UUID], after: int | None) -> ApplicationSubscription[Any]:
    """What is recorded behind the position; `NoSubscriptionsError`."""
    try:
        with storage_errors():
            return ApplicationSubscription(app, gt=after)
    except NotImplementedError:
        raise NoSubscriptionsError(app.name) from None
