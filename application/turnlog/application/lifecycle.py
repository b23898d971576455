"""Use cases: making, finding and listing sessions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Self, cast
from uuid import uuid4

from turnlog.application.context import merged_context
from turnlog.application.core import ServiceCore
from turnlog.application.ports import SessionRow
from turnlog.application.writing import Also, SessionKey
from turnlog.domain.attributes import SessionAttributes
from turnlog.domain.compaction import require_positive
from turnlog.domain.errors import InvalidSettingError, SessionIdUnavailableError, UnreadableEventError, shown
from turnlog.domain.events import SessionOpened
from turnlog.domain.guards import require_kind
from turnlog.domain.json_text import check_json, from_json_text, to_json_text
from turnlog.domain.session import MAX_SPAN, Session
from turnlog.domain.state import SessionState

DEFAULT_TIME_TO_LIVE: Final = timedelta(days=60)
"""How long a session lives when nothing is said."""


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


class Lifecycle(ServiceCore):
    """The use cases about sessions themselves."""

    def scoped_to(self, principal: str) -> Self:
        """This service for one principal: sessions of others do not exist in it, whatever is asked.

        What it creates belongs to the principal (`SessionAttributes.PRINCIPAL_NAME` of the metadata). An id
        that is taken by another principal is unavailable, without a word why. Closing it closes nothing.
        """
        if not isinstance(principal, str) or not principal.strip():  # pyright: ignore[reportUnnecessaryIsInstance] # callers may be untyped
            raise InvalidSettingError(f"A scope needs a principal that is not blank, not {shown(principal)}.")
        if self._principal not in (None, principal):
            raise InvalidSettingError("A scope is not left: scope the service itself to another principal.")
        scoped = copy(self)
        scoped._owns_app = False
        scoped._principal = principal
        return scoped

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
        if idle is not None:
            require_kind("`idle`", idle, timedelta, "a timedelta, as in timedelta(days=7)")
        if time_to_live is not None and not isinstance(time_to_live, timedelta):  # pyright: ignore[reportUnnecessaryIsInstance] # callers may be untyped
            raise InvalidSettingError("`time_to_live` is a timedelta, as in timedelta(days=60).")
        if time_to_live is not None and not abs(time_to_live) <= MAX_SPAN:
            raise InvalidSettingError(
                f"`time_to_live` is at most {MAX_SPAN.days:,} days, it is {time_to_live}."
            )
        session = Session.open(
            str(uuid4()) if session_id is None else session_id,
            now=now,
            namespace=self._namespace,
            metadata=self._scoped(metadata),
            expires_at=None if time_to_live is None else now + time_to_live,
            idle=idle,
            context=merged_context(context),
        )
        opened = cast("SessionOpened", session.pending_events[0])
        is_free = session_id is None or self._streams.is_free(session.id)
        if not is_free or not self._writer.open(session, also):
            raise SessionIdUnavailableError(opened.session_id)
        content = from_json_text(opened.content) if opened.content else {}
        return _details(opened.session_id, session.state, cast("dict[str, Any]", content))

    def find(self, session_id: str) -> SessionDetails | None:
        """The session, None when it does not exist."""
        key = self._key(session_id)
        state = self._streams.state(key.aggregate_id)
        if state is None or state.is_deleted:
            return None
        return _details(session_id, state, self._metadata(key, state))

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
        return self.find_by_metadata({}, limit=limit, before=before)

    def find_by_metadata(
        self, where: Mapping[str, Any], *, limit: int = 50, before: int | None = None
    ) -> Sequence[SessionRow]:
        """Sessions whose metadata hold each of these values under its key, newest first.

        Values are compared as JSON, exactly: `{SessionAttributes.PRINCIPAL_NAME: "ada"}`.
        """
        require_kind("`where`", where, Mapping, "a mapping of metadata, as in {'user.name': 'ada'}")
        check_json(dict(where), "where")
        require_positive("limit", limit)
        if before is not None and not isinstance(before, int):  # pyright: ignore[reportUnnecessaryIsInstance] # callers may be untyped
            raise InvalidSettingError(f"`before` is the position of a session, not {shown(before)}.")
        if any(where.get(name, value) != value for name, value in self._scope.items()):
            return ()
        return self._directory.newest(
            self._namespace, limit=limit, before=before, where={**where, **self._scope}
        )

    def sessions_with_prefix(self, prefix: str, *, limit: int = 10) -> Sequence[SessionRow]:
        """Sessions whose id begins with the prefix, in the order of their ids."""
        require_positive("limit", limit)
        require_kind("`prefix`", prefix, str, "the beginning of an id, a text")
        return self._directory.with_prefix(self._namespace, prefix, limit=limit, where=self._scope)

    def update_metadata(
        self,
        session_id: str,
        metadata: Mapping[str, Any],
        *,
        context: Mapping[str, str] | None = None,
        also: Also = (),
    ) -> int:
        """Replace the metadata as a whole, but for the owner; returns the version.

        The owner (`SessionAttributes.PRINCIPAL_NAME`) stays unless the new metadata name it: another value
        gives the session away, None takes the owner away. In a scope it cannot be changed. Metadata that the
        session has already are a repeat: nothing is written, unless `also` is to be saved with it.

        Metadata that cannot be read, or are gone, are replaced by new ones that name the owner; without that
        nobody knows whose the session is: `UnreadableEventError`.
        """
        around = merged_context(context)
        given = self._scoped(metadata)
        key = self._key(session_id)

        def decide(session: Session) -> None:
            held = self._metadata_to_replace(key, session.state, given)
            wanted = dict(_owned(held or {}, given))
            check_json(wanted, "metadata")
            if also or held is None or _as_text(wanted) != _as_text(held):
                session.update_metadata(wanted, now=self._now(), context=around)

        return self._write(session_id, also, decide)

    def _metadata_to_replace(
        self, key: SessionKey, state: SessionState, given: Mapping[str, Any]
    ) -> Mapping[str, Any] | None:
        """The metadata as they are, None where they cannot be read and the new ones name the owner."""
        try:
            return self._metadata(key, state)
        except UnreadableEventError as error:
            if SessionAttributes.PRINCIPAL_NAME in given:
                return None
            how = f"{error.reason}; metadata that name {SessionAttributes.PRINCIPAL_NAME!r} replace it"
            raise UnreadableEventError(how, error.aggregate_id, error.version, key.session_id) from error

    def _scoped(self, metadata: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """The metadata with what the scope adds; `InvalidSettingError` when they name another principal."""
        if metadata is not None:
            require_kind("`metadata`", metadata, Mapping, "a mapping, as in {'title': 'Parcels'}")
        given = dict(metadata or {})
        for name, value in self._scope.items():
            if given.setdefault(name, value) != value:
                raise InvalidSettingError(f"In this scope {name!r} cannot be {given[name]!r}: leave it out.")
        return given


def _as_text(metadata: Mapping[str, Any]) -> str:
    """Metadata as what can be compared: 1, 1.0 and true are three values, and the order of keys is none."""
    return to_json_text(dict(sorted(metadata.items())))


def _owned(held: Mapping[str, Any], given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The new metadata with the owner that the session has, unless they name one themselves."""
    name = SessionAttributes.PRINCIPAL_NAME
    if name not in given:
        return {**given, name: held[name]} if name in held else given
    if given[name] is None:
        return {key: value for key, value in given.items() if key != name}
    return given


def _details(session_id: str, state: SessionState, metadata: Mapping[str, Any]) -> SessionDetails:
    return SessionDetails(
        id=session_id,
        version=state.version,
        created_at=state.created_on,
        modified_at=state.modified_on,
        expires_at=state.expires_at,
        idle=state.idle,
        metadata=metadata,
    )
