"""The summarizers that ask a chat model, one that blocks and one for asyncio. Both take the same steps."""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, TypeAlias, cast

from turnlog.application.chat.errors import ContextOverflowError
from turnlog.application.chat.model import AsyncChatModel, ChatModel, ChatReply, ChatRequest, FinishReason
from turnlog.application.chat.model_check import check_model
from turnlog.application.chat.usage import Usage
from turnlog.domain.compaction import CompactionReason, Summary, SummaryRequest, require_positive
from turnlog.domain.errors import InvalidSettingError
from turnlog.domain.folding import Folding
from turnlog.domain.messages import Message
from turnlog.domain.rendering import event_text
from turnlog.domain.summarizing import (
    INSTRUCTIONS,
    SHADOW_PROMPT,
    EventFormatter,
    FailureCallback,
    SummaryPrompt,
    check_summarizer_settings,
)

SummarySteps: TypeAlias = Generator[ChatRequest, tuple[ChatReply, str], Summary]
"""Yields what to ask the model, is sent its answer and the hash of the request, and returns the summary."""

_THOUGHTS = re.compile(r"\s*<(think|thinking|thought|reasoning)>.*?(</\1>|\Z)", re.DOTALL | re.IGNORECASE)
_END_OF_THOUGHTS = re.compile(r"</(?:think|thinking|thought|reasoning)>", re.IGNORECASE)
_THOUGHT_TAG = re.compile(r"<(?:think|thinking|thought|reasoning)>", re.IGNORECASE)
_TOOL_OPTIONS = frozenset(("tools", "tool_choice", "functions", "function_call", "parallel_tool_calls"))

_REFUSED = {
    FinishReason.LENGTH: CompactionReason.SUMMARY_TRUNCATED,
    FinishReason.CONTENT_FILTER: CompactionReason.SUMMARY_REFUSED,
    FinishReason.TOOL_CALL: CompactionReason.SUMMARY_CALLS_TOOLS,
    FinishReason.ERROR: CompactionReason.SUMMARY_INTERRUPTED,
    FinishReason.CANCELLED: CompactionReason.SUMMARY_INTERRUPTED,
}


@dataclass(frozen=True, kw_only=True)
class _Settings:
    """What both summarizers can be told, and the steps that they take."""

    overlap_size: int = 2
    shadow_prompt: str = SHADOW_PROMPT
    instructions: str = INSTRUCTIONS
    format_event: EventFormatter = event_text
    on_failure: FailureCallback | None = None
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    max_output_tokens: int = 2_048
    max_summary_tokens: int = 2_048
    context_window: int | None = None
    max_calls: int = 20

    def __post_init__(self) -> None:
        check_summarizer_settings(self.overlap_size, self.shadow_prompt)
        for name in ("max_output_tokens", "max_summary_tokens", "max_calls"):
            require_positive(f"`{name}`", getattr(self, name))
        if self.context_window is not None:
            require_positive("`context_window`", self.context_window)
        tools = sorted(_TOOL_OPTIONS & self.options.keys())
        if tools:
            raise InvalidSettingError(f"A summarizer is given no tools: leave out the option {tools[0]!r}.")

    def _steps(self, request: SummaryRequest, model: str) -> SummarySteps:
        """Fold what is covered in as few calls as the window allows; keep what the last whole turn gave."""
        folding = Folding(
            request,
            instructions=self.instructions,
            format_event=self.format_event,
            overlap_size=self.overlap_size,
            answer_tokens=self.max_output_tokens,
            window=self.context_window,
        )
        made = _Made(self, model)
        while not folding.is_done:
            prompt = folding.next_prompt()
            if prompt is None or made.calls == self.max_calls:
                self._failed(None)
                return made.summary(request, _too_small(folding))
            try:
                reply, prompt_hash = yield self._question(prompt)
            except ContextOverflowError as error:
                if folding.shrink(error.limit, error.sent):
                    continue
                self._failed(error)
                return made.summary(request, _too_small(folding))
            except Exception as error:
                self._failed(error)
                if not made.is_settled:
                    raise
                return made.summary(request, Summary(detail=type(error).__name__))
            made.add(reply, prompt_hash)
            text = _said(reply)
            messages = (Message.user(self.shadow_prompt), Message.assistant(text))
            refusal = self._refusal(reply, text, messages, request)
            if refusal is not None:
                self._failed(None)
                return made.summary(request, refusal)
            stop = folding.fold(text)
            if stop is not None and request.cost_of(*messages) < request.replaced_cost(stop):
                made.settle(messages, stop)
        if not made.is_settled:
            self._failed(None)
        return made.summary(request, Summary(declined=CompactionReason.SUMMARY_NOT_SMALLER))

    def _question(self, prompt: SummaryPrompt) -> ChatRequest:
        return ChatRequest(
            (Message.user(prompt.user),),
            system=prompt.system,
            max_output_tokens=self.max_output_tokens,
            options=self.options,
        )

    def _refusal(
        self, reply: ChatReply, text: str, messages: tuple[Message, ...], request: SummaryRequest
    ) -> Summary | None:
        """Why this answer is no summary; None for one that is."""
        if reply.message.tool_calls:
            return Summary(declined=CompactionReason.SUMMARY_CALLS_TOOLS)
        if reply.finish_reason in _REFUSED:
            return Summary(declined=_REFUSED[reply.finish_reason])
        if not text.strip():
            return Summary(declined=CompactionReason.SUMMARY_BLANK)
        cost = request.cost_of(*messages)
        if cost > self.max_summary_tokens:
            detail = f"it has {cost:,} tokens, the limit is {self.max_summary_tokens:,}"
            return Summary(declined=CompactionReason.SUMMARY_OVER_LIMIT, detail=detail)
        return None

    def _failed(self, error: Exception | None) -> None:
        if self.on_failure:
            self.on_failure(error)


