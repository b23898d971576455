"""Writing to sessions: decide, save, and say what became of it when the store refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import RLock
from typing import Any, NamedTuple, TypeAlias, TypeGuard, cast
from uuid import UUID

from eventsourcing.application import Application
from eventsourcing.persistence import IntegrityError, ProgrammingError

from turnlog.application.ledger import Ledger, TrailingLedger
from turnlog.application.storage import pause, unlocked, writing_errors
from turnlog.application.streams import Lru, SessionStreams, id_form
from turnlog.domain.errors import (
    InvalidSettingError,
    SessionNotFoundError,
    StorageError,
    TurnlogError,
    UnreadableEventError,
    VersionConflictError,
    shown,
)
from turnlog.domain.events import StreamEvent
from turnlog.domain.session import Session
from turnlog.domain.state import SessionState

Also: TypeAlias = Sequence[Any] | Callable[[], Sequence[Any]]
"""Aggregates of a host that are saved in the same transaction, or a function that makes them for each try."""

MAX_ATTEMPTS = 100
"""Tries of a write that keeps losing its race, before the conflict is reported."""

_STRIPES = 64


class SessionKey(NamedTuple):
    """A session by the id that callers use and the id of its aggregate."""

    session_id: str
    aggregate_id: UUID
    check: Callable[[SessionState], None] | None = None
    """Asked about the state that is written to; refuses one that left the scope meanwhile."""


class Writer:
    """Saves what a decision records. Lost races are decided again, unless host objects were given."""

    def __init__(self, app: Application[UUID], streams: SessionStreams, ledger: Ledger) -> None:
        self._app = app
        self._streams = streams
        self.ledger = ledger
        self._states: Lru[UUID, SessionState] = Lru(1024)
        self._turnstiles = tuple(RLock() for _ in range(_STRIPES))
        self._id_of = id_form(app)

    def write(
        self,
        key: SessionKey,
        decide: Callable[[Session], None],
        *,
        also: Also = (),
        at_version: int | None = None,
        past_damage: bool = False,
    ) -> Session:
        """Let `decide` record on the session as it is, and save that; it is asked again after a lost race.

        `at_version` is the version that the caller expects: a remembered state of another version is not
        used. With `past_damage` a newest event that cannot be read does not stop it, as is right for the end
        of a session only. Raises `SessionNotFoundError`, `VersionConflictError`.
        """
        also = also if _is_function(also) else checked_also(also)
        retried = callable(also) or len(also) == 0
        tried = -1
        # Writers of one session in this process go one by one, which spares them conflicts. It is a courtesy,
        # never needed for correctness: who waits for too long goes on all the same.
        turnstile = self._turnstiles[key.aggregate_id.int % _STRIPES]
        entered = turnstile.acquire(timeout=1.0)
        try:
            for attempt in range(MAX_ATTEMPTS):
                session, pending = self._decided(
                    key, decide, attempt == 0 and retried, at_version, past_damage
                )
                if not pending:
                    return session
                tried = pending[0].originator_version
                if self._save(session, pending, checked_also(also() if callable(also) else also)):
                    self._states.put(key.aggregate_id, session.state)
                    return session
                self._states.drop(key.aggregate_id)
                if not retried:
                    break
                pause(min(attempt, 6))
        finally:
            if entered:
                turnstile.release()
        newest = self._state(key.aggregate_id, past_damage)
        actual = newest.version if newest else -1
        raise VersionConflictError(key.session_id, tried - 1, actual)

    def open(self, session: Session, also: Also = ()) -> bool:
        """Save a new session; False when its id is taken."""
        pending = session.recorded
        saved = self._save(session, pending, checked_also(also() if _is_function(also) else also))
        if saved:
            self._states.put(session.id, session.state)
        return saved

    def current(self, key: SessionKey, *, past_damage: bool = False) -> SessionState:
        """The newest state, read from the store."""
        state = self._state(key.aggregate_id, past_damage)
        if state is None or state.is_deleted:
            raise SessionNotFoundError(key.session_id)
        if not past_damage:
            self._states.put(key.aggregate_id, state)
        return state

    def _state(self, aggregate_id: UUID, past_damage: bool) -> SessionState | None:
        return (self._streams.known_state if past_damage else self._streams.state)(aggregate_id)

    def _decided(
        self,
        key: SessionKey,
        decide: Callable[[Session], None],
        may_remember: bool,
        version: int | None,
        past_damage: bool,
    ) -> tuple[Session, Sequence[StreamEvent]]:
        """The session as it is, and what `decide` recorded on it."""
        session, remembered = self._load(key, may_remember, version, past_damage)
        try:
            decide(session)
            pending = session.recorded
            if pending or not remembered:
                return session, pending
        except TurnlogError:
            if not remembered:
                raise
        # Only an insert proves a remembered state: decide again on the state as it is.
        session, _ = self._load(key, False, None, past_damage)
        decide(session)
        return session, session.recorded

    def _load(
        self, key: SessionKey, may_remember: bool, version: int | None, past_damage: bool
    ) -> tuple[Session, bool]:
        """The session, and whether its state was only remembered."""
        state = self._states.get(key.aggregate_id) if may_remember and self.ledger.atomic else None
        remembered = state is not None and not state.is_deleted and version in (None, state.version)
        if state is None or not remembered:
            state = self.current(key, past_damage=past_damage)
            self.ledger.settle(key.aggregate_id)
        if key.check is not None:
            key.check(state)
        return Session.of_state(key.aggregate_id, state), remembered

    def _save(self, session: Session, pending: Sequence[StreamEvent], also: Sequence[Any]) -> bool:
        """Save; True when it is stored, by this call or by an earlier try whose answer was lost."""
        entries = self.ledger.entries_for(pending)
        if self._id_of is str:
            for event in (*pending, *entries):
                vars(event)["originator_id"] = str(event.originator_id)

        def save() -> None:
            session.pending_events[:] = pending
            self._app.save(session, *entries, *also)

        try:
            with writing_errors():
                if (
                    also
                ):  # a failed save empties the pending events of the host's aggregates: there is no second
                    save()
                else:
                    unlocked(save)
        except IntegrityError:
            session.pending_events.clear()
            with suppress(UnreadableEventError):  # then it is not what was written here
                stored = self._streams.event_at(session.id, pending[0].originator_version)
                return stored is not None and stored.chain == pending[0].chain
            return False
        except ProgrammingError as error:
            if also:
                raise StorageError(
                    f"The store refused to save the session together with `also` ({error}). "
                    "A store that saves one stream at a time cannot do that: save them one by one."
                ) from error
            if not entries:
                raise
            # This module saves one stream at a time: from now on entries follow in a save of their own.
            self.ledger = TrailingLedger(self._app, self._streams)
            return False
        return True


def checked_also(given: object) -> Sequence[Any]:
    """Host aggregates to save along, or `InvalidSettingError` for what is no sequence of these."""
    if given == ():
        return ()
    if isinstance(given, (list, tuple)):
        found = cast("Sequence[Any]", given)
        strange = [one for one in found if isinstance(one, type) or not _is_saved(one)]
        if not strange:
            return found
        given = strange[0]
    raise InvalidSettingError(
        f"`also` takes a list of aggregates, or a function that returns one, as in also=[order]; "
        f"{shown(given)} is none."
    )


def _is_function(also: Also) -> TypeGuard[Callable[[], Sequence[Any]]]:
    """Whether it makes the aggregates anew for each try; a class among them is a slip."""
    return callable(also) and not isinstance(also, type)


def _is_saved(given: object) -> bool:
    """Whether the framework can save it: an aggregate or an event."""
    is_event = hasattr(given, "originator_id") and hasattr(given, "originator_version")
    return is_event or hasattr(given, "collect_events")
