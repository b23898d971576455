"""The codec of Ollama's own chat API, which can say how large the window is and that nothing may be cut."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from threading import Lock
from typing import Any, Literal, cast

from turnlog.application.chat import (
    ChatDelta,
    ChatReply,
    ChatRequest,
    ContextOverflowError,
    FinishReason,
    InvalidReplyError,
    ModelError,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    Usage,
)
from turnlog.domain.messages import Message, Part, ReasoningPart, TextPart, ToolCallPart
from turnlog.infrastructure.formats._plain import Plain, compact
from turnlog.infrastructure.formats.json_source import fields, items
from turnlog.infrastructure.models import ollama_request
from turnlog.infrastructure.models.answers import answer, count
from turnlog.infrastructure.models.codec import StreamDecoder
from turnlog.infrastructure.models.events import json_value
from turnlog.infrastructure.models.failures import error_in_reply, http_error
from turnlog.infrastructure.models.families import without_others_reasoning
from turnlog.infrastructure.models.masking import excerpt

ORIGIN = "ollama.chat"
"""The `origin` of messages that came from this API."""
BASE_URL = "http://127.0.0.1:11434"

_TOP_LEVEL = frozenset(("format", "keep_alive", "logprobs", "think", "top_logprobs"))
"""Options that stand beside the messages; all others are parameters of the model."""
_FINISH = {"stop": FinishReason.STOP, "length": FinishReason.LENGTH}
_SHARE = 0.6
"""A prompt that counts less than this share of its estimate was cut."""
_NUM_CTX = "num_ctx="
_HINTS = {404: "Pull the model first (`ollama pull`), or check its name and the base URL."}


class OllamaCodec:
    """Ollama's `/api/chat`."""

    renderer = "ollama.chat/1"
    provider = "ollama"
    framing: Literal["sse", "ndjson"] = "ndjson"
    key_variable: str | None = "OLLAMA_API_KEY"
    needs_key = False

    @property
    def profile(self) -> Mapping[str, str]:
        """Nothing else decides what `encode` makes."""
        return {}

    def url(self, base_url: str) -> str:
        """The address that requests are sent to."""
        for end in ("/api/chat", "/api", "/v1"):
            base_url = base_url.removesuffix(end)
        return f"{base_url.rstrip('/')}/api/chat"

    def headers(self, key: str | None) -> Mapping[str, str]:
        """The header with the key, for servers that stand behind one."""
        return {"authorization": f"Bearer {key}"} if key else {}

    def encode(
        self, request: ChatRequest, model: str, *, stream: bool, adaptations: frozenset[str]
    ) -> dict[str, Any]:
        """The body. The window is that of the options, else the larger of what is needed and was demanded."""
        wire = self._messages(request, model)
        tools = [ollama_request.tool(tool.name, tool.description, tool.parameters) for tool in request.tools]
        options = {name: value for name, value in request.options.items() if name not in _TOP_LEVEL}
        options.update(options.pop("options", {}))
        if request.max_output_tokens is not None:
            options.setdefault("num_predict", request.max_output_tokens)
        if "num_ctx" not in options:
            needed = ollama_request.size(wire, tools, request).window
            options["num_ctx"] = max(needed, *map(_window, adaptations), 0)
        return {
            "model": model,
            "messages": wire,
            **({"tools": tools} if tools else {}),
            **{name: request.options[name] for name in request.options if name in _TOP_LEVEL},
            "options": options,
            "stream": stream,
            "truncate": False,
            "shift": False,
        }

    def _messages(self, request: ChatRequest, model: str) -> list[Plain]:
        conversation = without_others_reasoning(request.conversation, ORIGIN, self.provider, model)
        return ollama_request.messages(conversation, request.system, request.system_in_place)

    def decode(self, body: Mapping[str, Any]) -> ChatReply:
        """The answer in a body with status 200."""
        if error := error_in_reply(body):
            raise error
        if not fields(body.get("message")):
            raise InvalidReplyError(f"The answer has no message. The server sent: {excerpt(compact(body))}")
        return self.reply(body)

    def reply(self, body: Mapping[str, Any]) -> ChatReply:
        """The reply that a body is; its calls are numbered here."""
        given = fields(body.get("message"))
        thinking, text = given.get("thinking"), given.get("content")
        parts: list[Part] = (
            [ReasoningPart(content=thinking)] if isinstance(thinking, str) and thinking else []
        )
        parts += [TextPart(content=text)] if isinstance(text, str) and text else []
        calls = [_call(place, call) for place, call in enumerate(items(given.get("tool_calls")), 1)]
        reason = body.get("done_reason")
        said = reason if isinstance(reason, str) else None
        finish = _FINISH.get(said or "stop", FinishReason.STOP)
        model = body.get("model")
        return answer(
            Message.assistant([*parts, *calls], origin=ORIGIN),
            provider=self.provider,
            finish_reason=FinishReason.TOOL_CALL if calls and finish is FinishReason.STOP else finish,
            provider_finish_reason=said,
            model=model if isinstance(model, str) else None,
            usage=_usage(body),
        )

    def decoder(self) -> StreamDecoder:
        """A reader for one streamed answer."""
        return _Decoder(self)

    def error(self, status: int, body: Mapping[str, Any] | None, text: str) -> ModelError:
        """What a failed response means."""
        return http_error(status, body, text, hints=_HINTS)

    def adaptation(self, status: int, body: Mapping[str, Any] | None) -> str | None:  # noqa: ARG002
        """Nothing of what is sent is known to be refused: unknown fields are passed over."""
        return None

    def continued(self, request: ChatRequest, reply: ChatReply) -> ChatRequest | None:
        """Turns are not paused. Raises `ContextOverflowError` when the prompt was cut all the same.

        Versions that do not know `truncate` drop the oldest messages without a word; the count of the prompt
        tells. What came then is no answer to what was asked.
        """
        counted = reply.usage.input_tokens if reply.usage else None
        estimate = ollama_request.size(self._messages(request, reply.model or ""), (), request).texts
        if counted is not None and counted < _SHARE * estimate:
            raise ContextOverflowError(
                None, estimate, detail=f"only {counted:,} tokens of the prompt were read, the rest was cut."
            )
        return None


