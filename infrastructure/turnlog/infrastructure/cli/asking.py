"""Which model the commands ask: options, and the environment where they do not say it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from turnlog.application.chat import ChatModel, ChatModelSummarizer
from turnlog.domain.compaction import CompactionSummarizer
from turnlog.domain.extractive import ExtractiveSummarizer
from turnlog.domain.fallback import FallbackSummarizer
from turnlog.infrastructure.cli.failures import CommandUsageError
from turnlog.infrastructure.cli.options import ProviderName, SummarizerName
from turnlog.infrastructure.models import (
    AnthropicChatModel,
    HttpChatModel,
    OllamaChatModel,
    OpenAIChatModel,
    OpenAIResponsesModel,
)

_MODELS: Final[Mapping[ProviderName, Callable[..., HttpChatModel]]] = {
    ProviderName.OPENAI: OpenAIChatModel,
    ProviderName.RESPONSES: OpenAIResponsesModel,
    ProviderName.ANTHROPIC: AnthropicChatModel,
    ProviderName.OLLAMA: OllamaChatModel,
}


@dataclass(frozen=True)
class Asked:
    """The model that is asked, as the options of a command name it."""

    provider: ProviderName | None = None
    model: str | None = None
    base_url: str | None = None
    options: Sequence[str] = field(default=())
    window: int | None = None

    def chat_model(self) -> ChatModel:
        """The model itself. Raises `CommandUsageError` when nothing names it, `MissingKeyError`."""
        name = self.model or os.environ.get("TURNLOG_MODEL")
        if not name:
            raise CommandUsageError("Which model is asked? Name it with --model or TURNLOG_MODEL.")
        model = _MODELS[self._provider()](name, base_url=self.base_url)
        model.require_key()
        return model

    def parameters(self) -> Mapping[str, Any]:
        """The parameters for the API: the value of each option as JSON where it is some, else as text."""
        found: dict[str, Any] = {}
        for option in self.options:
            name, equals, value = option.partition("=")
            if not equals or not name.strip():
                raise CommandUsageError(f"--option takes NAME=VALUE, as in temperature=0, not {option!r}.")
            try:
                found[name.strip()] = json.loads(value)
            except ValueError:
                found[name.strip()] = value
        return found

    def summarizer(self, name: SummarizerName) -> CompactionSummarizer | None:
        """The summarizer of this name; None for `none`."""
        match name:
            case SummarizerName.NONE:
                return None
            case SummarizerName.EXTRACTIVE:
                return ExtractiveSummarizer()
            case SummarizerName.MODEL:
                return self._model_summarizer()
            case SummarizerName.FALLBACK:
                return FallbackSummarizer(self._model_summarizer(), ExtractiveSummarizer())

    def _model_summarizer(self) -> ChatModelSummarizer:
        return ChatModelSummarizer(
            model=self.chat_model(), context_window=self.window, options=self.parameters()
        )

    def _provider(self) -> ProviderName:
        if self.provider is not None:
            return self.provider
        name = os.environ.get("TURNLOG_PROVIDER") or ProviderName.OPENAI
        try:
            return ProviderName(name)
        except ValueError:
            known = ", ".join(ProviderName)
            raise CommandUsageError(f"TURNLOG_PROVIDER is {name!r}; it can be {known}.") from None
