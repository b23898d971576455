"""Streams of the Anthropic Messages API."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from turnlog.application.chat import (
    ChatDelta,
    ChatReply,
    InvalidReplyError,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
)
from turnlog.infrastructure.formats._anthropic_format import SERVER_CALLS
from turnlog.infrastructure.formats._plain import Plain, compact
from turnlog.infrastructure.models import anthropic_answers
from turnlog.infrastructure.models.events import event_object, json_value, reading
from turnlog.infrastructure.models.failures import error_in_reply

_CALL = "tool_use"
_GROWN_FIELD = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}


class AnthropicMessagesDecoder:
    """Puts the message together that the API would have given without streaming."""

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self.is_finished = False
        self._fields: Plain = {}
        self._blocks: dict[int, Plain] = {}
        self._grown: dict[int, list[str]] = defaultdict(list)
        self._complete: set[int] = set()
        self._calls: list[int] = []

    def feed(self, event: str | None, data: str) -> Iterator[ChatDelta]:
        """What one event says. Raises `ModelError` for an event that is an error."""
        fields = event_object(data)
        kind = fields.get("type", event)
        with reading(kind):
            match kind:
                case "error":
                    raise error_in_reply(fields) or InvalidReplyError(
                        "The stream holds an error without words."
                    )
                case "message_start":
                    self._fields = dict(fields["message"])
                case "content_block_start":
                    yield from self._start(fields["index"], dict(fields["content_block"]))
                case "content_block_delta":
                    yield from self._grow(fields["index"], fields["delta"])
                case "content_block_stop":
                    self._complete.add(fields["index"])
                case "message_delta":
                    self._end(fields)
                case "message_stop":
                    self.is_finished = True
                    self.reply()
                case _:
                    pass

    def reply(self) -> ChatReply:
        """What came so far: the whole answer when finished; else without calls that are not complete."""
        raw: dict[str, str] = {}
        blocks = [block for index in sorted(self._blocks) if (block := self._block(index, raw)) is not None]
        fields = {**self._fields, "type": "message", "role": "assistant", "content": blocks}
        if self.is_finished:
            return anthropic_answers.whole(fields, self._provider, raw)
        return anthropic_answers.broken_off(fields, self._provider)

    def _start(self, index: int, block: Plain) -> Iterator[ChatDelta]:
        self._blocks[index] = block
        match block["type"]:
            case "text" if block["text"]:
                yield TextDelta(block["text"])
            case "thinking" if block["thinking"]:
                yield ReasoningDelta(block["thinking"])
            case "tool_use":
                self._calls.append(index)
                arguments = compact(block["input"]) if block.get("input") else ""
                yield ToolCallDelta(len(self._calls) - 1, block["id"], block["name"], arguments)
            case _:
                pass

    def _grow(self, index: int, delta: Plain) -> Iterator[ChatDelta]:
        block, kind = self._blocks[index], delta["type"]
        if kind in _GROWN_FIELD:
            more: str = delta[_GROWN_FIELD[kind]]
            self._grown[index].append(more)
            yield from self._delta(index, kind, more)
        elif kind == "signature_delta":
            block["signature"] = delta["signature"]
        elif kind == "citations_delta":
            block["citations"] = [*(block.get("citations") or ()), delta["citation"]]
        elif kind == "compaction_delta":
            block |= {name: value for name, value in delta.items() if name != "type"}

    def _delta(self, index: int, kind: str, more: str) -> Iterator[ChatDelta]:
        if not more:
            return
        if kind == "text_delta":
            yield TextDelta(more)
        elif kind == "thinking_delta":
            yield ReasoningDelta(more)
        elif index in self._calls:
            yield ToolCallDelta(self._calls.index(index), arguments=more)

    def _end(self, event: Plain) -> None:
        """How the message ended. Counts are totals; a count that is not said leaves the one before."""
        counts: Plain = event.get("usage") or {}
        usage = {name: value for name, value in counts.items() if value is not None}
        further = {name: value for name, value in event.items() if name not in ("type", "delta", "usage")}
        for name, value in {**event["delta"], **further}.items():
            if value is not None or name not in self._fields:
                self._fields[name] = value
        self._fields["usage"] = {**(self._fields.get("usage") or {}), **usage}

    def _block(self, index: int, raw: dict[str, str]) -> Plain | None:
        """The block as it would have come at once; None for one that is not complete enough to be kept.

        Arguments that are no JSON are put into `raw`.
        """
        block, grown = dict(self._blocks[index]), "".join(self._grown[index])
        kind = block["type"]
        if kind == _CALL or kind in SERVER_CALLS:
            arguments = _object(grown) if grown else block.get("input", {})
            if not self.is_finished and (arguments is None or index not in self._complete):
                return None
            if arguments is None:
                raw[block["id"]] = grown
            return {**block, "input": {} if arguments is None else arguments}
        if kind in ("text", "thinking"):
            block[kind] += grown
            return block if block[kind] or self.is_finished or block.get("signature") else None
        return block


def _object(text: str) -> Any:
    try:
        return json_value(text)
    except (ValueError, RecursionError):
        return None
