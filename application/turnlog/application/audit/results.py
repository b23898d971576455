"""What an audit answers. All values are frozen and can be told as JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Self

from turnlog.application.audit.findings import LostEvents
from turnlog.application.audit.plain import Plainly
from turnlog.domain.log import CompactionBoundary, SessionEvent
from turnlog.domain.messages import Message
from turnlog.domain.rendering import event_text
from turnlog.domain.view import View

_EXCERPT = 100


class Standing(StrEnum):
    """Why a message is in the view."""

    PINNED = "pinned"
    SUMMARY = "summary"
    PRESERVED = "preserved"
    SINCE = "since"
    """It came behind the newest boundary, or there is none."""


class Reason(StrEnum):
    """Why a message is or is not in a view."""

    NO_MESSAGE = "no message"
    NOT_YET = "not yet said"
    COVERED = "covered"
    PINNED = "pinned"
    SUMMARY = "summary"
    PRESERVED = "preserved"
    SINCE = "since"


@dataclass(frozen=True)
class EventRef(Plainly):
    """An entry of the log, named. `excerpt` is the beginning of what it says, on one line."""

    id: str
    version: int
    time: datetime
    role: str | None = None
    branch: str | None = None
    synthetic: bool = False
    excerpt: str = ""

    @classmethod
    def of(cls, event: SessionEvent) -> Self:
        """The reference to an entry."""
        said = " ".join(event_text(event).split()) if event.message else str(event.type)
        excerpt = said if len(said) <= _EXCERPT else said[: _EXCERPT - 1] + "…"
        role = event.role.value if event.role else None
        return cls(event.id, event.version, event.timestamp, role, event.branch, event.synthetic, excerpt)


@dataclass(frozen=True)
class BoundaryRef(Plainly):
    """A COMPACTION boundary: where it is, which rules made it, and what it did."""

    id: str
    version: int
    time: datetime
    strategy: str | None
    trigger: str | None
    branch: str | None
    covered: int
    pinned: int
    summary: int
    preserved: int
    tokens_saved: int
    named: CompactionBoundary = field(repr=False, compare=False)

    @classmethod
    def of(cls, event: SessionEvent) -> Self:
        """The reference to a boundary."""
        boundary = event.boundary or CompactionBoundary()
        return cls(
            id=event.id,
            version=event.version,
            time=event.timestamp,
            strategy=boundary.strategy,
            trigger=boundary.trigger,
            branch=boundary.branch,
            covered=boundary.covered_count,
            pinned=len(boundary.pinned),
            summary=len(boundary.summary),
            preserved=len(boundary.preserved),
            tokens_saved=boundary.tokens_saved,
            named=boundary,
        )

    def standing(self, event_id: str) -> Standing:
        """How the boundary names this message of the view."""
        if event_id in self.named.pinned:
            return Standing.PINNED
        if event_id in self.named.summary:
            return Standing.SUMMARY
        return Standing.PRESERVED if event_id in self.named.preserved else Standing.SINCE

    def __str__(self) -> str:
        rule = f" of {self.strategy}" if self.strategy else ""
        return f"boundary {self.version}{rule} at {self.time:%Y-%m-%d %H:%M:%S} UTC"


@dataclass(frozen=True)
class ViewEntry(Plainly):
    """A message of a view, and why it is in it."""

    event: SessionEvent
    standing: Standing


@dataclass(frozen=True)
class ViewAt(Plainly):
    """A view as it was behind the event of a version. `boundary` is the newest one there is by then."""

    session_id: str
    version: int
    time: datetime
    boundary: BoundaryRef | None
    entries: tuple[ViewEntry, ...]

    @property
    def view(self) -> View:
        """The view itself."""
        return View(tuple(entry.event for entry in self.entries), self.version)

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages in order, those of all branches."""
        return self.view.messages


@dataclass(frozen=True)
class Came(Plainly):
    """A message that one view has and the other has not. A summary came with its boundary."""

    event: EventRef
    boundary: BoundaryRef | None = None


@dataclass(frozen=True)
class Left(Plainly):
    """A message that is not in the later view any more, and the boundary that covered it."""

    event: EventRef
    boundary: BoundaryRef | None