class Windows:
    """The largest window that was asked for, by address and model.

    Ollama loads a model anew when the window changes, so it is never made smaller.
    """

    def __init__(self) -> None:
        self._largest: dict[tuple[str, str], int] = {}
        self._lock = Lock()

    def at_least(self, url: str, model: str, window: int) -> int:
        """The window to ask for."""
        with self._lock:
            largest = max(window, self._largest.get((url, model), 0))
            self._largest[url, model] = largest
        return largest


WINDOWS = Windows()
"""Shared by all models of the process."""


def demanded_window(codec: OllamaCodec, url: str, request: ChatRequest, model: str) -> frozenset[str]:
    """The window as an adaptation, so that the bytes follow from the request and its adaptations."""
    body = codec.encode(request, model, stream=False, adaptations=frozenset())
    if "num_ctx" in {**request.options, **fields(request.options.get("options"))}:
        return frozenset()
    return frozenset((f"{_NUM_CTX}{WINDOWS.at_least(url, model, body['options']['num_ctx'])}",))


def _window(adaptation: str) -> int:
    return int(adaptation.removeprefix(_NUM_CTX)) if adaptation.startswith(_NUM_CTX) else 0


def _call(place: int, given: object) -> ToolCallPart:
    function = fields(fields(given).get("function"))
    arguments = function.get("arguments")
    text = arguments if isinstance(arguments, str) else compact(arguments or {})
    return ToolCallPart.model_validate(
        {"id": f"call_{place}", "name": function.get("name") or "", "arguments": text}
    )


def _usage(body: Mapping[str, Any]) -> Usage | None:
    names = ("total_duration", "load_duration", "prompt_eval_count", "prompt_eval_duration")
    given = {name: body[name] for name in (*names, "eval_count", "eval_duration") if name in body}
    if not given:
        return None
    return Usage(
        input_tokens=count(given, "prompt_eval_count"),
        output_tokens=count(given, "eval_count"),
        provider=given,
    )


class _Decoder:
    """Puts the lines of a streamed answer together to the body that the whole answer would have had."""

    def __init__(self, codec: OllamaCodec) -> None:
        self._codec = codec
        self._body: dict[str, Any] = {}
        self._texts = {"thinking": "", "content": ""}
        self._calls: list[object] = []
        self.is_finished = False

    def feed(self, event: str | None, data: str) -> Iterator[ChatDelta]:  # noqa: ARG002
        """What one line says."""
        line = _parsed(data)
        if error := error_in_reply(line):
            raise error
        self._body.update({name: value for name, value in line.items() if name != "message"})
        given = fields(line.get("message"))
        for name in self._texts:
            more = given.get(name)
            if isinstance(more, str) and more:
                self._texts[name] += more
                yield TextDelta(more) if name == "content" else ReasoningDelta(more)
        for call in items(given.get("tool_calls")):
            self._calls.append(call)
            part = _call(len(self._calls), call)
            yield ToolCallDelta(len(self._calls) - 1, part.id, part.name, part.arguments)
        self.is_finished = self.is_finished or line.get("done") is True

    def reply(self) -> ChatReply:
        """What came so far; calls come whole."""
        return self._codec.reply({**self._body, "message": {**self._texts, "tool_calls": self._calls}})


def _parsed(data: str) -> Mapping[str, Any]:
    try:
        value = json_value(data)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise InvalidReplyError(f"A piece of the answer is no JSON object: {excerpt(data)}")
    return cast("Mapping[str, Any]", value)
