"""A key for each session: when it is destroyed, no copy of the session can be read any more."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.contracts.stores import WordCount, sqlite_env

from turnlog.application.audit import SessionAudit
from turnlog.application.service import SessionService
from turnlog.domain.errors import InvalidSettingError, SessionNotFoundError
from turnlog.domain.ids import aggregate_id
from turnlog.domain.messages import Message
from turnlog.domain.query import EventQuery
from turnlog.infrastructure.shredding import SqliteKeyFile

SID, SECRET = "s", "zinniazinnia"
WHY: Any = {"reason": "asked", "by": "bob"}
TOPICS = {
    "MAPPER_TOPIC": "turnlog.infrastructure.shredding:SessionKeyMapper",
    "CIPHER_TOPIC": "turnlog.infrastructure.shredding:SessionKeys",
}


def service(folder: Path, name: str = "sessions.db", **env: str) -> SessionService:
    keys = {"TURNLOG_SESSION_KEYS_FILE": str(folder / "keys.db")}
    return SessionService(
        env={**sqlite_env(folder / name), **TOPICS, **keys, **env}, token_estimator=WordCount()
    )


def tell(sessions: SessionService, session_id: str) -> None:
    sessions.create(session_id)
    for number in range(3):
        sessions.append_message(session_id, Message.user(f"{SECRET} {number}"), event_id=f"u{number}")


@pytest.fixture
def sessions(tmp_path: Path) -> Iterator[SessionService]:
    with service(tmp_path) as opened:
        tell(opened, SID)
        tell(opened, "other")
        yield opened


def test_what_was_said_is_not_in_the_file_and_can_be_read(tmp_path: Path, sessions: SessionService) -> None:
    assert SECRET.encode() not in b"".join(file.read_bytes() for file in tmp_path.iterdir())
    with service(tmp_path) as again:
        assert [message.text for message in again.get_messages(SID)] == [f"{SECRET} {n}" for n in range(3)]


def test_a_backup_of_a_deleted_session_cannot_be_read(tmp_path: Path, sessions: SessionService) -> None:
    sessions.backup(tmp_path / "backup.db")
    assert sessions.delete(SID).erasure == "done"
    shutil.copy(tmp_path / "backup.db", tmp_path / "restored.db")
    with service(tmp_path, "restored.db") as restored:
        assert restored.find(SID) is None
        assert restored.get_events(SID) == ()
        with pytest.raises(SessionNotFoundError):
            restored.view(SID)
        assert len(restored.get_messages("other")) == 3


def test_nothing_is_written_to_a_session_without_its_key(tmp_path: Path, sessions: SessionService) -> None:
    keys = SqliteKeyFile(str(tmp_path / "keys.db"))
    keys.destroy([aggregate_id(SID, "")])
    keys.close()
    with service(tmp_path) as other, pytest.raises(SessionNotFoundError):
        other.append_message(SID, Message.user("more"))
    assert sessions.find(SID) is None


def test_a_destroyed_key_is_not_made_again(tmp_path: Path) -> None:
    keys = SqliteKeyFile(str(tmp_path / "keys.db"))
    first = keys.key_or_new(aggregate_id(SID, ""))
    assert first == keys.key(aggregate_id(SID, ""))
    keys.destroy([aggregate_id(SID, "")])
    assert (keys.key(aggregate_id(SID, "")), keys.key_or_new(aggregate_id(SID, ""))) == (None, None)
    keys.close()
    assert first is not None
    assert first not in (tmp_path / "keys.db").read_bytes()


def test_sessions_have_different_keys(tmp_path: Path) -> None:
    keys = SqliteKeyFile(str(tmp_path / "keys.db"))
    assert keys.key_or_new(aggregate_id("a", "")) != keys.key_or_new(aggregate_id("b", ""))
    keys.close()


def test_the_log_verifies_before_and_after_redaction_and_deletion(sessions: SessionService) -> None:
    audit = SessionAudit(sessions)
    assert audit.verify().findings == ()
    assert sessions.redact(SID, "u0", **WHY).erasure == "done"
    assert audit.verify().findings == ()
    sessions.delete("other")
    assert audit.verify().findings == ()


def test_an_event_that_was_put_in_the_place_of_another_is_found(
    tmp_path: Path, sessions: SessionService
) -> None:
    recorder: Any = sessions.app.recorder
    with recorder.datastore.transaction(commit=True) as cursor:
        cursor.execute(
            "UPDATE stored_events SET state = (SELECT state FROM stored_events WHERE originator_id = ? "
            "AND originator_version = 2) WHERE originator_id = ? AND originator_version = 1",
            (aggregate_id(SID, "").hex, aggregate_id(SID, "").hex),
        )
    assert [one.version for one in SessionAudit(sessions).verify(SID).findings] == [1]


def test_what_was_said_is_not_indexed_unless_that_is_asked_for(
    tmp_path: Path, sessions: SessionService
) -> None:
    assert sessions.capabilities.recall == "log"
    assert len(sessions.search_events(SID, EventQuery(keywords=SECRET))) == 3
    with service(tmp_path, TURNLOG_RECALL_INDEX="yes") as indexed:
        assert indexed.capabilities.recall == "index"


def test_a_sweep_destroys_the_key_that_a_crash_left(tmp_path: Path, sessions: SessionService) -> None:
    mapper = sessions.app.mapper
    vars(mapper)["shred"] = set  # does nothing
    sessions.delete(SID)
    del vars(mapper)["shred"]
    keys = SqliteKeyFile(str(tmp_path / "keys.db"))
    assert keys.key(aggregate_id(SID, "")) is not None
    sessions.sweep()
    assert keys.key(aggregate_id(SID, "")) is None
    keys.close()


def test_without_a_file_for_the_keys_it_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettingError):
        SessionService(env={**sqlite_env(tmp_path / "s.db"), **TOPICS})
