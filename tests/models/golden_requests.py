"""The requests whose bodies are stored, one file for each renderer version.

`python -m tests.models.golden_requests` writes the files of renderers that have none; it never changes one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from turnlog.application.chat import ChatRequest, ToolDefinition
from turnlog.domain.json_text import to_json_text
from turnlog.domain.messages import Message
from turnlog.infrastructure.formats import anthropic_messages, openai_chat, openai_responses
from turnlog.infrastructure.formats._plain import sendable
from turnlog.infrastructure.models.anthropic_messages import AnthropicMessagesCodec
from turnlog.infrastructure.models.codec import Codec
from turnlog.infrastructure.models.openai_responses import OpenAIResponsesCodec

FOLDER = Path(__file__).parent / "golden"
CODECS: tuple[Codec, ...] = (AnthropicMessagesCodec(), OpenAIResponsesCodec())

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
FIND = ToolDefinition(
    "find", "Where a parcel is.", {"type": "object", "properties": {"no": {"type": "string"}}}
)
NAMED = ToolDefinition("find.it", "", {"type": "object", "properties": {}})


def _call(name: str, tool: str, arguments: str, **further: Any) -> dict[str, Any]:
    return {"type": "tool_call", "id": name, "name": tool, "arguments": arguments, **further}


_ANTHROPIC_BODY: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-opus-4-1-20250805",
    "content": [
        {"type": "thinking", "thinking": "A parcel.", "signature": "sig=="},
        {"type": "redacted_thinking", "data": "opaque=="},
        {"type": "text", "text": "I look. ", "citations": None},
        {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "Lund"}},
        {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []},
        {"type": "tool_use", "id": "toolu_1", "name": "find", "input": {"no": "7"}},
    ],
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": {"input_tokens": 1, "output_tokens": 1},
}
ANTHROPIC_ANSWER = anthropic_messages.message(_ANTHROPIC_BODY)
_RESPONSES_BODY: dict[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "model": "gpt-5-2025-08-07",
    "status": "completed",
    "output": [
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "A parcel."}],
            "encrypted_content": "gAAA==",
        },
        {
            "type": "message",
            "id": "msg_2",
            "role": "assistant",
            "status": "completed",
            "phase": "commentary",
            "content": [{"type": "output_text", "text": "I look.", "annotations": [], "logprobs": []}],
        },
        {
            "type": "function_call",
            "id": "fc_1",
            "call_id": "call_1",
            "name": "find",
            "arguments": '{"no": "8"}',
            "status": "completed",
        },
    ],
}
RESPONSES_ANSWER = openai_responses.message(_RESPONSES_BODY)
CHAT_ANSWER = openai_chat.message({"role": "assistant", "content": "In Lund.", "reasoning_content": "Hm."})

CONVERSATION = (
    Message.system("Old instructions."),
    Message.user("Hello «\x00» \ud800."),
    CHAT_ANSWER,
    Message.user(
        [
            {"type": "text", "content": "Where are these?"},
            {"type": "blob", "modality": "image", "mime_type": "image/gif", "content": PNG},
            {"type": "uri", "modality": "image", "uri": "https://a.example/b.png"},
            {"type": "blob", "modality": "document", "mime_type": "application/pdf", "content": "JVBERi0x"},
            {"type": "file", "modality": "document", "file_id": "file-1"},
            {"type": "blob", "modality": "audio", "mime_type": "audio/wav", "content": "UklGRgAAAABXQVZF"},
            {"type": "widget", "title": "A map"},
        ]
    ),
    ANTHROPIC_ANSWER,
    Message.tool([{"type": "tool_call_response", "id": "toolu_1", "response": "Lund", "is_error": True}]),
    RESPONSES_ANSWER,
    Message.system("You work for a post office."),
    Message.tool("", id="call_1"),
    Message.assistant(
        [
            _call("c 1", "find.it", '{"no": '),
            _call("toolu_1", "find", ""),
            _call("c3", "later", "{}", awaiting=True),
            _call("c4", "sql", "SELECT 1", call_type="custom"),
        ]
    ),
    Message.tool(
        [{"type": "tool_call_response", "id": "toolu_1", "response": [{"type": "text", "content": "Oslo"}]}]
    ),
    Message.assistant(""),
    Message.user("Thanks. "),
)

REQUESTS: dict[str, tuple[ChatRequest, str, bool, frozenset[str]]] = {
    "a whole conversation for claude": (
        ChatRequest(CONVERSATION, tools=(FIND, NAMED), max_output_tokens=500, options={"temperature": 0.5}),
        "claude-opus-4-1",
        False,
        frozenset(),
    ),
    "a whole conversation for gpt": (
        ChatRequest(CONVERSATION, tools=(FIND, NAMED), max_output_tokens=500, options={"temperature": 0.5}),
        "gpt-5",
        False,
        frozenset(),
    ),
    "streamed, cached, instructions in place": (
        ChatRequest(CONVERSATION, tools=(FIND,), system="Be brief.", cache=True, system_in_place=True),
        "claude-opus-4-1",
        True,
        frozenset(),
    ),
    "adapted": (
        ChatRequest(CONVERSATION, options={"temperature": 0.5, "top_p": 0.9}, cache=True),
        "gpt-5",
        False,
        frozenset(("no_temperature", "cache_in_blocks", "no_reasoning")),
    ),
    "nothing": (ChatRequest(()), "a-model", False, frozenset()),
}


def bodies(codec: Codec) -> dict[str, str]:
    """The bodies of the requests, as the text that is sent."""
    return {
        name: to_json_text(sendable(codec.encode(request, model, stream=stream, adaptations=adaptations)))
        for name, (request, model, stream, adaptations) in REQUESTS.items()
    }


def file_of(codec: Codec) -> Path:
    """Where the bodies of a renderer version are stored."""
    return FOLDER / f"{codec.renderer.replace('/', '-')}.json"


if __name__ == "__main__":
    for one in CODECS:
        if not file_of(one).exists():
            file_of(one).write_text(json.dumps(bodies(one), indent=1) + "\n", encoding="utf-8")
