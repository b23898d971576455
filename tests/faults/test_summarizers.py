"""What other systems get wrong about summaries that a model writes, as it must be here."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from tests.faults.conversation import SID, say, service, shown
from tests.support.scripted_chat import Line
from tests.support.summary_models import ScriptedModel, reply

from turnlog.application import BackgroundCompaction
from turnlog.application.chat import (
    ChatModelSummarizer,
    ChatRequest,
    ContextOverflowError,
    FinishReason,
    InvalidReplyError,
    ModelUnavailableError,
)
from turnlog.application.service import SessionService
from turnlog.domain.compaction import CompactionReason, CompactionResult
from turnlog.domain.guarding import GuardedCompactionStrategy
from turnlog.domain.messages import Message, ReasoningPart, Role, TextPart, ToolCallPart
from turnlog.domain.query import EventQuery
from turnlog.domain.rendering import event_text
from turnlog.domain.summarizing import INSTRUCTIONS
from turnlog.domain.window import CompactionWindow, WindowCompactionStrategy

NEWEST = CompactionWindow.last_turns(1)


def passed(
    sessions: SessionService, model: ScriptedModel, pins: tuple[str, ...] = (), **settings: Any
) -> CompactionResult:
    """One pass that keeps the newest turn."""
    summarizer = ChatModelSummarizer(model, **settings)
    return sessions.compact(SID, None, WindowCompactionStrategy(NEWEST, summarizer, pins))


def transcript(prompt: str) -> str:
    """What is to be summarized, as the prompt quotes it."""
    return prompt.partition("## Transcript to summarize\n")[2].partition("\n===")[0].partition("\n\n##")[0]


def with_turns(count: int, cost: int = 60) -> SessionService:
    """A session of so many turns of two messages."""
    sessions = service()
    say(sessions, " ".join(f"u{n} a{n}" for n in range(1, count + 1)), cost=cost)
    return sessions


def test_fault_014_a_head_larger_than_the_summarizers_window_is_folded_in_requests_that_fit() -> None:
    sessions = with_turns(51, cost=100)  # ten thousand tokens
    window = 2_500
    model = ScriptedModel(lambda request: _fits(request, window - 200))
    result = passed(sessions, model, context_window=window, max_output_tokens=200)
    assert result.reason is CompactionReason.COMPACTED
    assert shown(sessions).split()[2:] == ["u51", "a51"]


def _fits(request: ChatRequest, limit: int) -> Line:
    sent = len(event_text(request.conversation[0])) + len(request.system or "")
    return ContextOverflowError(limit, sent) if sent > limit else "a recap"


def test_fault_014_a_head_that_cannot_be_folded_fails_and_leaves_the_history() -> None:
    sessions = with_turns(10)
    before = sessions.get_events(SID)
    result = passed(sessions, ScriptedModel("a recap"), context_window=200, max_output_tokens=100)
    assert result.reason is CompactionReason.SUMMARIZER_WINDOW_TOO_SMALL
    assert sessions.get_events(SID) == before


@pytest.mark.parametrize("calls", [1, 2, 3, 20])
def test_fault_046_what_leaves_is_what_the_summarizer_has_seen(calls: int) -> None:
    sessions = with_turns(20)
    model = ScriptedModel(ContextOverflowError(900, 2_800), lambda request: _fits(request, 900))
    result = passed(
        sessions, model, max_calls=calls, max_output_tokens=50, instructions="Sum up.", overlap_size=0
    )
    answered = [prompt for prompt in model.prompts if len(prompt) <= 900]
    seen = sum(transcript(prompt).count("User: ") for prompt in answered)
    assert len([event for event in result.covered_events if event.role is Role.USER]) == seen
    assert sessions.view(SID).ids[-1] == "a20"


ANSWERS = {
    "a field of its own": Message.assistant([ReasoningPart(content="secret"), TextPart(content="sum")]),
    "tags": Message.assistant("<think>secret</think>sum"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_fault_047_reasoning_is_not_stored_as_the_summary(name: str) -> None:
    sessions = with_turns(2)
    passed(sessions, ScriptedModel(reply(ANSWERS[name])))
    assert [message.text for message in sessions.view(SID).messages][1] == "sum"
    assert "secret" not in repr(sessions.get_events(SID))


@pytest.mark.parametrize("answer", [Message.assistant([ReasoningPart(content="hm")]), Message.assistant("")])
def test_fault_047_nothing_but_reasoning_is_a_blank_summary(answer: Message) -> None:
    sessions = with_turns(2)
    assert passed(sessions, ScriptedModel(reply(answer))).reason is CompactionReason.SUMMARY_BLANK


def test_fault_049_a_summary_does_not_grow_with_each_pass() -> None:
    sessions = with_turns(3, cost=200)
    model = ScriptedModel(lambda request: event_text(request.conversation[0]))  # echoes what it is given
    reasons: set[CompactionReason] = set()
    for turn in range(4, 24):
        reasons.add(passed(sessions, model, max_summary_tokens=600).reason)
        say(sessions, f"u{turn} a{turn}", cost=200)
    assert reasons == {CompactionReason.SUMMARY_OVER_LIMIT}
    assert not [event for event in sessions.view(SID).events if event.synthetic]


def test_fault_049_the_former_summary_is_to_be_updated() -> None:
    assert "Update the former summary" in INSTRUCTIONS


def test_fault_059_a_failed_pass_leaves_no_mark_that_stops_the_next_one() -> None:
    sessions = with_turns(3)
    model = ScriptedModel(ModelUnavailableError("answers 429 after all retries"), "a recap")
    strategy = WindowCompactionStrategy(NEWEST, ChatModelSummarizer(model))
    with BackgroundCompaction(sessions, None, strategy) as compaction:
        assert isinstance(compaction.submit(SID).exception(timeout=60), ModelUnavailableError)
        assert not compaction.submit(SID).result(timeout=60).is_unchanged


def test_fault_059_a_pause_after_failures_has_an_end() -> None:
    sessions, now = with_turns(3), [0.0]
    model = ScriptedModel(ModelUnavailableError("down"), "a recap")
    strategy = GuardedCompactionStrategy(
        WindowCompactionStrategy(NEWEST, ChatModelSummarizer(model)),
        max_failures=1,
        cooldown=timedelta(minutes=5),
        clock=lambda: now[0],
    )
    with pytest.raises(ModelUnavailableError):
        sessions.compact(SID, None, strategy)
    assert sessions.compact(SID, None, strategy).reason is CompactionReason.COOLING_DOWN
    now[0] = 301.0
    assert sessions.compact(SID, None, strategy).reason is CompactionReason.COMPACTED


def _keeps_marked(request: ChatRequest) -> str:
    """A summarizer that keeps what is marked, from transcript and former summary."""
    found = re.findall(r"PIN hint [\w-]+", event_text(request.conversation[0]))
    return f"So far: {', '.join(dict.fromkeys(found))}"


def test_fault_076_a_fact_lives_through_many_passes_and_recall_finds_the_original() -> None:
    sessions = service()
    sessions.append_message(SID, Message.user("PIN hint blue-42" + "." * 60), event_id="u1")
    model = ScriptedModel(_keeps_marked)
    for turn in range(2, 7):
        say(sessions, f"a{turn} u{turn}", cost=60)
        assert not passed(sessions, model).is_unchanged
    assert sessions.view(SID).messages[1].text == "So far: PIN hint blue-42"
    found = sessions.search_events(SID, EventQuery(keywords=("blue-42",)))
    assert found[0].id == "u1"


def test_fault_076_a_pinned_event_stays_verbatim_whatever_the_summarizer_forgets() -> None:
    sessions = service()
    fact = sessions.append_message(SID, Message.user("PIN hint blue-42"), event_id="u1")
    model = ScriptedModel("nothing of note")
    for turn in range(2, 7):
        say(sessions, f"a{turn} u{turn}", cost=200)
        assert not passed(sessions, model, pins=("u1",)).is_unchanged
    assert sessions.view(SID).events[0].message == fact.message


def test_fault_076_the_prompt_asks_for_exact_identifiers() -> None:
    assert "numbers, dates, identifiers, file names\nand paths exactly" in INSTRUCTIONS


def test_fault_079_a_summary_request_carries_no_tools() -> None:
    sessions = service()
    say(sessions, "u1 k1:c1 t1:c1 a1 u2", cost=60)
    model = ScriptedModel("a recap")
    passed(sessions, model)
    (request,) = model.requests
    assert request.tools == ()
    assert {part.type for one in request.conversation for part in _parts(one)} == {"text"}


def _parts(one: Any) -> Any:
    return one.parts


def test_fault_079_an_answer_that_calls_a_tool_is_a_failed_attempt() -> None:
    sessions = with_turns(2)
    call = Message.assistant([ToolCallPart(id="c", name="f")])
    result = passed(sessions, ScriptedModel(reply(call, FinishReason.TOOL_CALL)))
    assert result.reason is CompactionReason.SUMMARY_CALLS_TOOLS


def test_fault_081_an_instruction_stands_behind_a_transcript_that_ends_with_a_task() -> None:
    sessions = service()
    sessions.append_message(SID, Message.user("now run the tests" + "!" * 60))
    say(sessions, "u2")
    model = ScriptedModel("a recap")
    passed(sessions, model, overlap_size=0)
    (request,) = model.requests
    _, task, behind = model.prompts[0].partition("now run the tests")
    assert task
    assert re.search(r"\n=== \w{16} ===\n\nNow write the summary\.", behind)
    assert request.system == INSTRUCTIONS
    assert "it is data" in INSTRUCTIONS


def test_fault_126_a_shadow_prompt_of_ones_own_is_what_stands_in_the_view() -> None:
    sessions = with_turns(2)
    passed(sessions, ScriptedModel("a recap"), shadow_prompt="Résumé ?")
    assert sessions.view(SID).messages[0].text == "Résumé ?"


def test_fault_134_an_answer_that_is_none_is_a_typed_error_and_leaves_the_history() -> None:
    sessions = with_turns(2)
    before = sessions.get_events(SID), sessions.view(SID)
    with pytest.raises(InvalidReplyError):
        passed(sessions, ScriptedModel(InvalidReplyError("status 200, but the answer has no choices")))
    assert (sessions.get_events(SID), sessions.view(SID)) == before
