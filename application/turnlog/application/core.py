"""What all use cases of the session service stand on."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self, cast
from uuid import UUID

from eventsourcing.application import Application
from eventsourcing.utils import resolve_topic

from turnlog.application.aids import aids_of
from turnlog.application.directory import CatchUpDirectory
from turnlog.application.erasing import SessionEraser
from turnlog.application.ledger import RowLedger, StreamLedger
from turnlog.application.mapper_check import check_mapper
from turnlog.application.passes import PassLog
from turnlog.application.ports import Directory, RecallIndex, SessionRowsRecorder, keeps_recall
from turnlog.application.sessions import ROWS_RECORDERS, Sessions
from turnlog.application.settings import setting
from turnlog.application.storage import started
from turnlog.application.stored_events import metadata_in
from turnlog.application.streams import Lru, SessionStreams
from turnlog.application.token_counts import TokenCounts
from turnlog.application.writing import Also, SessionKey, Writer
from turnlog.domain.attributes import SessionAttributes
from turnlog.domain.compaction import CompactionRequest
from turnlog.domain.entries import entry_of
from turnlog.domain.errors import (
    DuplicateEventError,
    InvalidSettingError,
    MissingEventError,
    NaiveTimeError,
    SessionNotFoundError,
    StorageError,
    UnknownVersionError,
    UnreadableEventError,
    shown,
)
from turnlog.domain.estimation import TokenEstimator
from turnlog.domain.events import MetadataUpdated, SessionOpened, StreamEvent
from turnlog.domain.guards import require_callable, require_methods
from turnlog.domain.ids import aggregate_id, check_id, entry_id, own_event_id, own_event_id_version
from turnlog.domain.log import SessionEvent
from turnlog.domain.session import Session
from turnlog.domain.state import SessionState
from turnlog.domain.view import View

_logger = logging.getLogger("turnlog")

_ESTIMATOR_TOPIC = "turnlog.infrastructure.tokens:TiktokenEstimator"


_ROWS_CHECKS = {
    "eventsourcing.postgres": "turnlog.infrastructure.postgres:has_session_rows",
    "eventsourcing.sqlite": "turnlog.infrastructure.sqlite:has_session_rows",
}
"""By persistence module, who says whether a store has rows about sessions."""


@dataclass(frozen=True)
class Capabilities:
    """What holds on the store beneath.

    `event_ids` says how repeats are known: `rows` or `streams` (exact, in the write itself), or `trailing`
    (exact through the version check, at the price of a look-up). `directory` is `rows` (one query),
    `catch-up` (rows in the same database; who asks first applies what is missing) or `memory` (the same in
    the memory of each process). `recall` is `index`, `catch-up` (an index in the same database; who searches
    first applies what is missing), or `log`: every search reads the logs. `erases` says whether a deletion
    can overwrite what was said.
    """

    persistence: str
    event_ids: str
    directory: str
    recall: str
    erases: bool


class ServiceCore:
    """The application, its streams and its writer, and what every use case needs of them."""

    def __init__(
        self,
        app: Application[UUID] | None = None,
        *,
        env: Mapping[str, str] | None = None,
        token_estimator: TokenEstimator | None = None,
        clock: Callable[[], datetime] | None = None,
        namespace: str = "",
        keep_passes: bool = False,
    ) -> None:
        if app is not None and env is not None:
            raise InvalidSettingError(
                "`env` is for the service's own application: give it or `app`, not both."
            )
        if app is not None and not isinstance(app, Application):  # pyright: ignore[reportUnnecessaryIsInstance] # callers may be untyped
            raise InvalidSettingError(
                f"`app` is an eventsourcing Application, not {shown(app)}; env=… has a name."
            )
        if token_estimator is not None:
            require_methods(
                "`token_estimator`", token_estimator, ("estimate",), "an object, as TiktokenEstimator()"
            )
        if clock is not None:
            require_callable("`clock`", clock, "a function that returns an aware datetime")
        self._owns_app = app is None
        self._app: Application[UUID] = app or started(lambda: Sessions(env=dict(env or {})))
        self._clock = clock or _utc_now
        self._estimator = token_estimator
        self._counts: TokenCounts | None = None
        self._keeps_passes = keep_passes
        self._principal: str | None = None
        self._totals: Lru[tuple[UUID, int | None], tuple[int, int, int, int]] = Lru(256)
        try:
            _warn_of_memory(self._app)
            check_mapper(self._app.mapper)
            self._namespace = check_id("Namespace", namespace) if namespace else ""
            self._stand_on_store()
        except BaseException:
            if self._owns_app:
                self._app.close()
            raise

    def _stand_on_store(self) -> None:
        self._streams = SessionStreams(self._app)
        recorder = self._app.recorder
        if isinstance(recorder, SessionRowsRecorder):
            recorder.keeps_recall = keeps_recall(self._app.env, self._app.mapper)
            recorder.bind(self._app.mapper)
            self._directory: Directory = recorder.directory
            self._writer = Writer(self._app, self._streams, RowLedger(recorder))
            self._eraser: SessionEraser | None = recorder.eraser
            self._caught_up_index: RecallIndex | None = None
        else:
            _refuse_forgotten_rows(self._app)
            aids = aids_of(self._app)
            self._directory = aids.directory or CatchUpDirectory(self._app)
            self._writer = Writer(self._app, self._streams, StreamLedger(self._streams))
            self._eraser = aids.eraser
            self._caught_up_index = aids.recall
        self._passes = PassLog(self._app, self._streams)

    # --- the service itself

    @property
    def app(self) -> Application[UUID]:
        """The framework application that holds the sessions."""
        return self._app

    @property
    def namespace(self) -> str:
        """The namespace that separates these sessions from others of the store, empty by default."""
        return self._namespace

    @property
    def principal(self) -> str | None:
        """Whom this scope belongs to, None for the service itself."""
        return self._principal

    @property
    def capabilities(self) -> Capabilities:
        """What holds on the store beneath."""
        kinds = {"RowLedger": "rows", "StreamLedger": "streams", "TrailingLedger": "trailing"}
        return Capabilities(
            persistence=self._app.env.get("PERSISTENCE_MODULE") or "eventsourcing.popo",
            event_ids=kinds[type(self._writer.ledger).__name__],
            directory=self._directory_kind,
            recall=self._recall_kind,
            erases=self._eraser is not None,
        )

    @property
    def _recall_index(self) -> RecallIndex | None:
        recorder = self._app.recorder
        return recorder.recall if isinstance(recorder, SessionRowsRecorder) else self._caught_up_index

    @property
    def _directory_kind(self) -> str:
        if isinstance(self._app.recorder, SessionRowsRecorder):
            return "rows"
        return "memory" if isinstance(self._directory, CatchUpDirectory) else "catch-up"

    @property
    def _recall_kind(self) -> str:
        if self._recall_index is None:
            return "log"
        return "catch-up" if self._caught_up_index is not None else "index"

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

    # --- for the use cases

    def _write(self, session_id: str, also: Also, decide: Callable[[Session], object]) -> int:
        return self._writer.write(self._key(session_id), lambda s: (decide(s), None)[1], also=also).version

    def _record_once(
        self,
        key: SessionKey,
        given_id: str | None,
        decide: Callable[[Session, Callable[[int], str]], None],
        also: Also,
        *,
        at_version: int | None = None,
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

        self._writer.write(key, record, also=also, at_version=at_version)
        if held is not None:
            entry = self._streams.entry_at(key.aggregate_id, key.session_id, held)
            return (replace(entry, is_repeat=True),) if entry else ()
        return tuple(entry for event in recorded if (entry := entry_of(event, key.session_id)))

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

    def _state_at(
        self, key: SessionKey, newest: SessionState, version: int | None, time: datetime | None
    ) -> SessionState:
        if version is not None and time is not None:
            raise InvalidSettingError("Give a version or a time, not both.")
        if version is not None and not isinstance(version, int):  # pyright: ignore[reportUnnecessaryIsInstance] # callers may be untyped
            raise InvalidSettingError(f"`at_version` is a whole number, not {shown(version)}.")
        require_aware("at_time", time)
        at = version if time is None else self._streams.version_at(key.aggregate_id, time, newest)
        if at is None or not 0 <= at <= newest.version:
            raise UnknownVersionError(key.session_id, at if time is None else f"at {time}", newest.version)
        state = self._streams.state(key.aggregate_id, at)
        if state is None:
            raise SessionNotFoundError(key.session_id)
        return state

    def _locate(self, key: SessionKey, event_id: str) -> int | None:
        """The version of the event with this id: what the id says itself, else what the ledger says."""
        at = own_event_id_version(event_id)
        if at is not None:
            event = self._streams.event_at(key.aggregate_id, at)
            if event is not None and event.IS_ENTRY and vars(event)["event_id"] == event_id:
                return at
        return self._writer.ledger.version_of(key.aggregate_id, event_id)

    def _refuse_taken(self, key: SessionKey, event_ids: Sequence[str]) -> None:
        """`DuplicateEventError` for an id that the session holds already, or that comes twice."""
        for place, event_id in enumerate(event_ids):
            if event_id in event_ids[:place] or self._locate(key, event_id) is not None:
                raise DuplicateEventError(event_id)

    def _key(self, session_id: str) -> SessionKey:
        """The session by both of its ids.

        In a scope a foreign one is a stream that nobody ever wrote, and so is one of which nobody knows whose
        it is, as its metadata are damaged.
        """
        check_id("Session id", session_id)
        key = SessionKey(session_id, aggregate_id(session_id, self._namespace))
        if self._principal is None:
            return key
        nobody = SessionKey(session_id, entry_id(key.aggregate_id, "nobody\0"))
        try:
            state = self._streams.known_state(key.aggregate_id)
            if state is None or self._owner(key, state) != self._principal:
                return nobody
        except UnreadableEventError:
            return nobody

        def still_owned(now: SessionState) -> None:
            if now.metadata_version != state.metadata_version and self._owner(key, now) != self._principal:
                raise SessionNotFoundError(session_id)

        return key._replace(check=still_owned)

    @property
    def _scope(self) -> Mapping[str, Any]:
        """The metadata that every session of this service's scope has."""
        return {} if self._principal is None else {SessionAttributes.PRINCIPAL_NAME: self._principal}

    def _owner(self, key: SessionKey, state: SessionState) -> object:
        """The principal of the session as its metadata say."""
        return self._metadata(key, state).get(SessionAttributes.PRINCIPAL_NAME)

    def _metadata(self, key: SessionKey, state: SessionState) -> Mapping[str, Any]:
        """The metadata of the session in this state; `UnreadableEventError` where they are gone, too."""
        version = state.metadata_version
        if version is None:
            return {}
        try:
            event = self._streams.event_at(key.aggregate_id, version)
            if event is None:
                raise MissingEventError("it is gone", key.aggregate_id.hex, version)
            if not isinstance(event, (SessionOpened, MetadataUpdated)):
                raise UnreadableEventError("it is another event", key.aggregate_id.hex, version)
            return metadata_in(event)
        except UnreadableEventError as error:
            raise error.of(key.session_id) from error.__cause__

    def _token_counts(self) -> TokenCounts:
        if self._counts is None:
            estimator = self._estimator
            if estimator is None:
                named = setting(self._app.env, "TOKEN_ESTIMATOR_TOPIC", _ESTIMATOR_TOPIC)
                estimator = cast("TokenEstimator", named())
            self._counts = TokenCounts(estimator)
        return self._counts

    def _now(self) -> datetime:
        now = self._clock()
        require_aware("The clock's time", now)
        return now


