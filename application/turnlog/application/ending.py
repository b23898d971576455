"""Use cases: how sessions end. Expiry, deletion, legal holds, and the upkeep of what was deleted."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Literal

from turnlog.application.context import merged_context
from turnlog.application.core import ServiceCore, require_aware
from turnlog.application.erasing import (
    ERASURES_FILE,
    NO_BACKUP,
    UNSUPPORTED,
    BackupError,
    Deletion,
    Erased,
    Erasure,
    ErasureDue,
    ErasureUnsupportedError,
    Sweep,
    erasure_list,
    remember,
)
from turnlog.application.passes import passes_id
from turnlog.application.ports import SessionRow, SessionRowsRecorder
from turnlog.application.shredding import SessionShredder
from turnlog.application.writing import Also, SessionKey
from turnlog.domain.entries import mark_of
from turnlog.domain.errors import (
    InvalidSettingError,
    LegalHoldError,
    SessionNotFoundError,
    StorageError,
    UnreadableEventError,
)
from turnlog.domain.events import ContentEvent, HoldPlaced, SessionOpened
from turnlog.domain.guards import require_kind
from turnlog.domain.session import Session

PURGE_AFTER: Final = timedelta(days=30)
"""How long the erased events of a deleted session stay, so that no stale writer takes their versions."""


_logger = logging.getLogger("turnlog")


@dataclass(frozen=True)
class LegalHold:
    """A legal hold that is on. `placed_at` is the version that names it, `time` when it was placed (UTC)."""

    placed_at: int
    reason: str
    by: str
    time: datetime


class Ending(ServiceCore):
    """The use cases about the end of sessions."""

    def extend(
        self,
        session_id: str,
        until: datetime | Literal["unchanged"] | None = "unchanged",
        *,
        by: timedelta | None = None,
        context: Mapping[str, str] | None = None,
        also: Also = (),
    ) -> int:
        """Let the session expire at another time; returns the version.

        `until` is that time (None: never). `by` is counted from the expiry as it is, or from now when that is
        past; a session that never expires stays so. With the expiry that it has already nothing is written,
        unless `also` is to be saved with it.
        """
        if until is not None and until != "unchanged":
            require_aware("`until`", until)
        if by is not None:
            require_kind("`by`", by, timedelta, "a timedelta, as in timedelta(days=7)")
        if (until == "unchanged") == (by is None) or (by is not None and by <= timedelta(0)):
            raise InvalidSettingError("Give either `until` or a positive `by`.")
        around = merged_context(context)

        def decide(session: Session) -> None:
            now, expires_at = self._now(), until
            if expires_at == "unchanged":
                expires_at = session.state.expires_at
                if expires_at is not None and by is not None:
                    expires_at = _later(max(expires_at, now), by)
            session.extend(expires_at, now=now, again=bool(also), context=around)

        return self._write(session_id, also, decide)

    def hold(
        self,
        session_id: str,
        reason: str,
        *,
        by: str,
        context: Mapping[str, str] | None = None,
        also: Also = (),
    ) -> int:
        """Place a legal hold: until it is released nothing deletes or redacts the session.

        Returns the version, which names the hold; several can be on at once.
        """
        around = merged_context(context)
        return self._write(session_id, also, lambda s: s.hold(reason, by=by, now=self._now(), context=around))

    def holds(self, session_id: str) -> tuple[LegalHold, ...]:
        """The legal holds that are on, in the order in which they were placed."""
        key = self._key(session_id)
        state = self._writer.current(key)
        events = (self._streams.event_at(key.aggregate_id, version) for version in state.holds)
        placed = [event for event in events if isinstance(event, HoldPlaced)]
        if len(placed) < len(state.holds):  # released, deleted and erased since the state was read
            raise SessionNotFoundError(session_id)
        return tuple(LegalHold(one.originator_version, one.reason, one.by, one.timestamp) for one in placed)

    def release(
        self,
        session_id: str,
        placed_at: int | None = None,
        *,
        by: str,
        context: Mapping[str, str] | None = None,
        also: Also = (),
    ) -> int:
        """Release the legal hold of this name, without one the only hold; returns the version.

        Raises `UnknownHoldError` when it is not on, or when several are and none is named.
        """
        around = merged_context(context)
        return self._write(
            session_id, also, lambda s: s.release(placed_at, by=by, now=self._now(), context=around)
        )

    def delete(
        self,
        session_id: str,
        *,
        erase: bool = True,
        context: Mapping[str, str] | None = None,
        also: Also = (),
    ) -> Deletion:
        """End the session: it is gone for every reader, its id is not used again, its content is erased.

        The result says whether no byte of the content is left in the store; what is pending `sweep`
        completes. With `erase=False` the content stays in the store, hidden. A session whose events cannot
        all be read is deleted too; a legal hold counts as far as events that can be read, and the kinds of
        those that cannot, tell of it. Raises `LegalHoldError`, `ErasureUnsupportedError` when the session is
        deleted but this store cannot erase, and `UnreadableEventError` when nothing of it can be read, or its
        newest events are of a kind that this version does not know.
        """
        key, around = self._key(session_id), merged_context(context)

        def decide(session: Session) -> None:
            session.delete(now=self._now(), keeps_content=not erase, context=around)

        ended = self._writer.write(key, decide, also=also, past_damage=True)
        self._streams.forget(key.aggregate_id)
        gone = [Erased(ended.id, ended.modified_on)]
        erasure, reason = self._erase(gone) if erase else self._keep(gone)
        if erase and erasure == "unsupported":
            raise ErasureUnsupportedError(session_id)
        return Deletion(session_id, ended.version, erasure, reason)

    def delete_expired(
        self, before: datetime, *, on_failure: Callable[[str, Exception], object] | None = None
    ) -> int:
        """Delete the sessions that expired at this time or before it; returns how many this call deleted.

        For each session the check and the deletion are one step: one that is extended meanwhile survives.
        Sessions under a legal hold stay. One that cannot be deleted is logged, and `on_failure` is told its
        id and the error; the others are deleted.

        A session whose events cannot all be read is deleted if it expired for certain. `UnreadableEventError`
        is the failure of one where an event that cannot be read may have postponed that.
        """
        require_kind("`before`", before, datetime, "a datetime with an offset")
        require_aware("before", before)
        expired = self._directory.expired(self._namespace, before, where=self._scope)
        deleted: list[Erased] = []
        for row in expired:
            try:
                deleted += self._delete_if_expired(row, before)
            except Exception as error:
                _logger.warning("Session %s could not be swept: %s", row.aggregate_id, type(error).__name__)
                if on_failure is not None:
                    on_failure(row.session_id, error)
        if deleted:
            self._erase(deleted)
        return len(deleted)

    def sweep(self, purge_after: timedelta | None = PURGE_AFTER) -> Sweep:
        """Complete pending erasures, and remove what stands for the events of sessions deleted long ago.

        Between version 0 and the tombstone of sessions that were deleted longer than `purge_after` ago the
        rows are removed; None removes nothing. Raises `ErasureUnsupportedError`.
        """
        self._require_whole_store("sweep")
        if purge_after is not None:
            require_kind("`purge_after`", purge_after, timedelta, "a timedelta, as in timedelta(days=30)")
        if purge_after is not None and purge_after < timedelta(0):
            raise InvalidSettingError(f"`purge_after` cannot be negative, it is {purge_after}.")
        if self._eraser is None:
            raise ErasureUnsupportedError
        waiting = self._eraser.pending()
        self._shred(self._eraser.erased())
        purged = 0 if purge_after is None else self._eraser.purge(_earlier(self._now(), purge_after))
        failures = tuple(self._eraser.complete())
        reason = (
            self._eraser.scrub()
            or next(map(str, failures), None)
            or remember(self._app.env, self._eraser.erased())
        )
        left = self._eraser.pending()
        return Sweep(max(0, waiting - left), left, purged, reason, failures)

    def backup(self, file: str | Path) -> None:
        """Copy the whole database, as it is at one moment, into a new file, while it is used.

        Raises `BackupError` when the file exists or the store cannot be copied.
        """
        self._require_whole_store("backup")
        recorder = self._app.recorder
        if not isinstance(recorder, SessionRowsRecorder):
            raise BackupError(NO_BACKUP)
        recorder.backup(str(file))

    def erasures(self, since: datetime) -> Sequence[ErasureDue]:
        """What was deleted at this time or after it and is here again, as after a restore.

        These are sessions, and events whose content was redacted.

        Raises `InvalidSettingError` when the environment names no TURNLOG_ERASURES_FILE, and
        `UnreadableErasureError` for a line of that file that cannot be read.
        """
        self._require_whole_store("erasures")
        require_kind("`since`", since, datetime, "a datetime with an offset")
        require_aware("since", since)
        listed = erasure_list(self._app.env)
        if listed is None:
            raise InvalidSettingError(
                f"No list of erasures is kept: set {ERASURES_FILE} to a file outside the database."
            )
        found: dict[tuple[str, int | None], ErasureDue] = {}
        for erased in listed.since(since):
            due = self._due(erased)
            if due is not None:
                found[due.session_id, due.event_version] = due
        return tuple(
            due
            for due in found.values()
            if due.event_version is None or (due.session_id, None) not in found  # it goes with its session
        )

    def _due(self, erased: Erased) -> ErasureDue | None:
        """What this is of here, if it is here again."""
        state = self._streams.state(erased.aggregate_id)
        if state is None or state.is_deleted:
            return None
        opened = self._streams.event_at(erased.aggregate_id, 0)
        if not isinstance(opened, SessionOpened) or (opened.namespace or "") != self._namespace:
            return None
        if erased.version is None:
            return ErasureDue(opened.session_id, erased.deleted_at)
        event = self._streams.event_at(erased.aggregate_id, erased.version)
        if not isinstance(event, ContentEvent) or event.commitment_value() != erased.commitment:
            return None  # another event has its version
        if mark_of(event) is not None:
            return None
        return ErasureDue(
            opened.session_id, erased.deleted_at, erased.version, getattr(event, "event_id", None)
        )

    def _delete_if_expired(self, row: SessionRow, before: datetime) -> list[Erased]:
        """What was deleted. Raises what keeps an expired session from being so."""
        damage: UnreadableEventError | None = None
        deleted = False

        def decide(session: Session) -> None:
            nonlocal deleted
            deleted = session.is_expired(before)
            if damage is not None and not (deleted and _was_silent(session, row, before)):
                raise damage
            if deleted:
                session.delete(now=self._now(), context=around)

        key, around = SessionKey(row.session_id, row.aggregate_id), merged_context(None)
        try:
            try:
                ended = self._writer.write(key, decide)
            except UnreadableEventError as error:
                damage = error
                ended = self._writer.write(key, decide, past_damage=True)
        except (SessionNotFoundError, LegalHoldError):  # another sweep was first, or it has to stay
            return []
        self._streams.forget(row.aggregate_id)
        return [Erased(ended.id, ended.modified_on)] if deleted else []

    def _erase(self, deleted: Iterable[Erased]) -> tuple[Erasure, str | None]:
        """See to it that nothing is left of these deleted sessions."""
        deleted = list(deleted)
        listing = remember(self._app.env, deleted)
        try:
            if self._eraser is None:
                return ("done", listing) if self._shred(deleted) else ("unsupported", UNSUPPORTED)
            for erased in deleted:
                self._eraser.erase(erased.aggregate_id)
            self._shred(deleted)
            reason = self._eraser.scrub() or listing
        except StorageError as error:
            reason = str(error)
        return ("done", None) if reason is None else ("pending", reason)

    def _shred(self, deleted: Iterable[Erased]) -> bool:
        """Destroy the keys of these sessions; False where they have none."""
        mapper = self._app.mapper
        if not isinstance(mapper, SessionShredder):
            return False
        for erased in deleted:
            mapper.shred((erased.aggregate_id, passes_id(erased.aggregate_id)))
        return True

    def _keep(self, deleted: Iterable[Erased]) -> tuple[Erasure, str]:
        """What is said of sessions that are deleted and stay in the store."""
        listing = remember(self._app.env, deleted)
        if self._eraser is None:
            return "unsupported", UNSUPPORTED
        return "kept", listing or "The content was to be kept."

    def _require_whole_store(self, name: str) -> None:
        if self._principal is not None:
            raise InvalidSettingError(
                f"`{name}` is about the whole store: call it on the service without a scope."
            )


def _was_silent(session: Session, row: SessionRow, before: datetime) -> bool:
    """Whether no message that cannot be read moved the expiry of a session beyond this time.

    None is newer than the newest event, whose time its row tells.
    """
    idle = session.state.idle
    if idle is None:
        return True
    return row.version == session.version and _later(row.modified_at, idle) <= before


def _later(time: datetime, by: timedelta) -> datetime:
    try:
        return time + by
    except OverflowError:
        raise InvalidSettingError(f"`by` {by} leads behind the year 9999: say `until=None`.") from None


def _earlier(time: datetime, by: timedelta) -> datetime:
    """The time before, or the first of all times."""
    try:
        return time - by
    except OverflowError:
        return datetime.min.replace(tzinfo=UTC)
