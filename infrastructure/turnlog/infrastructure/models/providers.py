"""The chat models by provider, with the environment variables that people have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict, Unpack

from turnlog.application.chat import ChatRequest
from turnlog.infrastructure.models import addresses, anthropic_messages, ollama, openai_chat
from turnlog.infrastructure.models.anthropic_messages import AnthropicMessagesCodec
from turnlog.infrastructure.models.exchange import Limits
from turnlog.infrastructure.models.http_model import AsyncHttpChatModel, HttpChatModel, environment
from turnlog.infrastructure.models.ollama import OllamaCodec
from turnlog.infrastructure.models.openai_chat import OpenAIChatCodec
from turnlog.infrastructure.models.openai_responses import OpenAIResponsesCodec
from turnlog.infrastructure.models.retrying import RetryPolicy
from turnlog.infrastructure.models.transport import AsyncHttpClient, HttpClient


class _Settings(TypedDict, total=False):
    api_key: str | None
    headers: Mapping[str, str] | None
    limits: Limits | None
    retry: RetryPolicy | None


class Settings(_Settings, total=False):
    """What every sync model takes by keyword, see `HttpChatModel`."""

    client: HttpClient | None


class AsyncSettings(_Settings, total=False):
    """What every async model takes by keyword."""

    client: AsyncHttpClient | None


def _openai_url(base_url: str | None) -> str:
    return base_url or environment("OPENAI_BASE_URL") or openai_chat.BASE_URL


def _anthropic_url(base_url: str | None) -> str:
    return base_url or environment("ANTHROPIC_BASE_URL") or anthropic_messages.BASE_URL


def _ollama_url(base_url: str | None) -> str:
    return addresses.of_ollama(base_url or environment("OLLAMA_HOST") or ollama.BASE_URL)


def _responses(url: str) -> OpenAIResponsesCodec:
    return OpenAIResponsesCodec(url)


def _anthropic(url: str, betas: tuple[str, ...]) -> AnthropicMessagesCodec:
    return AnthropicMessagesCodec(url, betas=betas)


class OpenAIChatModel(HttpChatModel):
    """OpenAI Chat Completions, and every server that speaks it.

    Address and key are `OPENAI_BASE_URL` and `OPENAI_API_KEY` where they are not given. `provider` names the
    provider in what is stored, where the base URL does not tell.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        provider: str | None = None,
        **settings: Unpack[Settings],
    ) -> None:
        url = _openai_url(base_url)
        super().__init__(OpenAIChatCodec(url, provider), model, base_url=url, **settings)


class AsyncOpenAIChatModel(AsyncHttpChatModel):
    """`OpenAIChatModel` for asyncio."""

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        provider: str | None = None,
        **settings: Unpack[AsyncSettings],
    ) -> None:
        url = _openai_url(base_url)
        super().__init__(OpenAIChatCodec(url, provider), model, base_url=url, **settings)


class OpenAIResponsesModel(HttpChatModel):
    """OpenAI Responses, without any state at the provider.

    Address and key are `OPENAI_BASE_URL` and `OPENAI_API_KEY` where they are not given.
    """

    def __init__(self, model: str, *, base_url: str | None = None, **settings: Unpack[Settings]) -> None:
        url = _openai_url(base_url)
        super().__init__(_responses(url), model, base_url=url, **settings)


class AsyncOpenAIResponsesModel(AsyncHttpChatModel):
    """`OpenAIResponsesModel` for asyncio."""

    def __init__(self, model: str, *, base_url: str | None = None, **settings: Unpack[AsyncSettings]) -> None:
        url = _openai_url(base_url)
        super().__init__(_responses(url), model, base_url=url, **settings)


class AnthropicChatModel(HttpChatModel):
    """Anthropic Messages.

    Address and key are `ANTHROPIC_BASE_URL` and `ANTHROPIC_API_KEY` where they are not given. `betas` are
    sent in the header `anthropic-beta`.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        betas: tuple[str, ...] = (),
        **settings: Unpack[Settings],
    ) -> None:
        url = _anthropic_url(base_url)
        super().__init__(_anthropic(url, betas), model, base_url=url, **settings)


class AsyncAnthropicChatModel(AsyncHttpChatModel):
    """`AnthropicChatModel` for asyncio."""

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        betas: tuple[str, ...] = (),
        **settings: Unpack[AsyncSettings],
    ) -> None:
        url = _anthropic_url(base_url)
        super().__init__(_anthropic(url, betas), model, base_url=url, **settings)


class OllamaChatModel(HttpChatModel):
    """Ollama's own API. Its address is `OLLAMA_HOST` where it is not given, else the loopback."""

    def __init__(self, model: str, *, base_url: str | None = None, **settings: Unpack[Settings]) -> None:
        self._ollama = OllamaCodec()
        super().__init__(self._ollama, model, base_url=_ollama_url(base_url), **settings)

    def _demanded(self, request: ChatRequest) -> frozenset[str]:
        return ollama.demanded_window(self._ollama, self._target.url, request, self._model)


class AsyncOllamaChatModel(AsyncHttpChatModel):
    """`OllamaChatModel` for asyncio."""

    def __init__(self, model: str, *, base_url: str | None = None, **settings: Unpack[AsyncSettings]) -> None:
        self._ollama = OllamaCodec()
        super().__init__(self._ollama, model, base_url=_ollama_url(base_url), **settings)

    def _demanded(self, request: ChatRequest) -> frozenset[str]:
        return ollama.demanded_window(self._ollama, self._target.url, request, self._model)