@dataclass(frozen=True)
class ChatModelSummarizer(_Settings):
    """Asks a chat model for one summary of the covered turns and the prior summary.

    The transcript is one fenced text; no tools are offered, and what the model thinks is left out. The first
    `overlap_size` events behind it are quoted. What is larger than `context_window` (tokens by the service's
    estimator; None: unknown) is folded in several calls, `max_calls` at most, each given the summary so far;
    when that ends early, the summary says how much it has seen, and the other turns stay. `options` are the
    provider's. `max_output_tokens` is sent, and what a model thinks counts in it; `max_summary_tokens` is
    what a summary may cost in the view. A server that finds a prompt too large is asked again with less.

    Declines with a reason when the answer is blank, cut, refused, too long, asks for tools, or is not smaller
    than what it would replace; raises what the model raises. Both call `on_failure` first: with the
    exception, or with None.
    """

    model: ChatModel

    def __post_init__(self) -> None:
        super().__post_init__()
        check_model(self.model, is_async=False)

    def summarize(self, request: SummaryRequest) -> Summary:
        """The model's summary of the covered turns and the prior summary."""
        steps = self._steps(request, self.model.model)
        try:
            question = next(steps)
            while True:
                try:
                    rendered = self.model.render(question)
                    reply = self.model.complete(rendered)
                except Exception as error:
                    question = steps.throw(error)
                else:
                    question = steps.send((reply, sha256(rendered.body).hexdigest()))
        except StopIteration as done:
            return cast("Summary", done.value)


@dataclass(frozen=True)
class AsyncChatModelSummarizer(_Settings):
    """`ChatModelSummarizer` for asyncio, for `AsyncSessionService.compact`, which awaits it."""

    model: AsyncChatModel

    def __post_init__(self) -> None:
        super().__post_init__()
        check_model(self.model, is_async=True)

    async def summarize(self, request: SummaryRequest) -> Summary:
        """The model's summary of the covered turns and the prior summary."""
        steps = self._steps(request, self.model.model)
        try:
            question = next(steps)
            while True:
                try:
                    rendered = self.model.render(question)
                    reply = await self.model.complete(rendered)
                except Exception as error:
                    question = steps.throw(error)
                else:
                    question = steps.send((reply, sha256(rendered.body).hexdigest()))
        except StopIteration as done:
            return cast("Summary", done.value)


class _Made:
    """What the calls gave so far: the summary behind the last whole turn, and what is known of its making."""

    def __init__(self, maker: object, model: str) -> None:
        self.calls = 0
        self._name = type(maker).__name__
        self._model = model
        self._usage: dict[str, int] = {}
        self._hashes: list[str] = []
        self._settled: Summary | None = None

    @property
    def is_settled(self) -> bool:
        """Whether there is a summary of some whole turns."""
        return self._settled is not None

    def add(self, reply: ChatReply, prompt_hash: str) -> None:
        """Count an answer in."""
        self.calls += 1
        self._hashes.append(prompt_hash)
        self._model = reply.model or self._model
        for name, value in (reply.usage or Usage()).to_dict().items():
            if isinstance(value, int):
                self._usage[name] = self._usage.get(name, 0) + value

    def settle(self, messages: tuple[Message, ...], covers: int) -> None:
        """Keep the summary of so many events; its hash is that of the requests that led to it."""
        hashes = self._hashes
        prompt_hash = hashes[0] if len(hashes) == 1 else sha256("\n".join(hashes).encode()).hexdigest()
        self._settled = Summary(messages, covers=covers, prompt_sha256=prompt_hash)

    def summary(self, request: SummaryRequest, otherwise: Summary) -> Summary:
        """What was settled, else the other one. All calls that were made are counted in."""
        if self._settled is None:
            return otherwise
        covers = self._settled.covers
        early = covers is not None and covers < len(request.covered)
        why = otherwise.detail or str(otherwise.declined)
        return replace(
            self._settled,
            summarizer=self._name,
            model=self._model,
            usage=self._usage or None,
            calls=self.calls,
            detail=f"covers {covers} of {len(request.covered)} messages: {why}" if early else "",
        )


def _too_small(folding: Folding) -> Summary:
    return Summary(declined=CompactionReason.SUMMARIZER_WINDOW_TOO_SMALL, detail=folding.sizes)


def _said(reply: ChatReply) -> str:
    """The text of the answer, without what a model thought in front of it in tags."""
    text = reply.message.text or ""
    while found := _THOUGHTS.match(text):
        text = text[found.end() :]
    end = _END_OF_THOUGHTS.search(text)  # some templates open the tag in the prompt, so only its end comes
    if end and not _THOUGHT_TAG.search(text, 0, end.start()):
        text = text[end.end() :]
    return text.strip()