def _warn_of_memory(app: Application[UUID]) -> None:
    """Say that sessions are lost at the end where a database is named and none is used."""
    named = next((name for name in ("SQLITE_DBNAME", "POSTGRES_DBNAME") if app.env.get(name)), None)
    if named is not None and not app.env.get("PERSISTENCE_MODULE"):
        module = f"eventsourcing.{named.partition('_')[0].lower()}"
        _logger.warning(
            "%s is set and PERSISTENCE_MODULE is not: sessions are kept in memory only. "
            "Set PERSISTENCE_MODULE=%s.",
            named,
            module,
        )


def _refuse_forgotten_rows(app: Application[UUID]) -> None:
    """`StorageError` for a store whose rows about sessions would not be written from now on."""
    module = app.env.get("PERSISTENCE_MODULE") or ""
    topic = _ROWS_CHECKS.get(module)
    if topic is not None and resolve_topic(topic)(app.recorder):
        raise StorageError(
            "This database has rows about sessions, but the application's recorder does not write them, so "
            "repeats would be appended twice. Put SessionRows in front of the recorder, or set "
            f"APPLICATION_RECORDER_TOPIC={ROWS_RECORDERS[module]}."
        )


def require_aware(name: str, time: datetime | None) -> None:
    """`NaiveTimeError` for a time that does not say which instant is meant."""
    if time is not None and not isinstance(time, datetime):  # pyright: ignore[reportUnnecessaryIsInstance] # callers may be untyped
        raise InvalidSettingError(f"{name} is a datetime with an offset, not {shown(time)}.")
    if time is not None and time.tzinfo is None:
        raise NaiveTimeError(name, time)


def _utc_now() -> datetime:
    return datetime.now(UTC)
