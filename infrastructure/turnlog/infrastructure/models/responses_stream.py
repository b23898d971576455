"""Streams of the OpenAI Responses API."""

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
from turnlog.infrastructure.formats._plain import Plain
from turnlog.infrastructure.models import responses_answers
from turnlog.infrastructure.models.events import event_object, reading
from turnlog.infrastructure.models.failures import error_in_reply

_CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
"""Items that are calls of the application's tools, and the field that grows."""
_TEXT = "response.output_text."
_REFUSAL = "response.refusal."
_SUMMARY = "response.reasoning_summary_text."
_THOUGHT = "response.reasoning_text."
_ARGUMENTS = "response.function_call_arguments."
_INPUT = "response.custom_tool_call_input."
_DONE = "done"
_BETWEEN_SUMMARIES = "\n\n"


class OpenAIResponsesDecoder:
    """Takes the response that the API gives at the end; puts together what came when there is no end."""

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self.is_finished = False
        self._response: Plain = {}
        self._items: dict[int, Plain] = {}
        self._complete: set[int] = set()
        self._grown: dict[int, dict[tuple[str, int], list[str]]] = defaultdict(lambda: defaultdict(list))
        self._calls: list[int] = []

    def feed(self, event: str | None, data: str) -> Iterator[ChatDelta]:
        """What one event says. Raises `ModelError` for an event that is an error."""
        if data.strip() == "[DONE]":
            return
        fields = event_object(data)
        kind = str(fields.get("type", event))
        with reading(kind):
            match kind:
                case "error":
                    raise _error(fields)
                case "response.created" | "response.in_progress" | "response.queued":
                    self._response = dict(fields["response"])
                case "response.output_item.added":
                    yield from self._add(fields["output_index"], fields["item"])
                case "response.output_item.done":
                    yield from self._finish(fields["output_index"], fields["item"])
                case "response.reasoning_summary_part.added" if fields["summary_index"]:
                    yield ReasoningDelta(_BETWEEN_SUMMARIES)
                case "response.completed" | "response.incomplete" | "response.failed":
                    self._end(fields["response"])
                case _:
                    yield from self._grow(kind, fields)

    def reply(self) -> ChatReply:
        """What came so far: the whole answer when finished; else without calls that are not complete."""
        if self.is_finished:
            return responses_answers.whole(self._response, self._provider)
        items = [item for index in sorted(self._items) if (item := self._item(index)) is not None]
        return responses_answers.broken_off({**self._response, "output": items}, self._provider)

    def _end(self, response: Plain) -> None:
        """The whole response; servers that leave its output out have told the items before."""
        self._response = {**response, "output": response.get("output") or self._told_items()}
        if error := responses_answers.failure(response):
            raise error
        self.is_finished = True

    def _told_items(self) -> list[Plain]:
        return [self._items[index] for index in sorted(self._items)]

    def _add(self, index: int, item: Plain) -> Iterator[ChatDelta]:
        self._items[index] = item
        if item["type"] in _CALLS:
            self._calls.append(index)
            begun: str = item.get(_CALLS[item["type"]]) or ""
            self._grown[index][item["type"], 0].append(begun)
            yield ToolCallDelta(len(self._calls) - 1, item["call_id"], item["name"], begun)

    def _finish(self, index: int, item: Plain) -> Iterator[ChatDelta]:
        """The item as it is in the response; what was not streamed of a call is told now."""
        if index not in self._items:
            yield from self._add(index, item)
        elif item["type"] in _CALLS:
            yield from self._rest(index, item["type"], 0, item[_CALLS[item["type"]]])
        if item["type"] == "message":
            for place, block in enumerate(item["content"]):
                yield from self._rest(index, "text", place, block.get("text"))
        self._items[index] = item
        self._complete.add(index)

    def _grow(self, kind: str, fields: Plain) -> Iterator[ChatDelta]:
        for start, of in _PLACES.items():
            if not kind.startswith(start):
                continue
            index = fields["output_index"]
            place = fields.get("summary_index" if start == _SUMMARY else "content_index", 0)
            if kind.endswith(".delta"):
                yield from self._more(index, of, place, fields["delta"])
            elif kind.endswith(".done"):
                yield from self._rest(index, of, place, fields.get(_WHOLE.get(start, "text")))

    def _more(self, index: int, of: str, place: int, text: str) -> Iterator[ChatDelta]:
        self._grown[index][of, place].append(text)
        if not text:
            return
        if of in _CALLS:
            yield ToolCallDelta(self._calls.index(index), arguments=text)
        elif of in ("text", "refusal"):
            yield TextDelta(text)
        elif of in ("summary", "content"):
            yield ReasoningDelta(text)

    def _rest(self, index: int, of: str, place: int, whole: object) -> Iterator[ChatDelta]:
        """What a text is more than its pieces were, for servers that do not stream everything."""
        so_far = "".join(self._grown[index][of, place])
        if isinstance(whole, str) and whole.startswith(so_far):
            yield from self._more(index, of, place, whole[len(so_far) :])

    def _item(self, index: int) -> Plain | None:
        """The item as far as it came; None for one that cannot be kept in part."""
        item = self._items[index]
        if index in self._complete:
            return item
        grown = {key: "".join(pieces) for key, pieces in self._grown[index].items()}
        match item["type"]:
            case "message":
                content = [_block(of, text) for (of, _), text in sorted(grown.items(), key=_by_place) if text]
                return {**item, "content": content, "status": "incomplete"} if content else None
            case "reasoning":
                return _thought_so_far(item, grown)
            case _:
                return None


_PLACES = {
    _TEXT: "text",
    _REFUSAL: "refusal",
    _SUMMARY: "summary",
    _THOUGHT: "content",
    _ARGUMENTS: "function_call",
    _INPUT: "custom_tool_call",
}
"""What grows by events whose names begin so."""
_WHOLE = {_REFUSAL: "refusal", _ARGUMENTS: "arguments", _INPUT: "input"}
"""The field of a `done` event that holds the whole; `text` for the others."""


def _by_place(grown: tuple[tuple[str, int], str]) -> int:
    return grown[0][1]


def _thought_so_far(item: Plain, grown: dict[tuple[str, int], str]) -> Plain | None:
    """Reasoning without its encrypted content, which would be that of a part."""
    summary = [{"type": "summary_text", "text": text} for (of, _), text in grown.items() if of == "summary"]
    thoughts = [
        {"type": "reasoning_text", "text": text} for (of, _), text in grown.items() if of == "content"
    ]
    kept = {name: value for name, value in item.items() if name not in ("encrypted_content", "content")}
    told = {"content": thoughts} if thoughts else {}
    return {**kept, "summary": summary, **told} if summary or thoughts else None


def _block(of: str, text: str) -> Plain:
    if of == "refusal":
        return {"type": "refusal", "refusal": text}
    return {"type": "output_text", "text": text, "annotations": []}


def _error(event: dict[str, Any]) -> Exception:
    """The error of an event, which holds its fields or an object with them."""
    inner = event if isinstance(event.get("error"), dict) else {"error": {**event, "type": event.get("code")}}
    return error_in_reply(inner) or InvalidReplyError("The stream holds an error without words.")
