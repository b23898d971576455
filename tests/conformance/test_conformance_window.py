"""The window strategy, through the domain alone and through the session service on every store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.support.conformance_cases import cases, check, checked_case, outcome
from tests.support.conformance_passes import Conversation, DomainConversation, StoredConversation
from tests.support.conformance_stores import Store
from tests.support.conformance_summarizer import (
    CalledSummarizer,
    SummarizerFailedError,
    prompt_sections,
    returned_messages,
)
from tests.support.events import EVENT_FIELDS, Data, ListedTokens, is_of_the_service, log_of, only

from turnlog.domain.compaction import CompactionResult
from turnlog.domain.errors import InvalidSettingError
from turnlog.domain.log import SessionEvent
from turnlog.domain.rendering import event_text
from turnlog.domain.window import CompactionWindow, WindowCompactionStrategy

_ERRORS: dict[type[Exception], str] = {
    InvalidSettingError: "invalid_setting",
    SummarizerFailedError: "summarizer_error",
}
_WINDOWS: dict[str, Callable[[int], CompactionWindow]] = {
    "last_events": CompactionWindow.last_events,
    "last_turns": CompactionWindow.last_turns,
    "token_budget": CompactionWindow.token_budget,
}


@pytest.mark.parametrize("case", cases("window"))
def test_conformance_window_in_the_domain(case: Data) -> None:
    _run(case, DomainConversation(_tokens(case)))


def _can_be_stored(case: Data) -> bool:
    return is_of_the_service(log_of(case.get("log", ())))


@pytest.mark.parametrize("case", cases("window", keep=_can_be_stored))
def test_conformance_window_in_the_service(case: Data, store: Store) -> None:
    _run(case, StoredConversation(store.service(_tokens(case))))


@dataclass
class _Run:
    """Passes over one conversation, with the case's labels for what they wrote."""

    conversation: Conversation
    labels: dict[str, str] = field(default_factory=dict[str, str])
    boundaries: int = 0

    def labelled(self, events: Iterable[SessionEvent]) -> list[str]:
        """The ids of the events, or the labels that the case gives them."""
        return [self.labels.get(event.id, event.id) for event in events]

    def compact(self, data: Data, expect: Data) -> None:
        """One pass with this strategy and summarizer, compared with what is expected."""
        given = data.get("summarizer")
        before = self.conversation.log
        summarizer = CalledSummarizer(given) if given is not None else None
        result, error = outcome(
            lambda: self.conversation.compact(_strategy(data["strategy"], summarizer)), _ERRORS
        )
        after = self.conversation.log
        assert after[: len(before)] == before, "the log only grows"
        self._label(result, given, expect)
        if result and result.boundary and result.boundary.boundary:
            assert result.boundary.boundary.tokens_saved == result.tokens_estimated_saved
            assert result.boundary.boundary.covered_count == len(result.covered_events)
        check(
            self._with_renderings(expect),
            {
                **self._of_pass(expect, summarizer),
                **(self._of_result(expect, result, is_same=after == before) if result else {}),
                "nothing_written": lambda: after == before,
            },
            error,
        )

    def _label(self, result: CompactionResult | None, given: Data | None, expect: Data) -> None:
        if result is None or result.boundary is None:
            return
        self.boundaries += 1
        self.labels[result.boundary.id] = f"*{self.boundaries}"
        returned = [one["id"] for one in returned_messages(given)]
        names = returned or expect.get("summary", ())
        self.labels |= {event.id: name for event, name in zip(result.summary_events, names, strict=True)}

    def _of_result(
        self, expect: Data, result: CompactionResult, *, is_same: bool
    ) -> Mapping[str, Callable[[], object]]:
        def named(group: str) -> list[str]:
            assert result.boundary is not None
            ids: tuple[str, ...] = getattr(result.boundary.boundary, group)
            return [self.labels.get(name, name) for name in ids]

        def unchanged() -> bool:
            assert result.is_unchanged == is_same
            return result.is_unchanged

        def summary_turn() -> list[dict[str, object]]:
            wanted: list[Data] = expect["summary_turn"]
            events = zip(wanted, result.summary_events, strict=True)
            return [{name: self._field(event, name) for name in one} for one, event in events]

        return {
            "unchanged": unchanged,
            "pinned": lambda: named("pinned"),
            "summary": lambda: named("summary"),
            "preserved": lambda: named("preserved"),
            "covered": lambda: self.labelled(result.covered_events),
            "tokens_saved": lambda: result.tokens_estimated_saved,
            "summary_turn": summary_turn,
        }

    def _of_pass(
        self, expect: Data, summarizer: CalledSummarizer | None
    ) -> Mapping[str, Callable[[], object]]:
        def given() -> dict[str, list[str]]:
            assert summarizer is not None
            return {
                name: self.labelled(getattr(summarizer.request, name)) for name in expect["summarizer_input"]
            }

        def prompt() -> str:
            assert summarizer is not None
            return summarizer.prompt

        return {
            "view": lambda: self.labelled(self.conversation.view),
            "log": lambda: self.labelled(self.conversation.log),
            "summarizer_called": lambda: bool(summarizer and summarizer.request),
            "failure_callback_called": lambda: bool(summarizer and summarizer.failures),
            "summarizer_input": given,
            "prompt": lambda: prompt_sections(prompt()),
            "prompt_contains": lambda: [text for text in expect["prompt_contains"] if text in prompt()],
        }

    def _field(self, event: SessionEvent, name: str) -> object:
        match name:
            case "id":
                return self.labelled([event])[0]
            case "role" | "text" | "synthetic" | "branch":
                return getattr(event, name)
            case _:
                pytest.fail(f"summary_turn has {name}, which this test does not compare")

    def _with_renderings(self, expect: Data) -> Data:
        """The expectation with the events of the prompt as they are rendered in it."""
        if "prompt" not in expect:
            return expect
        texts = dict(zip(self.labelled(self.conversation.log), self.conversation.log, strict=True))
        prompt = {name: [event_text(texts[one]) for one in ids] for name, ids in expect["prompt"].items()}
        return {**expect, "prompt": prompt}


def _run(case: Data, conversation: Conversation) -> None:
    checked_case(case, "log", "strategy", "summarizer", "steps")
    assert "strategy" in case or case["steps"]
    run = _Run(conversation)
    conversation.append(case.get("log", ()))
    if "strategy" in case:
        run.compact(case, case["expect"])
    for step in case.get("steps", ()):
        if "append" in step:
            conversation.append([only(event, EVENT_FIELDS) for event in only(step, ("append",))["append"]])
        else:
            only(step, ("compact", "expect"))
            run.compact(only(step["compact"], ("strategy", "summarizer")), step["expect"])


def _strategy(data: Data, summarizer: CalledSummarizer | None) -> WindowCompactionStrategy:
    assert len(only(data, _WINDOWS)) <= 1
    asked = summarizer.build() if summarizer else None
    for name, size in data.items():
        return WindowCompactionStrategy(_WINDOWS[name](size), asked)
    return WindowCompactionStrategy(summarizer=asked)


def _tokens(case: Data) -> ListedTokens:
    passes = [case, *(step.get("compact", {}) for step in case.get("steps", ()))]
    appended: list[Any] = [event for step in case.get("steps", ()) for event in step.get("append", ())]
    returned = [message for one in passes for message in returned_messages(one.get("summarizer"))]
    return ListedTokens([*case.get("log", ()), *appended, *returned])
