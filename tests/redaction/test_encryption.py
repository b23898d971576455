"""Sessions of an application that encrypts what it stores, with a cipher of the framework's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from eventsourcing.cryptography import AESCipher
from tests.contracts.stores import WordCount, sqlite_env

from turnlog.application.audit import SessionAudit
from turnlog.application.service import SessionService
from turnlog.domain.log import NewEvent
from turnlog.domain.messages import Message
from turnlog.domain.query import EventQuery

SID, SECRET = "s", "zinniazinnia"
WHY: Any = {"reason": "asked", "by": "bob"}
KEY = AESCipher.create_key(16)
PLAIN_RECORDER = {"APPLICATION_RECORDER_TOPIC": "eventsourcing.sqlite:SQLiteApplicationRecorder"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sessions.db"


def service(path: Path, **env: str) -> SessionService:
    ciphered = {"CIPHER_TOPIC": "eventsourcing.cryptography:AESCipher", "CIPHER_KEY": KEY}
    return SessionService(env={**sqlite_env(path), **ciphered, **env}, token_estimator=WordCount())


@pytest.fixture(params=[{}, PLAIN_RECORDER], ids=["rows", "plain"])
def sessions(path: Path, request: pytest.FixtureRequest) -> Iterator[SessionService]:
    with service(path, **request.param) as opened:
        opened.create(SID)
        for number in range(3):
            opened.append_message(SID, Message.user(f"{SECRET} {number}"), event_id=f"u{number}")
        yield opened


def stored(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in path.parent.iterdir())


def test_what_was_said_is_not_in_the_file(path: Path, sessions: SessionService) -> None:
    assert SECRET.encode() not in stored(path)
    assert sessions.get_messages(SID)[0].text == f"{SECRET} 0"


def test_the_log_verifies(sessions: SessionService) -> None:
    assert SessionAudit(sessions).verify().findings == ()


def test_a_redaction_is_done_and_verifies(path: Path, sessions: SessionService) -> None:
    assert sessions.redact(SID, "u0", **WHY).erasure == "done"
    assert sessions.get_messages(SID)[0].text == "[redacted: asked]"
    assert SessionAudit(sessions).verify().findings == ()


def test_a_deletion_is_done_and_verifies(sessions: SessionService) -> None:
    assert sessions.delete(SID).erasure == "done"
    assert SessionAudit(sessions).verify().findings == ()


def test_a_search_finds_it(sessions: SessionService) -> None:
    assert len(sessions.search_events(SID, EventQuery(keywords=SECRET))) == 3


# --- the index is plain text


def said(sessions: SessionService) -> None:
    sessions.create("t")
    sessions.append_events("t", [NewEvent(message=Message.user(SECRET)) for _ in range(300)])


def test_an_index_holds_trigrams_of_what_was_said(path: Path) -> None:
    with service(path) as sessions:
        said(sessions)
        assert sessions.capabilities.recall == "index"
    assert b"zin" in stored(path)


@pytest.mark.parametrize("env", [{}, PLAIN_RECORDER], ids=["rows", "plain"])
def test_without_an_index_nothing_of_it_is_in_the_file(path: Path, env: dict[str, str]) -> None:
    with service(path, TURNLOG_RECALL_INDEX="no", **env) as sessions:
        said(sessions)
        assert sessions.capabilities.recall == "log"
        assert len(sessions.search_events("t", EventQuery(keywords=SECRET))) == 300
    assert b"zin" not in stored(path)


@pytest.mark.parametrize("env", [{}, PLAIN_RECORDER], ids=["rows", "plain"])
def test_an_index_that_is_switched_off_is_emptied(path: Path, env: dict[str, str]) -> None:
    with service(path, **env) as sessions:
        said(sessions)
        assert len(sessions.search_events("t", EventQuery(keywords=SECRET))) == 300
    with service(path, TURNLOG_RECALL_INDEX="no", **env):
        pass
    assert b"zin" not in stored(path)


def test_an_index_that_is_switched_on_again_is_exact(path: Path) -> None:
    with service(path) as sessions:
        said(sessions)
    with service(path, TURNLOG_RECALL_INDEX="no") as sessions:
        sessions.append_message("t", Message.user("a heron"), event_id="h")
    with service(path) as sessions:
        assert [one.id for one in sessions.search_events("t", EventQuery(keywords="heron"))] == ["h"]
