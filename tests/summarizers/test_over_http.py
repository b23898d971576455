"""The summarizers over a real model adapter and a server on the loopback."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import pytest
from tests.faults.conversation import SID, say, service
from tests.laws.machine import CountedCharacters
from tests.support.scripted_server import Answer, ScriptedServer, json_answer, scripted_server

from turnlog.application import AsyncChatModelSummarizer, AsyncSessionService, ChatModelSummarizer
from turnlog.application.chat import InvalidReplyError
from turnlog.application.service import SessionService
from turnlog.domain.compaction import CompactionReason, CompactionResult
from turnlog.domain.messages import Message
from turnlog.domain.window import CompactionWindow, WindowCompactionStrategy
from turnlog.infrastructure.models import AsyncOpenAIChatModel, OpenAIChatModel, RetryPolicy

NEWEST = CompactionWindow.last_turns(1)
RETRY = RetryPolicy(backoff=0.001)


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with scripted_server() as running:
        yield running


def completion(finish: str = "stop", **message: Any) -> Answer:
    """A Chat Completions answer."""
    return json_answer(
        {
            "id": "r1",
            "model": "a-model-2031",
            "choices": [{"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}],
            "usage": {"prompt_tokens": 70, "completion_tokens": 5},
        }
    )


def passed(server: ScriptedServer, sessions: SessionService, **settings: Any) -> CompactionResult:
    """One pass that keeps the newest turn."""
    with OpenAIChatModel("a-model", base_url=server.url, retry=RETRY) as model:
        strategy = WindowCompactionStrategy(NEWEST, ChatModelSummarizer(model, **settings))
        return sessions.compact(SID, None, strategy)


def with_tools() -> SessionService:
    """A session of two turns, the first with a call."""
    sessions = service()
    say(sessions, "s1 u1 k1:c1 t1:c1 a1 u2", cost=100)
    return sessions


def test_what_is_sent_is_one_text_behind_a_system_text_and_no_tools(server: ScriptedServer) -> None:
    server.script(completion(content="a recap"))
    result = passed(server, with_tools(), options={"temperature": 0})
    assert result.reason is CompactionReason.COMPACTED
    body = server.requests[0].json
    assert [message["role"] for message in body["messages"]] == ["system", "user"]
    assert isinstance(body["messages"][1]["content"], str)
    assert not {"tools", "tool_choice"} & body.keys()
    assert body["temperature"] == 0


def test_the_hash_is_that_of_the_bytes_that_were_sent(server: ScriptedServer) -> None:
    server.script(completion(content="a recap"))
    result = passed(server, with_tools())
    about = (result.summary[-1].metadata or {})["summarizer"]
    assert about["prompt_sha256"] == sha256(server.requests[0].body).hexdigest()
    assert about["model"] == "a-model-2031"
    assert (about["usage"]["input_tokens"], about["usage"]["output_tokens"]) == (70, 5)


CALL = {"id": "c9", "type": "function", "function": {"name": "f", "arguments": "{}"}}
REFUSED: dict[str, tuple[Answer, CompactionReason]] = {
    "cut": (completion("length", content="So f"), CompactionReason.SUMMARY_TRUNCATED),
    "filtered": (completion("content_filter", content="no"), CompactionReason.SUMMARY_REFUSED),
    "empty": (completion(content=""), CompactionReason.SUMMARY_BLANK),
    "only reasoning": (
        completion(content=None, reasoning_content="hm"),
        CompactionReason.SUMMARY_BLANK,
    ),
    "a call": (
        completion("tool_calls", content=None, tool_calls=[CALL]),
        CompactionReason.SUMMARY_CALLS_TOOLS,
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_answer_that_is_no_summary_leaves_the_view(server: ScriptedServer, name: str) -> None:
    answer, reason = REFUSED[name]
    server.script(answer)
    sessions = with_tools()
    before = sessions.get_events(SID)
    assert passed(server, sessions).reason is reason
    assert sessions.get_events(SID) == before


NO_ANSWERS = {
    "an error": json_answer({"error": {"message": "upstream failed"}}),
    "no choices": json_answer({"choices": []}),
    "HTML": Answer([b"<html><body>Sign in</body></html>"], content_type="text/html"),
}


@pytest.mark.parametrize("name", NO_ANSWERS)
def test_fault_134_status_200_without_an_answer_is_a_typed_error(server: ScriptedServer, name: str) -> None:
    server.script(*[NO_ANSWERS[name]] * 9)
    sessions = with_tools()
    before = sessions.get_events(SID)
    with pytest.raises(InvalidReplyError):
        passed(server, sessions)
    assert sessions.get_events(SID) == before


def test_an_overflow_is_answered_with_smaller_requests(server: ScriptedServer) -> None:
    too_large = {
        "error": {
            "message": "This model's maximum context length is 1000 tokens. However, your messages resulted "
            "in 2600 tokens.",
            "type": "invalid_request_error",
            "code": "context_length_exceeded",
        }
    }
    server.script(json_answer(too_large, 400), *[completion(content="a recap")] * 9)
    sessions = service()
    say(sessions, " ".join(f"u{n} a{n}" for n in range(1, 12)), cost=100)
    result = passed(server, sessions, max_output_tokens=50, instructions="Sum up.")
    assert result.reason is CompactionReason.COMPACTED
    assert len(result.covered_events) == 20
    first, *others = (len(request.body) for request in server.requests)
    assert others
    assert max(others) < first


def test_the_awaited_one_asks_the_same_server(server: ScriptedServer) -> None:
    server.script(completion(content="a recap"))

    async def main() -> CompactionResult:
        async with (
            AsyncOpenAIChatModel("a-model", base_url=server.url, retry=RETRY) as model,
            AsyncSessionService(token_estimator=CountedCharacters()) as sessions,
        ):
            await sessions.create(SID)
            for text in ("one", "two"):
                await sessions.append_message(SID, Message.user(text * 40))
            summarizer = AsyncChatModelSummarizer(model)
            return await sessions.compact(SID, None, WindowCompactionStrategy(NEWEST, summarizer))

    assert asyncio.run(main()).summary[1].text == "a recap"
