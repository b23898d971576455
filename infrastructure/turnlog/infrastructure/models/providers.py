"""The chat models by provider, with the environment variables that people have."""

from __future__ import annotations

from collections.abc import Mapping

from turnlog.application.chat import ChatRequest
from turnlog.infrastructure.models import addresses, ollama, openai_chat
from turnlog.infrastructure.models.exchange import Limits
from turnlog.infrastructure.models.http_model import AsyncHttpChatModel, HttpChatModel, environment
from turnlog.infrastructure.models.ollama import OllamaCodec
from turnlog.infrastructure.models.openai_chat import OpenAIChatCodec
from turnlog.infrastructure.models.retrying import RetryPolicy
from turnlog.infrastructure.models.transport import AsyncHttpClient, HttpClient


def _openai_url(base_url: str | None) -> str:
    return base_url or environment("OPENAI_BASE_URL") or openai_chat.BASE_URL


class OpenAIChatModel(HttpChatModel):
    """OpenAI Chat Completions, and every server that speaks it.

    Address and key are `OPENAI_BASE_URL` and `OPENAI_API_KEY` where they are not given. `provider` names the
    provider in what is stored where the base URL does not say it.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        provider: str | None = None,
        headers: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        retry: RetryPolicy | None = None,
        client: HttpClient | None = None,
    ) -> None:
        url = _openai_url(base_url)
        super().__init__(
            OpenAIChatCodec(url, provider),
            model,
            base_url=url,
            api_key=api_key,
            headers=headers,
            limits=limits,
            retry=retry,
            client=client,
        )


class AsyncOpenAIChatModel(AsyncHttpChatModel):
    """`OpenAIChatModel` for asyncio."""

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        provider: str | None = None,
        headers: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        retry: RetryPolicy | None = None,
        client: AsyncHttpClient | None = None,
    ) -> None:
        url = _openai_url(base_url)
        super().__init__(
            OpenAIChatCodec(url, provider),
            model,
            base_url=url,
            api_key=api_key,
            headers=headers,
            limits=limits,
            retry=retry,
            client=client,
        )


def _ollama_url(base_url: str | None) -> str:
    return addresses.of_ollama(base_url or environment("OLLAMA_HOST") or ollama.BASE_URL)


class OllamaChatModel(HttpChatModel):
    """Ollama's own API. Its address is `OLLAMA_HOST` where it is not given, else the loopback."""

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        retry: RetryPolicy | None = None,
        client: HttpClient | None = None,
    ) -> None:
        self._ollama = OllamaCodec()
        super().__init__(
            self._ollama,
            model,
            base_url=_ollama_url(base_url),
            api_key=api_key,
            headers=headers,
            limits=limits,
            retry=retry,
            client=client,
        )

    def _demanded(self, request: ChatRequest) -> frozenset[str]:
        return ollama.demanded_window(self._ollama, self._target.url, request, self._model)


class AsyncOllamaChatModel(AsyncHttpChatModel):
    """`OllamaChatModel` for asyncio."""

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        retry: RetryPolicy | None = None,
        client: AsyncHttpClient | None = None,
    ) -> None:
        self._ollama = OllamaCodec()
        super().__init__(
            self._ollama,
            model,
            base_url=_ollama_url(base_url),
            api_key=api_key,
            headers=headers,
            limits=limits,
            retry=retry,
            client=client,
        )

    def _demanded(self, request: ChatRequest) -> frozenset[str]:
        return ollama.demanded_window(self._ollama, self._target.url, request, self._model)
