"""Where spans and metrics go, and how one operation becomes a span.

The names are those of the OpenTelemetry GenAI conventions, which are still in development.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from types import TracebackType
from typing import Final, Self

from opentelemetry import context, metrics, trace
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, TracerProvider

from turnlog.application.chat import Usage
from turnlog.domain.messages import Message

CAPTURE: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""The environment variable that opts in to content, as other instrumentations read it."""

OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
CONVERSATION: Final = "gen_ai.conversation.id"
COMPACTED: Final = "gen_ai.conversation.compacted"
"""Set to true where it holds, and nowhere to false."""
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"

_OPTED_IN = ("true", "1", "span_only", "span_and_event")
_SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
_TOKENS = tuple(4**power for power in range(14))
_SESSION = context.create_key("turnlog-session")

Attributes = Mapping[str, str | bool | int | float | list[str]]


class Telemetry:
    """A tracer and the two histograms of the conventions, from the given providers or the global ones.

    Content (messages, arguments and results of tools) is recorded as attributes of spans only when
    `capture_content` says so, or, when that is None, the environment variable of `CAPTURE` (`true`,
    `SPAN_ONLY` or `SPAN_AND_EVENT`). Messages of exceptions are never recorded. `agent_name` names the agent
    of the turns.
    """

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        capture_content: bool | None = None,
        agent_name: str | None = None,
    ) -> None:
        installed = version("turnlog")
        self.tracer = trace.get_tracer("turnlog", installed, tracer_provider)
        meter = metrics.get_meter("turnlog", installed, meter_provider)
        self._duration = meter.create_histogram(
            "gen_ai.client.operation.duration",
            unit="s",
            description="Duration of a call of a model",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        self._usage = meter.create_histogram(
            "gen_ai.client.token.usage",
            unit="{token}",
            description="Tokens that a call of a model used",
            explicit_bucket_boundaries_advisory=_TOKENS,
        )
        if capture_content is None:
            capture_content = os.environ.get(CAPTURE, "").strip().lower() in _OPTED_IN
        self.captures_content = capture_content
        self.agent_name = agent_name

    def start(self, name: str, kind: SpanKind, attributes: Attributes) -> Watched:
        """A span of an operation, as a child of the current one. It becomes current only where it is told."""
        session_id = context.get_value(_SESSION)
        if isinstance(session_id, str) and CONVERSATION not in attributes:
            attributes = {**attributes, CONVERSATION: session_id}
        return Watched(self.tracer.start_span(name, kind=kind, attributes=attributes))

    def record(self, seconds: float, usage: Usage | None, attributes: Attributes) -> None:
        """One call of a model in the metrics. The id of the session is no attribute of them."""
        self._duration.record(seconds, attributes)
        for kind, tokens in (
            ("input", usage.input_tokens if usage else None),
            ("output", usage.output_tokens if usage else None),
        ):
            if tokens is not None:
                self._usage.record(tokens, {**attributes, "gen_ai.token.type": kind})


class Watched:
    """An operation and its span. As a context manager it ends the span, with the error if there was one."""

    def __init__(self, span: Span) -> None:
        self.span = span
        self.error: str | None = None
        self._began = time.perf_counter()

    @property
    def seconds(self) -> float:
        """How long it has taken so far."""
        return time.perf_counter() - self._began

    def say(self, attributes: Attributes) -> None:
        """More attributes."""
        self.span.set_attributes(attributes)

    @contextmanager
    def active(self, session_id: str | None = None) -> Generator[None]:
        """Within it the span is the current one, and calls of models are of this session."""
        inner = trace.set_span_in_context(self.span)
        if session_id is not None:
            inner = context.set_value(_SESSION, session_id, inner)
        token = context.attach(inner)
        try:
            yield
        finally:
            context.detach(token)

    def failed(self, error: BaseException) -> None:
        """The operation ended in this error, of which the class alone is told."""
        self.error = type(error).__qualname__
        self.span.set_attribute("error.type", self.error)
        self.span.set_status(Status(StatusCode.ERROR))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if isinstance(error, Exception):
            self.failed(error)
        self.span.end()


def usage_attributes(usage: Usage | None) -> dict[str, int]:
    """The tokens that were used, as far as the provider said."""
    if usage is None:
        return {}
    figures = {
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read_input_tokens,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_creation_input_tokens,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning_output_tokens,
    }
    return {name: figure for name, figure in figures.items() if figure is not None}


def messages_text(messages: Iterable[Message], **further: str) -> str:
    """Messages as the conventions write them in an attribute: role and parts as JSON."""
    told = [message.to_dict() for message in messages]
    return json.dumps([{"role": one["role"], "parts": one.get("parts", []), **further} for one in told])
