"""The codec of OpenAI Chat Completions, which many other servers speak too."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, cast

from turnlog.application.chat import (
    ChatDelta,
    ChatReply,
    ChatRequest,
    FinishReason,
    InvalidReplyError,
    ModelError,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    Usage,
)
from turnlog.infrastructure.formats import openai_chat
from turnlog.infrastructure.formats._plain import compact
from turnlog.infrastructure.formats._told import deepest_branch
from turnlog.infrastructure.formats.json_source import fields, items
from turnlog.infrastructure.models import addresses
from turnlog.infrastructure.models.answers import answer, count
from turnlog.infrastructure.models.codec import StreamDecoder
from turnlog.infrastructure.models.events import json_value
from turnlog.infrastructure.models.failures import error_in_reply, http_error
from turnlog.infrastructure.models.families import without_others_reasoning
from turnlog.infrastructure.models.masking import excerpt

BASE_URL = "https://api.openai.com/v1"

_ELSEWHERE = "http://server.invalid/v1"
"""Stands for any server that is not one of OpenAI's, where nothing is sent."""

_PROVIDERS = {
    "api.deepseek.com": "deepseek",
    "api.groq.com": "groq",
    "api.mistral.ai": "mistral_ai",
    "api.perplexity.ai": "perplexity",
    "api.x.ai": "x_ai",
    "generativelanguage.googleapis.com": "gcp.gemini",
    "openrouter.ai": "openrouter",
}
_AZURE = (".openai.azure.com", ".cognitiveservices.azure.com", ".services.ai.azure.com")

_FINISH = {
    "stop": FinishReason.STOP,
    "length": FinishReason.LENGTH,
    "max_tokens": FinishReason.LENGTH,
    "model_length": FinishReason.LENGTH,
    "tool_calls": FinishReason.TOOL_CALL,
    "function_call": FinishReason.TOOL_CALL,
    "content_filter": FinishReason.CONTENT_FILTER,
    "error": FinishReason.ERROR,
}

_REASONING = ("reasoning_content", "reasoning")


class OpenAIChatCodec:
    """Chat Completions of the server at a base URL, which decides the provider's name and the dialect."""

    renderer = "openai.chat/1"
    framing: Literal["sse", "ndjson"] = "sse"
    key_variable: str | None = "OPENAI_API_KEY"

    def __init__(self, base_url: str = BASE_URL, provider: str | None = None) -> None:
        host = addresses.host(base_url)
        self._is_azure = host.endswith(_AZURE)
        self._is_openai = host == addresses.host(BASE_URL) or self._is_azure
        self.needs_key = self._is_openai
        known = "azure.ai.openai" if self._is_azure else _PROVIDERS.get(host, "openai")
        self.provider = provider or known

    @property
    def profile(self) -> Mapping[str, str]:
        """The provider's name, and whether the server is one of OpenAI's; nothing for OpenAI itself."""
        server = {} if self._is_openai else {"server": "other"}
        return server if self.provider == "openai" else {**server, "provider": self.provider}

    @classmethod
    def of_profile(cls, profile: Mapping[str, str]) -> OpenAIChatCodec:
        """The codec that has this profile."""
        base_url = _ELSEWHERE if profile.get("server") == "other" else BASE_URL
        return cls(base_url, profile.get("provider"))

    def url(self, base_url: str) -> str:
        """The address that requests are sent to."""
        return addresses.endpoint(base_url, "/chat/completions")

    def headers(self, key: str | None) -> Mapping[str, str]:
        """The header with the key."""
        if not key:
            return {}
        return {"api-key": key} if self._is_azure else {"authorization": f"Bearer {key}"}

    def encode(
        self, request: ChatRequest, model: str, *, stream: bool, adaptations: frozenset[str]
    ) -> dict[str, Any]:
        """The body, with `max_completion_tokens` for OpenAI's own servers and `max_tokens` for others."""
        conversation = without_others_reasoning(
            request.conversation, openai_chat.ORIGIN, self.provider, model
        )
        body = openai_chat.request(
            conversation,
            model=model,
            tools=[_tool(tool.name, tool.description, tool.parameters) for tool in request.tools],
            max_tokens=request.max_output_tokens,
            branch=deepest_branch(request.conversation),
            system=request.system,
            prefill=True,
            reasoning="no_reasoning" not in adaptations,
            alternate=bool({"alternate", "system_as_user"} & adaptations),
            system_in_place=request.system_in_place,
            system_role=_system_role(adaptations),
        )
        body = self._with_options(body, request.options, adaptations)
        if stream:
            body["stream"] = True
            if "no_stream_options" not in adaptations:
                body.setdefault("stream_options", {"include_usage": True})
        return body

    def _with_options(
        self, body: dict[str, Any], options: Mapping[str, Any], adaptations: frozenset[str]
    ) -> dict[str, Any]:
        default = "max_completion_tokens" if self._is_openai else "max_tokens"
        if "max_completion_tokens" in body:
            body[default] = body.pop("max_completion_tokens")
        body.update(options)
        for name, other in (("max_tokens", "max_completion_tokens"), ("max_completion_tokens", "max_tokens")):
            if name in adaptations and other in body:
                body[name] = body.pop(other)
        if "no_temperature" in adaptations:
            body.pop("temperature", None)
        return body

    def decode(self, body: Mapping[str, Any]) -> ChatReply:
        """The answer in a body with status 200."""
        if error := error_in_reply(body):
            raise error
        choice = fields(next(iter(items(body.get("choices"))), None))
        message = fields(choice.get("message"))
        if not message:
            raise InvalidReplyError(
                f"The answer has no choices. The server sent: {excerpt(compact(body)) or '(nothing)'}"
            )
        return self.reply(body, message, choice.get("finish_reason"))

    def reply(self, body: Mapping[str, Any], message: Mapping[str, Any], reason: object) -> ChatReply:
        """The reply that the message of a body is."""
        said = reason if isinstance(reason, str) else None
        has_calls = bool(message.get("tool_calls") or message.get("function_call"))
        finish = _FINISH.get(said or "stop", FinishReason.STOP)
        if has_calls and finish is FinishReason.STOP:
            finish = FinishReason.TOOL_CALL
        return answer(
            openai_chat.message(_normal(message)),
            provider=self.provider,
            finish_reason=finish,
            provider_finish_reason=said,
            model=_text(body.get("model")),
            response_id=_text(body.get("id")),
            usage=_usage(body),
        )

    def decoder(self) -> StreamDecoder:
        """A reader for one streamed answer."""
        return _Decoder(self)

    def error(self, status: int, body: Mapping[str, Any] | None, text: str) -> ModelError:
        """What a failed response means."""
        return http_error(status, body, text)

    def adaptation(self, status: int, body: Mapping[str, Any] | None) -> str | None:
        """What the server refuses of the fixed list below."""
        if status not in (400, 404, 422, 500) or body is None:
            return None
        said = json.dumps(body, ensure_ascii=False)
        return next((name for name, pattern in _ADAPTATIONS if re.search(pattern, said, re.IGNORECASE)), None)

    def continued(self, request: ChatRequest, reply: ChatReply) -> ChatRequest | None:  # noqa: ARG002
        """Turns are not paused in this API."""
        return None


