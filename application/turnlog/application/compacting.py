"""Use case: compacting a session."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from turnlog.application.context import merged_context
from turnlog.application.core import ServiceCore
from turnlog.application.writing import Also, SessionKey
from turnlog.domain.branches import branch_request, place
from turnlog.domain.compaction import (
    CompactionReason,
    CompactionRequest,
    CompactionResult,
    CompactionStrategy,
    CompactionTrigger,
    as_data,
    name_of,
)
from turnlog.domain.errors import (
    ForeignEventError,
    InvalidBoundaryError,
    InvalidPlanError,
    InvalidSettingError,
    TurnlogError,
    VersionConflictError,
    shown,
)
from turnlog.domain.guards import require_kind
from turnlog.domain.ids import check_branch
from turnlog.domain.log import NewEvent, SessionEvent
from turnlog.domain.plan import CompactionPlan
from turnlog.domain.session import Session
from turnlog.domain.view import View

MAX_REBASES = 10
"""How often a pass is placed behind messages that came meanwhile, before it has lost its race."""


class OnRace(StrEnum):
    """What becomes of a pass when messages that it owns came while it ran.

    `SKIP`: nothing is written. `REBASE`: if only appends happened, what came is preserved and the boundary is
    recorded behind it, so that a summary that took long is not thrown away.
    """

    SKIP = "skip"
    REBASE = "rebase"


@dataclass(frozen=True)
class OpenPass:
    """A pass whose trigger was asked. `request` is what its strategy looks at, `view` that of the session."""

    key: SessionKey
    version: int
    view: View
    request: CompactionRequest
    fires: bool
    strategy: object
    trigger: object
    branch: str | None
    context: Mapping[str, str]
    on_race: OnRace


class Compacting(ServiceCore):
    """The use case of one compaction pass."""

    def compact(
        self,
        session_id: str,
        trigger: CompactionTrigger | None,
        strategy: CompactionStrategy,
        *,
        branch: str | None = None,
        on_race: OnRace = OnRace.SKIP,
        context: Mapping[str, str] | None = None,
        also: Also = (),
    ) -> CompactionResult:
        """One pass: ask the trigger (None: always), run the strategy, record the boundary and its summary.

        With a `branch` the pass owns the messages of exactly that branch; without one it owns the session. No
        lock and no transaction is held while the strategy runs. When a message that the pass owns came
        meanwhile, or one that it covers left the view, it lost its race: the result is unchanged and says so.
        With `OnRace.REBASE` late messages are preserved instead, up to ten times; a pass that covers a call
        whose result came late has lost all the same. What the strategy raises is raised, and nothing is
        written.
        """
        opened = self.open_pass(
            session_id, trigger, strategy, branch=branch, on_race=on_race, context=context
        )
        try:
            result = strategy.compact(opened.request) if opened.fires else None
        except Exception as error:
            self.fail_pass(opened, error)
            raise
        return self.close_pass(opened, result, also=also)

    def open_pass(
        self,
        session_id: str,
        trigger: CompactionTrigger | None,
        strategy: object,
        *,
        branch: str | None = None,
        on_race: OnRace = OnRace.SKIP,
        context: Mapping[str, str] | None = None,
    ) -> OpenPass:
        """The first step of `compact`, for who runs the strategy in a way of their own: ask the trigger."""
        if trigger is not None and not callable(trigger):
            raise InvalidSettingError(f"A trigger is a function of the request, not {shown(trigger)}.")
        if not hasattr(strategy, "compact"):
            raise InvalidSettingError(
                f"A strategy has a method `compact`; {shown(strategy)} has none: "
                "WindowCompactionStrategy(CompactionWindow.last_turns(10)) is one."
            )
        if on_race not in tuple(OnRace):
            raise InvalidSettingError(f"`on_race` is OnRace.SKIP or OnRace.REBASE, not {shown(on_race)}.")
        key = self._key(session_id)
        state = self._writer.current(key)
        view = self._streams.view(key.aggregate_id, session_id, state)
        request = self._request(session_id, state, view)
        if branch is not None:
            request = branch_request(request, check_branch(branch))
        return OpenPass(
            key=key,
            version=state.version,
            view=view,
            request=request,
            fires=trigger is None or bool(trigger(request)),
            strategy=strategy,
            trigger=trigger,
            branch=branch,
            context=merged_context(context),
            on_race=OnRace(on_race),
        )

    def close_pass(
        self, opened: OpenPass, result: CompactionResult | None, *, also: Also = ()
    ) -> CompactionResult:
        """The last step of `compact`: check and record what the strategy gave, if the pass fires."""
        if not opened.fires:
            result = None
        try:
            if opened.fires and not isinstance(result, CompactionResult):
                raise InvalidSettingError(f"A strategy returns a CompactionResult, not {shown(result)}.")
            if result is not None and not result.is_unchanged:
                result = result.checked_against(opened.request.events)
        except TurnlogError as error:
            self.fail_pass(opened, error)
            raise
        result = result or CompactionResult(CompactionReason.TRIGGER_DID_NOT_FIRE)
        before = opened.request.cost_of_view()
        result = replace(result, tokens_before=before, tokens_after=before, version=opened.version)
        if result.is_unchanged:
            self._keep_pass(opened, result.reason, before)
            return result
        return self._record_pass(opened, result, also)

    def fail_pass(self, opened: OpenPass, error: BaseException) -> None:
        """What happens to a pass whose strategy raised: it is kept, where that is switched on."""
        if self._keeps_passes:
            self._keep_pass(opened, "failed", opened.request.cost_of_view(), error)

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

        The group that it inserts stands in front of its anchor, a system message in it as what an assistant
        said. A plan that changes nothing writes nothing.
        Raises `VersionConflictError`, `UnknownPlanEventError` for an id that is not in the view,
        `DuplicateEventError` for a new id that the session holds, `ForeignEventError` for an event of another
        session, and `InvalidPlanError` for more than one group, which one boundary cannot say; nothing is
        written then.
        """
        key = self._key(session_id)
        require_kind("`plan`", plan, CompactionPlan, "a CompactionPlan")
        if len(plan.inserts) > 1:
            raise InvalidPlanError("A plan with more than one group of inserts cannot become one boundary.")
        group = plan.inserts[0] if plan.inserts else None
        for event in group.events if group else ():
            if event.session_id not in ("", session_id):
                raise ForeignEventError(event.id, session_id)
        new = [_synthetic(event) for event in group.events] if group else []
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

    def _keep_pass(
        self, opened: OpenPass, reason: str, before: int | None, error: BaseException | None = None
    ) -> None:
        """Keep a pass that wrote nothing, where that is switched on. One that did not fire is none."""
        if not self._keeps_passes or not opened.fires:
            return
        said = {
            "session_version": opened.version,
            "reason": str(reason),
            "strategy": name_of(opened.strategy),
            "trigger": None if opened.trigger is None else name_of(opened.trigger),
            "branch": opened.branch,
            "tokens_before": before,
            "error": None if error is None else type(error).__name__,
        }
        kept = {name: value for name, value in said.items() if value is not None}
        self._passes.keep(opened.key.aggregate_id, self._now(), kept)

    def _record_pass(self, opened: OpenPass, result: CompactionResult, also: Also) -> CompactionResult:
        key = opened.key
        attempt = _Attempt(opened, result)
        recorded = result

        def decide(session: Session, own_id: Callable[[int], str]) -> None:
            nonlocal recorded
            recorded = attempt.result_for(self._streams.view(key.aggregate_id, key.session_id, session.state))
            summary = [
                (own_id(1 + place), NewEvent(message=message, synthetic=True, branch=opened.branch))
                for place, message in enumerate(recorded.summary)
            ]
            session.compact(
                recorded,
                boundary_id=own_id(0),
                summary=summary,
                now=self._now(),
                branch=opened.branch,
                strategy=opened.strategy,
                trigger=opened.trigger,
                context=opened.context,
            )

        try:
            boundary, *summary = self._record_once(key, None, decide, also)
        except (_RaceLostError, VersionConflictError) as error:
            if isinstance(error, VersionConflictError) and not callable(also) and len(also) > 0:
                raise  # the host's aggregates lost their events: the host has to know
            before = result.tokens_before
            self._keep_pass(opened, CompactionReason.RACE_LOST, before)
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
        if opened.branch is not None:
            request = branch_request(request, opened.branch)
        return replace(
            recorded,
            version=version,
            boundary=boundary,
            summary_events=tuple(summary),
            tokens_after=request.cost_of_view(),
        )


