"""What an audit refuses."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from turnlog.domain.errors import TurnlogError, shown
from turnlog.domain.log import RedactionMark


class AuditError(TurnlogError):
    """An audit cannot answer."""


class NoSummaryError(AuditError):
    """The event is no summary of a compaction."""

    def __init__(self, session_id: str, event_id: str | int) -> None:
        super().__init__(
            f"Event {shown(event_id)} of session {shown(session_id)} is no summary, and no compaction "
            "that wrote one. Name a message of a summary or its compaction; `explain` says in which summary "
            "a message stands."
        )
        self.session_id = session_id
        self.event_id = event_id


class UnknownCallError(AuditError):
    """No prompt is recorded under this id, or up to this moment."""

    def __init__(self, session_id: str, call_id: object, attempts: int = 0) -> None:
        known = f" It has {attempts} attempts." if attempts else " `timeline` lists the calls."
        which = shown(call_id)
        if isinstance(call_id, datetime):
            which = f"up to {call_id.isoformat()}"
        elif not isinstance(call_id, str):
            which = f"up to version {which}"
        super().__init__(f"Session {shown(session_id)} holds no call {which}.{known}")
        self.session_id = session_id
        self.call_id = call_id


class UnknownRendererError(AuditError):
    """The call was recorded by a renderer that this installation does not have."""

    def __init__(self, call_id: str, renderer: str, known: Iterable[str]) -> None:
        self.known = tuple(sorted(known))
        has = ", ".join(self.known) or "none"
        super().__init__(
            f"Call {shown(call_id)} was rendered by {shown(renderer)}, which this installation does not have "
            f"(it has {has}). Install the version of turnlog that recorded it, or a later one."
        )
        self.call_id = call_id
        self.renderer = renderer


class PromptMismatchError(AuditError):
    """The body that the log gives is not the one that was sent: the log or the renderer changed."""

    def __init__(self, call_id: str, renderer: str, body: bytes) -> None:
        super().__init__(
            f"The body of call {shown(call_id)} as {renderer} renders it from the log ({len(body):,} bytes) "
            "is not the one whose hash was recorded. Run `turnlog audit verify`: when the log is whole, the "
            "renderer is not the one that sent it."
        )
        self.call_id = call_id
        self.renderer = renderer
        self.body = body
        """What was rendered, which is not what was sent."""


class PromptRedactedError(AuditError):
    """Something that the call told was redacted since, so its body is not known any more.

    `body` is what is left of it, with placeholders in the gaps; None when a redaction removed it as a whole.
    """

    def __init__(self, call_id: str, mark: RedactionMark, body: bytes | None) -> None:
        left = "What is left of it is in `body`." if body is not None else "Nothing of it is left."
        super().__init__(
            f"Call {shown(call_id)} told what was redacted on {mark.at.date()} by {shown(mark.by)} "
            f"({mark.reason}). {left}"
        )
        self.call_id = call_id
        self.mark = mark
        self.body = body


class InvalidPromptError(AuditError):
    """A prompt that was to be recorded is malformed."""


class InvalidHeadsError(AuditError):
    """Exported heads are malformed."""


class InvalidSignatureError(InvalidHeadsError):
    """Exported heads are not signed by the key that was named."""
