"""The programs of the reference run as they stand, against a real server on the loopback."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.support.providers.rules import anthropic_rule_faults, openai_rule_faults, responses_rule_faults

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "formats.md").read_text(encoding="utf-8")


class _Providers(BaseHTTPRequestHandler):
    """Three APIs: each asks for a call and repeats its result. A body that breaks a rule is refused."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        check, answer = _APIS[self.path.rpartition("/")[2]]
        faults = check(body)
        reply = answer(body)
        data = json.dumps({"error": {"message": str(faults)}} if faults else reply).encode()
        self.send_response(400 if faults else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Say nothing."""


def _openai(body: dict[str, Any]) -> dict[str, Any]:
    last = body["messages"][-1]
    call = {"id": "c1", "type": "function", "function": {"name": "find_parcel", "arguments": "{}"}}
    message: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": [call]}
    if last["role"] == "tool":
        message = {"role": "assistant", "content": last["content"]}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    about = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": body["model"]}
    return {**about, "choices": [choice]}


def _anthropic(body: dict[str, Any]) -> dict[str, Any]:
    content: Any = body["messages"][-1]["content"]
    result: Any = {} if isinstance(content, str) else content[0]
    block: dict[str, Any] = {"type": "tool_use", "id": "t1", "name": "find_parcel", "input": {}}
    if result.get("type") == "tool_result":
        said: Any = result["content"]
        block = {"type": "text", "text": said if isinstance(said, str) else said[0]["text"]}
    about = {"id": "msg_1", "type": "message", "role": "assistant", "model": body["model"]}
    return {**about, "content": [block], "usage": {"input_tokens": 1, "output_tokens": 1}}


def _responses(body: dict[str, Any]) -> dict[str, Any]:
    last = body["input"][-1]
    item: dict[str, Any] = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "find_parcel"}
    item["arguments"] = "{}"
    if last.get("type") == "function_call_output":
        content: list[Any] = [{"type": "output_text", "text": last["output"], "annotations": []}]
        item = {
            "type": "message",
            "id": "msg_1",
            "status": "completed",
            "role": "assistant",
            "content": content,
        }
    thought: dict[str, Any] = {
        "type": "reasoning",
        "id": f"rs_{len(body['input'])}",
        "summary": [],
        "encrypted_content": "gA==",
    }
    about: dict[str, Any] = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": body["model"],
        "tools": [],
    }
    return {**about, "status": "completed", "tool_choice": "auto", "output": [thought, item]}


_APIS: dict[str, tuple[Callable[[Any], list[str]], Callable[[Any], dict[str, Any]]]] = {
    "completions": (openai_rule_faults, _openai),
    "responses": (responses_rule_faults, _responses),
    "messages": (anthropic_rule_faults, _anthropic),
}


@pytest.fixture
def providers() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Providers)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_programs_run_one_after_the_other(providers: str, tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE)
    program = tmp_path / "programs.py"
    program.write_text("\n".join(blocks), encoding="utf-8")
    run = subprocess.run(
        [sys.executable, "-W", "error", str(program)],
        cwd=tmp_path,
        env={
            "OPENAI_API_KEY": "none",
            "OPENAI_BASE_URL": f"{providers}/v1",
            "ANTHROPIC_API_KEY": "none",
            "ANTHROPIC_BASE_URL": providers,
            "PATH": "/usr/bin:/bin",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    printed = "In Lund.\nIn Oslo.\nIn Bergen.\nopenai_chat\nmapped: 2 messages\n"
    assert (run.returncode, run.stdout) == (0, printed), run.stderr
