"""Calls of the turn runner, rendered by the codecs of every provider, come back from the log alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from tests.audit.golden_bodies import bodies, kept
from tests.audit.logs import WordCount
from tests.support.scripted_chat import Line, ScriptedModel, calls, says

from turnlog.application.audit import PromptRecorder, SessionAudit
from turnlog.application.chat import (
    ChatReply,
    ChatRequest,
    ContextOverflowError,
    RenderedRequest,
    SessionChat,
    Usage,
)
from turnlog.application.chat.model import OnSend, ignore
from turnlog.application.service import SessionService
from turnlog.domain.filters import EventFilter
from turnlog.domain.messages import Message
from turnlog.domain.rendering import event_text
from turnlog.domain.summarizing import PromptSummarizer
from turnlog.domain.triggers import TurnCountTrigger
from turnlog.domain.window import CompactionWindow, WindowCompactionStrategy
from turnlog.infrastructure.models import HttpChatModel
from turnlog.infrastructure.models.anthropic_messages import AnthropicMessagesCodec
from turnlog.infrastructure.models.ollama import OllamaCodec
from turnlog.infrastructure.models.openai_chat import OpenAIChatCodec
from turnlog.infrastructure.models.openai_responses import OpenAIResponsesCodec

SUMMARIES = WindowCompactionStrategy(
    CompactionWindow.last_turns(1), summarizer=PromptSummarizer(lambda _: "They spoke of parcels.")
)
CODECS: Mapping[str, Callable[[], Any]] = {
    "openai": OpenAIChatCodec,
    "openai elsewhere": lambda: OpenAIChatCodec("http://127.0.0.1:9/v1"),
    "deepseek": lambda: OpenAIChatCodec("https://api.deepseek.com"),
    "responses": OpenAIResponsesCodec,
    "anthropic": AnthropicMessagesCodec,
    "ollama": OllamaCodec,
}


class Sending(ScriptedModel):
    """The scripted model with the requests of a real one; it keeps every body that would have been sent."""

    def __init__(self, codec: Any, lines: Sequence[Line]) -> None:
        super().__init__(lines)
        self._real = HttpChatModel(codec, "m-1", base_url="http://127.0.0.1:9/v1", api_key="key")
        self.model = "m-1"
        self.sent: list[bytes] = []

    def render(self, request: ChatRequest, *, stream: bool = False) -> RenderedRequest:
        """The request in the form of the provider."""
        return self._real.render(request, stream=stream)

    def complete(self, rendered: RenderedRequest, *, on_send: OnSend = ignore) -> ChatReply:
        """The next answer."""
        self.sent.append(rendered.body)
        return super().complete(rendered, on_send=on_send)


class Characters:
    """Costs one token for each character, those of results included."""

    def estimate(self, message: Message) -> int:
        """The length of the message on one line."""
        return len(event_text(message))


def find(parcel: int) -> str:
    """Finds a parcel."""
    return f"Parcel {parcel} is in Lund, in the depot at the station, on the third shelf from the left."


def describe(parcel: int) -> str:
    """Describes a parcel at length."""
    return f"Parcel {parcel} is in Lund. " * 30


def _talk(sessions: SessionService, codec: Any, **settings: Any) -> list[bytes]:
    lines = [
        says("Hello.", Usage(input_tokens=10, output_tokens=2, provider={})),
        calls('c1 find {"parcel": 1}'),
        calls('c2 find {"parcel": 2}'),
        says("Both are in Lund."),
        says("You are welcome."),
        says("Bye."),
    ]
    model = Sending(codec, lines)
    chat = SessionChat(
        sessions,
        model,
        tools=[find],
        trigger=TurnCountTrigger(3),
        strategy=SUMMARIES,
        instructions="Be kind.",
        recorder=PromptRecorder(sessions),
        **settings,
    )
    chat.send("s", "Hi \ud800 🙂")
    sessions.append_message("s", Message.system("Answer in Swedish."))
    chat.send("s", "Where are my parcels?", system="Today is Monday.")
    chat.send("s", "Thanks.", filter=EventFilter(last_n=2))
    chat.send("s", "Bye.")
    return model.sent


def _told(sessions: SessionService, session_id: str = "s") -> list[bytes]:
    audit = SessionAudit(sessions)
    names = [entry.id for entry in audit.timeline(session_id).entries if entry.kind == "call"]
    return [audit.told(session_id, name).body for name in names]


@pytest.mark.parametrize("name", sorted(CODECS))
def test_every_call_of_a_chat_comes_back_byte_for_byte(name: str) -> None:
    with SessionService(token_estimator=WordCount()) as sessions:
        sent = _talk(sessions, CODECS[name]())
        assert len(sent) == 6
        assert _told(sessions) == sent


@pytest.mark.parametrize("name", sorted(CODECS))
def test_no_call_of_a_chat_is_kept_by_value(name: str) -> None:
    with SessionService(token_estimator=WordCount()) as sessions:
        _talk(sessions, CODECS[name]())
        prompts = [
            event.payload or {} for event in sessions.get_events("s") if event.type == "PROMPT_RENDERED"
        ]
        assert not any("literal" in payload for payload in prompts)


def test_results_that_were_shortened_come_back_as_they_were_sent() -> None:
    with SessionService(token_estimator=Characters()) as sessions:
        lines = [*(calls(f'c{n} describe {{"parcel": {n}}}') for n in range(8)), says("All are in Lund.")]
        model = Sending(OpenAIChatCodec(), lines)
        chat = SessionChat(
            sessions,
            model,
            tools=[describe],
            max_request_tokens=3_000,
            keep_tool_results=1,
            recorder=PromptRecorder(sessions),
        )
        chat.send("s", "Where are they all?")
        assert _told(sessions) == model.sent
        payloads = [event.payload or {} for event in sessions.get_events("s")]
        assert any("of" in item for payload in payloads for item in payload.get("told", ()) if item)


def test_a_call_that_overflows_and_is_made_again_is_recorded_twice() -> None:
    with SessionService(token_estimator=WordCount()) as sessions:
        model = Sending(OpenAIChatCodec(), [says("1"), says("2"), ContextOverflowError(100, 200), says("3")])
        chat = SessionChat(sessions, model, strategy=SUMMARIES, recorder=PromptRecorder(sessions))
        for text in ("a", "b", "c"):
            chat.send("s", text)
        audit = SessionAudit(sessions)
        entries = [entry for entry in audit.timeline("s").entries if entry.call]
        told = [
            audit.told("s", entry.id, attempt=attempt).body
            for entry in entries
            for attempt in range(1, (entry.call.attempts if entry.call else 0) + 1)
        ]
        assert told == model.sent


def test_a_log_with_a_recorded_chat_is_whole() -> None:
    with SessionService(token_estimator=WordCount()) as sessions:
        _talk(sessions, OpenAIChatCodec())
        assert SessionAudit(sessions).verify().findings == ()


def test_the_answer_of_a_chat_is_recorded_with_its_usage() -> None:
    with SessionService(token_estimator=WordCount()) as sessions:
        _talk(sessions, OpenAIChatCodec())
        first = next(entry.call for entry in SessionAudit(sessions).timeline("s").entries if entry.call)
        assert (first.input_tokens, first.output_tokens, first.finish_reason) == (10, 2, "stop")


@pytest.mark.parametrize("case", sorted(kept()))
def test_a_released_renderer_gives_the_body_that_it_always_gave(case: str) -> None:
    """What is stored is never changed: a renderer that gives other bytes gets a name of its own."""
    assert bodies()[case] == kept()[case]


def test_every_renderer_has_golden_bodies() -> None:
    assert kept().keys() == bodies().keys()