class _Attempt:
    """A pass that has its result and is about to be recorded, on whatever the view is by then."""

    def __init__(self, opened: OpenPass, result: CompactionResult) -> None:
        self._opened = opened
        self._result = result
        self._known = {event.id for event in opened.request.events}
        self._rebases = 0

    def result_for(self, now: View) -> CompactionResult:
        """The result for the view as it is at the write, or `_RaceLostError`."""
        branch = self._opened.branch
        if branch is None:
            return self._result if now.ids == self._opened.view.ids else self._rebased(now.events)
        held = {event.id for event in now.events}
        if not all(event.id in held for event in self._result.covered_events):
            raise _RaceLostError
        owned = branch_request(replace(self._opened.request, view=now), branch).events
        came = not self._known >= {event.id for event in owned}
        return place(self._rebased(owned) if came else self._result, now.events, branch)

    def _rebased(self, owned: Sequence[SessionEvent]) -> CompactionResult:
        """The result with what came behind all that the pass saw as preserved too."""
        if self._opened.on_race is not OnRace.REBASE or self._rebases == MAX_REBASES:
            raise _RaceLostError
        self._rebases += 1
        known = len(self._opened.request.events)
        if [event.id for event in owned[:known]] != [event.id for event in self._opened.request.events]:
            raise _RaceLostError
        result = replace(self._result, preserved_events=(*self._result.preserved_events, *owned[known:]))
        try:
            return result.checked_against(owned)
        except InvalidBoundaryError as error:  # a result came of a call that the pass covers
            raise _RaceLostError from error


class _RaceLostError(TurnlogError):
    """The view changed while a pass ran."""


def _synthetic(event: SessionEvent) -> NewEvent:
    """An event that a plan inserts, as a message of a summary."""
    new = NewEvent.of(event)
    return replace(new, synthetic=True, message=None if new.message is None else as_data(new.message))
