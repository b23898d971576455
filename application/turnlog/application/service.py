"""The use cases: one method each."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Final, Self, TypeAlias, cast
from uuid import UUID, uuid4

from eventsourcing.application import Application
from eventsourcing.utils import resolve_topic

from turnlog.application.appending import Batch
from turnlog.application.context import merged_context
from turnlog.application.directory import CatchUpDirectory
from turnlog.application.ledger import RowLedger, StreamLedger
from turnlog.application.mapper_check import check_mapper
from turnlog.application.ports import Directory, SessionRow, SessionRowsRecorder
from turnlog.application.sessions import Sessions
from turnlog.application.storage import unlocked
from turnlog.application.streams import Lru, SessionStreams
from turnlog.application.token_counts import TokenCounts
from turnlog.application.writing import Also, SessionKey, Writer
from turnlog.domain.branches import branch_request, owned_events, place
from turnlog.domain.compaction import (
    CompactionReason,
    CompactionRequest,
    CompactionResult,
    CompactionStrategy,
    CompactionTrigger,
)
from turnlog.domain.entries import entry_of
from turnlog.domain.errors import (
    InvalidBoundaryError,
    InvalidSettingError,
    NaiveTimeError,
    SessionIdUnavailableError,
    SessionNotFoundError,
    TurnlogError,
    UnknownEventError,
    UnknownVersionError,
    VersionConflictError,
)
from turnlog.domain.estimation import TokenEstimator
from turnlog.domain.events import MetadataUpdated, SessionOpened, StreamEvent
from turnlog.domain.filters import EventFilter
from turnlog.domain.ids import aggregate_id, check_branch, check_id, own_event_id, own_event_id_version
from turnlog.domain.json_text import from_json_text
from turnlog.domain.log import CompactionBoundary, EventType, NewEvent, SessionEvent
from turnlog.domain.messages import Message
from turnlog.domain.session import Session
from turnlog.domain.state import SessionState, covers
from turnlog.domain.turns import turn_starts
from turnlog.domain.view import View

DEFAULT_TIME_TO_LIVE: Final = timedelta(days=60)
"""How long a session lives when nothing is said."""

_ESTIMATOR_TOPIC = "turnlog.infrastructure.tokens:TiktokenEstimator"

Appendable: TypeAlias = Message | NewEvent | SessionEvent
"""What can be appended: a message, a new event with its id and branch, or an event of another log."""


@dataclass(frozen=True)
class SessionDetails:
    """What is known about a session itself. Times are UTC."""

    id: str
    version: int
    created_at: datetime
    modified_at: datetime
    expires_at: datetime | None
    idle: timedelta | None
    metadata: Mapping[str, Any]

    def is_expired(self, at: datetime) -> bool:
        """Whether the session expired at this time or before it; until it is swept it can be used."""
        return self.expires_at is not None and self.expires_at <= at


@dataclass(frozen=True)
class SessionUsage:
    """How much there is: in the view that the model is told, and in the whole log. Tokens are estimates."""

    turns: int
    events: int
    tokens: int
    log_turns: int
    log_events: int
    log_tokens: int


@dataclass(frozen=True)
class Capabilities:
    """What holds on the store beneath.

    `event_ids` says how repeats are known: `rows` or `streams` (exact, in the write itself), or `trailing`
    (exact through the version check, at the price of a look-up). `directory` is `rows` (one query) or
    `catch-up` (the reader pays).
    """

    persistence: str
    event_ids: str
    directory: str


class SessionService:
    """Sessions on an `eventsourcing` application: its own by default, or the host's.

    `env` configures the own application the framework's way; without it sessions live in memory. Without a
    `token_estimator` the one that TOKEN_ESTIMATOR_TOPIC names is used. `namespace` separates completely, as
    for tenants. `clock` gives aware times. The service is a context manager, safe between threads, and never
    closes a host's application.

    Raises, besides what each method says: `SessionNotFoundError` for a session that does not exist,
    `InvalidIdError` for a malformed id, `StorageLockedError` and `StorageError` for what the database says.
    """

    def __init__(
        self,
        app: Application[UUID] | None = None,
        *,
        env: Mapping[str, str] | None = None,
        token_estimator: TokenEstimator | None = None,
        clock: Callable[[], datetime] | None = None,
        namespace: str = "",
    ) -> None:
        if app is not None and env is not None:
            raise InvalidSettingError(
                "`env` is for the service's own application: give it or `app`, not both."
            )
        self._owns_app = app is None
        self._app: Application[UUID] = app or unlocked(lambda: Sessions(env=dict(env or {})))
        check_mapper(self._app.mapper)
        self._namespace = namespace
        self._clock = clock or _utc_now
        self._estimator = token_estimator
        self._counts: TokenCounts | None = None
        self._streams = SessionStreams(self._app)
        recorder = self._app.recorder
        if isinstance(recorder, SessionRowsRecorder):
            recorder.bind(self._app.mapper)
            self._directory: Directory = recorder.directory
            self._writer = Writer(self._app, self._streams, RowLedger(recorder))
        else:
            self._directory = CatchUpDirectory(self._app)
            self._writer = Writer(self._app, self._streams, StreamLedger(self._streams))
        self._totals: Lru[UUID, tuple[int, int, int, int]] = Lru(256)

    # --- the service itself

    @property
    def app(self) -> Application[UUID]:
        """The framework application that holds the sessions."""
        return self._app

    @property
    def capabilities(self) -> Capabilities:
        """What holds on the store beneath."""
        kinds = {"RowLedger": "rows", "StreamLedger": "streams", "TrailingLedger": "trailing"}
        return Capabilities(
            persistence=self._app.env.get("PERSISTENCE_MODULE") or "eventsourcing.popo",
            event_ids=kinds[type(self._writer.ledger).__name__],
            directory="catch-up" if isinstance(self._directory, CatchUpDirectory) else "rows",
        )

    def close(self) -> None:
        """Close the service's own application; a host's stays open."""
        if self._owns_app:
            self._app.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # --- sessions

    def create(
        self,
        session_id: str | None = None,
        *,
        metadata: Mapping[str, Any] | None = None,
        time_to_live: timedelta | None = DEFAULT_TIME_TO_LIVE,
        idle: timedelta | None = None,
        context: Mapping[str, str] | None = None,
        also: Also = (),
    ) -> SessionDetails:
        """A new session. It expires `time_to_live` after now (None: never); with `idle` the expiry is
        measured from the last user or assistant message instead.

        Raises `SessionIdUnavailableError` when the id is taken, now or formerly.
        """
        now = self._now()
        session = Session.open(
            str(uuid4()) if session_id is None else session_id,
            now=now,
            namespace=self._namespace,
            metadata=metadata,
            expires_at=None if time_to_live is None else now + time_to_live,
            idle=idle,
            context=merged_context(context),
        )
        opened = cast("SessionOpened", session.pending_events[0])
        if not self._writer.open(session, also):
            raise SessionIdUnavailableError(opened.session_id)
        return _details(opened.session_id, session.state, opened.content)

    def find(self, session_id: str) -> SessionDetails | None:
        """The session, None when it does not exist."""
        key = self._key(session_id)
        state = self._streams.state(key.aggregate_id)
        if state is None or state.is_deleted:
            return None
        content: str | None = None
        if state.metadata_version is not None:
            event = self._streams.event_at(key.aggregate_id, state.metadata_version)
            content = event.content if isinstance(event, (SessionOpened, MetadataUpdated)) else None
        return _details(session_id, state, content)

    def find_or_create(
        self,
        session_id: str,
        *,
        metadata: Mapping[str, Any] | None = None,
        time_to_live: timedelta | None = DEFAULT_TIME_TO_LIVE,
        idle: timedelta | None = None,
        context: Mapping[str, str] | None = None,
    ) -> SessionDetails:
        """The session of this id, made if it does not exist. Safe when two first calls race."""
        found = self.find(session_id)
        if found is not None:
            return found
        try:
            return self.create(
                session_id, metadata=metadata, time_to_live=time_to_live, idle=idle, context=context
            )
        except SessionIdUnavailableError:
            found = self.find(session_id)
            if found is None:
                raise
            return found

    def list_sessions(self, *, limit: int = 50, before: int | None = None) -> Sequence[SessionRow]:
        """Sessions by their creation, newest first; `before` is the position of the last one seen so far."""
        return self._directory.newest(self._namespace, limit=limit, before=before)

    def sessions_with_prefix(self, prefix: str, *, limit: int = 10) -> Sequence[SessionRow]:
        """Sessions whose id begins with the prefix, in the order of their ids."""
        return self._directory.with_prefix(self._namespace, prefix, limit=limit)

    def update_metadata(
        self,
        session_id: str,
        metadata: Mapping[str, Any],
        *,
        context: Mapping[str, str] | None = None,
        also: Also = (),
    ) -> int:
        """Replace the metadata as a whole; returns the version."""
        around = merged_context(context)
        return self._write(
            session_id, also, lambda s: s.update_metadata(metadata, now=self._now(), context=around)
        )

    def extend(
        self,
        session_id: str,
        until: datetime | None,
        *,
        context: Mapping[str, str] | None = None,
        also: Also = (),
    ) -> int:
        """Let the session expire at another time (None: never); returns the version."""
        _require_aware("until", until)
        around = merged_context(context)
        return self._write(session_id, also, lambda s: s.extend(until, now=self._now(), context=around))

    def delete(self, session_id: str, *, context: Mapping[str, str] | None = None, also: Also = ()) -> None:
        """End the session: it is gone for every reader, and its id is not used again."""
        around = merged_context(context)
        self._write(session_id, also, lambda s: s.delete(now=self._now(), context=around))

    def delete_expired(self, before: datetime) -> int:
        """Delete the sessions that expired at this time or before it; returns how many this call deleted.

        For each session the check and the deletion are one step: one that is extended meanwhile survives.
        """
        _require_aware("before", before)
        return sum(self._sweep(row, before) for row in self._directory.expired(self._namespace, before))

    # --- appending

    def append_message(
        self,
        session_id: str,
        message: Message,
        *,
        event_id: str | None = None,
        branch: str | None = None,
        occurred_at: datetime | None = None,
        context: Mapping[str, str] | None = None,
        also: Also = (),
    ) -> SessionEvent:
        """Append one message and return it as it is stored.

        With an `event_id` that the session holds already it is a repeat: nothing changes, and `is_repeat` and
        `differs` of the returned event say so.
        """
        new = NewEvent(message=message, id=event_id, branch=branch, occurred_at=occurred_at)
        return self.append_events(session_id, (new,), context=context, also=also)[0]

    def append_event(
        self,
        session_id: str,
        event: Appendable | EventType | str,
        payload: Mapping[str, Any] | None = None,
        *,
        event_id: str | None = None,
        branch: str | None = None,
        occurred_at: datetime | None = None,
        context: Mapping[str, str] | None = None,
        also: Also = (),
    ) -> SessionEvent:
        """Append one event: a type of the application's own with its JSON payload, or anything appendable."""
        if isinstance(event, str):
            event = NewEvent(
                type=EventType.of(event),
                payload=payload if payload is not None else {},
                id=event_id,
                branch=branch,
                occurred_at=occurred_at,
            )
        return self.append_events(session_id, (event,), context=context, also=also)[0]

    def append_events(
        self,
        session_id: str,
        events: Sequence[Appendable],
        *,
        expected_version: int | None = None,
        context: Mapping[str, str] | None = None,
        also: Also = (),
    ) -> tuple[SessionEvent, ...]:
        """Append in one write and return what is stored, in the order given; repeats are left out.

        With an `expected_version` that is not the session's, `VersionConflictError` and nothing is written,
        unless the batch holds nothing but repeats. With host objects in `also` a lost race raises it as well.
        """
        key = self._key(session_id)
        batch = Batch(
            key, tuple(NewEvent.of(event) for event in events), expected_version, merged_context(context)
        )
        if not batch.events:
            self._writer.current(key)
            return ()
        tries = itertools.count()

        def decide(session: Session) -> None:
            exact = self._writer.ledger.atomic and (callable(also) or len(also) == 0)
            batch.record(session, self._now(), self._locate, look_up=next(tries) > 0 or not exact)

        self._writer.write(key, decide, also=also, at_version=expected_version)
        return batch.stored(lambda version: self._streams.entry_at(key.aggregate_id, session_id, version))

    def abandon(
        self,
        session_id: str,
        event_id: str,
        call_id: str,
        *,
        abandonment_id: str | None = None,
        occurred_at: datetime | None = None,
        context: Mapping[str, str] | None = None,
        also: Also = (),
    ) -> SessionEvent:
        """Give up waiting for the result of an awaited call of this event; its turn may leave the view then.

        Raises `UnknownEventError`, `CallNotAwaitedError`.
        """
        key = self._key(session_id)
        self._writer.current(key)
        call_version = self._locate(key, event_id)
        if call_version is None:
            raise UnknownEventError(session_id, event_id)

        def decide(session: Session, own_id: Callable[[int], str]) -> None:
            session.abandon(
                event_id=abandonment_id or own_id(0),
                call_event_id=event_id,
                call_version=call_version,
                call_id=call_id,
                now=self._now(),
                occurred_at=occurred_at,
                context=merged_context(context),
            )

        return self._record_once(key, abandonment_id, decide, also)[0]

    def restore_boundary(
        self,
        session_id: str,
        boundary_id: str,
        boundary: CompactionBoundary,
        summary: Sequence[NewEvent] = (),
        *,
        occurred_at: datetime | None = None,
        context: Mapping[str, str] | None = None,
        also: Also = (),
    ) -> tuple[SessionEvent, ...]:
        """Record a boundary of an exported log, with the messages of its summary behind it and all ids kept.

        A boundary that the session holds already is a repeat. Raises `InvalidBoundaryError` when it names
        what is not in the view.
        """
        key = self._key(session_id)
        if tuple(event.id for event in summary) != boundary.summary:
            raise InvalidBoundaryError(
                "The summary messages must be those that the boundary names, in order."
            )

        def decide(session: Session, own_id: Callable[[int], str]) -> None:  # noqa: ARG001 - all ids are given
            view = self._streams.view(key.aggregate_id, session_id, session.state)
            session.compact(
                CompactionResult.of_boundary(boundary, view.events),
                boundary_id=boundary_id,
                summary=[(event.id or "", replace(event, synthetic=True)) for event in summary],
                now=self._now(),
                branch=boundary.branch,
                covered_count=boundary.covered_count,
                strategy=boundary.strategy,
                trigger=boundary.trigger,
                occurred_at=occurred_at,
                context=merged_context(context),
            )

        return self._record_once(key, boundary_id, decide, also)

    # --- reading

    def get_events(self, session_id: str, criteria: EventFilter | None = None) -> tuple[SessionEvent, ...]:
        """The entries of the log that meet the criteria, in order; empty when there is no session.

        Without criteria that is the whole log, boundaries and custom events included. `archived` marks the
        messages that are no longer in the view.
        """
        key = self._key(session_id)
        state = self._streams.state(key.aggregate_id)
        if state is None or state.is_deleted:
            return ()
        criteria = criteria or EventFilter()
        if criteria.last_n is not None:
            newest: list[SessionEvent] = []
            for event in self._entries(key, state, backwards=True):
                if criteria.matches(event):
                    newest.append(event)
                    if len(newest) == criteria.last_n:
                        break
            return tuple(reversed(newest))
        return criteria.apply(self._entries(key, state))

    def iter_events(self, session_id: str) -> Iterator[SessionEvent]:
        """The whole log as `get_events` gives it, read page by page, as it was at the first step."""
        key = self._key(session_id)
        yield from self._entries(key, self._writer.current(key))

    def get_messages(self, session_id: str, criteria: EventFilter | None = None) -> tuple[Message, ...]:
        """The messages of the log that meet the criteria, covered ones included; empty without a session."""
        return tuple(event.message for event in self.get_events(session_id, criteria) if event.message)

    def get_event(self, session_id: str, event_id: str) -> SessionEvent:
        """One entry of the log by its id; `UnknownEventError` when there is none."""
        key = self._key(session_id)
        self._writer.current(key)
        version = self._locate(key, event_id)
        entry = None if version is None else self._streams.entry_at(key.aggregate_id, session_id, version)
        if entry is None:
            raise UnknownEventError(session_id, event_id)
        return entry

    def version(self, session_id: str) -> int:
        """The version of the session's newest event; 0 when there is no session."""
        state = self._streams.state(self._key(session_id).aggregate_id)
        return 0 if state is None or state.is_deleted else state.version

    def view(
        self, session_id: str, *, at_version: int | None = None, at_time: datetime | None = None
    ) -> View:
        """What makes up the view: now, behind the event of a version, or behind the last event at a time.

        Raises `UnknownVersionError` for a version that is not reached, or a time before the session.
        """
        key = self._key(session_id)
        state = self._writer.current(key)
        if at_version is not None or at_time is not None:
            state = self._state_at(key, state, at_version, at_time)
        return self._streams.view(key.aggregate_id, session_id, state)

    def usage(self, session_id: str) -> SessionUsage:
        """How much is in the view and in the log. The log is read once, later calls read what is new."""
        key = self._key(session_id)
        state = self._writer.current(key)
        view = self._streams.view(key.aggregate_id, session_id, state)
        request = self._request(session_id, state, view)
        turns, events, tokens = self._log_totals(key, state)
        return SessionUsage(
            turns=len(turn_starts(view.events)),
            events=len(view.events),
            tokens=request.cost_of_view(),
            log_turns=turns,
            log_events=events,
            log_tokens=tokens,
        )

    # --- compaction

    def compact(
        self,
        session_id: str,
        trigger: CompactionTrigger | None,
        strategy: CompactionStrategy,
        *,
        branch: str | None = None,
        context: Mapping[str, str] | None = None,
        also: Also = (),
    ) -> CompactionResult:
        """One pass: ask the trigger (None: always), run the strategy, record the boundary and its summary.

        With a `branch` the pass owns the messages of exactly that branch; without one it owns the session. No
        lock and no transaction is held while the strategy runs. When a message that the pass owns came
        meanwhile, or one that it covers left the view, it lost its race: the result is unchanged and says so.
        What the strategy raises is raised, and nothing is written.
        """
        key = self._key(session_id)
        state = self._writer.current(key)
        view = self._streams.view(key.aggregate_id, session_id, state)
        request = self._request(session_id, state, view)
        if branch is not None:
            request = branch_request(request, check_branch(branch))
        before = request.cost_of_view()
        if trigger is not None and not trigger(request):
            result = CompactionResult(CompactionReason.TRIGGER_DID_NOT_FIRE)
        else:
            result = strategy.compact(request)
        result = replace(result, tokens_before=before, tokens_after=before, version=state.version)
        if result.is_unchanged:
            return result
        result.check_turn_safe(view.events)
        attempt = _Pass(key, view, result, branch, strategy, trigger, merged_context(context))
        return self._record_pass(attempt, also)

    # --- how it is done

    def _record_pass(self, attempt: _Pass, also: Also) -> CompactionResult:
        key = attempt.key
        recorded = attempt.result

        def decide(session: Session, own_id: Callable[[int], str]) -> None:
            nonlocal recorded
            recorded = attempt.result_for(self._streams.view(key.aggregate_id, key.session_id, session.state))
            summary = [
                (own_id(1 + place), NewEvent(message=message, synthetic=True, branch=attempt.branch))
                for place, message in enumerate(recorded.summary)
            ]
            session.compact(
                recorded,
                boundary_id=own_id(0),
                summary=summary,
                now=self._now(),
                branch=attempt.branch,
                strategy=attempt.strategy,
                trigger=attempt.trigger,
                context=attempt.context,
            )

        try:
            boundary, *summary = self._record_once(key, None, decide, also)
        except (_RaceLostError, VersionConflictError) as error:
            if isinstance(error, VersionConflictError) and not callable(also) and len(also) > 0:
                raise  # the host's aggregates lost their events: the host has to know
            before = attempt.result.tokens_before
            return CompactionResult(
                CompactionReason.RACE_LOST,
                tokens_before=before,
                tokens_after=before,
                version=self._writer.current(key).version,
            )
        version = summary[-1].version if summary else boundary.version
        state = self._streams.state(key.aggregate_id, version)
        assert state is not None  # noqa: S101 - it was just written
        view = self._streams.view(key.aggregate_id, key.session_id, state)
        request = self._request(key.session_id, state, view)
        if attempt.branch is not None:
            request = branch_request(request, attempt.branch)
        return replace(
            recorded,
            version=version,
            boundary=boundary,
            summary_events=tuple(summary),
            tokens_after=request.cost_of_view(),
        )

    def _record_once(
        self,
        key: SessionKey,
        given_id: str | None,
        decide: Callable[[Session, Callable[[int], str]], None],
        also: Also,
    ) -> tuple[SessionEvent, ...]:
        """What `decide` records, as entries; with an id that the session holds already, the repeat."""
        held: int | None = None
        recorded: tuple[StreamEvent, ...] = ()

        def record(session: Session) -> None:
            nonlocal held, recorded
            recorded = ()
            held = None if given_id is None else self._locate(key, given_id)
            if held is None:
                first = session.version + 1
                decide(session, lambda place: own_event_id(first + place, secrets.token_hex(10)))
                recorded = session.recorded

        self._writer.write(key, record, also=also)
        if held is not None:
            entry = self._streams.entry_at(key.aggregate_id, key.session_id, held)
            return (replace(entry, is_repeat=True),) if entry else ()
        return tuple(entry for event in recorded if (entry := entry_of(event, key.session_id)))

    def _sweep(self, row: SessionRow, before: datetime) -> bool:
        deleted = False

        def decide(session: Session) -> None:
            nonlocal deleted
            deleted = session.is_expired(before)
            if deleted:
                session.delete(now=self._now())

        key = SessionKey(row.session_id, row.aggregate_id)
        try:
            self._writer.write(key, decide)
        except SessionNotFoundError:  # another sweep was first
            return False
        return deleted

    def _write(self, session_id: str, also: Also, decide: Callable[[Session], object]) -> int:
        return self._writer.write(self._key(session_id), lambda s: (decide(s), None)[1], also=also).version

    def _request(self, session_id: str, state: SessionState, view: View) -> CompactionRequest:
        counts = self._token_counts()
        waiting = {call.version for call in state.awaited}
        return CompactionRequest(
            view=view,
            tokens=counts.of_event,
            message_tokens=counts.of_message,
            session_id=session_id,
            awaited=frozenset(event.id for event in view.events if event.version in waiting),
        )

    def _entries(
        self, key: SessionKey, state: SessionState, *, backwards: bool = False
    ) -> Iterator[SessionEvent]:
        for event in self._streams.log(key.aggregate_id, upto=state.version, backwards=backwards):
            entry = entry_of(event, key.session_id)
            if entry is None:
                continue
            if entry.message and not covers(state.view, entry.version):
                entry = replace(entry, archived=True)
            yield entry

    def _state_at(
        self, key: SessionKey, newest: SessionState, version: int | None, time: datetime | None
    ) -> SessionState:
        if version is not None and time is not None:
            raise InvalidSettingError("Give a version or a time, not both.")
        _require_aware("at_time", time)
        at = version if time is None else self._streams.version_at(key.aggregate_id, time, newest)
        if at is None or not 0 <= at <= newest.version:
            raise UnknownVersionError(key.session_id, at if time is None else f"at {time}", newest.version)
        state = self._streams.state(key.aggregate_id, at)
        if state is None:
            raise SessionNotFoundError(key.session_id)
        return state

    def _log_totals(self, key: SessionKey, state: SessionState) -> tuple[int, int, int]:
        upto, turns, events, tokens = self._totals.get(key.aggregate_id) or (-1, 0, 0, 0)
        counts = self._token_counts()
        for entry in self._streams.entries(key.aggregate_id, key.session_id, after=upto, upto=state.version):
            turns += entry.starts_turn
            events += 1
            tokens += counts.of_event(entry)
        self._totals.put(key.aggregate_id, (max(upto, state.version), turns, events, tokens))
        return turns, events, tokens

    def _locate(self, key: SessionKey, event_id: str) -> int | None:
        """The version of the event with this id: what the id says itself, else what the ledger says."""
        at = own_event_id_version(event_id)
        if at is not None:
            event = self._streams.event_at(key.aggregate_id, at)
            if event is not None and event.IS_ENTRY and vars(event)["event_id"] == event_id:
                return at
        return self._writer.ledger.version_of(key.aggregate_id, event_id)

    def _key(self, session_id: str) -> SessionKey:
        check_id("Session id", session_id)
        return SessionKey(session_id, aggregate_id(session_id, self._namespace))

    def _token_counts(self) -> TokenCounts:
        if self._counts is None:
            estimator = self._estimator
            if estimator is None:
                topic = self._app.env.get("TOKEN_ESTIMATOR_TOPIC") or _ESTIMATOR_TOPIC
                estimator = cast("TokenEstimator", resolve_topic(topic)())
            self._counts = TokenCounts(estimator)
        return self._counts

    def _now(self) -> datetime:
        now = self._clock()
        _require_aware("The clock's time", now)
        return now


