"""Answers as the providers stream them, and the official SDKs reading the same bytes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import httpx
from anthropic import Anthropic
from openai import OpenAI

Event = dict[str, Any]


def sse(events: Iterable[Event]) -> bytes:
    """The bytes of a stream; each event has its name and its data."""
    texts = (f"event: {e['type']}\ndata: {json.dumps(e, ensure_ascii=False)}\n\n" for e in events)
    return "".join(texts).encode()


def halves(text: str) -> list[str]:
    """The text in two pieces, the second may be empty."""
    middle = (len(text) + 1) // 2
    return [text[:middle], text[middle:]]


# Anthropic


def anthropic_events(body: Event) -> Iterator[Event]:
    """The events of an answer, with pings and counts where the API sends them."""
    usage = {**body["usage"], "output_tokens": 1}
    yield {
        "type": "message_start",
        "message": {**body, "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage},
    }
    yield {"type": "ping"}
    for index, block in enumerate(body["content"]):
        yield {"type": "content_block_start", "index": index, "content_block": _begun(block)}
        for delta in _deltas(block):
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    ended = {"stop_reason": body["stop_reason"], "stop_sequence": body.get("stop_sequence")}
    yield {
        "type": "message_delta",
        "delta": ended,
        "usage": {"output_tokens": body["usage"]["output_tokens"]},
    }
    yield {"type": "message_stop"}


def _begun(block: Event) -> Event:
    begun = dict(block)
    if begun.get("citations"):
        begun["citations"] = []
    nothing: Event = {"text": "", "thinking": "", "signature": "", "input": {}}
    begun |= {name: empty for name, empty in nothing.items() if name in begun}
    return begun


def _deltas(block: Event) -> Iterator[Event]:
    for citation in block.get("citations") or ():
        yield {"type": "citations_delta", "citation": citation}
    for name in ("text", "thinking"):
        if name in block:
            yield from ({"type": f"{name}_delta", name: piece} for piece in halves(block[name]))
    if "signature" in block:
        yield {"type": "signature_delta", "signature": block["signature"]}
    if "input" in block:
        text = json.dumps(block["input"]) if block["input"] else ""
        yield from ({"type": "input_json_delta", "partial_json": piece} for piece in ["", *halves(text)])


def read_by_anthropic(stream: bytes) -> Any:
    """The message that the SDK reads from the stream."""
    with (
        Anthropic(api_key="none", http_client=httpx.Client(transport=Replay(stream))) as client,
        client.messages.stream(model="m", max_tokens=9, messages=[{"role": "user", "content": "?"}]) as read,
    ):
        return read.get_final_message()


# OpenAI Responses


def responses_events(body: Event) -> Iterator[Event]:
    """The events of a response, numbered, as the API sends them."""
    for number, event in enumerate(_responses_events(body)):
        yield {**event, "sequence_number": number}


def _responses_events(body: Event) -> Iterator[Event]:
    begun: Event = {**body, "status": "in_progress", "output": [], "usage": None}
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    for index, item in enumerate(body["output"]):
        yield {"type": "response.output_item.added", "output_index": index, "item": _begun_item(item)}
        for event in _item_events(item):
            yield {"item_id": item.get("id"), "output_index": index, **event}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": f"response.{body['status']}", "response": body}


def _begun_item(item: Event) -> Event:
    empty: Event = {"content": [], "summary": [], "arguments": "", "input": "", "status": "in_progress"}
    return {name: empty.get(name, value) for name, value in item.items()}


def _item_events(item: Event) -> Iterator[Event]:
    match item["type"]:
        case "message":
            for place, block in enumerate(item["content"]):
                yield from _content_events(place, block)
        case "reasoning":
            for place, block in enumerate(item["summary"]):
                at = {"summary_index": place}
                begun = {"type": "summary_text", "text": ""}
                yield {"type": "response.reasoning_summary_part.added", **at, "part": begun}
                yield from _growing("response.reasoning_summary_text", at, "text", block["text"])
                yield {"type": "response.reasoning_summary_part.done", **at, "part": block}
            for place, block in enumerate(item.get("content") or ()):
                yield from _growing(
                    "response.reasoning_text", {"content_index": place}, "text", block["text"]
                )
        case "function_call":
            yield from _growing("response.function_call_arguments", {}, "arguments", item["arguments"])
        case "custom_tool_call":
            yield from _growing("response.custom_tool_call_input", {}, "input", item["input"])
        case _:
            yield {"type": f"response.{item['type']}.in_progress"}


def _content_events(place: int, block: Event) -> Iterator[Event]:
    at = {"content_index": place}
    field = "refusal" if block["type"] == "refusal" else "text"
    empty: Event = {field: "", "annotations": [], "logprobs": []}
    begun = {name: empty.get(name, value) for name, value in block.items()}
    yield {"type": "response.content_part.added", **at, "part": begun}
    kind = "response.refusal" if field == "refusal" else "response.output_text"
    yield from _growing(kind, {**at, "logprobs": []}, field, block[field])
    for number, annotation in enumerate(block.get("annotations", ())):
        yield {
            "type": "response.output_text.annotation.added",
            **at,
            "annotation_index": number,
            "annotation": annotation,
        }
    yield {"type": "response.content_part.done", **at, "part": block}


def _growing(kind: str, at: Event, field: str, text: str) -> Iterator[Event]:
    for piece in halves(text):
        yield {"type": f"{kind}.delta", **at, "delta": piece}
    yield {"type": f"{kind}.done", **at, field: text}


def read_by_openai(stream: bytes) -> Any:
    """The response that the SDK reads from the stream."""
    with (
        OpenAI(api_key="none", http_client=httpx.Client(transport=Replay(stream))) as client,
        client.responses.stream(model="m", input="?") as read,
    ):
        return read.get_final_response()


class Replay(httpx.BaseTransport):
    """Answers any request with these bytes."""

    def __init__(self, stream: bytes) -> None:
        self._stream = stream

    def handle_request(self, request: httpx.Request) -> httpx.Response:  # noqa: ARG002 - whatever is asked
        """The answer."""
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=self._stream)
