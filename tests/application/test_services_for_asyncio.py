"""What takes a service takes one for asyncio too; what is no service is refused at once, by name."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.scripted_chat import AsyncScriptedModel, ScriptedModel

from turnlog.application import (
    AsyncBackgroundCompaction,
    AsyncSessionAudit,
    AsyncSessionChat,
    AsyncSessionService,
    BackgroundCompaction,
    ConversationSearch,
    CrossSessionSearch,
    SessionAudit,
    SessionChat,
)
from turnlog.application.audit import PromptRecorder, RecordedCall
from turnlog.application.projections import MaterialisedViews, MemoryViewStore, SessionFeed
from turnlog.domain import (
    CompactionReason,
    CompactionWindow,
    InvalidSettingError,
    Message,
    WindowCompactionStrategy,
)
from turnlog.infrastructure.bundle import export_bundle, import_bundle
from turnlog.infrastructure.report import write_report

SID = "s"
WINDOW = WindowCompactionStrategy(CompactionWindow.last_turns(1))


def test_a_recorder_over_the_service_of_an_asyncio_chat_records_what_is_told() -> None:
    async def told() -> bytes:
        async with AsyncSessionService() as sessions:
            recorder = PromptRecorder(sessions)
            chat = AsyncSessionChat(sessions, AsyncScriptedModel(["Hello."]), recorder=recorder)
            await chat.send(SID, "hi")
            audit = AsyncSessionAudit(sessions)
            (call,) = [one async for one in sessions.iter_events(SID) if one.type == "PROMPT_RENDERED"]
            return (await audit.told(SID, call.id)).body

    assert b"hi" in asyncio.run(told())


class Remembers(PromptRecorder):
    """A recorder that knows where it was asked."""

    threads: list[int]

    def prompt(self, call: RecordedCall) -> Any:
        """The events, as ever."""
        self.threads.append(threading.get_ident())
        return super().prompt(call)


def test_the_recorder_of_an_asyncio_chat_does_not_block_the_loop() -> None:
    async def threads() -> tuple[list[int], int]:
        async with AsyncSessionService() as sessions:
            recorder = Remembers(sessions)
            recorder.threads = []
            await AsyncSessionChat(sessions, AsyncScriptedModel(["Hello."]), recorder=recorder).send(
                SID, "hi"
            )
            return recorder.threads, threading.get_ident()

    asked, loop = asyncio.run(threads())
    assert len(asked) == 1
    assert loop not in asked


@pytest.fixture
def sessions() -> AsyncSessionService:
    """A service for asyncio with a session of three turns."""
    service = AsyncSessionService()
    service.sync.create(SID, metadata={"user.name": "ada"})
    for number in range(3):
        service.sync.append_message(SID, Message.user(f"heron {number}"))
        service.sync.append_message(SID, Message.assistant("Yes."))
    return service


def test_an_audit_reads_the_sessions_of_a_service_for_asyncio(sessions: AsyncSessionService) -> None:
    assert SessionAudit(sessions).verify(SID).is_whole


def test_an_audit_for_asyncio_takes_a_service_that_blocks(sessions: AsyncSessionService) -> None:
    assert asyncio.run(AsyncSessionAudit(sessions.sync).verify(SID)).is_whole


def test_a_feed_shows_the_sessions_of_a_service_for_asyncio(sessions: AsyncSessionService) -> None:
    with SessionFeed(sessions) as feed:
        assert next(iter(feed)).session_id == SID


def test_searches_of_models_take_a_service_for_asyncio(sessions: AsyncSessionService) -> None:
    assert len(ConversationSearch(sessions, SID).search({"query": "heron 1"})) == 1
    assert len(CrossSessionSearch(sessions, "ada").search({"query": "heron 1"})) == 1


def test_a_background_takes_a_service_for_asyncio(sessions: AsyncSessionService) -> None:
    with BackgroundCompaction(sessions, None, WINDOW) as background:
        assert background.submit(SID).result().reason is CompactionReason.COMPACTED


def test_a_background_for_asyncio_takes_a_service_that_blocks(sessions: AsyncSessionService) -> None:
    async def reason() -> CompactionReason:
        async with AsyncBackgroundCompaction(sessions.sync, None, WINDOW) as background:
            return (await background.submit(SID)).reason

    assert asyncio.run(reason()) is CompactionReason.COMPACTED


def test_a_report_is_written_of_a_service_for_asyncio(sessions: AsyncSessionService, tmp_path: Path) -> None:
    assert write_report(sessions, SID, tmp_path / "report.html").files


def test_a_bundle_goes_between_services_for_asyncio(sessions: AsyncSessionService, tmp_path: Path) -> None:
    export_bundle(sessions, SID, tmp_path / "bundle.zip")
    assert not import_bundle(AsyncSessionService(), tmp_path / "bundle.zip").is_repeat


NO_SERVICES: dict[str, Callable[[Any, Path], object]] = {
    "chat": lambda given, _: SessionChat(given, ScriptedModel([])),
    "chat for asyncio": lambda given, _: AsyncSessionChat(given, AsyncScriptedModel([])),
    "audit": lambda given, _: SessionAudit(given),
    "audit for asyncio": lambda given, _: AsyncSessionAudit(given),
    "recorder": lambda given, _: PromptRecorder(given),
    "feed": lambda given, _: SessionFeed(given),
    "views": lambda given, _: MaterialisedViews(given, MemoryViewStore()),
    "background": lambda given, _: BackgroundCompaction(given, None, WINDOW),
    "background for asyncio": lambda given, _: AsyncBackgroundCompaction(given, None, WINDOW),
    "search": lambda given, _: ConversationSearch(given, SID),
    "search of all": lambda given, _: CrossSessionSearch(given, "ada"),
    "report": lambda given, path: write_report(given, SID, path / "report.html"),
    "bundle": lambda given, path: export_bundle(given, SID, path / "bundle.zip"),
}


@pytest.mark.parametrize("name", NO_SERVICES)
def test_what_is_no_service_is_refused_at_once(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidSettingError, match="SessionService"):
        NO_SERVICES[name]("s.db", tmp_path)
