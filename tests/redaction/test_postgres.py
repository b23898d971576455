"""A redaction on PostgreSQL: index, old rows, and transactions that still look at them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from tests.contracts.stores import WordCount
from tests.support.postgres import postgres_env, server

from turnlog.application.service import SessionService
from turnlog.domain.ids import aggregate_id
from turnlog.domain.log import NewEvent
from turnlog.domain.messages import Message
from turnlog.domain.query import EventQuery

SID, SECRET = "s", "zinniazinnia"
WHY: Any = {"reason": "asked", "by": "bob"}


@pytest.fixture
def sessions() -> Iterator[SessionService]:
    with SessionService(env=postgres_env(), token_estimator=WordCount()) as opened:
        opened.create(SID)
        said = [NewEvent(message=Message.user(f"word {number}"), id=f"u{number}") for number in range(20)]
        opened.append_events(SID, said[:5])
        opened.append_message(SID, Message.user(SECRET), event_id="secret")
        opened.append_events(SID, said[5:10])
        for event in said[10:]:
            opened.append_events(SID, [event])
        yield opened


def candidates(sessions: SessionService, keyword: str) -> set[int]:
    """The versions at which the index says that the keyword may stand, within what is indexed."""
    recorder: Any = sessions.app.recorder
    aggregate = aggregate_id(SID, "")
    found = recorder.recall.candidates([aggregate], EventQuery(keywords=keyword)).get(aggregate, ())
    return {version for version in found if version < 16}


def test_the_index_forgets_what_was_redacted_and_keeps_its_neighbours(sessions: SessionService) -> None:
    assert 6 in candidates(sessions, SECRET)
    sessions.redact(SID, "secret", **WHY)
    assert candidates(sessions, SECRET) == set()
    assert candidates(sessions, "word 3")
    assert len(sessions.search_events(SID, EventQuery(keywords="word"))) == 20


def test_an_older_transaction_makes_the_erasure_pending(
    sessions: SessionService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnlog.infrastructure.postgres.eraser._PATIENCE", 0.05)
    with psycopg.connect(server()) as reader:
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT count(*) FROM pg_class")
        assert sessions.redact(SID, "secret", **WHY).erasure == "pending"
        reader.rollback()
    assert sessions.sweep(None).completed == 1


def test_without_an_index_searches_read_the_log(sessions: SessionService) -> None:
    env = {name: value for name, value in sessions.app.env.items() if name != "TURNLOG_RECALL_INDEX"}
    with SessionService(env={**env, "TURNLOG_RECALL_INDEX": "no"}, token_estimator=WordCount()) as unindexed:
        assert unindexed.capabilities.recall == "log"
        assert len(unindexed.search_events(SID, EventQuery(keywords=SECRET))) == 1
    assert candidates(sessions, "word 3") == set(range(1, 16))  # nothing is indexed any more
