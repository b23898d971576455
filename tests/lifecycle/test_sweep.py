"""Pending erasures, the purge of stubs, and what outlasts them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from eventsourcing.persistence import IntegrityError
from tests.lifecycle.conftest import Clock
from tests.support.conformance_stores import NoTokens

from turnlog.application.erasing import BackupError, ErasureDue
from turnlog.application.service import SessionService
from turnlog.domain.errors import (
    InvalidSettingError,
    SessionIdUnavailableError,
    SessionNotFoundError,
    VersionConflictError,
)
from turnlog.domain.log import NewEvent
from turnlog.domain.messages import Message
from turnlog.domain.session import Session
from turnlog.infrastructure.sqlite import restore

RARE = "a word that nobody else says"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sessions.db"


def opened(path: Path, clock: Clock) -> SessionService:
    env = {
        "PERSISTENCE_MODULE": "eventsourcing.sqlite",
        "SQLITE_DBNAME": str(path),
        "SQLITE_LOCK_TIMEOUT": "1",
    }
    return SessionService(env=env, clock=clock, token_estimator=NoTokens())


@pytest.fixture
def sessions(path: Path, clock: Clock) -> Iterator[SessionService]:
    """A service on a file, with two sessions."""
    with opened(path, clock) as service:
        for session_id in ("gone", "stays"):
            service.create(session_id)
            service.append_events(session_id, [NewEvent(message=Message.user(RARE))] * 3)
        yield service


def is_left(path: Path) -> bool:
    files = (path, path.with_name(path.name + "-wal"))
    return any(RARE.encode() in file.read_bytes() for file in files)


def delete_while_read(sessions: SessionService, path: Path) -> tuple[sqlite3.Connection, str | None]:
    """Delete both sessions while another connection reads an older state; it goes on reading."""
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM stored_events").fetchone()
    sessions.delete("stays")
    deletion = sessions.delete("gone")
    assert deletion.erasure == "pending"
    return reader, deletion.reason


def test_a_reader_of_an_older_state_makes_the_erasure_pending_with_a_reason(
    sessions: SessionService, path: Path
) -> None:
    reader, reason = delete_while_read(sessions, path)
    with closing(reader):
        assert reason is not None
        assert "sweep" in reason


def test_a_session_whose_erasure_is_pending_is_gone_for_every_reader(
    sessions: SessionService, path: Path
) -> None:
    with closing(delete_while_read(sessions, path)[0]):
        assert sessions.find("gone") is None


def test_a_sweep_completes_what_is_pending(sessions: SessionService, path: Path) -> None:
    delete_while_read(sessions, path)[0].close()
    assert is_left(path)
    swept = sessions.sweep()
    assert (swept.completed, swept.pending, swept.reason) == (2, 0, None)
    assert not is_left(path)


def test_a_sweep_says_what_still_waits(sessions: SessionService, path: Path) -> None:
    with closing(delete_while_read(sessions, path)[0]):
        swept = sessions.sweep()
        assert (swept.completed, swept.pending) == (0, 2)
        assert swept.reason is not None


def test_writers_go_on_while_an_erasure_waits_for_a_reader(sessions: SessionService, path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM stored_events").fetchone()
        sessions.delete("gone")
        assert sessions.append_message("stays", Message.user("still here")).version == 4


# --- purge


def versions(sessions: SessionService, session_id: str) -> list[int]:
    stream = sessions._key(session_id).aggregate_id  # pyright: ignore[reportPrivateUsage] # the id of its stream
    return [row.originator_version for row in sessions.app.recorder.select_events(stream)]


def test_stubs_stay_for_thirty_days(sessions: SessionService, clock: Clock) -> None:
    sessions.delete("gone")
    clock.pass_(days=29)
    assert sessions.sweep().purged == 0
    assert versions(sessions, "gone") == [0, 1, 2, 3, 4]


def test_a_purge_removes_the_stubs_between_version_0_and_the_tombstone(
    sessions: SessionService, clock: Clock
) -> None:
    sessions.delete("gone")
    clock.pass_(days=31)
    assert sessions.sweep().purged == 3
    assert versions(sessions, "gone") == [0, 4]


def test_a_purge_keeps_every_other_row_under_its_notification_id(
    sessions: SessionService, clock: Clock
) -> None:
    def rows() -> dict[int, bytes]:
        return {one.id: one.state for one in sessions.app.recorder.select_notifications(1, 1000)}

    sessions.delete("gone")
    before = rows()
    clock.pass_(days=31)
    sessions.sweep()
    after = rows()
    assert len(after) == len(before) - 3
    assert after.items() <= before.items()


def test_a_purged_session_is_still_deleted(sessions: SessionService, clock: Clock) -> None:
    sessions.delete("gone")
    clock.pass_(days=31)
    sessions.sweep()
    stream = sessions._key("gone").aggregate_id  # pyright: ignore[reportPrivateUsage] # the id of its stream
    loaded: object = sessions.app.repository.get(stream)
    assert isinstance(loaded, Session)
    assert loaded.is_deleted
    with pytest.raises(SessionIdUnavailableError):
        sessions.create("gone")


def test_a_replay_of_a_purged_stream_is_a_deleted_session(sessions: SessionService, clock: Clock) -> None:
    sessions.delete("gone")
    clock.pass_(days=31)
    sessions.sweep()
    stream = sessions._key("gone").aggregate_id  # pyright: ignore[reportPrivateUsage] # the id of its stream
    session = None
    for event in sessions.app.events.get(stream):
        session = event.mutate(session)  # type: ignore[attr-defined] # the framework does not know our events
    assert isinstance(session, Session)
    assert (session.version, session.is_deleted) == (4, True)


def test_a_writer_that_slept_through_the_purge_writes_nothing(
    sessions: SessionService, path: Path, clock: Clock
) -> None:
    with opened(path, clock) as sleeper:
        sleeper.append_message("gone", Message.user("one more"))
        sessions.append_message("gone", Message.user("and another"))
        sessions.delete("gone")
        clock.pass_(days=31)
        sessions.sweep()
        with pytest.raises((SessionNotFoundError, VersionConflictError)):
            sleeper.append_message("gone", Message.user("still there?"))
    assert versions(sessions, "gone") == [0, 6]


def test_a_host_that_slept_through_the_purge_saves_nothing(sessions: SessionService, clock: Clock) -> None:
    stream = sessions._key("gone").aggregate_id  # pyright: ignore[reportPrivateUsage] # the id of its stream
    early: object = sessions.app.repository.get(stream, version=1)
    assert isinstance(early, Session)
    sessions.delete("gone")
    clock.pass_(days=31)
    sessions.sweep()
    early.extend(None, now=clock.now)
    with pytest.raises(IntegrityError):
        sessions.app.save(early)


def test_a_sweep_without_a_purge_removes_no_row(sessions: SessionService, clock: Clock) -> None:
    sessions.delete("gone")
    clock.pass_(days=365)
    assert sessions.sweep(purge_after=None).purged == 0


def test_a_purge_of_what_was_deleted_before_all_times_removes_no_row(sessions: SessionService) -> None:
    sessions.delete("gone")
    assert sessions.sweep(purge_after=timedelta.max).purged == 0


def test_a_session_that_was_deleted_with_erase_false_is_never_purged(
    sessions: SessionService, clock: Clock
) -> None:
    sessions.delete("gone", erase=False)
    clock.pass_(days=31)
    assert sessions.sweep().purged == 0
    assert versions(sessions, "gone") == [0, 1, 2, 3, 4]


def test_a_negative_time_is_refused(sessions: SessionService) -> None:
    with pytest.raises(InvalidSettingError):
        sessions.sweep(purge_after=timedelta(days=-1))


def test_in_a_scope_there_is_no_upkeep_of_the_whole_store(sessions: SessionService) -> None:
    with pytest.raises(InvalidSettingError, match="whole store"):
        sessions.scoped_to("ada").sweep()


# --- a list outside the database, backups


@pytest.fixture
def listed(
    path: Path, tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SessionService]:
    """A service that lists its erasures in a file."""
    monkeypatch.setenv("TURNLOG_ERASURES_FILE", str(tmp_path / "erasures"))
    with opened(path, clock) as service:
        for session_id in ("gone", "stays"):
            service.create(session_id)
            service.append_message(session_id, Message.user(RARE))
        yield service


def restored(tmp_path: Path, clock: Clock) -> SessionService:
    restore(tmp_path / "backup.db", tmp_path / "restored.db")
    return opened(tmp_path / "restored.db", clock)


def test_a_backup_holds_the_sessions_as_they_were(
    listed: SessionService, tmp_path: Path, clock: Clock
) -> None:
    listed.backup(tmp_path / "backup.db")
    listed.delete("gone")
    with restored(tmp_path, clock) as back:
        assert back.get_messages("gone")[0].text == RARE


def test_after_a_restore_the_erasures_since_the_backup_are_due_again(
    listed: SessionService, tmp_path: Path, clock: Clock
) -> None:
    listed.backup(tmp_path / "backup.db")
    at = clock.now
    clock.pass_(hours=1)
    listed.delete("gone")
    with restored(tmp_path, clock) as back:
        assert [(due.session_id, due.deleted_at) for due in back.erasures(at)] == [("gone", clock.now)]


def test_a_session_that_was_deleted_with_erase_false_is_due_again_too(
    listed: SessionService, tmp_path: Path, clock: Clock
) -> None:
    listed.backup(tmp_path / "backup.db")
    listed.delete("gone", erase=False)
    with restored(tmp_path, clock) as back:
        assert [due.session_id for due in back.erasures(clock.now)] == ["gone"]


def test_what_was_erased_again_is_due_no_longer(listed: SessionService, tmp_path: Path, clock: Clock) -> None:
    listed.backup(tmp_path / "backup.db")
    listed.delete("gone")
    with restored(tmp_path, clock) as back:
        back.delete("gone")
        assert back.erasures(clock.now - timedelta(days=1)) == ()


def test_where_nothing_was_restored_nothing_is_due(listed: SessionService, clock: Clock) -> None:
    listed.delete("gone")
    assert listed.erasures(clock.now - timedelta(days=1)) == ()


def redacted_behind_a_backup(listed: SessionService, tmp_path: Path, clock: Clock) -> int:
    """A redaction that a backup does not have. Returns the version of the message."""
    message = listed.append_message("stays", Message.user("A secret."), event_id="m")
    listed.backup(tmp_path / "backup.db")
    clock.pass_(hours=1)
    listed.redact("stays", "m", reason="asked for", by="ada")
    return message.version


def test_after_a_restore_the_redactions_since_the_backup_are_due_again(
    listed: SessionService, tmp_path: Path, clock: Clock
) -> None:
    version = redacted_behind_a_backup(listed, tmp_path, clock)
    with restored(tmp_path, clock) as back:
        assert back.erasures(clock.now) == (ErasureDue("stays", clock.now, version, "m"),)
        back.redact("stays", "m", reason="asked for", by="ada")
        assert back.erasures(clock.now) == ()


def test_where_nothing_was_restored_no_redaction_is_due(
    listed: SessionService, tmp_path: Path, clock: Clock
) -> None:
    redacted_behind_a_backup(listed, tmp_path, clock)
    assert listed.erasures(clock.now - timedelta(days=1)) == ()


def test_another_message_at_the_version_of_a_redacted_one_is_not_due(
    listed: SessionService, tmp_path: Path, clock: Clock
) -> None:
    listed.backup(tmp_path / "backup.db")
    listed.append_message("stays", Message.user("A secret."), event_id="m")
    listed.redact("stays", "m", reason="asked for", by="ada")
    with restored(tmp_path, clock) as back:
        back.append_message("stays", Message.user("Something else."), event_id="m")
        assert back.erasures(clock.now - timedelta(days=1)) == ()


def test_a_redaction_in_a_session_that_is_to_be_deleted_again_is_not_listed(
    listed: SessionService, tmp_path: Path, clock: Clock
) -> None:
    redacted_behind_a_backup(listed, tmp_path, clock)
    listed.delete("stays")
    with restored(tmp_path, clock) as back:
        assert [(due.session_id, due.event_version) for due in back.erasures(clock.now)] == [("stays", None)]


def test_a_redaction_that_could_not_be_listed_is_pending_and_its_repeat_lists_it(
    listed: SessionService, tmp_path: Path, clock: Clock
) -> None:
    listed.append_message("stays", Message.user("A secret."), event_id="m")
    listed.backup(tmp_path / "backup.db")
    (tmp_path / "erasures").mkdir()
    assert listed.redact("stays", "m", reason="asked for", by="ada").erasure == "pending"
    (tmp_path / "erasures").rmdir()
    assert listed.redact("stays", "m", reason="asked for", by="ada").erasure == "done"
    with restored(tmp_path, clock) as back:
        assert [due.event_id for due in back.erasures(clock.now)] == ["m"]


def test_expired_sessions_are_listed_too(listed: SessionService, tmp_path: Path, clock: Clock) -> None:
    listed.backup(tmp_path / "backup.db")
    clock.pass_(days=61)
    assert listed.delete_expired(clock.now) == 2
    with restored(tmp_path, clock) as back:
        assert {due.session_id for due in back.erasures(clock.now)} == {"gone", "stays"}


def test_the_list_says_neither_who_nor_what(listed: SessionService, tmp_path: Path) -> None:
    listed.delete("gone")
    assert "gone" not in (tmp_path / "erasures").read_text()


def test_a_list_that_cannot_be_written_leaves_the_erasure_pending_and_a_sweep_writes_it(
    listed: SessionService, tmp_path: Path, clock: Clock
) -> None:
    listed.backup(tmp_path / "backup.db")
    (tmp_path / "erasures").mkdir()
    assert listed.delete("gone").erasure == "pending"
    (tmp_path / "erasures").rmdir()
    listed.sweep()
    with restored(tmp_path, clock) as back:
        assert [due.session_id for due in back.erasures(clock.now)] == ["gone"]


def test_a_line_that_a_crash_cut_off_is_passed_over(
    listed: SessionService, tmp_path: Path, clock: Clock
) -> None:
    (tmp_path / "erasures").write_text("2031-05-01T08:00")
    listed.backup(tmp_path / "backup.db")
    listed.delete("gone")
    with restored(tmp_path, clock) as back:
        assert [due.session_id for due in back.erasures(clock.now)] == ["gone"]


def test_without_a_list_the_question_is_refused(sessions: SessionService, clock: Clock) -> None:
    with pytest.raises(InvalidSettingError, match="TURNLOG_ERASURES_FILE"):
        sessions.erasures(clock.now)


def test_a_backup_overwrites_no_file(sessions: SessionService, tmp_path: Path) -> None:
    (tmp_path / "backup.db").write_text("mine")
    with pytest.raises(BackupError):
        sessions.backup(tmp_path / "backup.db")
    assert (tmp_path / "backup.db").read_text() == "mine"


def test_a_backup_leaves_one_file(sessions: SessionService, tmp_path: Path) -> None:
    (tmp_path / "backups").mkdir()
    sessions.backup(tmp_path / "backups" / "backup.db")
    assert [file.name for file in (tmp_path / "backups").iterdir()] == ["backup.db"]


@pytest.mark.parametrize("content", [b"", b"no database", b"SQLite format 3\0" + b"x" * 5000])
def test_what_is_no_backup_is_not_restored(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "backup.db").write_bytes(content)
    with pytest.raises(BackupError):
        restore(tmp_path / "backup.db", tmp_path / "restored.db")
    assert not (tmp_path / "restored.db").exists()


def test_nothing_is_restored_over_a_database(sessions: SessionService, tmp_path: Path, path: Path) -> None:
    sessions.backup(tmp_path / "backup.db")
    with pytest.raises(BackupError):
        restore(tmp_path / "backup.db", path)


def test_a_store_in_memory_has_no_backup(tmp_path: Path) -> None:
    with pytest.raises(BackupError):
        SessionService(token_estimator=NoTokens()).backup(tmp_path / "backup.db")
