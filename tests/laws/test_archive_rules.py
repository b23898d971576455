"""The strategies of the archive design on random logs, against their rules once more, written plainly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.laws.oracle import cost_of, is_stored_system, starts_turn
from tests.laws.profiles import effort
from tests.support.events import Data, log_of

from turnlog.domain.archive import (
    RecursiveSummarizationCompactionStrategy,
    SlidingWindowCompactionStrategy,
    TokenCountCompactionStrategy,
    TurnWindowCompactionStrategy,
)
from turnlog.domain.compaction import CompactionRequest, CompactionResult
from turnlog.domain.log import SessionEvent
from turnlog.domain.messages import Message
from turnlog.domain.plan import CompactionPlan
from turnlog.domain.summarizing import SummaryPrompt
from turnlog.domain.view import View

NEW = ("su_new", "sa_new")
REPLIES = st.sampled_from(["The story so far.", "", " \u00a0\n", None])
MESSAGES = st.tuples(
    st.sampled_from(["user", "user", "assistant", "assistant", "assistant", "system"]),
    st.sampled_from([None, None, None, "scout", "scout.reader", "scouts"]),
    st.sampled_from([False, False, False, True]),
    st.sampled_from(["", "a", "four", "some more"]),
)


@st.composite
def logs(draw: st.DrawFn) -> tuple[SessionEvent, ...]:
    """What stands in a view: prompts, turns, summaries and branches in any order."""
    drawn = draw(st.lists(MESSAGES, max_size=14))
    data: list[Data] = [
        {
            "id": f"e{place}",
            "kind": "message",
            "role": role,
            "branch": branch,
            "synthetic": synthetic,
            "text": text,
        }
        for place, (role, branch, synthetic, text) in enumerate(drawn)
    ]
    return log_of(data)


@dataclass(frozen=True)
class Kept:
    """What the rules keep, in order, with the labels of a new summary, and what they save."""

    ids: tuple[str, ...]
    saved: int
    asks_model: bool = False


def kept_by_the_rules(view: Sequence[SessionEvent], kind: str, limit: int, reply: str | None) -> Kept:
    """The rules of `legacy_strategy_cases.json`."""
    latest = {event.branch: event.id for event in view if is_stored_system(event)}.values()
    superseded = [e for e in view if is_stored_system(e) and e.id not in latest]
    summaries = [event for event in view if event.synthetic]
    real = [event for event in view if not event.synthetic and not is_stored_system(event)]
    starts = [place for place, event in enumerate(real) if starts_turn(event)]
    first, cut = 0, 0
    if kind == "turns":
        first = starts[0] if starts else 0
        cut = starts[-limit] if len(starts) > limit else first
    elif starts:
        raw = 0
        if kind == "tokens":
            budget = limit - sum(cost_of(e) for e in view if e.id in latest or e.synthetic)
            raw = len(real)
            while raw and sum(map(cost_of, real[raw - 1 :])) <= budget:
                raw -= 1
        else:
            root = [place for place, event in enumerate(real) if event.branch is None]
            raw = root[-limit] if len(root) > limit else 0
        is_cut = kind == "tokens" or raw > 0
        cut = next((place for place in starts if place >= raw), starts[-1]) if is_cut else 0
    gone = real[first:cut]
    asks_model = kind == "recursive" and bool(gone)
    is_summarized = asks_model and bool(reply and reply.strip())
    if kind == "recursive":
        gone = [*gone, *summaries] if is_summarized else []
    archived = {event.id for event in (*superseded, *gone)}
    ids: list[str] = []
    for event in view:
        if is_summarized and event is real[cut]:
            ids.extend(NEW)
        if event.id not in archived:
            ids.append(event.id)
    summary = 2 + len("So far?") + len(reply or "") if is_summarized else 0
    return Kept(tuple(ids), max(0, sum(map(cost_of, gone)) - summary), asks_model)


def _cost(message: Message) -> int:
    return 1 + len(message.text or "")


@effort(400, 20_000)
@given(
    view=logs(),
    kind=st.sampled_from(["events", "turns", "tokens", "recursive"]),
    limit=st.integers(1, 6),
    reply=REPLIES,
)
def test_what_a_strategy_keeps_is_what_its_rules_say(
    view: tuple[SessionEvent, ...], kind: str, limit: int, reply: str | None
) -> None:
    size = limit * 7 if kind == "tokens" else limit
    asked: list[SummaryPrompt] = []

    def model(prompt: SummaryPrompt) -> str | None:
        asked.append(prompt)
        return reply

    strategies: Mapping[str, Any] = {
        "events": SlidingWindowCompactionStrategy(size),
        "turns": TurnWindowCompactionStrategy(size),
        "tokens": TokenCountCompactionStrategy(size),
        "recursive": RecursiveSummarizationCompactionStrategy(
            model,
            max_events_to_keep=size,
            overlap_size=0,
            shadow_prompt="So far?",
        ),
    }
    expected = kept_by_the_rules(view, kind, size, reply)
    result: CompactionResult = strategies[kind].compact(CompactionRequest(View(view), cost_of, _cost))
    assert bool(asked) == expected.asks_model
    assert result.is_unchanged == (expected.ids == tuple(event.id for event in view))
    assert result.tokens_estimated_saved == expected.saved
    if not result.is_unchanged:
        written = result.written(NEW[: len(result.summary)], session_id="", timestamp=view[-1].timestamp)
        applied = CompactionPlan.of("", view, written).apply_to(view)
        assert tuple(event.id for event in applied if not event.archived) == expected.ids
