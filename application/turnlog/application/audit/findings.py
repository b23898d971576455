"""What a verification finds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from turnlog.application.audit.plain import Plainly


class FindingKind(StrEnum):
    """What is wrong with a stored event, or with a session as a whole."""

    MISSING = "missing"
    """An event is not there: the versions have a gap, or the newest ones that were recorded are gone."""
    INSERTED = "inserted"
    """An event is there that the session never recorded."""
    UNREADABLE = "unreadable"
    CHANGED = "changed"
    """What is stored is not what was stored: bytes, content, or the place in the chain."""
    CONTENT_GONE = "content gone"
    """A content is not there, and no redaction says so."""
    STATE = "state"
    """The state that an event carries is not the one that the events lead to."""
    HEAD = "head"
    """The newest event is not the one that was recorded as the newest."""
    HISTORY = "history"
    """An exported head is not part of the log: what was there then was rewritten or removed."""
    SIGNATURE = "signature"
    UNKNOWN_SESSION = "unknown session"
    """The store has events of a session of which it has no row, or that never began."""


@dataclass(frozen=True)
class Finding(Plainly):
    """One thing that is wrong, and where: at which version of which session.

    `session_id` is None when it cannot be known or is not the reader's to know.
    """

    kind: FindingKind
    detail: str
    session_id: str | None = None
    aggregate_id: str | None = None
    version: int | None = None


@dataclass(frozen=True)
class Verification(Plainly):
    """What was verified and what was found. `notes` are no findings: what could not be proven, and why."""

    findings: tuple[Finding, ...]
    sessions: int
    events: int
    heads_proven: int = 0
    notes: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether nothing was found."""
        return not self.findings
