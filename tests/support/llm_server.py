"""A server that speaks the providers' APIs, with faults on demand, and refuses what the providers refuse."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Generator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from llmock.pytest_plugin import LLMock
from llmock.testing import LLMockServer
from tests.support.providers.rules import anthropic_rule_faults, openai_rule_faults, responses_rule_faults
from tests.support.providers.types import anthropic_type_faults, openai_type_faults, responses_type_faults

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Check = Callable[[dict[str, Any]], list[str]]

CHECKS: dict[str, tuple[Check, ...]] = {
    "/chat/completions": (openai_rule_faults, openai_type_faults),
    "/responses": (responses_rule_faults, responses_type_faults),
    "/messages": (anthropic_rule_faults, anthropic_type_faults),
}
"""What refuses a request, by the end of its path."""


@dataclass
class RuledServer:
    """The running server: `mock` scripts faults and answers, `bodies` are the raw bytes that came.

    `faults` are what the rules found; each such request was answered with status 400.
    """

    url: str
    mock: LLMock
    bodies: list[bytes] = field(default_factory=list[bytes])
    faults: list[str] = field(default_factory=list[str])


class Rules:
    """Middleware that keeps every body and lets through what the provider would accept."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.state = app.state
        self.server: RuledServer | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http" or scope["method"] != "POST" or self.server is None:
            await self.app(scope, receive, send)
            return
        body = await _body(receive)
        self.server.bodies.append(body)
        faults = _faults(scope["path"], body)
        if faults:
            self.server.faults += faults
            await _refuse(scope["path"], faults, send)
        else:
            await self.app(scope, _replayed(body, receive), send)


def _faults(path: str, body: bytes) -> list[str]:
    checks = next((checks for end, checks in CHECKS.items() if path.endswith(end)), ())
    fields = {name: value for name, value in json.loads(body).items() if name != "stream"}
    fields.pop("stream_options", None)
    return [fault for check in checks for fault in check(fields)]


async def _body(receive: Receive) -> bytes:
    chunks: list[bytes] = []
    while True:
        message = await receive()
        chunks.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(chunks)


def _replayed(body: bytes, receive: Receive) -> Receive:
    parts: list[MutableMapping[str, Any]] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> MutableMapping[str, Any]:
        return parts.pop() if parts else await receive()

    return replay


async def _refuse(path: str, faults: list[str], send: Send) -> None:
    error = {"type": "invalid_request_error", "message": "; ".join(faults)}
    shape: dict[str, Any] = {"error": error}
    if path.endswith("/messages"):
        shape["type"] = "error"
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 400, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(shape).encode()})


@contextmanager
def ruled_server() -> Generator[RuledServer]:
    """A running server. Base URLs: `url` for OpenAI, `url` and `/anthropic` for Anthropic."""
    server = LLMockServer()
    rules = Rules(server.app)
    vars(server)["app"] = rules
    with server:
        rules.server = RuledServer(server.url, LLMock(server))
        yield rules.server
