"""The commands that ask a model, against a server on the loopback."""

from __future__ import annotations

import io
import json
import os
import pty
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.infrastructure.cli.conftest import OpenService, Turnlog
from tests.support.scripted_server import Answer, ScriptedServer, json_answer, scripted_server, sse_answer

from turnlog.domain.messages import Message, Role
from turnlog.infrastructure.cli.settings import Status

FORECAST = 'def forecast(city: str) -> str:\n    """The weather."""\n    return f"12 degrees in {city}"\n'


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedServer]:
    with scripted_server() as running:
        monkeypatch.setenv("OPENAI_BASE_URL", running.url)
        monkeypatch.setenv("TURNLOG_MODEL", "small")
        yield running


def streamed(*texts: str, calls: list[dict[str, Any]] | None = None, tokens: int | None = 12) -> Answer:
    """An answer of Chat Completions in pieces; its usage says so many tokens of the prompt."""
    pieces: list[dict[str, Any]] = [{"content": text} for text in texts]
    if calls:
        pieces.append({"tool_calls": calls})
    chunks: list[dict[str, Any]] = [{"choices": [{"index": 0, "delta": piece}]} for piece in pieces]
    end: dict[str, Any] = {"index": 0, "delta": {}, "finish_reason": "tool_calls" if calls else "stop"}
    chunks.append({"choices": [end]})
    if tokens is not None:
        usage = {"prompt_tokens": tokens, "completion_tokens": 3, "total_tokens": tokens + 3}
        chunks.append({"choices": [], "usage": usage})
    return sse_answer(*chunks)


def whole(text: str) -> Answer:
    """An answer of Chat Completions in one piece."""
    return json_answer({"id": "r", "choices": [{"message": {"role": "assistant", "content": text}}]})


def test_chat_says_a_message_and_prints_the_answer(turnlog: Turnlog, server: ScriptedServer) -> None:
    server.script(streamed("In ", "Lund."))

    result = turnlog("chat", "parcel", "-m", "Where is it?")

    assert result.status == 0
    assert result.out.splitlines() == ["small> In Lund.", "12 tokens in, 3 out"]


def test_chat_stores_what_was_said_in_the_session_that_it_makes(
    turnlog: Turnlog, server: ScriptedServer, open_service: OpenService
) -> None:
    server.script(streamed("In Lund."))
    turnlog("chat", "parcel", "-m", "Where is it?")

    with open_service() as sessions:
        told = sessions.view("parcel").told()
    assert [(message.role, message.text) for message in told] == [
        (Role.USER, "Where is it?"),
        (Role.ASSISTANT, "In Lund."),
    ]


def test_what_a_chat_told_the_model_can_be_shown_byte_for_byte(
    turnlog: Turnlog, server: ScriptedServer, tmp_path: Path
) -> None:
    server.script(streamed("In Lund."))
    turnlog("chat", "parcel", "-m", "Where is it?")

    turnlog("audit", "told", "parcel", "--output", tmp_path / "body.json")

    assert (tmp_path / "body.json").read_bytes() == server.requests[0].body


def test_the_log_says_in_words_what_was_recorded_of_a_call(turnlog: Turnlog, server: ScriptedServer) -> None:
    server.script(streamed("In Lund."))
    turnlog("chat", "parcel", "-m", "Where is it?")

    log = turnlog("log", "parcel").out

    assert "small is asked, told the view at version 1" in log
    assert "stop, 12 tokens in, 3 out" in log


def test_chat_goes_on_with_a_session_and_sends_what_was_said_before(
    turnlog: Turnlog, server: ScriptedServer
) -> None:
    server.script(streamed("In Lund."), streamed("Tomorrow."))
    turnlog("chat", "parcel", "-m", "Where is it?")

    turnlog("chat", "parcel", "-m", "When does it come?")

    assert [one["content"] for one in server.requests[-1].json["messages"]] == [
        "Where is it?",
        "In Lund.",
        "When does it come?",
    ]