_REFUSED = (
    r"(?:unsupported|not supported|does not support|unknown|unrecogni[sz]ed|extra|not permitted|not allowed"
    r"|unexpected|invalid field)"
)
_ADAPTATIONS = (
    ("max_completion_tokens", r"'?max_tokens'? is not supported.{0,80}max_completion_tokens"),
    (
        "max_tokens",
        rf"{_REFUSED}[^.{{}}]{{0,60}}max_completion_tokens|max_completion_tokens.{{0,80}}{_REFUSED}",
    ),
    ("no_temperature", rf"{_REFUSED}[^.{{}}]{{0,60}}['\"`]?temperature|temperature.{{0,80}}{_REFUSED}"),
    ("no_stream_options", rf"{_REFUSED}[^.{{}}]{{0,60}}stream_options|stream_options.{{0,80}}{_REFUSED}"),
    ("developer_role", r"role.{0,40}does not support 'system'"),
    ("system_role", rf"developer.{{0,80}}{_REFUSED}|{_REFUSED}.{{0,40}}developer|'developer' is not one of"),
    ("system_as_user", r"system role (?:is )?not supported|system messages? (?:is|are) not supported"),
    ("alternate", r"roles must alternate"),
    ("no_reasoning", rf"reasoning_content.{{0,80}}{_REFUSED}|{_REFUSED}.{{0,60}}reasoning_content"),
)
"""What servers are known to refuse: the name of the change, and how they say it."""


def _system_role(adaptations: frozenset[str]) -> str:
    if "system_as_user" in adaptations:
        return "user"
    return "developer" if "developer_role" in adaptations and "system_role" not in adaptations else "system"


