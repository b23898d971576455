"""SQLite: nothing is locked while a model is asked, as another process finds that does not wait at all."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from typing import Any

import pytest
from tests.processes.other import OtherProcess
from tests.support.chats import SID
from tests.support.conformance_stores import NoTokens
from tests.support.scripted_chat import ScriptedModel, calls

from turnlog.application import BackgroundCompaction
from turnlog.application.audit import PromptRecorder
from turnlog.application.chat import SessionChat
from turnlog.application.service import SessionService
from turnlog.domain.messages import Message
from turnlog.domain.summarizing import PromptSummarizer
from turnlog.domain.window import CompactionWindow, WindowCompactionStrategy

pytestmark = pytest.mark.parametrize("env", ["sqlite", "sqlite-plain-recorder"], indirect=True)


@pytest.fixture(scope="module")
def other() -> Generator[OtherProcess]:
    """Another process."""
    with OtherProcess() as process:
        yield process


@pytest.fixture
def sessions(env: Mapping[str, str]) -> Generator[SessionService]:
    """A service of this process."""
    with SessionService(env=dict(env), token_estimator=NoTokens()) as service:
        yield service


@pytest.fixture
def write(env: Mapping[str, str], other: OtherProcess) -> Callable[[], object]:
    """Let the other process write now or never; what it says of that."""

    def ask() -> object:
        other.tell(env, "write now")
        return other.hear()

    return ask


@pytest.mark.usefixtures("sessions")
def test_a_lock_would_be_seen(env: Mapping[str, str], write: Callable[[], object]) -> None:
    assert write() == "written"
    with closing(sqlite3.connect(env["SQLITE_DBNAME"])) as connection:
        connection.execute("BEGIN IMMEDIATE")
        assert write() == "database is locked"


def test_another_process_writes_while_a_model_is_asked_and_while_a_tool_runs(
    sessions: SessionService, write: Callable[[], object]
) -> None:
    seen: list[object] = []

    def answer(_: object) -> Any:
        seen.append(write())
        return calls("c1 work") if len(seen) == 1 else "done"

    def work() -> str:
        seen.append(write())
        return "worked"

    model = ScriptedModel([answer])
    chat = SessionChat(sessions, model, tools=[work], recorder=PromptRecorder(sessions))
    assert chat.send(SID, "go").text == "done"
    assert seen == ["written"] * 3


def test_another_process_writes_while_an_answer_streams(
    sessions: SessionService, write: Callable[[], object]
) -> None:
    with SessionChat(sessions, ScriptedModel(["one two three"])).stream(SID, "go") as turn:
        seen = [write() for _ in turn]
    assert seen
    assert set(seen) == {"written"}


def _three_turns(sessions: SessionService) -> None:
    sessions.create(SID)
    for text in ("one", "two", "three"):
        sessions.append_message(SID, Message.user(text))


def _summarizing(write: Callable[[], object], seen: list[object]) -> WindowCompactionStrategy:
    def summarize(_: object) -> str:
        seen.append(write())
        return "They greeted."

    return WindowCompactionStrategy(CompactionWindow.last_turns(1), summarizer=PromptSummarizer(summarize))


def test_another_process_writes_while_a_summary_is_made(
    sessions: SessionService, write: Callable[[], object]
) -> None:
    seen: list[object] = []
    _three_turns(sessions)
    assert not sessions.compact(SID, None, _summarizing(write, seen)).is_unchanged
    assert seen == ["written"]


def test_another_process_writes_while_a_background_pass_runs(
    sessions: SessionService, write: Callable[[], object]
) -> None:
    seen: list[object] = []
    _three_turns(sessions)
    with BackgroundCompaction(sessions, None, _summarizing(write, seen)) as background:
        assert not background.submit(SID).result(60).is_unchanged
    assert seen == ["written"]