def test_chat_runs_a_tool_of_the_current_folder(
    turnlog: Turnlog, server: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "chat_weather.py").write_text(FORECAST, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    call = {"index": 0, "id": "c1", "function": {"name": "forecast", "arguments": '{"city": "Lund"}'}}
    server.script(streamed(calls=[call]), streamed("Mild."))

    result = turnlog("chat", "s", "-m", "And the weather?", "--tool", "chat_weather:forecast")

    assert "← forecast: 12 degrees in Lund" in result.out
    assert server.requests[-1].json["messages"][-1]["content"] == "12 degrees in Lund"


@pytest.mark.parametrize("name", ["nothing", "no_such_module:f", "json:no_such_function", "json:__name__"])
def test_a_tool_that_is_no_function_is_refused_before_anything_is_said(
    turnlog: Turnlog, server: ScriptedServer, name: str
) -> None:
    result = turnlog("chat", "s", "-m", "Hi", "--tool", name)

    assert (result.status, server.requests) == (Status.USAGE, [])
    assert name in result.err


def test_chat_sends_instructions_options_and_the_limit_of_the_answer(
    turnlog: Turnlog, server: ScriptedServer
) -> None:
    server.script(streamed("Ja."))

    turnlog(
        "chat", "s", "-m", "Hi", "--system", "Be short.", "--option", "temperature=0", "--option",
        "user=ada", "--max-output", 9,
    )  # fmt: skip

    body = server.requests[0].json
    assert body["messages"][0] == {"role": "system", "content": "Be short."}
    assert (body["temperature"], body["user"], body["max_tokens"]) == (0, "ada", 9)


def test_an_option_without_a_value_is_refused(turnlog: Turnlog, server: ScriptedServer) -> None:
    result = turnlog("chat", "s", "-m", "Hi", "--option", "temperature")

    assert (result.status, server.requests) == (Status.USAGE, [])


def test_chat_compacts_when_the_window_is_nearly_full_and_says_so(
    turnlog: Turnlog, server: ScriptedServer
) -> None:
    long = "a word about the parcel " * 12
    server.script(*(streamed("Yes.", tokens=None) for _ in range(4)))

    said = [argument for n in range(4) for argument in ("-m", f"{n} {long}")]
    result = turnlog("chat", "s", *said, "--window", 200, "--summarizer", "extractive")

    assert "── compacted: " in result.out


def test_a_summarizer_that_asks_the_model_falls_back_to_a_digest(
    turnlog: Turnlog, server: ScriptedServer, open_service: OpenService
) -> None:
    long = "a word about the parcel " * 12
    server.rule = lambda sent: (
        None if sent.json.get("stream") else json_answer({"error": {"message": "no"}}, 400)
    )
    server.script(*(streamed("Yes.", tokens=None) for _ in range(4)))

    turnlog("chat", "s", *(one for n in range(4) for one in ("-m", f"{n} {long}")), "--window", 200)

    with open_service() as sessions:
        summary = next(e for e in sessions.view("s").events if e.synthetic and e.role is Role.ASSISTANT)
    assert (summary.text or "").startswith("Digest of what was said before")


def test_chat_reads_the_message_from_a_pipe(
    turnlog: Turnlog, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("two\nlines\n"))
    server.script(streamed("Ok."))

    turnlog("chat", "s")

    assert server.requests[0].json["messages"][-1]["content"] == "two\nlines"


def test_an_empty_pipe_says_nothing(
    turnlog: Turnlog, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(" \n"))

    assert (turnlog("chat", "s").status, server.requests) == (Status.USAGE, [])


def test_with_json_a_turn_is_one_line(turnlog: Turnlog, server: ScriptedServer) -> None:
    server.script(streamed("In Lund.\x1b[2J"))

    result = turnlog("chat", "s", "-m", "Hi", "--json")

    (line,) = result.out.splitlines()
    turn = json.loads(line)
    assert (turn["session"], turn["text"], turn["finish_reason"]) == ("s", "In Lund.\x1b[2J", "stop")
    assert "\x1b" not in line


def test_what_would_steer_the_terminal_is_shown_instead(turnlog: Turnlog, server: ScriptedServer) -> None:
    server.script(streamed("Look: \x1b[2J", "\u202edone"))

    assert "\x1b[2J" not in turnlog("chat", "s", "-m", "Hi").out


def test_without_a_model_the_command_says_how_to_name_one(
    turnlog: Turnlog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TURNLOG_MODEL", raising=False)

    result = turnlog("chat", "s", "-m", "Hi")

    assert (result.status, "--model or TURNLOG_MODEL" in result.err) == (Status.USAGE, True)


def test_a_provider_that_does_not_exist_is_refused(
    turnlog: Turnlog, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TURNLOG_PROVIDER", "oracle")

    result = turnlog("chat", "s", "-m", "Hi")

    assert (result.status, "openai, responses, anthropic, ollama" in result.err) == (Status.USAGE, True)


def test_the_beginning_of_an_id_is_the_id_of_a_new_session(
    turnlog: Turnlog, server: ScriptedServer, open_service: OpenService
) -> None:
    server.script(streamed("In Lund."), streamed("Hello."))
    turnlog("chat", "parcel", "-m", "Where is it?")

    turnlog("chat", "parc", "-m", "Hi")

    with open_service() as sessions:
        assert [message.text for message in sessions.view("parc").told()] == ["Hi", "Hello."]


def test_an_empty_message_is_refused(turnlog: Turnlog, server: ScriptedServer) -> None:
    assert (turnlog("chat", "s", "-m", " ").status, server.requests) == (Status.USAGE, [])


def test_a_call_without_an_answer_is_not_told_as_one_that_was_sent(
    turnlog: Turnlog, server: ScriptedServer
) -> None:
    turnlog("chat", "s", "-m", "Hi", "--base-url", "http://127.0.0.1:9")

    assert "no answer is recorded" in turnlog("audit", "told", "s").out
    assert "no answer recorded" in turnlog("audit", "timeline", "s").out


def test_a_missing_key_is_named_before_anything_is_stored(
    turnlog: Turnlog, open_service: OpenService, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)

    result = turnlog("chat", "s", "-m", "Hi", "--provider", "anthropic", "--model", "claude")

    assert (result.status, "ANTHROPIC_API_KEY" in result.err) == (Status.USAGE, True)
    with open_service() as sessions:
        assert sessions.find("s") is None


def test_a_server_that_is_not_there_has_a_status_of_its_own(turnlog: Turnlog, server: ScriptedServer) -> None:
    result = turnlog("chat", "s", "-m", "Hi", "--base-url", "http://127.0.0.1:9")

    assert (result.status, result.err.count("\n")) == (Status.UNREACHABLE, 1)


def test_summarize_prints_what_the_model_says_and_stores_nothing(
    turnlog: Turnlog, imported: str, server: ScriptedServer, open_service: OpenService
) -> None:
    server.script(whole("A flight was changed."))
    with open_service() as sessions:
        before = sessions.version(imported)

    result = turnlog("summarize", imported)

    assert result.out == "A flight was changed.\n"
    with open_service() as sessions:
        assert sessions.version(imported) == before


def test_summarize_needs_no_model_for_a_digest(turnlog: Turnlog, imported: str) -> None:
    result = turnlog("summarize", imported, "--summarizer", "extractive", "--json")

    assert result.json["summary"].startswith("Digest of what was said before")


def test_a_session_without_messages_has_no_summary(turnlog: Turnlog, open_service: OpenService) -> None:
    with open_service() as sessions:
        sessions.create("s")

    result = turnlog("summarize", "s", "--summarizer", "extractive")

    assert (result.status, result.out) == (Status.FOUND_OR_NOTHING_TO_DO, "")


def test_compact_can_ask_a_model_for_the_summary(
    turnlog: Turnlog, imported: str, server: ScriptedServer, open_service: OpenService
) -> None:
    server.script(whole("Everything about the flight."))

    turnlog("compact", imported, "--last-turns", 2, "--summarizer", "model")

    with open_service() as sessions:
        told = sessions.view(imported).told()
    assert Message.assistant("Everything about the flight.").text in [message.text for message in told]


def test_the_recursive_strategy_needs_a_summarizer(turnlog: Turnlog, imported: str) -> None:
    refused = turnlog("compact", imported, "--strategy", "recursive")
    done = turnlog("compact", imported, "--strategy", "recursive", "--summarizer", "extractive")

    assert (refused.status, done.status) == (Status.USAGE, Status.DONE)


def test_ctrl_c_stops_the_answer_and_the_chat_goes_on(
    server: ScriptedServer, database: Path, open_service: OpenService
) -> None:
    never = threading.Event()
    server.script(
        Answer([*streamed("One ").chunks[:1], never], content_type="text/event-stream"), streamed("Two.")
    )
    with _Terminal(database) as terminal:
        terminal.type("Count\n", until="> One ")
        terminal.interrupt(until="you> ")
        terminal.type("Go on\n", until="you> ")
        terminal.type("\x04", until="Go on with: turnlog chat count")

    with open_service() as sessions:
        told = [message.text for message in sessions.view("count").told()]
    assert told == ["Count", "One ", "Go on", "Two."]


class _Terminal:
    """`turnlog chat count` on a terminal of its own."""

    def __init__(self, path: Path) -> None:
        self._fd, inner = pty.openpty()
        command = [str(Path(sys.executable).with_name("turnlog")), "chat", "count", "--db", str(path)]
        plain = {**os.environ, "NO_COLOR": "1"}
        self._process = subprocess.Popen(command, stdin=inner, stdout=inner, stderr=inner, env=plain)
        os.close(inner)
        self._said = ""

    def __enter__(self) -> _Terminal:
        self._read("you> ")
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._fd)

    def type(self, text: str, *, until: str) -> None:
        """Type the text and wait until this is shown behind it."""
        self._said = ""
        os.write(self._fd, text.encode())
        self._read(until)

    def interrupt(self, *, until: str) -> None:
        """What Ctrl-C does."""
        self._said = ""
        self._process.send_signal(signal.SIGINT)
        self._read(until)

    def _read(self, until: str) -> None:
        deadline = time.monotonic() + 60
        while until not in self._said:
            assert time.monotonic() < deadline, f"{until!r} was not shown: {self._said}"
            if select.select([self._fd], [], [], 0.1)[0]:
                self._said += os.read(self._fd, 65_536).decode(errors="replace")


@pytest.fixture
def unanswered(turnlog: Turnlog, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> ScriptedServer:
    """The server, after a message was said in session `parcel 7` while none was to be reached."""
    with monkeypatch.context() as away:
        away.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9")
        turnlog("chat", "parcel 7", "-m", "Where is it?")
    return server


def test_a_chat_whose_model_fails_says_how_to_ask_again(
    turnlog: Turnlog, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9")

    result = turnlog("chat", "parcel 7", "-m", "Where is it?")

    assert result.status == Status.UNREACHABLE
    assert result.err.endswith("What was said is stored; to ask again: turnlog chat 'parcel 7' --resume\n")
    told = turnlog("--json", "chat", "parcel 7", "-m", "Hello?").error["message"]
    assert told.endswith("turnlog chat 'parcel 7' --resume")


def test_a_chat_that_is_resumed_asks_again_and_says_nothing_twice(
    turnlog: Turnlog, unanswered: ScriptedServer, open_service: OpenService
) -> None:
    unanswered.script(whole("In Lund."))

    result = turnlog("chat", "parcel", "--resume")

    assert (result.status, result.out.splitlines()[0]) == (0, "small> In Lund.")
    with open_service() as sessions:
        assert [one.text for one in sessions.view("parcel 7").told()] == ["Where is it?", "In Lund."]


def test_a_resumed_chat_shows_the_tools_that_were_used(
    turnlog: Turnlog, unanswered: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "chat_resumed.py").write_text(FORECAST, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    call = {"id": "c1", "type": "function", "function": {"name": "forecast", "arguments": '{"city": "Lund"}'}}
    choice = {"message": {"role": "assistant", "content": None, "tool_calls": [call]}}
    unanswered.script(json_answer({"id": "r", "choices": [choice]}), whole("Mild."))

    result = turnlog("chat", "parcel 7", "--resume", "--tool", "chat_resumed:forecast")

    assert result.out.splitlines() == [
        '→ forecast({"city": "Lund"})',
        "← forecast: 12 degrees in Lund",
        "small> Mild.",
    ]


def test_a_question_that_has_its_answer_is_not_asked_again(turnlog: Turnlog, server: ScriptedServer) -> None:
    server.script(streamed("In Lund."))
    turnlog("chat", "parcel", "-m", "Where is it?")

    result = turnlog("chat", "parcel", "--resume")

    assert (result.status, len(server.requests)) == (Status.FOUND_OR_NOTHING_TO_DO, 1)
    assert "(it was answered before; no model was asked)" in result.out


@pytest.mark.parametrize("arguments", [(), ("parcel", "-m", "Hi")])
def test_a_resumed_chat_needs_a_session_and_no_message(
    turnlog: Turnlog, server: ScriptedServer, arguments: tuple[str, ...]
) -> None:
    result = turnlog("chat", "--resume", *arguments)

    assert (result.status, "--resume says nothing new" in result.err) == (Status.USAGE, True)


def test_a_resumed_chat_makes_no_session(turnlog: Turnlog, unanswered: ScriptedServer) -> None:
    result = turnlog("chat", "other", "--resume")

    assert result.status == Status.NOT_FOUND
    assert [one["id"] for one in turnlog("sessions", "--json").json] == ["parcel 7"]


def test_nothing_can_be_resumed_where_nobody_said_anything(
    turnlog: Turnlog, server: ScriptedServer, open_service: OpenService
) -> None:
    with open_service() as sessions:
        sessions.create("empty")

    result = turnlog("chat", "empty", "--resume")

    assert (result.status, "say one with --message" in result.err) == (Status.BAD_INPUT, True)