@dataclass(frozen=True)
class _Pass:
    """A pass that has its result and is about to be recorded."""

    key: SessionKey
    view: View
    result: CompactionResult
    branch: str | None
    strategy: object
    trigger: object
    context: Mapping[str, str]

    def result_for(self, now: View) -> CompactionResult:
        """The result for the view as it is at the write, or `_RaceLostError`."""
        if self.branch is None:
            if now.ids != self.view.ids:
                raise _RaceLostError
            return self.result
        ours = {event.id for event in owned_events(self.view.events, self.branch)}
        held = {event.id for event in now.events}
        came = any(event.id not in ours for event in owned_events(now.events, self.branch))
        if came or not all(event.id in held for event in self.result.covered_events):
            raise _RaceLostError
        return place(self.result, now.events, self.branch)


class _RaceLostError(TurnlogError):
    """The view changed while a pass ran."""


def _details(session_id: str, state: SessionState, metadata: str | None) -> SessionDetails:
    return SessionDetails(
        id=session_id,
        version=state.version,
        created_at=state.created_on,
        modified_at=state.modified_on,
        expires_at=state.expires_at,
        idle=state.idle,
        metadata=cast("dict[str, Any]", from_json_text(metadata)) if metadata else {},
    )


def _require_aware(name: str, time: datetime | None) -> None:
    if time is not None and time.tzinfo is None:
        raise NaiveTimeError(name, time)


def _utc_now() -> datetime:
    return datetime.now(UTC)
