"""Use case: compacting a session."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from turnlog.application.context import merged_context
from turnlog.application.core import ServiceCore
from turnlog.application.writing import Also, SessionKey
from turnlog.domain.branches import branch_request, owned_events, place
from turnlog.domain.compaction import (
    CompactionReason,
    CompactionResult,
    CompactionStrategy,
    CompactionTrigger,
)
from turnlog.domain.errors import (
    ForeignEventError,
    InvalidPlanError,
    InvalidSettingError,
    TurnlogError,
    VersionConflictError,
    shown,
)
from turnlog.domain.ids import check_branch
from turnlog.domain.log import NewEvent
from turnlog.domain.plan import CompactionPlan
from turnlog.domain.session import Session
from turnlog.domain.view import View


class Compacting(ServiceCore):
    """The use case of one compaction pass."""

    def compact(
        self,
        session_id: str,
        trigger: CompactionTrigger | None,
        strategy: CompactionStrategy,
        *,
        branch: str | None = None,
        context: Mapping[str, str] | None = None,
        also: Also = (),
    ) -> CompactionResult:
        """One pass: ask the trigger (None: always), run the strategy, record the boundary and its summary.

        With a `branch` the pass owns the messages of exactly that branch; without one it owns the session. No
        lock and no transaction is held while the strategy runs. When a message that the pass owns came
        meanwhile, or one that it covers left the view, it lost its race: the result is unchanged and says so.
        What the strategy raises is raised, and nothing is written.
        """
        if trigger is not None and not callable(trigger):
            raise InvalidSettingError(f"A trigger is a function of the request, not {shown(trigger)}.")
        if not hasattr(strategy, "compact"):
            raise InvalidSettingError(
                f"A strategy has a method `compact`; {shown(strategy)} has none: "
                "WindowCompactionStrategy(CompactionWindow.last_turns(10)) is one."
            )
        key = self._key(session_id)
        state = self._writer.current(key)
        view = self._streams.view(key.aggregate_id, session_id, state)
        request = self._request(session_id, state, view)
        if branch is not None:
            request = branch_request(request, check_branch(branch))
        before = request.cost_of_view()
        if trigger is not None and not trigger(request):
            result = CompactionResult(CompactionReason.TRIGGER_DID_NOT_FIRE)
        else:
            result = strategy.compact(request)
            if not isinstance(result, CompactionResult):  # pyright: ignore[reportUnnecessaryIsInstance] # callers may be untyped
                raise InvalidSettingError(f"A strategy returns a CompactionResult, not {shown(result)}.")
            if not result.is_unchanged:
                result = result.checked_against(request.events)
        result = replace(result, tokens_before=before, tokens_after=before, version=state.version)
        if result.is_unchanged:
            return result
        attempt = _Pass(key, view, result, branch, strategy, trigger, merged_context(context))
        return self._record_pass(attempt, also)

    def apply_plan(
        self,
        session_id: str,
        plan: CompactionPlan,
        *,
        expected_version: int | None = None,
        context: Mapping[str, str] | None = None,
        also: Also = (),
    ) -> CompactionResult:
        """Record a plan of the archive design as one boundary: what it archives is covered.

        The group that it inserts stands in front of its anchor. A plan that changes nothing writes nothing.
        Raises `VersionConflictError`, `UnknownPlanEventError` for an id that is not in the view,
        `DuplicateEventError` for a new id that the session holds, `ForeignEventError` for an event of another
        session, and `InvalidPlanError` for more than one group, which one boundary cannot say; nothing is
        written then.
        """
        key = self._key(session_id)
        if len(plan.inserts) > 1:
            raise InvalidPlanError("A plan with more than one group of inserts cannot become one boundary.")
        group = plan.inserts[0] if plan.inserts else None
        for event in group.events if group else ():
            if event.session_id not in ("", session_id):
                raise ForeignEventError(event.id, session_id)
        new = [replace(NewEvent.of(event), synthetic=True) for event in group.events] if group else []
        result = CompactionResult(
            CompactionReason.NOTHING_TO_COVER, version=self._writer.current(key).version
        )

        def decide(session: Session, own_id: Callable[[int], str]) -> None:
            nonlocal result
            if expected_version not in (None, session.version):
                raise VersionConflictError(session_id, expected_version or 0, session.version)
            events = self._streams.view(key.aggregate_id, session_id, session.state).events
            self._refuse_taken(key, [event.id or "" for event in new])
            result = plan.as_result(events)
            result.check_turn_safe(events)
            session.compact(
                result,
                boundary_id=own_id(0),
                summary=[(event.id or "", event) for event in new],
                now=self._now(),
                strategy="plan",
                context=merged_context(context),
            )

        if plan.is_empty:
            if expected_version not in (None, result.version):
                raise VersionConflictError(session_id, expected_version or 0, result.version or 0)
            return result
        boundary, *summary = self._record_once(key, None, decide, also, at_version=expected_version)
        version = summary[-1].version if summary else boundary.version
        return replace(result, version=version, boundary=boundary, summary_events=tuple(summary))

    def _record_pass(self, attempt: _Pass, also: Also) -> CompactionResult:
        key = attempt.key
        recorded = attempt.result

        def decide(session: Session, own_id: Callable[[int], str]) -> None:
            nonlocal recorded
            recorded = attempt.result_for(self._streams.view(key.aggregate_id, key.session_id, session.state))
            summary = [
                (own_id(1 + place), NewEvent(message=message, synthetic=True, branch=attempt.branch))
                for place, message in enumerate(recorded.summary)
            ]
            session.compact(
                recorded,
                boundary_id=own_id(0),
                summary=summary,
                now=self._now(),
                branch=attempt.branch,
                strategy=attempt.strategy,
                trigger=attempt.trigger,
                context=attempt.context,
            )

        try:
            boundary, *summary = self._record_once(key, None, decide, also)
        except (_RaceLostError, VersionConflictError) as error:
            if isinstance(error, VersionConflictError) and not callable(also) and len(also) > 0:
                raise  # the host's aggregates lost their events: the host has to know
            before = attempt.result.tokens_before
            return CompactionResult(
                CompactionReason.RACE_LOST,
                tokens_before=before,
                tokens_after=before,
                version=self._writer.current(key).version,
            )
        version = summary[-1].version if summary else boundary.version
        state = self._streams.state(key.aggregate_id, version)
        assert state is not None  # noqa: S101 - it was just written
        view = self._streams.view(key.aggregate_id, key.session_id, state)
        request = self._request(key.session_id, state, view)
        if attempt.branch is not None:
            request = branch_request(request, attempt.branch)
        return replace(
            recorded,
            version=version,
            boundary=boundary,
            summary_events=tuple(summary),
            tokens_after=request.cost_of_view(),
        )


@dataclass(frozen=True)
class _Pass:
    """A pass that has its result and is about to be recorded."""

    key: SessionKey
    view: View
    result: CompactionResult
    branch: str | None
    strategy: object
    trigger: object
    context: Mapping[str, str]

    def result_for(self, now: View) -> CompactionResult:
        """The result for the view as it is at the write, or `_RaceLostError`."""
        if self.branch is None:
            if now.ids != self.view.ids:
                raise _RaceLostError
            return self.result
        ours = {event.id for event in owned_events(self.view.events, self.branch)}
        held = {event.id for event in now.events}
        came = any(event.id not in ours for event in owned_events(now.events, self.branch))
        if came or not all(event.id in held for event in self.result.covered_events):
            raise _RaceLostError
        return place(self.result, now.events, self.branch)


class _RaceLostError(TurnlogError):
    """The view changed while a pass ran."""
