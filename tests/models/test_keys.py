"""Keys go to the server and nowhere else."""

from __future__ import annotations

import copy
import logging
import pickle
import traceback
from collections.abc import Callable, Iterator

import pytest
from tests.models.answers import ASKED, IN_LUND, chunk, streamed, whole
from tests.support.asking import Ask
from tests.support.scripted_server import Answer, ScriptedServer, json_answer, sse_answer

from turnlog.application.chat import MissingKeyError, ModelError
from turnlog.domain.errors import InvalidSettingError
from turnlog.infrastructure import models
from turnlog.infrastructure.models import AnthropicChatModel, OpenAIChatModel, OpenAIResponsesModel
from turnlog.infrastructure.models.masking import Secrets, excerpt

KEY = "tl0123456789abcdef"
CHAT = "OpenAIChat"


def echo(status: int) -> Answer:
    error = {"message": f"Incorrect API key provided: {KEY}", "code": f"bad_{KEY}", "type": "x"}
    return json_answer({"error": error}, status)


def escaped(text: str) -> str:
    """The text in JSON, each character escaped."""
    return "".join(f"\\u{ord(one):04x}" for one in text)


ECHOES: dict[str, Answer] = {
    "refused": echo(401),
    "busy": echo(503),
    "error with status 200": echo(200),
    "html": Answer([f"<html>{KEY}".encode()], content_type="text/html"),
    "overflow": json_answer({"error": {"message": f"prompt is too long {KEY}"}}, 400),
    "error event": sse_answer(chunk({"content": "a"}), {"error": {"message": KEY, "code": 500}}),
    "bearer": json_answer({"error": {"message": f"got 'Bearer {KEY}'"}}, 400),
}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("answer", ECHOES.values(), ids=ECHOES.keys())
def test_a_key_that_a_server_repeats_is_in_no_error(
    ask: Ask, server: ScriptedServer, answer: Answer, stream: bool
) -> None:
    server.script(*[answer] * 4)
    error = ask(CHAT, ASKED, stream=stream, api_key=KEY).error
    assert error
    shown = [str(error), repr(error), repr(vars(error)), "".join(traceback.format_exception(error))]
    assert not any(KEY in text for text in shown)
    assert KEY.encode() not in pickle.dumps(error)


def test_a_header_that_a_server_repeats_is_in_no_error(ask: Ask, server: ScriptedServer) -> None:
    server.script(echo(401))
    error = ask(CHAT, ASKED, headers={"x-gateway": f"Token {KEY}"}).error
    assert error
    assert KEY not in str(error)


def test_no_error_leads_to_the_headers_of_a_request(ask: Ask, server: ScriptedServer) -> None:
    server.stop()
    error = ask(CHAT, ASKED, api_key=KEY).error
    assert isinstance(error, ModelError)
    assert not any(hasattr(one, "request") for one in chain(error))


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error and all that it was raised from or while handling."""
    while error:
        yield error
        error = error.__cause__ or error.__context__


def test_no_log_holds_a_key_or_what_was_said(
    ask: Ask, server: ScriptedServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.script(json_answer({"error": {"message": "busy"}}, 503), streamed(*IN_LUND))
    with caplog.at_level(logging.DEBUG):
        ask(CHAT, ASKED, stream=True, api_key=KEY)
    ours = [record.getMessage() for record in caplog.records if record.name == "turnlog"]
    assert not any("parcel" in text or "Lund" in text for text in ours)
    assert KEY not in caplog.text


def fields_of(model: object) -> str:
    return repr(vars(model))


SHOWN: list[Callable[[object], str]] = [repr, str, fields_of]


@pytest.mark.parametrize("show", SHOWN)
def test_a_model_does_not_show_its_key(show: Callable[[object], str]) -> None:
    model = OpenAIChatModel(
        "gpt-5", base_url=f"http://ada:{KEY}@host/v1?k={KEY}", api_key=KEY, headers={"x": KEY}
    )
    if show is repr:
        assert show(model) == "OpenAIChatModel('gpt-5', base_url='http://host/v1')"
    assert f"'{KEY}'" not in show(model)


@pytest.mark.parametrize("duplicate", [pickle.dumps, copy.deepcopy, copy.copy])
def test_a_model_is_not_pickled(duplicate: Callable[[object], object]) -> None:
    with pytest.raises(TypeError, match="build it anew"):
        duplicate(OpenAIChatModel("gpt-5", api_key=KEY))


def test_secrets_are_not_pickled() -> None:
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(Secrets(KEY))


def test_a_key_goes_to_the_server(ask: Ask, server: ScriptedServer) -> None:
    server.script(whole())
    ask(CHAT, ASKED, api_key=f" {KEY}\n", headers={"x-title": "turnlog"})
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert server.requests[0].headers["x-title"] == "turnlog"


def test_a_key_of_the_environment_is_used(
    ask: Ask, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    server.script(whole())
    ask(CHAT, ASKED)
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"


def test_a_server_of_ones_own_needs_no_key(
    ask: Ask, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    server.script(whole())
    assert ask(CHAT, ASKED).answer.message.text == "In Lund."
    assert "authorization" not in server.requests[0].headers


@pytest.mark.parametrize("model", [OpenAIChatModel, OpenAIResponsesModel, AnthropicChatModel])
def test_a_provider_that_needs_a_key_is_not_asked_without(
    model: type[models.OpenAIChatModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    with model("a-model") as asked, pytest.raises(MissingKeyError, match=r"set (OPENAI|ANTHROPIC)_API_KEY"):
        asked.complete(asked.render(ASKED))


@pytest.mark.parametrize("key", ["two\nlines", "ключ-ключ", "nul\x00nul"])
def test_a_key_that_no_header_can_hold_is_refused_without_being_shown(key: str) -> None:
    with pytest.raises(InvalidSettingError, match="how it was copied") as raised:
        OpenAIChatModel("gpt-5", api_key=key)
    assert key not in str(raised.value)


@pytest.mark.parametrize("text", ["sk-proj-abc123***xyz", "Bearer abcdef0123", "bearer abcdef0123"])
def test_what_looks_like_a_key_is_hidden(text: str) -> None:
    assert Secrets(None).masked(f"no: {text}, sorry") == "no: ***, sorry"


def test_an_excerpt_is_short_and_on_one_line() -> None:
    assert excerpt(" a\n\tb ") == "a b"
    assert len(excerpt("x" * 1000)) < 210


def test_an_excerpt_says_that_it_was_cut_whatever_it_leaves() -> None:
    assert excerpt(" " * 790 + "x" * 100) == "x" * 10 + " …"


CUT_ECHOES: dict[str, Answer] = {
    "error with status 200": json_answer({"error": {"message": "x" * 189 + KEY}}),
    "error event": sse_answer({"error": {"message": "x" * 189 + KEY}}),
    "no JSON": sse_answer("x" * 189 + KEY),
    "escaped": Answer([b'{"error": {"message": "%s"}}' % ("x" * 189 + escaped(KEY)).encode()], 401),
    "blanks": json_answer({"error": {"message": " " * 789 + KEY}}, 200),
}


@pytest.mark.parametrize("answer", CUT_ECHOES.values(), ids=CUT_ECHOES.keys())
def test_not_even_the_beginning_of_a_key_is_in_an_error(
    ask: Ask, server: ScriptedServer, answer: Answer
) -> None:
    server.script(*[answer] * 4)
    error = ask(CHAT, ASKED, stream=True, api_key=KEY).error
    assert error
    assert KEY[:6] not in str(error)
