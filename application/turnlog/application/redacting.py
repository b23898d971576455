"""Use cases: removing the content of single events, of which a marker stays."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import cast

from eventsourcing.utils import resolve_topic

from turnlog.application.context import merged_context
from turnlog.application.core import ServiceCore
from turnlog.application.erasing import Erased, ErasureUnsupportedError, Redaction, SessionEraser, remember
from turnlog.application.spread import Follower, Spread
from turnlog.application.stored_events import entry_in
from turnlog.application.writing import Also, SessionKey
from turnlog.domain.entries import mark_of
from turnlog.domain.errors import (
    InvalidSettingError,
    NotRedactableError,
    StorageError,
    UnknownEventError,
    shown,
)
from turnlog.domain.events import ContentEvent, ContentRedacted, MessageAppended, StreamEvent
from turnlog.domain.ids import check_id, own_event_id
from turnlog.domain.session import Session

_FOLLOWER = "turnlog.application.audit.gaps:Spreading"
"""It stands on the service itself."""


class Redacting(ServiceCore):
    """The use case that removes what was said."""

    def redact(
        self,
        session_id: str,
        event_id: str | int,
        *,
        reason: str,
        by: str,
        cascade: bool = False,
        context: Mapping[str, str] | None = None,
        also: Also = (),
    ) -> Redaction:
        """Remove the content of one event everywhere in the store; a marker with who, when and why stays.

        The event is named by its id or, as metadata have none, by its version. Id, version, place and what
        the chain holds of it stay, so the log verifies as before. A second redaction of it is a repeat, and
        completes what may be pending; with `cascade` it redacts what carries the content on.

        Prompts that told a message keep its place and lose their proof, and what they hold of it by value.
        The result names the summaries, the prompts and the metadata that may carry it on, a repeat too; with
        `cascade` the contents of these go too, but for metadata in force. Metadata are known by what they
        quote: a repeat knows those that quoted the content when it was removed.

        Raises `UnknownEventError`, `NotRedactableError` for what has no content of its own and for the
        metadata that are in force, `LegalHoldError`, and `ErasureUnsupportedError` when this store cannot
        remove a content; nothing is recorded then.
        """
        key = self._key(session_id)
        eraser = self._eraser
        if eraser is None or not eraser.redacts:
            raise ErasureUnsupportedError
        self._writer.current(key)
        version = self._redacted_version(key, event_id)
        recorded: list[StreamEvent] = []
        target: StreamEvent | None = None
        spread = Spread()
        around = merged_context(context)

        def decide(session: Session) -> None:
            nonlocal target, spread
            recorded.clear()
            target = self._streams.event_at(key.aggregate_id, version)
            if target is None or version > session.version:
                raise UnknownEventError(session_id, str(event_id))
            if isinstance(target, ContentRedacted):
                raise NotRedactableError(version, "it says what was removed")
            spread = self._spread(key, target, session.state.metadata_version, cascade, reason)
            session.redact(
                target,
                event_id=_own_id(session),
                reason=reason,
                by=by,
                now=self._now(),
                quoted=spread.quoted,
                context=around,
            )
            for gap in spread.gaps:
                session.redact(
                    gap.target,
                    event_id=_own_id(session),
                    reason=reason,
                    by=by,
                    now=self._now(),
                    form=gap.form,
                    left=gap.left,
                    through=version,
                    context=around,
                )
            recorded[:] = session.recorded

        self._writer.write(key, decide, also=also)
        redactions = [event for event in recorded if isinstance(event, ContentRedacted)]
        newest = max((event.originator_version for event in redactions), default=None)
        self._streams.forget(key.aggregate_id, newest)
        is_repeat = _was_redacted(target)
        listing = remember(self._app.env, _erased(redactions, target))
        reason_pending = _erase(eraser, redactions) or (listing and f"{listing} Redacting it again lists it.")
        return Redaction(
            session_id=session_id,
            event_id=event_id if isinstance(event_id, str) else None,
            version=_redacted_at(target) if is_repeat else redactions[0].originator_version,
            erasure="done" if reason_pending is None else "pending",
            reason=reason_pending,
            is_repeat=is_repeat,
            redacted=tuple(event.redacted_version for event in redactions),
            summaries=tuple(spread.summaries),
            prompts=tuple(dict.fromkeys(spread.prompts)),
            metadata=tuple(spread.metadata),
        )

    def _spread(
        self, key: SessionKey, target: StreamEvent, metadata_version: int | None, cascade: bool, reason: str
    ) -> Spread:
        """Where else the content of a message stands; that of other events is their own."""
        entry = entry_in(target, key.session_id) if isinstance(target, MessageAppended) else None
        if entry is None:
            return Spread()
        follower = cast("Follower", resolve_topic(_FOLLOWER)(self))
        return follower.spread(key, entry, metadata_version, cascade=cascade, reason=reason)

    def _redacted_version(self, key: SessionKey, event_id: str | int) -> int:
        """The version of the event that is named."""
        if isinstance(event_id, bool) or not isinstance(event_id, (str, int)):  # pyright: ignore[reportUnnecessaryIsInstance] # callers may be untyped
            raise InvalidSettingError(f"An event is named by its id or version, not by {shown(event_id)}.")
        if isinstance(event_id, int):
            return event_id
        version = self._locate(key, check_id("Event id", event_id))
        if version is None:
            raise UnknownEventError(key.session_id, event_id)
        return version


def _own_id(session: Session) -> str:
    return own_event_id(session.version + 1, secrets.token_hex(10))


def _erase(eraser: SessionEraser, redactions: Sequence[ContentRedacted]) -> str | None:
    """Overwrite what the redactions name; why something may be left, None if nothing is."""
    try:
        if redactions:
            eraser.redact(redactions)
        return eraser.scrub()
    except StorageError as error:
        return str(error)


def _erased(redactions: Sequence[ContentRedacted], target: StreamEvent | None) -> list[Erased]:
    """The redactions as they are remembered, of a repeat also the one that was made before."""
    erased = [
        Erased(event.originator_id, event.timestamp, event.redacted_version, event.commitment_kept)
        for event in redactions
    ]
    mark = mark_of(target) if isinstance(target, ContentEvent) else None
    if target is not None and mark is not None:
        commitment = target.commitment_value()
        erased.append(Erased(target.originator_id, mark.at, target.originator_version, commitment))
    return erased


def _was_redacted(target: StreamEvent | None) -> bool:
    """Whether its content had been removed when it was read."""
    return isinstance(target, ContentEvent) and target.is_redacted


def _redacted_at(target: StreamEvent | None) -> int:
    """The version of the redaction that removed the content of this event before."""
    mark = mark_of(target) if isinstance(target, ContentEvent) else None
    return mark.version if mark else -1
