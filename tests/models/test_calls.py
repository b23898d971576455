"""Calls over real connections: what is sent again, what is not, and how a call ends."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from tests.models.answers import ASKED, IN_LUND, LAST, chunk, chunks, streamed, whole
from tests.support.asking import Ask
from tests.support.scripted_server import Answer, ScriptedServer, json_answer, sse_answer

from turnlog.application.chat import (
    ContextOverflowError,
    FinishReason,
    InvalidReplyError,
    ModelRejectedError,
    ModelTimeoutError,
    ModelUnavailableError,
    StreamInterruptedError,
    TextDelta,
)
from turnlog.infrastructure.models import Limits, OpenAIChatModel, RetryPolicy

CHAT = "OpenAIChat"
BOTH = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
NO_ANSWER = Answer(status=None)


def busy(status: int = 503, headers: Mapping[str, str] | None = None) -> Answer:
    return json_answer({"error": {"message": "busy"}}, status, headers)


def good(stream: bool) -> Answer:
    return streamed(*IN_LUND) if stream else whole()


# Answers


def test_pieces_arrive_one_by_one_and_the_reply_is_whole_behind_them(
    ask: Ask, server: ScriptedServer
) -> None:
    server.script(streamed(*IN_LUND))
    asked = ask(CHAT, ASKED, stream=True)
    assert asked.pieces == [TextDelta("In "), TextDelta("Lund.")]
    assert asked.answer.message.text == "In Lund."
    assert asked.answer.finish_reason is FinishReason.STOP


def test_a_piece_is_there_before_the_server_sends_the_next(ask: Ask, server: ScriptedServer) -> None:
    later = threading.Event()
    server.script(Answer([b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n', later]))
    asked = ask(CHAT, ASKED, stream=True, take=1)
    assert asked.pieces == [TextDelta("a")]
    assert not later.is_set()


def test_leaving_early_closes_the_connection_and_keeps_what_came(ask: Ask, server: ScriptedServer) -> None:
    server.script(Answer([b'data: {"choices":[{"delta":{"content":"In "}}]}\n\n', threading.Event()]))
    asked = ask(CHAT, ASKED, stream=True, take=1)
    assert server.closed_early.wait(60)
    assert asked.answer.finish_reason is FinishReason.CANCELLED
    assert asked.answer.message.text == "In "
    assert (asked.answer.message.metadata or {})["finish_reason"] == "cancelled"


def test_a_stream_that_is_left_before_its_first_piece_is_cancelled(ask: Ask, server: ScriptedServer) -> None:
    server.script(streamed())
    asked = ask(CHAT, ASKED, stream=True, take=0)
    assert asked.answer.message.text is None


def test_one_connection_serves_one_call_after_the_other(server: ScriptedServer) -> None:
    server.script(streamed(*IN_LUND), whole(), streamed(*IN_LUND))
    with OpenAIChatModel("a-model", base_url=server.url) as model:
        for stream in (True, False, True):
            rendered = model.render(ASKED, stream=stream)
            if stream:
                with model.stream(rendered) as pieces:
                    assert len(list(pieces)) == 2
            else:
                model.complete(rendered)
    assert server.connections == 1


def test_a_server_that_does_not_stream_is_heard_all_the_same(ask: Ask, server: ScriptedServer) -> None:
    server.script(whole("In Lund."))
    asked = ask(CHAT, ASKED, stream=True)
    assert asked.text == "In Lund."
    assert asked.answer.message.text == "In Lund."


def test_a_stream_that_stays_open_behind_its_end_is_not_waited_for(ask: Ask, server: ScriptedServer) -> None:
    server.script(Answer([*sse_answer(*chunks(*IN_LUND)).chunks, threading.Event()]))
    assert ask(CHAT, ASKED, stream=True).answer.message.text == "In Lund."


def test_an_answer_that_is_cut_behind_its_finish_marker_is_whole(ask: Ask, server: ScriptedServer) -> None:
    server.script(sse_answer(*chunks(*IN_LUND)[:-1], is_done=False, is_cut=True))
    asked = ask(CHAT, ASKED, stream=True)
    assert asked.answer.finish_reason is FinishReason.STOP
    assert asked.answer.usage is None


# Repetitions


@BOTH
@pytest.mark.parametrize("status", [408, 409, 429, 500, 503, 529])
def test_a_server_that_cannot_answer_now_is_asked_again(
    ask: Ask, server: ScriptedServer, status: int, stream: bool
) -> None:
    server.script(busy(status), busy(status), good(stream))
    assert ask(CHAT, ASKED, stream=stream).answer.message.text == "In Lund."
    assert len({request.body for request in server.requests}) == 1
    assert len(server.requests) == 3


@BOTH
def test_a_lost_connection_is_opened_again(ask: Ask, server: ScriptedServer, stream: bool) -> None:
    server.script(NO_ANSWER, good(stream))
    assert ask(CHAT, ASKED, stream=stream).answer.message.text == "In Lund."


@BOTH
def test_a_body_that_is_cut_before_a_piece_came_is_asked_for_again(
    ask: Ask, server: ScriptedServer, stream: bool
) -> None:
    cut = Answer([b'{"choices": [{"mess'], content_type="text/event-stream", is_cut=True)
    server.script(cut, good(stream))
    assert ask(CHAT, ASKED, stream=stream).answer.message.text == "In Lund."


def test_an_error_event_before_the_first_piece_is_worth_another_attempt(
    ask: Ask, server: ScriptedServer
) -> None:
    server.script(
        sse_answer({"error": {"message": "Overloaded", "type": "overloaded_error"}}), good(stream=True)
    )
    assert ask(CHAT, ASKED, stream=True).answer.message.text == "In Lund."


@BOTH
def test_after_all_repetitions_the_error_says_what_the_server_said(
    ask: Ask, server: ScriptedServer, stream: bool
) -> None:
    server.script(*[busy()] * 4)
    asked = ask(CHAT, ASKED, stream=stream)
    assert isinstance(asked.error, ModelUnavailableError)
    assert "busy" in str(asked.error)
    assert len(server.requests) == 4


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_a_refused_request_is_not_sent_again(ask: Ask, server: ScriptedServer, status: int) -> None:
    server.script(json_answer({"error": {"message": "no", "code": "invalid"}}, status))
    asked = ask(CHAT, ASKED)
    assert isinstance(asked.error, ModelRejectedError)
    assert (asked.error.status, asked.error.code) == (status, "invalid")
    assert len(server.requests) == 1


def test_an_empty_account_is_not_asked_again(ask: Ask, server: ScriptedServer) -> None:
    server.script(json_answer({"error": {"message": "quota", "code": "insufficient_quota"}}, 429))
    assert isinstance(ask(CHAT, ASKED).error, ModelRejectedError)
    assert len(server.requests) == 1


def _in_an_hour() -> str:
    return format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)


@pytest.mark.parametrize("wait", [lambda: "3600", _in_an_hour], ids=["s", "date"])
def test_a_server_that_wants_an_hour_is_not_asked_again(
    ask: Ask, server: ScriptedServer, wait: Callable[[], str]
) -> None:
    server.script(busy(429, {"retry-after": wait()}))
    asked = ask(CHAT, ASKED)
    assert isinstance(asked.error, ModelUnavailableError)
    assert asked.error.retry_after == pytest.approx(3600, abs=60)
    assert len(server.requests) == 1


def test_no_attempt_is_begun_that_the_time_does_not_allow(ask: Ask, server: ScriptedServer) -> None:
    server.script(busy(), good(stream=False))
    asked = ask(CHAT, ASKED, retry=RetryPolicy(backoff=60, max_backoff=60), limits=Limits(total=5))
    assert isinstance(asked.error, ModelUnavailableError)
    assert len(server.requests) == 1


def test_what_is_sent_again_unchanged_is_not_told(ask: Ask, server: ScriptedServer) -> None:
    server.script(busy(), good(stream=False))
    assert ask(CHAT, ASKED).told == []


# Answers that break off


CUT = (
    sse_answer(*chunks(*IN_LUND)[:2], is_done=False, is_cut=True),
    sse_answer(*chunks(*IN_LUND)[:2], is_done=False),
    sse_answer(*chunks(*IN_LUND)[:2]),
    sse_answer(*chunks(*IN_LUND)[:2], {"error": {"message": "Overloaded", "code": 529}}),
    sse_answer(*chunks(*IN_LUND)[:2], "{broken"),
    sse_answer(*chunks(*IN_LUND)[:2], "[]"),
)


@pytest.mark.parametrize("cut", CUT, ids=["cut", "ended", "done", "error", "no JSON", "no object"])
def test_nothing_is_sent_again_once_a_piece_was_handed_out(
    ask: Ask, server: ScriptedServer, cut: Answer
) -> None:
    server.script(cut, good(stream=True))
    asked = ask(CHAT, ASKED, stream=True)
    assert isinstance(asked.error, StreamInterruptedError)
    assert asked.error.reply.message.text == "In "
    assert asked.error.reply.finish_reason is FinishReason.ERROR
    assert len(server.requests) == 1


def test_an_interruption_shows_nothing_of_the_answer(ask: Ask, server: ScriptedServer) -> None:
    server.script(sse_answer(chunk({"content": "Lund"}), '{"content": "Lund'))
    assert "Lund" not in str(ask(CHAT, ASKED, stream=True).error)


def test_calls_that_are_not_complete_are_left_out(ask: Ask, server: ScriptedServer) -> None:
    def call(index: int, name: str | None, arguments: str) -> dict[str, Any]:
        function = {"name": name, "arguments": arguments} if name else {"arguments": arguments}
        return {"tool_calls": [{"index": index, "id": f"c{index}", "type": "function", "function": function}]}

    deltas = [call(0, "find", '{"a"'), call(0, None, ":1}"), call(1, "find", '{"b":')]
    server.script(sse_answer(*map(chunk, deltas), is_done=False, is_cut=True))
    error = ask(CHAT, ASKED, stream=True).error
    assert isinstance(error, StreamInterruptedError)
    assert [call.arguments for call in error.reply.message.tool_calls] == ['{"a":1}']


# Answers that are none


NO_ANSWERS = {
    "html": Answer([b"<!DOCTYPE html><title>Welcome</title>"], content_type="text/html"),
    "text": Answer([b"pong"], content_type="text/plain"),
    "nothing": Answer([]),
    "list": Answer([b"[]"]),
    "no choices": json_answer({"id": "1", "choices": []}),
    "null choices": json_answer({"choices": None}),
    "no message": json_answer({"choices": [{"index": 0}]}),
    "malformed message": json_answer({"choices": [{"message": {"role": "assistant", "content": 7}}]}),
    "malformed calls": json_answer({"choices": [{"message": {"tool_calls": [{"type": "function"}]}}]}),
    "error": json_answer({"error": {"message": "Welcome"}}),
    "error text": json_answer({"error": "Welcome"}),
}


@BOTH
@pytest.mark.parametrize("answer", NO_ANSWERS.values(), ids=NO_ANSWERS.keys())
def test_what_is_no_answer_is_an_error(
    ask: Ask, server: ScriptedServer, answer: Answer, stream: bool
) -> None:
    server.script(answer)
    assert isinstance(ask(CHAT, ASKED, stream=stream).error, InvalidReplyError)
    assert len(server.requests) == 1


@BOTH
def test_what_is_no_answer_is_shown_in_a_short_excerpt(
    ask: Ask, server: ScriptedServer, stream: bool
) -> None:
    server.script(Answer([b"<html>\n Welcome " + b"x" * 100_000], content_type="text/html"))
    message = str(ask(CHAT, ASKED, stream=stream).error)
    assert "<html> Welcome" in message
    assert len(message) < 500


@BOTH
def test_an_error_with_status_200_means_what_it_says(ask: Ask, server: ScriptedServer, stream: bool) -> None:
    server.script(json_answer({"error": {"message": "Too fast", "code": 429}}), good(stream))
    assert ask(CHAT, ASKED, stream=stream).answer.message.text == "In Lund."


@BOTH
def test_an_overflow_with_status_200_is_one(ask: Ask, server: ScriptedServer, stream: bool) -> None:
    error = {"type": "exceed_context_size_error", "message": "too long", "n_prompt_tokens": 9, "n_ctx": 8}
    server.script(json_answer({"error": error}))
    found = ask(CHAT, ASKED, stream=stream).error
    assert isinstance(found, ContextOverflowError)
    assert (found.limit, found.sent) == (8, 9)


@BOTH
def test_a_redirect_is_not_followed(ask: Ask, server: ScriptedServer, stream: bool) -> None:
    server.script(Answer([], 307, headers={"location": f"{server.url}/v2"}), good(stream))
    asked = ask(CHAT, ASKED, stream=stream)
    assert isinstance(asked.error, ModelRejectedError)
    assert "redirect" in str(asked.error)
    assert len(server.requests) == 1


@BOTH
def test_an_answer_larger_than_its_bound_is_refused(ask: Ask, server: ScriptedServer, stream: bool) -> None:
    server.script(Answer([b": ping\n\n" * 1000] * 10, content_type="text/event-stream"))
    asked = ask(CHAT, ASKED, stream=stream, limits=Limits(response_bytes=10_000))
    assert isinstance(asked.error, InvalidReplyError)
    assert "10,000 bytes" in str(asked.error)


def test_an_endless_error_is_read_no_further_than_it_is_worth(ask: Ask, server: ScriptedServer) -> None:
    never = threading.Event()
    server.script(Answer([b"x" * 100_000] * 4 + [never], 400))
    assert isinstance(ask(CHAT, ASKED).error, ModelRejectedError)


# Time limits


@BOTH
def test_silence_ends_at_the_limit_for_reading(ask: Ask, server: ScriptedServer, stream: bool) -> None:
    server.script(Answer([threading.Event()]))
    asked = ask(CHAT, ASKED, stream=stream, limits=Limits(read=0.1))
    assert isinstance(asked.error, ModelTimeoutError)
    assert "said nothing for 0.1 seconds" in str(asked.error)
    assert len(server.requests) == 1


@BOTH
def test_drops_do_not_lengthen_the_time_of_the_whole_call(
    ask: Ask, server: ScriptedServer, stream: bool
) -> None:
    server.script(Answer([b": ping\n\n", 0.02] * 1000, content_type="text/event-stream"))
    asked = ask(CHAT, ASKED, stream=stream, limits=Limits(read=5, total=0.3))
    assert isinstance(asked.error, ModelTimeoutError)
    assert "not over after 0.3 seconds" in str(asked.error)


def test_silence_behind_drops_ends_with_the_time_of_the_whole_call(ask: Ask, server: ScriptedServer) -> None:
    server.script(Answer([b": ping\n\n", threading.Event()], content_type="text/event-stream"))
    asked = ask(CHAT, ASKED, stream=True, limits=Limits(read=60, total=0.3))
    assert isinstance(asked.error, ModelTimeoutError)


def test_a_time_limit_behind_a_piece_interrupts_the_answer(ask: Ask, server: ScriptedServer) -> None:
    server.script(Answer([b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n', threading.Event()]))
    asked = ask(CHAT, ASKED, stream=True, limits=Limits(read=0.1))
    assert isinstance(asked.error, StreamInterruptedError)


def test_a_server_that_is_not_there_is_named(ask: Ask, server: ScriptedServer) -> None:
    server.stop()
    asked = ask(CHAT, ASKED)
    assert isinstance(asked.error, ModelUnavailableError)
    assert f"{server.url}/v1/chat/completions cannot be reached" in str(asked.error)


# Adaptations


def refused(parameter: str, message: str) -> Answer:
    error = {"message": message, "type": "invalid_request_error", "param": parameter, "code": None}
    return json_answer({"error": error}, 400)


MAX_TOKENS = refused(
    "max_tokens",
    "Unsupported parameter: 'max_tokens' is not supported with this model. "
    "Use 'max_completion_tokens' instead.",
)


@BOTH
def test_a_request_is_adapted_once_and_its_new_bytes_are_told(
    ask: Ask, server: ScriptedServer, stream: bool
) -> None:
    server.script(MAX_TOKENS, good(stream))
    asked = ask(CHAT, replace(ASKED, max_output_tokens=5), stream=stream)
    assert asked.answer.message.text == "In Lund."
    assert [told.body for told in asked.told] == [server.requests[1].body]
    assert asked.told[0].adaptations == ("max_completion_tokens",)
    assert server.requests[1].json["max_completion_tokens"] == 5
    assert "max_tokens" not in server.requests[1].json


def test_what_was_learned_is_known_to_all_models_and_warned_of_once(
    ask: Ask, server: ScriptedServer, caplog: pytest.LogCaptureFixture
) -> None:
    asking = replace(ASKED, max_output_tokens=5)
    server.script(MAX_TOKENS, good(stream=False), good(stream=False))
    with caplog.at_level(logging.WARNING, "turnlog"):
        ask(CHAT, asking)
        assert ask(CHAT, asking).told == []
    assert len(server.requests) == 3
    assert [record.message.count("max_completion_tokens") for record in caplog.records] == [1]


def test_a_request_that_is_refused_in_its_new_form_too_is_an_error(ask: Ask, server: ScriptedServer) -> None:
    server.script(MAX_TOKENS, MAX_TOKENS, good(stream=False))
    asked = ask(CHAT, ASKED)
    assert isinstance(asked.error, ModelRejectedError)
    assert len(server.requests) == 2


def test_what_did_not_help_is_not_remembered(ask: Ask, server: ScriptedServer) -> None:
    server.script(MAX_TOKENS, MAX_TOKENS, good(stream=False))
    ask(CHAT, ASKED)
    ask(CHAT, ASKED)
    assert server.requests[2].body == server.requests[0].body


def test_the_last_chunk_has_the_usage(ask: Ask, server: ScriptedServer) -> None:
    server.script(streamed(*IN_LUND))
    usage = ask(CHAT, ASKED, stream=True).answer.usage
    assert usage
    assert (usage.input_tokens, usage.output_tokens, usage.provider) == (20, 3, LAST["usage"])
