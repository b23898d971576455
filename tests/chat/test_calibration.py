"""The trigger's estimate, corrected by what the provider counted: a ratio per model, from the log alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.chats import SID, Characters, messages, service
from tests.support.scripted_chat import ScriptedModel, calls, says

from turnlog.application import SessionService
from turnlog.application.chat import ChatReply, ChatRequest, SessionChat, Usage
from turnlog.application.chat.calibration import ratio_of
from turnlog.domain import (
    CompactionRequest,
    CompactionWindow,
    EventFilter,
    Message,
    MessageFilter,
    SessionEvent,
    TokenCountTrigger,
    TurnCountTrigger,
    WindowCompactionStrategy,
)

LAST_TURN = WindowCompactionStrategy(CompactionWindow.last_turns(1))


def never(_: CompactionRequest) -> bool:
    """A trigger that does not fire, but makes the chat count."""
    return False


def counted(times: float) -> Any:
    """An answer of a provider that counts so many times what we estimate."""

    def answer(request: ChatRequest) -> ChatReply:
        estimated = sum(
            Characters().estimate(one.message)
            for one in request.conversation
            if isinstance(one, SessionEvent) and one.message
        )
        return says("hi", Usage(input_tokens=round(estimated * times), provider={}))

    return answer


def ratio(sessions: SessionService, model: str = "m") -> float:
    """The ratio of the view as it is now."""
    return ratio_of(sessions.view(SID).events, model)


def chat(sessions: SessionService, *lines: Any, **settings: Any) -> SessionChat:
    """A chat that counts."""
    return SessionChat(sessions, ScriptedModel(lines), trigger=never, strategy=LAST_TURN, **settings)


def test_without_an_answer_the_estimate_stands(sessions: SessionService) -> None:
    sessions.create(SID)
    assert ratio(sessions) == 1.0


@pytest.mark.parametrize(("times", "expected"), [(1.5, 1.5), (0.8, 0.8), (5.0, 2.0), (0.1, 0.5)])
def test_the_ratio_is_what_the_provider_counted_within_bounds(
    sessions: SessionService, times: float, expected: float
) -> None:
    chat(sessions, counted(times)).send(SID, "x" * 1_000)
    assert ratio(sessions) == pytest.approx(expected, rel=0.01)


def test_newer_answers_count_more_without_forgetting_the_older_ones(sessions: SessionService) -> None:
    talk = chat(sessions, counted(1.0), counted(2.0), counted(2.0))
    talk.send(SID, "x" * 1_000)
    talk.send(SID, "x" * 1_000)
    assert ratio(sessions) == pytest.approx(1.3, rel=0.01)
    talk.send(SID, "x" * 1_000)
    assert ratio(sessions) == pytest.approx(1.51, rel=0.01)


def test_a_ratio_is_of_one_model(sessions: SessionService) -> None:
    chat(sessions, counted(1.5)).send(SID, "x" * 1_000)
    assert ratio(sessions, "another") == 1.0


def test_the_ratio_is_the_same_after_a_restart(tmp_path: Path) -> None:
    with service(tmp_path / "chat.db") as sessions:
        chat(sessions, counted(1.5)).send(SID, "x" * 1_000)
        before = ratio(sessions)
    with service(tmp_path / "chat.db") as sessions:
        assert ratio(sessions) == before != 1.0


def test_tools_and_instructions_are_part_of_the_estimate(sessions: SessionService) -> None:
    seen: list[Any] = []

    def ping() -> str:
        """Says pong."""
        return "pong"

    chat(sessions, counted(1.0), tools=[ping], instructions="Be kind.").send(SID, "hello")
    seen.append((messages(sessions)[1].message or Message.user("")).metadata)
    told = sum(Characters().estimate(one) for one in (Message.system("Be kind."), Message.user("hello")))
    assert seen[0]["estimate"]["tokens"] > told + 50


@pytest.mark.parametrize(
    "settings",
    [
        {"filter": EventFilter(last_n=1)},
        {"store": ~MessageFilter.roles("user")},
        {"max_request_tokens": 600, "keep_tool_results": 1},
    ],
    ids=["filter", "unstored", "shortened"],
)
def test_a_call_whose_prompt_was_not_the_view_does_not_count(
    sessions: SessionService, settings: dict[str, Any]
) -> None:
    def big() -> str:
        return "x" * 200

    SessionChat(sessions, ScriptedModel(["one"])).send(SID, "first")
    lines = [calls("c1 big"), calls("c2 big"), calls("c3 big"), counted(2.0)]
    chat(sessions, *lines, tools=[big], **settings).send(SID, "x" * 100)
    assert ratio(sessions) == 1.0


def test_usage_from_before_a_boundary_does_not_count(sessions: SessionService) -> None:
    talk = chat(sessions, counted(2.0))
    talk.send(SID, "one")
    talk.send(SID, "two")
    assert ratio(sessions) > 1.5
    assert not sessions.compact(SID, None, LAST_TURN).is_unchanged
    assert ratio(sessions) == 1.0
    talk.send(SID, "three")
    assert ratio(sessions) > 1.5


def test_usage_from_before_a_boundary_with_a_summary_of_the_same_length_does_not_count(
    sessions: SessionService,
) -> None:
    class Recap:
        def summarize(self, _: object) -> list[Message]:
            return [Message.user("What was said?"), Message.assistant("This.")]

    talk = chat(sessions, counted(2.0))
    talk.send(SID, "one")
    talk.send(SID, "two")
    sessions.compact(SID, None, WindowCompactionStrategy(CompactionWindow.last_turns(1), Recap()))
    assert len(sessions.view(SID)) == 4
    assert ratio(sessions) == 1.0


def test_a_token_trigger_fires_by_the_corrected_figure(sessions: SessionService) -> None:
    def told(times: float, session_id: str) -> int:
        """The turns that the view holds when the trigger has been asked behind the fourth answer."""
        talk = SessionChat(
            sessions,
            ScriptedModel([counted(times)]),
            trigger=TokenCountTrigger(1_500),
            strategy=LAST_TURN,
        )
        for _ in range(4):
            talk.send(session_id, "x" * 250)
        return len(sessions.view(session_id)) // 2

    assert told(1.0, "as estimated") == 4
    assert told(2.0, "more") < 4


def test_a_chat_that_needs_no_figures_counts_nothing(tmp_path: Path) -> None:
    class Uncounting:
        def estimate(self, message: Message) -> int:  # noqa: ARG002 - the port's argument
            raise AssertionError("nobody asked for this")

    with service(tmp_path / "chat.db", estimator=Uncounting()) as sessions:
        SessionChat(sessions, ScriptedModel(["hi"])).send(SID, "hello")


def test_a_trigger_by_turns_counts_turns_alone(sessions: SessionService) -> None:
    talk = SessionChat(
        sessions, ScriptedModel([counted(2.0)]), trigger=TurnCountTrigger(2), strategy=LAST_TURN
    )
    for text in ("one", "two"):
        assert talk.send(SID, text).compaction is None
    assert talk.send(SID, "three").compaction is not None


@pytest.mark.parametrize("usage", [{}, {"input_tokens": 0}, {"input_tokens": "7"}, {"input_tokens": None}, 7])
def test_usage_that_says_nothing_is_no_sample(sessions: SessionService, usage: object) -> None:
    sessions.create(SID)
    said = Message.assistant(
        "hi", metadata={"usage": usage, "estimate": {"tokens": 5, "events": 0, "model": "m"}}
    )
    sessions.append_message(SID, said)
    assert ratio(sessions) == 1.0
