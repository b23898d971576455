"""A conversation that passes are run on: through the domain alone, or through a session service."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Protocol

from tests.support.events import Data, ListedTokens, log_of, pass_of

from turnlog.application.service import SessionService
from turnlog.domain.compaction import CompactionRequest, CompactionResult, CompactionStrategy
from turnlog.domain.ids import aggregate_id
from turnlog.domain.log import CompactionBoundary, EventType, NewEvent, SessionEvent
from turnlog.domain.session import Session
from turnlog.domain.view import project

SESSION = "conversation"


class Conversation(Protocol):
    """A log that grows by appends and by passes."""

    @property
    def log(self) -> tuple[SessionEvent, ...]:
        """The whole log."""
        ...

    @property
    def view(self) -> tuple[SessionEvent, ...]:
        """The events of the view."""
        ...

    def append(self, events: Sequence[Data]) -> None:
        """Append what the data describes, boundaries included."""
        ...

    def compact(self, strategy: CompactionStrategy) -> CompactionResult:
        """One pass; its result names the boundary and the summary events that it wrote."""
        ...


@dataclass
class DomainConversation:
    """The log as a list, the view by `project`, a pass by the strategy itself."""

    tokens: ListedTokens
    log: tuple[SessionEvent, ...] = ()

    @property
    def view(self) -> tuple[SessionEvent, ...]:
        """The events of the view."""
        return project(self.log).events

    def append(self, events: Sequence[Data]) -> None:
        """Append what the data describes."""
        self.log += log_of(events, first_version=len(self.log) + 1)

    def compact(self, strategy: CompactionStrategy) -> CompactionResult:
        """One pass over the view, and what it says as a boundary with its summary behind it."""
        view = project(self.log)
        result = strategy.compact(CompactionRequest(view, self.tokens.of_event, self.tokens.estimate))
        if result.is_unchanged:
            return result
        result.check_turn_safe(view.events)
        first = len(self.log) + 1
        summary = tuple(
            self._written(f"written-{version}", EventType.MESSAGE, version, message=message)
            for version, message in enumerate(result.summary, first + 1)
        )
        named = CompactionBoundary(
            pinned=tuple(event.id for event in result.pinned_events),
            summary=tuple(event.id for event in summary),
            preserved=tuple(event.id for event in result.preserved_events),
            covered_count=len(result.covered_events),
            tokens_saved=result.tokens_estimated_saved,
        )
        boundary = self._written(f"written-{first}", EventType.COMPACTION, first, boundary=named)
        self.log += (boundary, *summary)
        return replace(result, boundary=boundary, summary_events=summary)

    @staticmethod
    def _written(id_: str, type_: EventType, version: int, **fields: object) -> SessionEvent:
        plain = SessionEvent(id_, type_, version, datetime.now(UTC), synthetic=type_ == EventType.MESSAGE)
        return replace(plain, **fields)  # type: ignore[arg-type]  # a message or a boundary


@dataclass
class StoredConversation:
    """A session of a service. Boundaries of the data are written by the aggregate, which takes their ids."""

    service: SessionService

    def __post_init__(self) -> None:
        self.service.create(SESSION)

    @property
    def log(self) -> tuple[SessionEvent, ...]:
        """The whole log as it is stored."""
        return self.service.get_events(SESSION)

    @property
    def view(self) -> tuple[SessionEvent, ...]:
        """The events of the view, which must be the projection of the stored log."""
        view = self.service.view(SESSION).events
        assert view == project(self.log).events
        return view

    def append(self, events: Sequence[Data]) -> None:
        """Append what the data describes."""
        before = len(self.log)
        log = self.log + log_of(events, first_version=before + 1)
        written = before
        for at in range(before, len(log)):
            if log[at].boundary:
                self._append(log[written:at])
                written = at + 1 + self._record_pass(log, at)
        self._append(log[written:])

    def compact(self, strategy: CompactionStrategy) -> CompactionResult:
        """One pass of the service."""
        return self.service.compact(SESSION, None, strategy)

    def _append(self, events: Iterable[SessionEvent]) -> None:
        self.service.append_events(SESSION, [NewEvent.of(event) for event in events])

    def _record_pass(self, log: Sequence[SessionEvent], at: int) -> int:
        """Record the boundary at this index as the pass that it was; returns how long its summary is."""
        found = pass_of(log, at)
        assert found is not None, f"no pass can have written the boundary {log[at].id}"
        result, summary = found
        session: Session = self.service.app.repository.get(aggregate_id(SESSION))
        session.compact(
            result,
            boundary_id=log[at].id,
            summary=[(event.id, NewEvent.of(event)) for event in summary],
            now=datetime.now(UTC),
        )
        self.service.app.save(session)
        return len(summary)
