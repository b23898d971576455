"""Chats on PostgreSQL: one turn at a time, recorded calls, and nothing held while a model is asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from psycopg import sql
from tests.chat.processes import Process
from tests.postgres.conftest import datastore_of, service_on
from tests.support.chats import SID, lines
from tests.support.postgres import connect
from tests.support.scripted_chat import ScriptedModel, calls

from turnlog.application.audit import PromptRecorder, SessionAudit
from turnlog.application.chat import SessionChat
from turnlog.application.service import SessionService
from turnlog.domain import TurnInProgressError
from turnlog.domain.summarizing import PromptSummarizer
from turnlog.domain.window import CompactionWindow, WindowCompactionStrategy

_HELD = """
    SELECT state, query, mode FROM pg_stat_activity LEFT JOIN pg_locks USING (pid)
        LEFT JOIN pg_class ON pg_class.oid = relation
        LEFT JOIN pg_namespace ON pg_namespace.oid = relnamespace
    WHERE pid <> pg_backend_pid() AND backend_type = 'client backend' AND (
        nspname = %(name)s OR application_name = %(name)s AND (mode IS NOT NULL OR state <> 'idle')
    )
"""
"""Locks on tables of the schema, whoever has them, and what the application's connections hold or do."""


class Watched:
    """What the connections of one application do."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._name = env["POSTGRES_SCHEMA"]

    def connections(self) -> int:
        """How many there are."""
        with connect() as connection:
            (count,) = connection.execute(
                "SELECT count(*) FROM pg_stat_activity "
                "WHERE application_name = %s AND pid <> pg_backend_pid()",
                (self._name,),
            ).fetchone() or (0,)
        return int(count)

    def held(self) -> list[tuple[Any, ...]]:
        """Transactions that are open and locks that are held."""
        with connect() as connection:
            return connection.execute(_HELD, {"name": self._name}).fetchall()


@pytest.fixture
def watched(env: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> Watched:
    """Of the services that are opened behind this."""
    monkeypatch.setenv("PGAPPNAME", env["POSTGRES_SCHEMA"])
    return Watched(env)


@pytest.fixture
def watched_sessions(env: Mapping[str, str], watched: Watched) -> Iterator[SessionService]:
    """A service that is watched."""
    with service_on(env) as service:
        yield service


# --- nothing is held


def test_what_is_held_is_seen(
    watched: Watched, watched_sessions: SessionService, env: Mapping[str, str]
) -> None:
    table = sql.Identifier(env["POSTGRES_SCHEMA"], "sessions_events")
    with connect() as other:
        assert watched.held() == []
        with other.transaction():
            other.execute(sql.SQL("SELECT count(*) FROM {}").format(table))
            assert watched.held()
    with datastore_of(watched_sessions).transaction(commit=False) as cursor:
        cursor.execute("SELECT 1")
        assert watched.held()


def test_no_transaction_or_lock_is_held_while_a_model_is_asked(
    watched: Watched, watched_sessions: SessionService
) -> None:
    seen: list[tuple[int, list[tuple[Any, ...]]]] = []

    def look() -> None:
        seen.append((watched.connections(), watched.held()))

    def answer(_: object) -> Any:
        look()
        return calls("c1 work") if len(seen) == 1 else "done"

    def work() -> str:
        look()
        return "worked"

    sessions = watched_sessions
    model = ScriptedModel([answer])
    chat = SessionChat(sessions, model, tools=[work], recorder=PromptRecorder(sessions))
    assert chat.send(SID, "go").text == "done"
    assert [held for _, held in seen] == [[], [], []]
    assert all(connections > 0 for connections, _ in seen)


def test_no_transaction_or_lock_is_held_while_an_answer_streams(
    watched: Watched, watched_sessions: SessionService
) -> None:
    chat = SessionChat(watched_sessions, ScriptedModel(["one two three"]))
    with chat.stream(SID, "go") as turn:
        held = [watched.held() for _ in turn]
    assert held
    assert not any(held)


def test_no_transaction_or_lock_is_held_while_a_summary_is_written(
    watched: Watched, watched_sessions: SessionService
) -> None:
    sessions = watched_sessions
    held: list[list[tuple[Any, ...]]] = []
    chat = SessionChat(sessions, ScriptedModel(["hi"]))
    for text in ("one", "two", "three"):
        chat.send(SID, text)

    def summarize(_: object) -> str:
        held.append(watched.held())
        return "They greeted."

    window = CompactionWindow.last_turns(1)
    strategy = WindowCompactionStrategy(window, summarizer=PromptSummarizer(summarize))
    assert not sessions.compact(SID, None, strategy).is_unchanged
    assert held == [[]]


# --- turns


def test_a_turn_with_tools_and_recorded_calls_is_in_the_log_whole(sessions: SessionService) -> None:
    def find(parcel: int) -> str:
        return f"Parcel {parcel} is in Lund."

    model = ScriptedModel([calls('c1 find {"parcel": 1}', 'c2 find {"parcel": 2}'), "Both are in Lund."])
    recorder = PromptRecorder(sessions)
    SessionChat(sessions, model, tools=[find], instructions="Be kind.", recorder=recorder).send(SID, "Where?")
    assert [line.split()[0] for line in lines(sessions)] == [
        "User:",
        "Assistant",
        "Tool",
        "Tool",
        "Assistant:",
    ]
    audit = SessionAudit(sessions)
    timeline = audit.timeline(SID)
    assert (timeline.calls, timeline.turns) == (2, 1)
    assert audit.verify().is_whole


def test_of_two_processes_that_begin_at_once_exactly_one_wins(env: Mapping[str, str]) -> None:
    service_on(env).close()
    with Process(env) as one, Process(env) as other:
        for round_ in range(5):
            both = (one, other)
            for process in both:
                process.say(f"send s{round_} -")
            heard = [process.hear() for process in both]
            assert sorted(heard) == ["TurnInProgressError", "asked"]
            winner = both[heard.index("asked")]
            winner.say("hi")
            assert winner.hear() == "done"
    with service_on(env) as sessions:
        assert [lines(sessions, f"s{n}") for n in range(5)] == [["User: hello", "Assistant: hi"]] * 5


def test_a_process_that_dies_in_a_turn_blocks_nobody_for_long(env: Mapping[str, str]) -> None:
    with service_on(env) as sessions:
        with Process(env) as process:
            process.say(f"send {SID} -")
            assert process.hear() == "asked"
            process.say("call")
            assert process.hear() == "working"
            process.kill()
        with pytest.raises(TurnInProgressError):
            SessionChat(sessions, ScriptedModel(["hi"])).send(SID, "and now?")
        later = datetime.now(UTC) + timedelta(minutes=2)
        with SessionService(sessions.app, clock=lambda: later) as afterwards:
            model = ScriptedModel(["hi"])
            assert SessionChat(afterwards, model).send(SID, "and now?").text == "hi"
    assert (model.told[0][0], len(model.told[0])) == ("User: hello", 3)
