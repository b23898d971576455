"""Errors of Python in the middle of a write: nothing is stored, neither events nor rows about them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.contracts.stores import Order, sqlite_env
from tests.support.postgres import postgres_env
from tests.traps.recorders import HookError

from turnlog.application.service import SessionService
from turnlog.domain.events import MessageAppended
from turnlog.domain.messages import Message
from turnlog.domain.query import EventQuery


def assert_nothing_was_stored(env: Mapping[str, str]) -> None:
    """Log, directory and index are as before, and the id is free."""
    with SessionService(env=env) as sessions:
        assert sessions.app.recorder.max_notification_id() == 1
        assert [(row.version, row.messages) for row in sessions.list_sessions()] == [(0, 0)]
        assert sessions.search_events("s", EventQuery(keywords="heron")) == ()
        assert not sessions.append_message("s", Message.user("a heron"), event_id="id").is_repeat


@pytest.mark.parametrize("hook", ["SqliteInsert", "PostgresInsert", "PostgresStored", "PostgresIds"])
def test_what_a_hook_of_the_host_raises_leaves_nothing_stored(tmp_path: Path, hook: str) -> None:
    on_sqlite = hook.startswith("Sqlite")
    env = sqlite_env(tmp_path / "sessions.db") if on_sqlite else postgres_env()
    failing = {**env, "APPLICATION_RECORDER_TOPIC": f"tests.traps.recorders:{hook}"}
    with SessionService(env=failing) as sessions:
        sessions.create("s")
        with pytest.raises(HookError):
            sessions.append_message("s", Message.user("a heron"), event_id="id")
    assert_nothing_was_stored(env)


def test_a_recorder_that_inserts_in_its_own_way_is_let_do_it(tmp_path: Path) -> None:
    env = sqlite_env(tmp_path / "sessions.db")
    whole = {**env, "APPLICATION_RECORDER_TOPIC": "tests.traps.recorders:SqliteWhole"}
    with SessionService(env=whole) as sessions:
        sessions.create("s")
        with pytest.raises(HookError):
            sessions.append_message("s", Message.user("a heron"), event_id="id")
        assert [(row.version, row.messages) for row in sessions.list_sessions()] == [(1, 1)]
        assert sessions.append_message("s", Message.user("a heron"), event_id="id").is_repeat


def test_an_error_while_rows_are_derived_leaves_nothing_stored(
    env: Mapping[str, str], sessions: SessionService, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions.create("s")
    mapper: Any = sessions.app.mapper
    read = mapper.to_domain_event

    def unreadable(stored: Any) -> Any:
        if stored.topic == MessageAppended.TOPIC:
            raise HookError
        return read(stored)

    with monkeypatch.context() as broken:
        broken.setattr(mapper, "to_domain_event", unreadable)
        with pytest.raises(HookError):  # with a host's object the rows are derived from what is stored
            sessions.append_message("s", Message.user("a heron"), event_id="id", also=[Order("parcel")])
    assert_nothing_was_stored(env)


@pytest.mark.parametrize("place", ["ledger", "directory", "recall"])
def test_on_sqlite_an_error_behind_the_insert_leaves_nothing_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    env = sqlite_env(tmp_path / "sessions.db")
    with SessionService(env=env) as sessions:
        sessions.create("s")
        where = {"recall": "recall.SqliteRecallIndex.follow"}.get(place, f"{place}.insert")
        with monkeypatch.context() as broken:
            broken.setattr(f"turnlog.infrastructure.sqlite.{where}", fail)
            broken.setattr("turnlog.infrastructure.sqlite.recall.MAX_LAG", 0)  # each write is to be indexed
            with pytest.raises(HookError):
                sessions.append_message("s", Message.user("a heron"), event_id="id")
    assert_nothing_was_stored(env)


def fail(*_: object, **__: object) -> None:
    raise HookError


def test_an_error_while_a_content_is_removed_leaves_it_and_its_redaction_unwritten(
    env: Mapping[str, str], sessions: SessionService, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions.create("s")
    sessions.append_message("s", Message.user("a heron"), event_id="id")
    module = env["PERSISTENCE_MODULE"].rpartition(".")[2]
    where = {"sqlite": "sqlite.eraser.overwrite_content", "postgres": "postgres.recorder.redact"}[module]
    with monkeypatch.context() as broken:
        broken.setattr(f"turnlog.infrastructure.{where}", fail)
        with pytest.raises(HookError):
            sessions.redact("s", "id", reason="asked", by="ada")
    assert sessions.version("s") == 1
    assert len(sessions.search_events("s", EventQuery(keywords="heron"))) == 1
