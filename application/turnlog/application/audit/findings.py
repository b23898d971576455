"""What a verification finds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

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


@dataclass(frozen=True)
class LostEvents(Plainly):
    """Events of a session that its log does not have any more: from one version to another."""

    first: int
    last: int

    def __str__(self) -> str:
        return f"{versions_named(self.first, self.last)} {'is' if self.first == self.last else 'are'} missing"


NO_EVENT: Final = "there is no event of this version"

_JOINED: Final = (NO_EVENT, "it cannot be read")
"""What is said of several events as of one."""


def versions_named(first: int, last: int) -> str:
    """The events from one version to another, in words."""
    if first == last:
        return f"event {first}"
    return f"events {first} {'and' if last == first + 1 else 'to'} {last}"


def joined(findings: Iterable[Finding]) -> Iterator[tuple[Finding, str]]:
    """What is said of findings: of versions that follow on each other it is said once that they are gone."""
    runs: list[tuple[Finding, Finding]] = []
    for one in findings:
        if runs and one.version is not None and one == replace(runs[-1][1], version=one.version):
            first, last = runs[-1]
            if last.version == one.version - 1 and one.detail.startswith(_JOINED):
                runs[-1] = first, one
                continue
        runs.append((one, one))
    for first, last in runs:
        yield first, _said(first, last.version)


def _said(first: Finding, last: int | None) -> str:
    if first.version is None or last is None:
        return first.detail
    if first.detail == NO_EVENT:
        return str(LostEvents(first.version, last))
    is_plain = first.detail.startswith("it ")
    return versions_named(first.version, last) + (first.detail[2:] if is_plain else f": {first.detail}")
