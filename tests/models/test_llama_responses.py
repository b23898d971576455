"""Responses as llama.cpp streams them: events name the id of their item, not its place."""

from __future__ import annotations

import json
from typing import Any

from tests.models.answers import ASKED
from tests.support.asking import Ask
from tests.support.scripted_server import Answer, ScriptedServer

from turnlog.application.chat import TextDelta, ToolCallDelta


def event(kind: str, **fields: Any) -> bytes:
    name = f"response.{kind}"
    return f"event: {name}\ndata: {json.dumps({'type': name, **fields})}\n\n".encode()


MESSAGE: dict[str, Any] = {
    "type": "message",
    "status": "completed",
    "id": "msg_1",
    "role": "assistant",
    "content": [{"type": "output_text", "annotations": [], "logprobs": [], "text": "In Lund."}],
}
CALL: dict[str, Any] = {
    "type": "function_call",
    "status": "completed",
    "id": "fc_1",
    "call_id": "fc_1",
    "name": "find",
    "arguments": "{}",
}
RESPONSE: dict[str, Any] = {"id": "resp_1", "object": "response", "status": "in_progress"}
ENDED: dict[str, Any] = {
    **RESPONSE,
    "status": "completed",
    "model": "a-model",
    "output": [MESSAGE, CALL],
    "usage": {"input_tokens": 9, "output_tokens": 4},
}


def test_items_are_told_apart_by_their_ids(ask: Ask, server: ScriptedServer) -> None:
    chunks = [
        event("created", response=RESPONSE),
        event("output_item.added", item={**MESSAGE, "content": [], "status": "in_progress"}),
        event("content_part.added", item_id="msg_1", part={"type": "output_text", "text": ""}),
        event("output_text.delta", item_id="msg_1", delta="In "),
        event("output_text.delta", item_id="msg_1", delta="Lund."),
        event("output_text.done", item_id="msg_1", text="In Lund."),
        event("output_item.done", item=MESSAGE),
        event("output_item.added", item={**CALL, "arguments": "", "status": "in_progress"}),
        event("function_call_arguments.delta", item_id="fc_1", delta="{}"),
        event("output_item.done", item=CALL),
        event("completed", response=ENDED),
    ]
    server.script(Answer(chunks, content_type="text/event-stream"))
    asked = ask("OpenAIResponses", ASKED, stream=True)
    assert asked.pieces == [
        TextDelta("In "),
        TextDelta("Lund."),
        ToolCallDelta(0, "fc_1", "find"),
        ToolCallDelta(0, arguments="{}"),
    ]
    assert asked.answer.message.text == "In Lund."
