"""The strategies of the archive design as the cases set them, with a model that answers as they say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.support.events import Data, only

from turnlog.domain.archive import (
    RecursiveSummarizationCompactionStrategy,
    SlidingWindowCompactionStrategy,
    TokenCountCompactionStrategy,
    TurnWindowCompactionStrategy,
)
from turnlog.domain.compaction import CompactionStrategy
from turnlog.domain.log import SessionEvent
from turnlog.domain.messages import Role
from turnlog.domain.rendering import event_text
from turnlog.domain.summarizing import SHADOW_PROMPT, SummaryPrompt

_SECTIONS = {
    "prior_summary": "Summary of what came before",
    "summarize": "Transcript to summarize",
    "overlap": "What follows, quoted for continuity only",
}


class ModelFailedError(Exception):
    """What the scripted model raises."""


@dataclass
class ScriptedModel:
    """Answers with the reply of the case, and remembers what it was asked and who was told of failures."""

    script: Data
    prompts: list[SummaryPrompt] = field(default_factory=list[SummaryPrompt])
    failures: list[Exception | None] = field(default_factory=list[Exception | None])

    def __call__(self, prompt: SummaryPrompt) -> str | None:
        only(self.script, ("reply", "raises", "tokens"))
        self.prompts.append(prompt)
        if self.script.get("raises"):
            raise ModelFailedError
        reply: str | None = self.script.get("reply")
        return reply

    def section(self, name: str) -> str:
        """The text of one section of the last prompt, empty when it has none."""
        parts = self.prompts[-1].user.split("\n## ")
        title = _SECTIONS[name]
        return next((part.removeprefix(title) for part in parts if part.startswith(title)), "")


def strategy_of(data: Data, model: ScriptedModel) -> CompactionStrategy:
    """The strategy that the case describes; settings that it leaves out take their default."""
    settings = {name: value for name, value in data.items() if name != "kind"}
    match data["kind"]:
        case "sliding_window":
            return SlidingWindowCompactionStrategy(**settings)
        case "turn_window":
            return TurnWindowCompactionStrategy(**settings)
        case "token_count":
            return TokenCountCompactionStrategy(**settings)
        case "recursive_summarization":
            return RecursiveSummarizationCompactionStrategy(
                model, on_failure=model.failures.append, **settings
            )
        case kind:
            raise AssertionError(f"{kind} is no strategy of these tests")


def summary_costs(strategy: Data, script: Data) -> Sequence[Data]:
    """The two new summary messages as data, with what they cost."""
    costs = script.get("tokens", (0, 0))
    texts = (strategy.get("shadow_prompt", SHADOW_PROMPT), script.get("reply"))
    return [
        {"kind": "message", "role": role, "text": text, "tokens": cost}
        for role, text, cost in zip(("user", "assistant"), texts, costs, strict=True)
    ]


def quoted(
    expect: Mapping[str, Sequence[str]], events: Mapping[str, SessionEvent], model: ScriptedModel
) -> bool:
    """Whether each section of the prompt quotes the texts of exactly these events, in this order."""
    for name, ids in expect.items():
        section = model.section(name)
        wanted = [_quotation(name, events[event_id]) for event_id in ids]
        places = [section.find(text) for text in wanted]
        others = [_quotation(name, event) for event_id, event in events.items() if event_id not in ids]
        if -1 in places or places != sorted(places) or any(text and text in section for text in others):
            return False
    return True


def _quotation(section: str, event: SessionEvent) -> str:
    if section == "prior_summary":
        return (event.text or "") if event.role is not Role.USER else "\0"
    return event_text(event)