def _tool(name: str, description: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    about = {"description": description} if description else {}
    return {"name": name, **about, "parameters": parameters}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _normal(message: Mapping[str, Any]) -> dict[str, Any]:
    """The message without what says nothing, so that whole and streamed answers are equal."""
    kept = {name: value for name, value in message.items() if value not in (None, "", [], {})}
    if "tool_calls" in kept:
        kept["tool_calls"] = [_normal_call(call) for call in items(kept["tool_calls"])]
    return {**kept, "role": "assistant", "content": kept.get("content")}


def _normal_call(call: object) -> dict[str, Any]:
    kept = {name: value for name, value in fields(call).items() if name != "index" and value is not None}
    kept.setdefault("type", "function")
    return kept


def _usage(body: Mapping[str, Any]) -> Usage | None:
    given = fields(body.get("usage")) or fields(fields(body.get("x_groq")).get("usage"))
    if not given:
        return None
    cached = count(given, "prompt_tokens_details", "cached_tokens")
    return Usage(
        input_tokens=count(given, "prompt_tokens"),
        output_tokens=count(given, "completion_tokens"),
        cache_read_input_tokens=count(given, "prompt_cache_hit_tokens") if cached is None else cached,
        reasoning_output_tokens=count(given, "completion_tokens_details", "reasoning_tokens"),
        provider=given,
    )


class _Decoder:
    """Puts the pieces of a streamed answer together to the body that the whole answer would have had."""

    def __init__(self, codec: OpenAIChatCodec) -> None:
        self._codec = codec
        self._body: dict[str, Any] = {}
        self._message: dict[str, Any] = {}
        self._calls: list[dict[str, Any]] = []
        self._by_index: dict[object, int] = {}
        self._reason: str | None = None
        self.is_finished = False

    def feed(self, event: str | None, data: str) -> Iterator[ChatDelta]:
        """What one chunk says."""
        if data == "[DONE]":
            return
        chunk = _parsed(data)
        if error := error_in_reply(chunk if event != "error" or "error" in chunk else {"error": chunk}):
            raise error
        for name in ("id", "model", "usage", "x_groq"):
            if chunk.get(name):
                self._body[name] = chunk[name]
        for choice in map(fields, items(chunk.get("choices"))):
            if choice.get("index", 0) == 0:
                yield from self._choice(choice)

    def _choice(self, choice: Mapping[str, Any]) -> Iterator[ChatDelta]:
        delta = dict(fields(choice.get("delta")) or fields(choice.get("message")))
        thought = next((delta[name] for name in _REASONING if _text(delta.get(name))), None)
        if thought:
            yield ReasoningDelta(thought)
        text = _text(delta.get("content")) or _text(delta.get("refusal"))
        if text:
            yield TextDelta(text)
        for call in items(delta.pop("tool_calls", None)):
            yield self._call(fields(call))
        self._legacy_call(fields(delta.pop("function_call", None)))
        for name, value in delta.items():
            self._add(name, value)
        if reason := _text(choice.get("finish_reason")):
            self._reason = reason
            self.is_finished = True

    def _add(self, name: str, value: Any) -> None:
        """Text goes on, lists grow, anything else is what it was last."""
        known: Any = self._message.get(name)
        if isinstance(known, (str, list)) and type(cast("object", known)) is type(value) and name != "role":
            self._message[name] = cast("Any", known) + value
        elif value is not None:
            self._message[name] = value

    def _call(self, given: Mapping[str, Any]) -> ToolCallDelta:
        place = self._place(given)
        if place == len(self._calls):
            self._calls.append({"function": {"name": "", "arguments": ""}})
        call = self._calls[place]
        function = fields(given.get("function"))
        arguments = function.get("arguments")
        if fields(arguments):
            arguments = compact(arguments)
        name, more = _text(function.get("name")), _text(arguments) or ""
        call["function"]["name"] = call["function"]["name"] or name or ""
        call["function"]["arguments"] += more
        for field, value in given.items():
            if field not in ("function", "index") and value is not None and not call.get(field):
                call[field] = value
        return ToolCallDelta(place, _text(given.get("id")), name, more)

    def _place(self, given: Mapping[str, Any]) -> int:
        """The place of the call that a piece belongs to. Some servers give no index, or always the same."""
        index, name = given.get("index"), _text(given.get("id"))
        place = self._by_index.get(index)
        is_another = (
            place is not None and name is not None and self._calls[place].get("id") not in (None, name)
        )
        if place is None or is_another:
            place = len(self._calls)
            self._by_index[index] = place
        return place

    def _legacy_call(self, given: Mapping[str, Any]) -> None:
        if given:
            known = self._message.setdefault("function_call", {"name": "", "arguments": ""})
            known["name"] = known["name"] or given.get("name") or ""
            known["arguments"] += given.get("arguments") or ""

    def reply(self) -> ChatReply:
        """What came so far; without the calls whose arguments are not complete when it is not finished."""
        calls = self._calls if self.is_finished else [call for call in self._calls if _is_complete(call)]
        message = {**self._message, **({"tool_calls": calls} if calls else {})}
        if not self.is_finished:
            message.pop("function_call", None)
        return self._codec.reply(self._body, message, self._reason)


def _is_complete(call: Mapping[str, Any]) -> bool:
    """Nothing can follow a JSON object."""
    try:
        return isinstance(json.loads(call["function"]["arguments"]), dict)
    except ValueError:
        return False


def _parsed(data: str) -> Mapping[str, Any]:
    try:
        value = json_value(data)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise InvalidReplyError(f"A piece of the answer is no JSON object: {excerpt(data)}")
    return cast("Mapping[str, Any]", value)
