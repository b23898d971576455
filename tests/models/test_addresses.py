"""Base URLs as people write them."""

from __future__ import annotations

import pytest

from turnlog.domain.errors import InvalidSettingError
from turnlog.infrastructure.models import OllamaChatModel, OpenAIChatModel
from turnlog.infrastructure.models.addresses import base, endpoint, of_ollama, shown


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ("https://api.openai.com/v1", "https://api.openai.com/v1/chat/completions"),
        ("https://api.openai.com/v1/", "https://api.openai.com/v1/chat/completions"),
        ("https://api.openai.com", "https://api.openai.com/v1/chat/completions"),
        ("http://localhost:8080", "http://localhost:8080/v1/chat/completions"),
        ("https://api.groq.com/openai", "https://api.groq.com/openai/v1/chat/completions"),
        ("https://api.groq.com/openai/v1", "https://api.groq.com/openai/v1/chat/completions"),
        ("https://host/v1beta/openai/", "https://host/v1beta/openai/chat/completions"),
        ("https://host/api/v3", "https://host/api/v3/chat/completions"),
        ("https://host/v1/chat/completions", "https://host/v1/chat/completions"),
        ("https://host/chat/completions", "https://host/chat/completions"),
        (
            "https://x.openai.azure.com/openai/deployments/d?api-version=1",
            "https://x.openai.azure.com/openai/deployments/d/chat/completions?api-version=1",
        ),
    ],
)
def test_v1_is_added_where_no_version_is_named(given: str, asked: str) -> None:
    assert endpoint(base(given), "/chat/completions") == asked


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("127.0.0.1", "http://127.0.0.1:11434"),
        ("localhost:1234", "http://localhost:1234"),
        (":1234", "http://127.0.0.1:1234"),
        ("0.0.0.0", "http://127.0.0.1:11434"),  # noqa: S104 - what people set
        ("0.0.0.0:1234", "http://127.0.0.1:1234"),
        ("http://0.0.0.0:1234", "http://127.0.0.1:1234"),
        ("http://ollama:11434/", "http://ollama:11434"),
        ("https://ollama.example", "https://ollama.example"),
        ("http://ollama.example", "http://ollama.example"),
        ("https://host/ollama", "https://host/ollama"),
        ("::1", "http://[::1]:11434"),
        ("[::1]:1234", "http://[::1]:1234"),
        ("[::]:1234", "http://[::1]:1234"),
        (' "localhost" ', "http://localhost:11434"),
        ("ollama.example/sub", "http://ollama.example:11434/sub"),
    ],
)
def test_a_host_of_ollama_is_understood_in_all_forms(given: str, meant: str) -> None:
    assert of_ollama(given) == meant


NOT_AN_ADDRESS = ["localhost:8080", "api.openai.com/v1", "ftp://host", "", "http://", "http://a b"]


@pytest.mark.parametrize("given", NOT_AN_ADDRESS)
def test_what_is_no_address_is_refused_with_an_example(given: str) -> None:
    with pytest.raises(InvalidSettingError, match=r"begins with http:// or https://"):
        base(given)


def test_a_port_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidSettingError):
        of_ollama("localhost:many")


def test_a_shown_address_has_no_password_and_no_query() -> None:
    assert shown("https://ada:secret@host:1/v1?key=secret") == "https://host:1/v1"


def test_address_and_key_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://gateway:4000")
    monkeypatch.setenv("OLLAMA_HOST", "box:1234")
    assert repr(OpenAIChatModel("gpt-5")) == "OpenAIChatModel('gpt-5', base_url='http://gateway:4000')"
    assert repr(OllamaChatModel("qwen3")) == "OllamaChatModel('qwen3', base_url='http://box:1234')"


def test_a_model_needs_a_name() -> None:
    with pytest.raises(InvalidSettingError, match="name of the model"):
        OpenAIChatModel(" ")
