"""A strategy that is not run for nothing: minimum gain, a target that is reported, a pause after failures."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Generator
from dataclasses import replace
from datetime import timedelta
from threading import Lock
from time import monotonic
from typing import NamedTuple, cast

from turnlog.domain.compaction import (
    CompactionReason,
    CompactionRequest,
    CompactionResult,
    CompactionStrategy,
    Summary,
    SummaryRequest,
    require_positive,
)
from turnlog.domain.errors import InvalidSettingError, shown
from turnlog.domain.guards import require_kind, require_number
from turnlog.domain.steps import AnySummarizer, PassSteps, SteppedStrategy, run_steps
from turnlog.domain.turns import turn_starts, with_late_results

_FAILURES = frozenset(
    (
        CompactionReason.SUMMARIZER_DECLINED,
        CompactionReason.SUMMARY_BLANK,
        CompactionReason.SUMMARY_TRUNCATED,
        CompactionReason.SUMMARY_CALLS_TOOLS,
        CompactionReason.SUMMARY_REFUSED,
        CompactionReason.SUMMARY_INTERRUPTED,
        CompactionReason.SUMMARY_OVER_LIMIT,
        CompactionReason.SUMMARY_NOT_SMALLER,
        CompactionReason.SUMMARIZER_WINDOW_TOO_SMALL,
    )
)
_NOTHING_DONE = (CompactionReason.NOTHING_TO_COVER, CompactionReason.GAIN_TOO_SMALL)

_MOST_SESSIONS = 10_000
"""Sessions whose failures are remembered; those that failed longest ago are forgotten first."""

_Key = tuple[str, str | None]


class _Failures(NamedTuple):
    in_a_row: int
    last: float


class GuardedCompactionStrategy:
    """Runs another strategy unless that is known to be for nothing. `CompactionReason` says which it was.

    - `min_gain` tokens have to be saved; what leaves has to cost that much before a model is asked
      (`GAIN_TOO_SMALL`).
    - `target_tokens` is what the view should fit in together with `overhead`, the tokens of tools and
      templates. When what always stays is larger, a pass that has nothing to do says so
      (`TARGET_UNREACHABLE`), and every result has the figures in `target`, `floor` and `detail`.
    - After `max_failures` passes in a row that raised or gave no summary the strategy is not run for
      `cooldown` (`COOLING_DOWN`); then once more. Counted by session and branch, in the memory of this
      object. `clock` gives seconds.
    """

    def __init__(
        self,
        strategy: CompactionStrategy,
        *,
        min_gain: int = 0,
        target_tokens: int | None = None,
        overhead: int = 0,
        max_failures: int = 3,
        cooldown: timedelta = timedelta(minutes=5),
        clock: Callable[[], float] = monotonic,
    ) -> None:
        if not hasattr(strategy, "compact"):
            raise InvalidSettingError(f"A strategy has a method `compact`; {shown(strategy)} has none.")
        require_number("`min_gain`", min_gain)
        require_number("`overhead`", overhead)
        require_kind("`cooldown`", cooldown, timedelta, "a timedelta, as in timedelta(minutes=5)")
        if target_tokens is not None:
            require_positive("The target", target_tokens)
        require_positive("The number of failures", max_failures)
        self._strategy = strategy
        self._min_gain = min_gain
        self._target = target_tokens
        self._overhead = overhead
        self._max_failures = max_failures
        self._cooldown = cooldown.total_seconds()
        self._clock = clock
        self._failures: OrderedDict[_Key, _Failures] = OrderedDict()
        self._lock = Lock()

    def __str__(self) -> str:
        return str(self._strategy)

    @property
    def asked(self) -> AnySummarizer | None:
        """The summarizer of the strategy."""
        return cast("AnySummarizer | None", getattr(self._strategy, "asked", None))

    def compact(self, request: CompactionRequest) -> CompactionResult:
        """One pass of the strategy, unless it is for nothing."""
        return run_steps(self.steps(request), self.asked)

    def steps(self, request: CompactionRequest) -> PassSteps:
        """One pass of the strategy in steps, unless it is for nothing."""
        key = request.session_id, request.branch
        resting = self._resting(key)
        if resting is not None:
            return resting
        guarded = replace(request, min_gain=max(self._min_gain, request.min_gain))
        try:
            result, was_asked = yield from self._watched(guarded)
        except Exception:
            self._failed(key)
            raise
        if result.reason in _FAILURES or (was_asked and result.reason is CompactionReason.GAIN_TOO_SMALL):
            self._failed(key)
        elif not result.is_unchanged:
            self._forget(key)
        return self._reported(request, self._worth(result, guarded))

    def _watched(
        self, request: CompactionRequest
    ) -> Generator[SummaryRequest, Summary, tuple[CompactionResult, bool]]:
        """The result of the strategy, and whether a summarizer was asked."""
        if not hasattr(self._strategy, "steps"):
            return self._strategy.compact(request), False
        steps = cast("SteppedStrategy", self._strategy).steps(request)
        was_asked = False
        try:
            question = next(steps)
            while True:
                was_asked = True
                try:
                    answer = yield question
                except Exception as error:
                    question = steps.throw(error)
                else:
                    question = steps.send(answer)
        except StopIteration as done:
            return cast("CompactionResult", done.value), was_asked

    def _worth(self, result: CompactionResult, request: CompactionRequest) -> CompactionResult:
        """The result, unless it saves too little: for strategies that do not look at the minimum."""
        saved = result.tokens_estimated_saved
        if result.is_unchanged or saved >= request.min_gain:
            return result
        detail = f"{saved:,} tokens would be saved, the minimum gain is {request.min_gain:,}"
        return CompactionResult(CompactionReason.GAIN_TOO_SMALL, detail=detail)

    def _reported(self, request: CompactionRequest, result: CompactionResult) -> CompactionResult:
        """The result with the target and what no pass can take away."""
        if self._target is None:
            return result
        floor = self._overhead + _floor(request)
        result = replace(result, target=self._target, floor=floor)
        if floor <= self._target:
            return result
        why = (
            f"what always stays (system message, preamble, tools, newest turn) costs {floor:,} tokens, the "
            f"target is {self._target:,}: shorten it, or raise the target"
        )
        reason = result.reason
        if reason in _NOTHING_DONE:
            reason = CompactionReason.TARGET_UNREACHABLE
        return replace(result, reason=reason, detail="; ".join(filter(None, (result.detail, why))))

    def _resting(self, key: _Key) -> CompactionResult | None:
        with self._lock:
            count, last = self._failures.get(key, _Failures(0, 0.0))
        left = last + self._cooldown - self._clock()
        if count < self._max_failures or left <= 0:
            return None
        detail = f"{count} passes in a row gave no summary; the next is tried in {left:.0f} seconds"
        return CompactionResult(CompactionReason.COOLING_DOWN, detail=detail)

    def _failed(self, key: _Key) -> None:
        with self._lock:
            count = self._failures.pop(key, _Failures(0, 0.0)).in_a_row
            self._failures[key] = _Failures(count + 1, self._clock())
            if len(self._failures) > _MOST_SESSIONS:
                self._failures.popitem(last=False)

    def _forget(self, key: _Key) -> None:
        with self._lock:
            self._failures.pop(key, None)


def _floor(request: CompactionRequest) -> int:
    """The tokens of what is told that no pass over the request can take away."""
    conversation = [event for event in request.events if not event.is_stored_system and not event.synthetic]
    first = min(turn_starts(conversation), default=len(conversation))
    _, turns = with_late_results(conversation[:first], conversation[first:])
    newest = max(turn_starts(turns), default=0)
    summaries = [event for event in request.events if event.synthetic]
    return request.cost_of_view() - request.cost(turns[:newest]) - request.cost(summaries)