@dataclass(frozen=True)
class Change(Plainly):
    """Something else that two calls were sent differently: a setting, the tools, a system text."""

    name: str
    before: Any
    after: Any


@dataclass(frozen=True)
class Diff(Plainly):
    """What is different between two views, or between what two calls were told.

    `came` is in `after` and not in `before`, `left` the other way round. `changes` are for calls.
    """

    session_id: str
    before: int
    after: int
    came: tuple[Came, ...]
    left: tuple[Left, ...]
    stayed: int
    boundaries: tuple[BoundaryRef, ...]
    changes: tuple[Change, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether both are the same."""
        return not (self.came or self.left or self.changes)


@dataclass(frozen=True)
class Explanation(Plainly):
    """Why an event is in the view of a version, or is not. `sentence` says it in words.

    `boundary` is the one that covered it, or that names it. `stands_in` are the summary messages of the view
    that carry on what was covered. `notes` are further facts.
    """

    session_id: str
    event: EventRef
    at: int
    in_view: bool
    reason: Reason
    sentence: str
    boundary: BoundaryRef | None = None
    stands_in: tuple[EventRef, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Lineage(Plainly):
    """What a summary stands for: messages that its boundary covered, and through earlier summaries more.

    `summarizer`, `model`, `usage` and `prompt_sha256` say how it was written, where the summarizer told.
    """

    summary: tuple[EventRef, ...]
    boundary: BoundaryRef
    covered: tuple[EventRef, ...]
    through: tuple[Lineage, ...] = ()
    summarizer: str | None = None
    model: str | None = None
    prompt_sha256: str | None = None
    usage: Any = None

    @property
    def originals(self) -> tuple[EventRef, ...]:
        """Every original message that it stands for, in the order of the log."""
        found = {ref.version: ref for ref in self.covered}
        for earlier in self.through:
            found.update((ref.version, ref) for ref in earlier.originals)
        return tuple(found[version] for version in sorted(found))


@dataclass(frozen=True)
class CarriedSummary(Plainly):
    """A summary that stands for a message, and the boundary that it came with."""

    summary: tuple[EventRef, ...]
    boundary: BoundaryRef
    in_view: bool


@dataclass(frozen=True)
class CarriedPrompt(Plainly):
    """A prompt that told a message: as it is (`message`), in a `summary`, or as a text of its own (`value`).

    Of a body that the application made itself only the `view` behind it is known.
    """

    call_id: str
    attempt: int
    version: int
    time: datetime
    how: str


@dataclass(frozen=True)
class Carried(Plainly):
    """The summaries and prompts that carry a message on, in the order of the log."""

    session_id: str
    event: EventRef
    summaries: tuple[CarriedSummary, ...]
    prompts: tuple[CarriedPrompt, ...] = ()


@dataclass(frozen=True)
class TimelineEntry(Plainly):
    """One step of a session: a turn begins, a model is called, a boundary, or the opening.

    `messages` and `tokens` are those of the view behind it, `log_tokens` those of all messages so far; all
    are estimates. Figures of a call are those that the model reported.
    """

    version: int
    time: datetime
    kind: str
    id: str
    label: str
    messages: int
    tokens: int
    log_tokens: int
    call: CallFigures | None = None
    boundary: BoundaryRef | None = None


@dataclass(frozen=True)
class CallFigures(Plainly):
    """A call of a model: what was asked, and what came of it; None where it was not recorded."""

    model: str | None
    renderer: str | None
    attempts: int
    body_bytes: int | None
    finish_reason: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    latency_ms: float | None = None
    cost: str | None = None
    currency: str | None = None


@dataclass(frozen=True)
class Timeline(Plainly):
    """The steps of a session in order, and what they come to. `costs` is a sum per currency.

    `lost` are events that the log does not have any more, so they are no step and in no sum.
    """

    session_id: str
    version: int
    entries: tuple[TimelineEntry, ...]
    turns: int
    calls: int
    boundaries: int
    input_tokens: int
    output_tokens: int
    costs: dict[str, str]
    lost: tuple[LostEvents, ...] = ()
