"""The strategies of the archive design, as functions and as passes of the session service."""

from __future__ import annotations

import pytest
from tests.support.conformance_archive import (
    ModelFailedError,
    ScriptedModel,
    quoted,
    strategy_of,
    summary_costs,
)
from tests.support.conformance_cases import cases, check, checked_case, outcome
from tests.support.conformance_passes import SESSION, StoredConversation
from tests.support.conformance_stores import Store
from tests.support.events import Data, ListedTokens, log_of

from turnlog.domain.archive import RecursiveSummarizationCompactionStrategy
from turnlog.domain.compaction import CompactionRequest, CompactionResult
from turnlog.domain.errors import InvalidSettingError
from turnlog.domain.log import SessionEvent
from turnlog.domain.plan import CompactionPlan
from turnlog.domain.rendering import event_text
from turnlog.domain.turns import snap
from turnlog.domain.view import View

_ERRORS: dict[type[Exception], str] = {
    InvalidSettingError: "invalid_setting",
    ModelFailedError: "summarizer_error",
}
_NEW = ("su_new", "sa_new")


def _is_pass(case: Data) -> bool:
    return bool(case["group"] != "snap")


def _is_snap(case: Data) -> bool:
    return bool(case["group"] == "snap")


def _tokens(case: Data) -> ListedTokens:
    script = case.get("llm", {})
    return ListedTokens([*case["active"], *summary_costs(case["strategy"], script)])


@pytest.mark.parametrize("case", cases("legacy_strategy", keep=_is_snap))
def test_conformance_legacy_strategy_cut(case: Data) -> None:
    checked_case(case, "real", "raw_cut")
    check(case["expect"], {"cut": lambda: snap(log_of(case["real"]), case["raw_cut"])})


@pytest.mark.parametrize("case", cases("legacy_strategy", keep=_is_pass))
def test_conformance_legacy_strategy_in_the_domain(case: Data) -> None:
    checked_case(case, "active", "strategy", "llm")
    tokens, model, events = _tokens(case), ScriptedModel(case.get("llm", {})), log_of(case["active"])

    def compact() -> CompactionResult:
        strategy = strategy_of(case["strategy"], model)
        result = strategy.compact(CompactionRequest(View(events), tokens.of_event, tokens.estimate))
        result.check_turn_safe(events)
        return result

    result, error = outcome(compact, _ERRORS)
    _check(case, model, events, result, error)


@pytest.mark.parametrize("case", cases("legacy_strategy", keep=_is_pass))
def test_conformance_legacy_strategy_in_the_service(case: Data, store: Store) -> None:
    model = ScriptedModel(case.get("llm", {}))
    conversation = StoredConversation(store.service(_tokens(case)))
    conversation.append(case["active"])
    before = conversation.log
    result, error = outcome(lambda: conversation.compact(strategy_of(case["strategy"], model)), _ERRORS)
    _check(case, model, conversation.service.get_events(SESSION)[: len(case["active"])], result, error)
    if result is None or result.is_unchanged:
        assert conversation.log == before
    else:
        labels = dict(zip([event.id for event in result.summary_events], _NEW, strict=False))
        assert [labels.get(event.id, event.id) for event in conversation.view] == case["expect"]["kept"]


def _check(
    case: Data,
    model: ScriptedModel,
    events: tuple[SessionEvent, ...],
    result: CompactionResult | None,
    error: str | None,
) -> None:
    by_id = {event.id: event for event in events}
    expect = case["expect"]

    def kept() -> list[str]:
        assert result is not None
        if result.is_unchanged:
            return list(by_id)
        summary = _NEW if result.summary else ()
        pinned = [event.id for event in result.pinned_events]
        return [*pinned, *summary, *(event.id for event in result.preserved_events)]

    def written() -> CompactionResult:
        assert result is not None
        return result.written(_NEW, session_id="s", timestamp=events[-1].timestamp, branch=None)

    def summary_turn() -> list[dict[str, object]]:
        fields = {"id": "id", "role": "role", "text": "text", "synthetic": "synthetic"}
        return [
            {name: getattr(event, fields[name]) for name in wanted}
            for wanted, event in zip(expect["summary_turn"], written().summary_events, strict=True)
        ]

    def source() -> str:
        strategy = strategy_of(case["strategy"], model)
        assert isinstance(strategy, RecursiveSummarizationCompactionStrategy)
        return type(strategy).__name__.removesuffix("CompactionStrategy")

    check(
        expect,
        {
            "kept": kept,
            "archived": lambda: [event.id for event in result.covered_events] if result else None,
            "unchanged": lambda: result.is_unchanged if result else None,
            "tokens_saved": lambda: result.tokens_estimated_saved if result else None,
            "llm_called": lambda: bool(model.prompts),
            "failure_callback_called": lambda: bool(model.failures),
            "prompt": lambda: expect["prompt"] if quoted(expect["prompt"], by_id, model) else model.prompts,
            "prompt_contains": lambda: [
                text for text in expect["prompt_contains"] if text in model.prompts[-1].user
            ],
            "summary_turn": summary_turn,
            "summary_same_timestamp": lambda: len({e.timestamp for e in written().summary_events}) == 1,
            "summary_branch": lambda: written().summary_events[0].branch,
            "summary_source": source,
        },
        error,
    )


@pytest.mark.parametrize("case", cases("legacy_strategy", keep=_is_pass))
def test_conformance_legacy_strategy_as_a_plan(case: Data) -> None:
    """The plan of a pass, applied to the log as a list, leaves what the pass keeps."""
    tokens, model = _tokens(case), ScriptedModel(case.get("llm", {}))
    events = log_of(case["active"])

    def compact() -> CompactionResult:
        strategy = strategy_of(case["strategy"], model)
        return strategy.compact(CompactionRequest(View(events), tokens.of_event, tokens.estimate))

    result, _ = outcome(compact, _ERRORS)
    if result is None or result.is_unchanged:
        return
    written = result.written(_NEW[: len(result.summary)], session_id="", timestamp=events[-1].timestamp)
    applied = CompactionPlan.of("", events, written).apply_to(events)
    assert [event.id for event in applied if not event.archived] == case["expect"]["kept"]
    assert {event_text(e) for e in applied if e.archived} == {event_text(e) for e in result.covered_events}
