from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from turnlog.domain.messages import Message
from turnlog.infrastructure.formats.imported import ImportedSession
from turnlog.infrastructure.formats.importing import read_file

OWN_TRANSCRIPTS = Path(__file__).parents[2] / "data" / "transcripts"
TRANSCRIPTS = Path(os.environ.get("TURNLOG_TRANSCRIPTS") or OWN_TRANSCRIPTS)
SUPPORTED = ("openai_chat", "anthropic_messages", "claude_code", "tau2")

WriteFile = Callable[..., Path]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "transcript" in metafunc.fixturenames:
        found = sorted(
            path for kind in SUPPORTED for path in (TRANSCRIPTS / kind).glob("*") if path.suffix != ".md"
        )
        metafunc.parametrize("transcript", found, ids=[f"{path.parent.name}/{path.name}" for path in found])


@pytest.fixture
def write_file(tmp_path: Path) -> WriteFile:
    """Writes a file whose name says nothing: of bytes, or of values as JSON lines."""

    def write(*content: object) -> Path:
        path = tmp_path / "file"
        if len(content) == 1 and isinstance(content[0], bytes):
            path.write_bytes(content[0])
        else:
            path.write_bytes(b"".join(json.dumps(value).encode() + b"\n" for value in content))
        return path

    return write


def sessions_of(path: Path, format: str | None = None) -> list[ImportedSession]:  # noqa: A002 - as in read_file
    return list(read_file(path, format=format).sessions())


def messages_of(session: ImportedSession, branch: str | None = None) -> list[Message]:
    return [event.message for event in session.events if event.message and event.branch == branch]


def said(session: ImportedSession, branch: str | None = None) -> list[tuple[str, str | None]]:
    return [(message.role.value, message.text) for message in messages_of(session, branch)]
