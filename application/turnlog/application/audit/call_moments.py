"""Which recorded call a moment means."""

from __future__ import annotations

from turnlog.application.audit.core import AuditCore, Moment
from turnlog.application.stored_events import entry_in
from turnlog.application.writing import SessionKey
from turnlog.domain.events import EventAppended
from turnlog.domain.log import EventType, SessionEvent
from turnlog.domain.messages import Role
from turnlog.domain.state import SessionState


class CallMoments(AuditCore):
    """Calls by the moments that they belong to."""

    def _call_up_to(self, key: SessionKey, newest: SessionState, at: Moment) -> tuple[str, int | None] | None:
        """The id of the call that a moment means and the attempt that was answered, if that is known.

        Of an answer, and of what is recorded with it, it is the call that was answered; else the newest call
        up to the moment, on the branch of its message. None when there is none.
        """
        if isinstance(at, str):
            entry: SessionEvent | None = self._entry(key, at)
            version = entry.version if entry else 0
        else:
            version = self._moment(key, newest, at)
            entry = self._streams.entry_at(key.aggregate_id, key.session_id, version)
        reply = None if entry is None else self._reply_of(key, entry)
        if reply is not None and reply.payload is not None:
            return str(reply.payload["call"]), int(reply.payload["attempt"])
        return self._newest_call(key, version, entry if entry and entry.message else None)

    def _reply_of(self, key: SessionKey, entry: SessionEvent) -> SessionEvent | None:
        """What was recorded with an answer, in its write and behind it."""
        if entry.type == EventType.MODEL_REPLIED:
            return entry
        if entry.role is not Role.ASSISTANT or entry.synthetic:
            return None
        for behind in self._streams.entries(key.aggregate_id, key.session_id, after=entry.version):
            if behind.timestamp != entry.timestamp or behind.role is Role.USER:
                return None
            if behind.type == EventType.MODEL_REPLIED and behind.branch == entry.branch:
                return behind
        return None

    def _newest_call(
        self, key: SessionKey, upto: int, message: SessionEvent | None
    ) -> tuple[str, int | None] | None:
        for event in self._streams.log(key.aggregate_id, upto=upto, backwards=True):
            if not isinstance(event, EventAppended) or event.type != EventType.PROMPT_RENDERED:
                continue
            if message is None or message.branch == event.branch:
                entry = entry_in(event, key.session_id)
                payload = (entry.payload if entry else None) or {}
                return str(payload.get("call", event.event_id)), payload.get("attempt")
        return None
