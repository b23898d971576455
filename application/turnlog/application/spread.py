"""Where a content went that is to be removed: what is removed with it, and what may carry it on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from turnlog.application.writing import SessionKey
from turnlog.domain.events import StreamEvent
from turnlog.domain.log import SessionEvent


@dataclass(frozen=True)
class Gap:
    """An event that is redacted for the sake of another: its figures, and what is left of it."""

    target: StreamEvent
    form: Mapping[str, Any] | None = None
    left: Mapping[str, Any] | None = None


@dataclass
class Spread:
    """Where a content went. `gaps` are redacted with it; the others may carry it on and are named.

    `quoted` are versions of all metadata that quote it, whether they are redacted too or named.
    """

    gaps: list[Gap] = field(default_factory=list[Gap])
    summaries: list[str] = field(default_factory=list[str])
    prompts: list[str] = field(default_factory=list[str])
    metadata: list[int] = field(default_factory=list[int])
    quoted: list[int] = field(default_factory=list[int])


class Follower(Protocol):
    """Follows a message through the log."""

    def spread(
        self,
        key: SessionKey,
        target: SessionEvent,
        metadata_version: int | None,
        *,
        cascade: bool,
        reason: str,
    ) -> Spread:
        """Where the message went, also one that was redacted before."""
        ...
