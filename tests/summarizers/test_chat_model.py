"""`ChatModelSummarizer`: what the model is asked, and what is made of its answers."""

from __future__ import annotations

import asyncio
from hashlib import sha256
from typing import Any

import pytest
from tests.faults.conversation import SID, say, service, shown
from tests.support.scripted_chat import Line
from tests.support.summary_models import AsyncScriptedModel, ScriptedModel, reply

from turnlog.application.chat import (
    AsyncChatModelSummarizer,
    ChatModelSummarizer,
    ContextOverflowError,
    FinishReason,
    ModelUnavailableError,
    Usage,
)
from turnlog.application.service import SessionService
from turnlog.domain.compaction import CompactionReason, CompactionResult, Summary, SummaryRequest
from turnlog.domain.errors import InvalidSettingError
from turnlog.domain.log import SessionEvent
from turnlog.domain.messages import Message, ReasoningPart, Role, TextPart, ToolCallPart
from turnlog.domain.window import CompactionWindow, WindowCompactionStrategy

NEWEST = CompactionWindow.last_turns(1)


def passed(sessions: SessionService, model: ScriptedModel, **settings: Any) -> CompactionResult:
    """One pass that keeps the newest turn."""
    summarizer = ChatModelSummarizer(model, **settings)
    return sessions.compact(SID, None, WindowCompactionStrategy(NEWEST, summarizer))


def by_id(event: SessionEvent) -> str:
    """An event as its id."""
    return event.id


def with_turns(count: int, cost: int = 60) -> SessionService:
    """A session of so many turns of two messages."""
    sessions = service()
    say(sessions, " ".join(f"u{n} a{n}" for n in range(1, count + 1)), cost=cost)
    return sessions


def test_the_answer_becomes_the_summary_turn() -> None:
    sessions = with_turns(3)
    result = passed(sessions, ScriptedModel("Ada asked twice."))
    assert result.reason is CompactionReason.COMPACTED
    told = sessions.view(SID).told()
    assert [message.role for message in told[:2]] == [Role.USER, Role.ASSISTANT]
    assert told[1].text == "Ada asked twice."
    assert shown(sessions).endswith("u3 a3")


def test_the_request_is_one_fenced_text_without_tools() -> None:
    sessions = service()
    say(sessions, "s1 u1 k1:c1 t1:c1 u2 a2", cost=60)
    model = ScriptedModel("short")
    passed(sessions, model, options={"temperature": 0}, max_output_tokens=77)
    (request,) = model.requests
    (asked,) = request.conversation
    assert isinstance(asked, Message)
    assert [part.type for part in asked.parts] == ["text"]
    assert request.tools == ()
    assert (request.options, request.max_output_tokens) == ({"temperature": 0}, 77)
    assert "Assistant [tool calls: f()]\nTool [responses: c1 -> ok]" in (asked.text or "")


def test_the_instruction_stands_behind_the_fence_whose_marker_the_data_cannot_hold() -> None:
    sessions = with_turns(2)
    model = ScriptedModel("short")
    passed(sessions, model)
    fence = model.prompts[0].split("\n\n", 1)[1].splitlines()[0]
    _, body, behind = model.prompts[0].split(f"\n{fence}\n")
    marker = fence.strip("= ")
    assert sha256(body.encode()).hexdigest().startswith(marker)
    assert marker not in body
    assert "write the summary" in behind


def test_the_next_pass_is_given_the_prior_summary_and_replaces_it() -> None:
    sessions = with_turns(3)
    model = ScriptedModel("first recap", "second recap")
    passed(sessions, model)
    say(sessions, "u4 a4", cost=60)
    passed(sessions, model)
    assert "## Summary of what came before\nfirst recap\n" in model.prompts[1]
    assert [message.text for message in sessions.view(SID).told()][1] == "second recap"


