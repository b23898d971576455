"""A call without input and output: its steps, driven by hand."""

from __future__ import annotations

import asyncio
import logging
import threading

import httpx
import pytest
from tests.models.answers import ASKED, chunks, whole
from tests.support.scripted_server import Answer, ScriptedServer, sse_answer

from turnlog.application.chat import ChatRequest, RenderedRequest
from turnlog.domain.errors import InvalidSettingError
from turnlog.infrastructure.models import AsyncOpenAIChatModel, Limits, OpenAIChatModel, RetryPolicy
from turnlog.infrastructure.models.demands import Demands
from turnlog.infrastructure.models.exchange import Exchange, Hand, Head, Read, Send, Setting
from turnlog.infrastructure.models.masking import Secrets
from turnlog.infrastructure.models.openai_chat import OpenAIChatCodec

PIECE = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'


class Clock:
    """A clock that stands still until it is moved."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def exchange(clock: Clock, limits: Limits) -> Exchange:
    def render(request: ChatRequest, stream: bool, adaptations: frozenset[str]) -> RenderedRequest:
        return RenderedRequest(b"{}", "test/1", "a-model", request, stream, tuple(sorted(adaptations)))

    setting = Setting(
        OpenAIChatCodec(), "http://host", Secrets(None), limits, RetryPolicy(), Demands(), render, clock
    )
    return Exchange(setting, render(ASKED, True, frozenset()))


def test_the_time_that_a_caller_takes_with_a_piece_does_not_count() -> None:
    clock = Clock()
    steps = exchange(clock, Limits(total=10)).steps()
    assert next(steps) == Send(b"{}", 10)
    assert steps.send(Head(200, {})) == Read(10)
    assert isinstance(steps.send(PIECE), Hand)
    clock.now = 1_000
    assert steps.send(None) == Read(1_010)


def test_the_time_of_the_server_counts() -> None:
    clock = Clock()
    steps = exchange(clock, Limits(total=10)).steps()
    next(steps)
    clock.now = 5
    assert steps.send(Head(200, {})) == Read(10)


def test_what_was_learned_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    demands = Demands()
    with caplog.at_level(logging.WARNING, "turnlog"):
        for _ in range(2):
            demands.learn("http://ada:secret@host/v1", "a-model", frozenset(("no_temperature",)))
    assert demands.known("http://ada:secret@host/v1", "a-model") == {"no_temperature"}
    (record,) = caplog.records
    assert "no_temperature" in record.message
    assert "secret" not in record.message


def test_leaving_a_stream_closes_its_connection_though_the_model_stays_open(server: ScriptedServer) -> None:
    server.script(Answer([PIECE, threading.Event()]))
    with OpenAIChatModel("a-model", base_url=server.url) as model:
        with model.stream(model.render(ASKED, stream=True)) as pieces:
            next(iter(pieces))
        assert server.closed_early.wait(60)


async def _leave(server: ScriptedServer) -> bool:
    async with AsyncOpenAIChatModel("a-model", base_url=server.url) as model:
        async with model.stream(model.render(ASKED, stream=True)) as pieces:
            await anext(aiter(pieces))
        return server.closed_early.wait(60)


def test_leaving_a_stream_closes_its_connection_with_asyncio(server: ScriptedServer) -> None:
    server.script(Answer([PIECE, threading.Event()]))
    assert asyncio.run(_leave(server))


def test_an_error_of_the_caller_closes_the_connection(server: ScriptedServer) -> None:
    server.script(Answer([PIECE, threading.Event()]))
    with OpenAIChatModel("a-model", base_url=server.url) as model:

        def read() -> None:
            with model.stream(model.render(ASKED, stream=True)) as pieces:
                for _ in pieces:
                    raise KeyError("mine")

        with pytest.raises(KeyError, match="mine"):
            read()
        assert server.closed_early.wait(60)


def test_a_read_that_blocks_is_ended_from_outside(server: ScriptedServer) -> None:
    """The grace behind the end of an answer is shorter than the limit for reading."""
    too_late = threading.Event()
    end_of_patience = threading.Timer(8, too_late.set)
    end_of_patience.start()
    server.script(Answer([*sse_answer(*chunks({"content": "a"})).chunks, too_late]))
    try:
        with OpenAIChatModel("a-model", base_url=server.url, limits=Limits(read=60)) as model:
            with model.stream(model.render(ASKED, stream=True)) as pieces:
                list(pieces)
            assert not too_late.is_set()
    finally:
        end_of_patience.cancel()


def test_one_model_serves_one_event_loop_after_the_other(server: ScriptedServer) -> None:
    model = AsyncOpenAIChatModel("a-model", base_url=server.url)

    async def ask() -> str | None:
        async with model:
            return (await model.complete(model.render(ASKED))).message.text

    server.script(whole("a"), whole("b"))
    assert [asyncio.run(ask()), asyncio.run(ask())] == ["a", "b"]


def test_a_request_is_asked_for_in_the_way_that_it_was_rendered_for() -> None:
    model = OpenAIChatModel("a-model", base_url="http://localhost:1")
    with pytest.raises(InvalidSettingError, match="stream=False"):
        model.complete(model.render(ASKED, stream=True))


def test_a_client_that_was_given_is_used_and_stays_open(server: ScriptedServer) -> None:
    server.script(whole("a"), whole("b"))
    with httpx.Client(headers={"x-mine": "yes"}, timeout=0.000001) as client:
        for text in ("a", "b"):
            with OpenAIChatModel("a-model", base_url=server.url, client=client) as model:
                assert model.complete(model.render(ASKED)).message.text == text
    assert [request.headers["x-mine"] for request in server.requests] == ["yes", "yes"]
