"""Summarizers of the conformance cases: one that returns what the case says, and one that asks a model.

The latter follows the description in the README of the cases; the model-backed summarizer of the library can
take its place here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.support.events import EVENT_FIELDS, Data, message_of, only

from turnlog.domain.compaction import CompactionReason, CompactionSummarizer, Summary, SummaryRequest
from turnlog.domain.errors import InvalidSettingError
from turnlog.domain.log import SessionEvent
from turnlog.domain.messages import Message, Role
from turnlog.domain.rendering import event_text

_SECTION = "\n\n# "
_ENTRY = "\n- "


class SummarizerFailedError(Exception):
    """What a failing summarizer or a failing model raises."""


class GivenSummarizer:
    """Returns these messages, or fails when there are none to return."""

    def __init__(self, messages: Sequence[Message] | None) -> None:
        self.requests: list[SummaryRequest] = []
        self._messages = messages

    def summarize(self, request: SummaryRequest) -> Sequence[Message]:
        """The messages that were given."""
        self.requests.append(request)
        if self._messages is None:
            raise SummarizerFailedError
        return self._messages


class ModelSummarizer:
    """Asks a model for the summary: the shadow prompt and the reply stand for what was covered."""

    def __init__(
        self,
        model: Callable[[str], str | None],
        *,
        overlap_size: int = 2,
        shadow_prompt: str = "What was said so far?",
        on_failure: Callable[[], None],
    ) -> None:
        if overlap_size < 0:
            raise InvalidSettingError(f"`overlap_size` must not be negative, it is {overlap_size}.")
        if not shadow_prompt.strip():
            raise InvalidSettingError("`shadow_prompt` must not be blank.")
        self.requests: list[SummaryRequest] = []
        self.prompts: list[str] = []
        self._model = model
        self._overlap_size = overlap_size
        self._shadow_prompt = shadow_prompt
        self._on_failure = on_failure

    def summarize(self, request: SummaryRequest) -> Summary:
        """The summary turn, or nothing when the model says nothing."""
        self.requests.append(request)
        self.prompts.append(self._prompt(request))
        try:
            reply = self._model(self.prompts[-1])
        except SummarizerFailedError:
            self._on_failure()
            raise
        if reply is None or not reply.strip():
            self._on_failure()
            return Summary(declined=CompactionReason.SUMMARY_BLANK)
        return Summary((Message.user(self._shadow_prompt), Message.assistant(reply)))

    def _prompt(self, request: SummaryRequest) -> str:
        quoted = {
            "prior_summary": [event for event in request.prior_summary if event.role is not Role.USER],
            "conversation": request.covered,
            "overlap": request.preserved[: self._overlap_size],
        }
        return _SECTION.join("".join((name, *map(_entry, events))) for name, events in quoted.items())


def prompt_sections(prompt: str) -> dict[str, list[str]]:
    """The renderings in each section of a prompt, in order."""
    sections: dict[str, list[str]] = {}
    for section in prompt.split(_SECTION):
        name, *renderings = section.split(_ENTRY)
        sections[name] = renderings
    return sections


class CalledSummarizer:
    """The summarizer of one case, and whether its model and its failure callback were called."""

    def __init__(self, data: Data) -> None:
        self.failures = 0
        self.summarizer: GivenSummarizer | ModelSummarizer | None = None
        self._data = data

    def build(self) -> CompactionSummarizer:
        """The summarizer with the settings of the case, which may be refused."""
        data = self._data
        if "returns" in data or "raises" in data:
            only(data, ("returns", "raises"))
            returned = [message_of(only(message, EVENT_FIELDS)) for message in data.get("returns", ())]
            self.summarizer = GivenSummarizer(None if data.get("raises") else returned)
        else:
            only(data, ("model_reply", "model_raises", "overlap_size", "shadow_prompt"))
            settings = {name: data[name] for name in ("overlap_size", "shadow_prompt") if name in data}
            self.summarizer = ModelSummarizer(_model(data), on_failure=self._failed, **settings)
        return self.summarizer

    @property
    def request(self) -> SummaryRequest | None:
        """What the summarizer was given, None when it was not called."""
        return self.summarizer.requests[-1] if self.summarizer and self.summarizer.requests else None

    @property
    def prompt(self) -> str:
        """What the model was asked."""
        assert isinstance(self.summarizer, ModelSummarizer)
        return self.summarizer.prompts[-1]

    def _failed(self) -> None:
        self.failures += 1


def returned_messages(data: Data | None) -> list[Data]:
    """The messages that the summarizer of a case returns, with what they cost."""
    return list(data.get("returns", ())) if data else []


def _model(data: Data) -> Callable[[str], str | None]:
    def model(_: str) -> str | None:
        if data.get("model_raises"):
            raise SummarizerFailedError
        reply: str | None = data["model_reply"]
        return reply

    return model


def _entry(event: SessionEvent) -> str:
    return _ENTRY + event_text(event)