@pytest.mark.parametrize("overlap", [0, 1, 2])
def test_what_follows_is_quoted_as_far_as_the_overlap_goes(overlap: int) -> None:
    sessions = with_turns(1)
    sessions.append_message(SID, Message.user("and then?"))
    sessions.append_message(SID, Message.assistant("then this"))
    model = ScriptedModel("short")
    passed(sessions, model, overlap_size=overlap)
    quoted = model.prompts[0].partition("quoted for continuity only")[2]
    assert ["and then?" in quoted, "then this" in quoted] == [overlap > 0, overlap > 1]


def test_shadow_prompt_instructions_and_formatter_can_be_ones_own() -> None:
    sessions = with_turns(2)
    model = ScriptedModel("short")
    passed(sessions, model, shadow_prompt="Bisher?", instructions="Kurz!", format_event=by_id)
    assert model.requests[0].system == "Kurz!"
    assert "## Transcript to summarize\nu1\na1\n" in model.prompts[0]
    assert sessions.view(SID).told()[0].text == "Bisher?"


REFUSED: dict[str, tuple[Line, CompactionReason]] = {
    "blank": (" \n", CompactionReason.SUMMARY_BLANK),
    "cut at its length": (reply("So far", FinishReason.LENGTH), CompactionReason.SUMMARY_TRUNCATED),
    "filtered": (reply("no", FinishReason.CONTENT_FILTER), CompactionReason.SUMMARY_REFUSED),
    "a tool call": (
        reply(Message.assistant([ToolCallPart(id="c", name="f")]), FinishReason.TOOL_CALL),
        CompactionReason.SUMMARY_CALLS_TOOLS,
    ),
    "text and a tool call": (
        reply(Message.assistant([TextPart(content="so"), ToolCallPart(id="c", name="f")])),
        CompactionReason.SUMMARY_CALLS_TOOLS,
    ),
    "broken off": (reply("So f", FinishReason.ERROR), CompactionReason.SUMMARY_INTERRUPTED),
    "only thoughts": (
        reply(Message.assistant([ReasoningPart(content="hm")])),
        CompactionReason.SUMMARY_BLANK,
    ),
    "thoughts without an end": ("<think>hm", CompactionReason.SUMMARY_BLANK),
    "not smaller": ("x" * 200, CompactionReason.SUMMARY_NOT_SMALLER),
    "over its limit": ("x" * 3_000, CompactionReason.SUMMARY_OVER_LIMIT),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_answer_that_is_no_summary_is_refused_with_its_reason_and_the_view_stays(name: str) -> None:
    answer, reason = REFUSED[name]
    sessions = with_turns(2)
    before = sessions.get_events(SID), sessions.view(SID)
    failures: list[Exception | None] = []
    result = passed(sessions, ScriptedModel(answer), on_failure=failures.append)
    assert (result.reason, failures) == (reason, [None])
    assert (sessions.get_events(SID), sessions.view(SID)) == before


THOUGHTS = {
    "a field of its own": reply(Message.assistant([ReasoningPart(content="hm"), TextPart(content="sum")])),
    "tags": reply("<think>plan\n</think>\nsum"),
    "tags twice": reply("<think>a</think><thinking>b</thinking> sum"),
    "an end without a beginning": reply("plan\n</think>\n\nsum"),
}


@pytest.mark.parametrize("name", THOUGHTS)
def test_what_the_model_thinks_is_no_part_of_the_summary(name: str) -> None:
    sessions = with_turns(2)
    result = passed(sessions, ScriptedModel(THOUGHTS[name]))
    assert result.summary[1].text == "sum"


def test_a_summary_about_thinking_tags_is_kept_whole() -> None:
    sessions = with_turns(2)
    text = "Ada asked what <think> and </think> mean."
    assert passed(sessions, ScriptedModel(text)).summary[1].text == text


def test_a_failing_call_is_told_and_raised_and_nothing_is_written() -> None:
    sessions = with_turns(2)
    before = sessions.get_events(SID)
    failures: list[Exception | None] = []
    with pytest.raises(ModelUnavailableError):
        passed(sessions, ScriptedModel(ModelUnavailableError("down")), on_failure=failures.append)
    assert [type(error) for error in failures] == [ModelUnavailableError]
    assert sessions.get_events(SID) == before


def test_model_usage_and_hash_of_the_request_are_kept_with_the_summary() -> None:
    sessions = with_turns(2)
    usage = Usage(input_tokens=120, output_tokens=8, provider={"prompt_tokens": 120})
    model = ScriptedModel(reply("short", usage=usage))
    result = passed(sessions, model)
    stored = sessions.get_event(SID, result.summary_events[-1].id).message
    assert stored is not None
    assert (stored.metadata or {})["summarizer"] == {
        "name": "ChatModelSummarizer",
        "model": "scripted-1",
        "calls": 1,
        "usage": {"input_tokens": 120, "output_tokens": 8},
        "prompt_sha256": sha256(model.render(model.requests[0]).body).hexdigest(),
    }
    assert Usage.of(stored) is None, "it is not the usage of a call that was told the view"


@pytest.mark.parametrize(
    "setting",
    [
        {"overlap_size": -1},
        {"shadow_prompt": " "},
        {"context_window": 0},
        {"max_output_tokens": 0},
        {"options": {"tools": []}},
    ],
)
def test_a_wrong_setting_is_refused(setting: dict[str, Any]) -> None:
    with pytest.raises(InvalidSettingError):
        ChatModelSummarizer(ScriptedModel(), **setting)


def test_the_awaited_one_takes_the_same_steps() -> None:
    sessions = with_turns(3)
    asked: list[SummaryRequest] = []

    class Noting(ChatModelSummarizer):
        def summarize(self, request: SummaryRequest) -> Summary:
            asked.append(request)
            return super().summarize(request)

    blocking = ScriptedModel("short")
    sessions.compact(SID, None, WindowCompactionStrategy(NEWEST, Noting(blocking)))
    awaited = AsyncScriptedModel("short")
    summary = asyncio.run(AsyncChatModelSummarizer(awaited).summarize(asked[0]))
    assert awaited.requests == blocking.requests
    assert [message.text for message in summary.messages][1] == "short"


def large(turns: int = 12) -> SessionService:
    """A session that costs 1,200 tokens and more, in turns of a hundred."""
    return with_turns(turns, cost=50)


def test_what_exceeds_the_window_is_folded_in_prompts_that_fit_it() -> None:
    sessions = large()
    model = ScriptedModel("recap 1", "recap 2", "recap 3", "recap 4")
    window = 900
    result = passed(
        sessions, model, context_window=window, max_output_tokens=50, instructions="Sum up.", overlap_size=0
    )
    assert len(model.requests) > 1
    assert all(len(prompt) + len("Sum up.") + 2 + 50 <= window for prompt in model.prompts)
    assert "## Summary of what came before\nrecap 1\n" in model.prompts[1]
    assert shown(sessions).split()[2:] == ["u12", "a12"]
    assert result.summary[1].text == f"recap {len(model.requests)}"
    assert result.detail == ""


def test_every_message_is_seen_once_whatever_the_window() -> None:
    for window in range(420, 1_400, 90):
        sessions = service()
        for number in range(6):
            sessions.append_message(SID, Message.user(f"<{number}>" + "x" * (number * 60)))
            sessions.append_message(SID, Message.assistant(f"[{number}]"))
        model = ScriptedModel("recap")
        result = passed(
            sessions, model, context_window=window, max_output_tokens=20, instructions="S", overlap_size=0
        )
        assert result.reason is CompactionReason.COMPACTED, window
        seen = "".join(model.prompts)
        assert all(seen.count(f"<{n}>") == 1 == seen.count(f"[{n}]") for n in range(5)), window


def test_a_turn_larger_than_the_window_is_folded_in_pieces_of_text() -> None:
    sessions = service()
    words = " ".join(f"word{n}" for n in range(400))
    sessions.append_message(SID, Message.user(words))
    say(sessions, "u2")
    model = ScriptedModel("recap")
    passed(sessions, model, context_window=900, max_output_tokens=20, instructions="S", overlap_size=0)
    pieces = [
        prompt.partition("## Transcript to summarize\n")[2].partition("\n===")[0] for prompt in model.prompts
    ]
    assert len(pieces) > 3
    assert "".join(pieces) == f"User: {words}"


def test_when_folding_ends_early_only_the_turns_that_were_seen_leave_the_view() -> None:
    sessions = large()
    model = ScriptedModel("recap", reply("x", FinishReason.LENGTH))
    result = passed(
        sessions, model, context_window=900, max_output_tokens=50, instructions="S", overlap_size=0
    )
    covered = [event.id for event in result.covered_events]
    transcript = model.prompts[0].partition("## Transcript to summarize\n")[2].partition("\n===")[0]
    assert len(covered) == len(transcript.splitlines()) < 22
    assert shown(sessions).split()[2:] == [
        word for n in range(len(covered) // 2 + 1, 13) for word in (f"u{n}", f"a{n}")
    ]
    assert "cut at its length limit" in result.detail


def test_a_summary_that_has_seen_a_part_of_a_turn_is_not_the_one_that_is_kept() -> None:
    sessions = with_turns(2)
    sessions.append_message(SID, Message.user("x" * 3_000), event_id="giant")
    say(sessions, "u4")
    model = ScriptedModel("both turns", "and a piece", ModelUnavailableError("down"))
    result = passed(
        sessions, model, context_window=900, max_output_tokens=20, instructions="S", overlap_size=0
    )
    assert len(model.requests) == 3
    assert result.summary[1].text == "both turns"
    assert shown(sessions).split()[2:] == ["giant", "u4"]


def test_a_call_that_fails_behind_the_first_fold_leaves_what_was_folded() -> None:
    sessions = large()
    failures: list[Exception | None] = []
    model = ScriptedModel("recap", ModelUnavailableError("down"))
    result = passed(
        sessions,
        model,
        context_window=900,
        max_output_tokens=50,
        instructions="S",
        on_failure=failures.append,
    )
    assert result.reason is CompactionReason.COMPACTED
    assert 0 < len(result.covered_events) < 22
    assert [type(error) for error in failures] == [ModelUnavailableError]


def test_calls_are_bounded() -> None:
    sessions = large()
    model = ScriptedModel("recap")
    result = passed(sessions, model, context_window=900, max_output_tokens=50, instructions="S", max_calls=2)
    assert len(model.requests) == 2
    assert 0 < len(result.covered_events) < 22


def test_a_window_that_holds_nothing_is_said_and_no_model_is_asked() -> None:
    sessions = large()
    model = ScriptedModel("recap")
    result = passed(sessions, model, context_window=300, max_output_tokens=200)
    assert result.reason is CompactionReason.SUMMARIZER_WINDOW_TOO_SMALL
    assert "300" in result.detail
    assert model.requests == []


def overflows_at(limit: int) -> Line:
    """A model that refuses a prompt of more characters than this, and says so."""

    def answer(request: Any) -> Line:
        size = len(request.conversation[0].text or "")
        return ContextOverflowError(limit, size) if size > limit else "recap"

    return answer


def test_after_an_overflow_smaller_prompts_cover_everything() -> None:
    sessions = large()
    model = ScriptedModel(overflows_at(900))
    result = passed(sessions, model, max_output_tokens=20, instructions="S", overlap_size=0)
    assert result.reason is CompactionReason.COMPACTED
    assert shown(sessions).split()[2:] == ["u12", "a12"]
    seen = "".join(prompt for prompt in model.prompts if len(prompt) <= 900)
    assert seen.count("User: ") == 11


def test_an_overflow_that_stays_ends_after_a_few_tries_and_says_so() -> None:
    sessions = large()
    before = sessions.get_events(SID)
    model = ScriptedModel(ContextOverflowError(None, None))
    result = passed(sessions, model, max_output_tokens=20, instructions="S")
    assert result.reason is CompactionReason.SUMMARIZER_WINDOW_TOO_SMALL
    assert len(model.requests) < 10
    assert sessions.get_events(SID) == before
