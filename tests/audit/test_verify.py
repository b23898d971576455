"""Whatever is changed behind the application's back is found, and found where it is."""

from __future__ import annotations

import json
import os
import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.audit.logs import BEGIN, compact, fill, say_turns
from tests.audit.mutations import mutate
from tests.contracts.stores import STORES, sqlite_env

from turnlog.application.audit import (
    FindingKind,
    Heads,
    InvalidHeadsError,
    InvalidSignatureError,
    SessionAudit,
    Verification,
)
from turnlog.application.service import SessionService
from turnlog.domain.attributes import SessionAttributes
from turnlog.domain.errors import SessionNotFoundError
from turnlog.domain.messages import Message
from turnlog.infrastructure.signing import Ed25519Signer, Ed25519Verifier, new_key_file

MUTATIONS = 2000 if os.environ.get("HYPOTHESIS_PROFILE") == "soak" else 150

OpenFile = Callable[[], SessionService]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with sessions that hold every kind of event."""
    file = tmp_path_factory.mktemp("whole") / "sessions.db"
    with SessionService(env=sqlite_env(file)) as sessions:
        fill(sessions)
    return _one_file(file)


@pytest.fixture
def change(whole: Path, tmp_path: Path) -> Callable[..., Verification]:
    """Runs SQL on a copy of the file, and says what a verification finds then."""

    def run(statement: str, *values: object) -> Verification:
        file = tmp_path / "copy.db"
        shutil.copy(whole, file)
        with closing(sqlite3.connect(file)) as connection, connection:
            changed = connection.execute(statement, values).rowcount
            assert changed > 0
        return _verified(file)

    return run


def _one_file(file: Path) -> Path:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.execute("PRAGMA journal_mode=DELETE")
    return file


def _verified(file: Path, session_id: str | None = None, **options: Any) -> Verification:
    with SessionService(env=sqlite_env(file)) as sessions:
        return SessionAudit(sessions).verify(session_id, **options)


def _found(verification: Verification) -> list[tuple[FindingKind, int | None]]:
    return [(finding.kind, finding.version) for finding in verification.findings]


def _id(whole: Path, session_id: str) -> str:
    with SessionService(env=sqlite_env(whole)) as sessions:
        row = next(iter(sessions.sessions_with_prefix(session_id)))
        return row.aggregate_id.hex


@pytest.mark.parametrize("name", sorted(STORES))
def test_a_log_that_nobody_touched_is_whole_on_every_store(name: str, tmp_path: Path) -> None:
    store = STORES[name](tmp_path)
    sessions = store.service()
    sessions.create("a")
    say_turns(sessions, "a", 0, 3)
    compact(sessions, "a")
    say_turns(sessions, "a", 3, 1)
    found = SessionAudit(sessions).verify()
    sessions.close()
    assert (found.findings, found.sessions) == ((), 1)


def test_every_kind_of_event_verifies(whole: Path) -> None:
    found = _verified(whole)
    assert (found.findings, found.sessions) == ((), 4)


def test_random_changes_are_all_found_where_they_are(whole: Path, tmp_path: Path) -> None:
    file = tmp_path / "mutated.db"
    missed: list[object] = []
    for seed in range(MUTATIONS):
        for old in tmp_path.glob("mutated.db*"):
            old.unlink()
        shutil.copy(whole, file)
        what, where = mutate(file, random.Random(seed))
        found = {(finding.aggregate_id, finding.version) for finding in _verified(file).findings}
        if not where <= found:
            missed.append((seed, what, where, found))
    assert missed == []


def test_a_changed_text_is_found_at_its_event_alone(change: Callable[..., Verification]) -> None:
    found = change(
        "UPDATE stored_events SET state = replace(CAST(state AS TEXT), 'question 4', 'question 9') "
        "WHERE instr(CAST(state AS TEXT), 'question 4') > 0"
    )
    assert [kind for kind, _ in _found(found)] == [FindingKind.CHANGED]


def test_the_newest_events_cannot_be_removed(change: Callable[..., Verification], whole: Path) -> None:
    aggregate = _id(whole, "small")
    found = change("DELETE FROM stored_events WHERE originator_id = ? AND originator_version >= 3", aggregate)
    assert _found(found) == [(FindingKind.MISSING, 3), (FindingKind.MISSING, 4)]


def test_a_whole_session_cannot_be_removed(change: Callable[..., Verification], whole: Path) -> None:
    found = change("DELETE FROM stored_events WHERE originator_id = ?", _id(whole, "small"))
    assert {kind for kind, _ in _found(found)} == {FindingKind.MISSING}


def test_a_row_of_the_directory_cannot_be_removed(change: Callable[..., Verification]) -> None:
    found = change("DELETE FROM turnlog_sessions WHERE session_id = 'small'")
    assert [finding.kind for finding in found.findings] == [FindingKind.UNKNOWN_SESSION]


def test_the_recorded_head_cannot_be_changed(change: Callable[..., Verification]) -> None:
    found = change("UPDATE turnlog_sessions SET head = 'x' WHERE session_id = 'small'")
    assert _found(found) == [(FindingKind.HEAD, 4)]


def test_a_long_gap_is_told_in_few_lines(tmp_path: Path) -> None:
    file = tmp_path / "long.db"
    with SessionService(env=sqlite_env(file)) as sessions:
        sessions.create("long")
        say_turns(sessions, "long", 0, 60)
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("DELETE FROM stored_events WHERE originator_version BETWEEN 5 AND 100")
    found = _verified(file).findings
    assert len(found) == 11
    assert found[-1].detail == "nor of the 86 versions from here on"


def test_a_value_that_is_text_instead_of_a_number_is_found(change: Callable[..., Verification]) -> None:
    """The chain writes both in the same way, so it cannot tell them apart."""
    found = change(
        """UPDATE stored_events SET state =
        CAST(replace(CAST(state AS TEXT), '"synthetic":1', '"synthetic":"1"') AS BLOB)
        WHERE instr(CAST(state AS TEXT), '"synthetic":1') > 0"""
    )
    assert {finding.detail for finding in found.findings} == {"its field synthetic is not of its kind"}


def test_a_row_that_the_store_cannot_read_is_found_and_hides_no_other(
    change: Callable[..., Verification], whole: Path
) -> None:
    aggregate = _id(whole, "small")
    found = change(
        "UPDATE stored_events SET topic = CAST(x'ff41' AS TEXT) "
        "WHERE originator_id = ? AND originator_version = 2",
        aggregate,
    )
    assert {(finding.kind, finding.version) for finding in found.findings if finding.version} == {
        (FindingKind.UNREADABLE, 2)
    }
    assert found.events == _verified(whole).events


def test_a_row_of_no_session_is_found_where_it_is_missing(
    change: Callable[..., Verification], whole: Path
) -> None:
    aggregate = _id(whole, "small")
    found = change(
        "UPDATE stored_events SET originator_id = 'nobody' "
        "WHERE originator_id = ? AND originator_version = 2",
        aggregate,
    )
    assert (FindingKind.MISSING, 2) in _found(found)


def test_a_row_that_stands_under_another_form_of_its_id_is_missing(
    change: Callable[..., Verification], whole: Path
) -> None:
    aggregate = _id(whole, "small")
    found = change(
        "UPDATE stored_events SET originator_id = upper(originator_id) "
        "WHERE originator_id = ? AND originator_version = 2",
        aggregate,
    )
    assert (FindingKind.MISSING, 2) in _found(found)


def test_a_rewritten_history_is_found_through_an_exported_head(tmp_path: Path) -> None:
    former = _session_file(tmp_path / "a.db", "question")
    forged = _session_file(tmp_path / "b.db", "forged")
    with SessionService(env=sqlite_env(former)) as sessions:
        heads = SessionAudit(sessions).export_heads()
    assert _verified(forged).is_whole
    assert _found(_verified(forged, heads=heads)) == [(FindingKind.HISTORY, 2)]


def test_a_head_of_yesterday_is_part_of_the_log_of_today(open_file: OpenFile) -> None:
    sessions = open_file()
    sessions.create("a")
    say_turns(sessions, "a", 0, 2)
    heads = SessionAudit(sessions).export_heads().to_json()
    say_turns(sessions, "a", 2, 2)
    found = SessionAudit(sessions).verify(heads=heads)
    assert (found.findings, found.heads_proven) == ((), 1)


def test_a_session_that_is_gone_with_its_row_is_found_through_an_exported_head(tmp_path: Path) -> None:
    file = _session_file(tmp_path / "a.db", "question")
    with SessionService(env=sqlite_env(file)) as sessions:
        heads = SessionAudit(sessions).export_heads()
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("DELETE FROM stored_events")
        connection.execute("DELETE FROM turnlog_sessions")
    assert _verified(file).is_whole
    assert [kind for kind, _ in _found(_verified(file, heads=heads))] == [FindingKind.HISTORY]


def test_a_deletion_is_not_mistaken_for_tampering(open_file: OpenFile) -> None:
    sessions = open_file()
    sessions.create("a")
    say_turns(sessions, "a", 0, 2)
    heads = SessionAudit(sessions).export_heads()
    sessions.append_message("a", Message.user("more"))
    sessions.delete("a")
    found = SessionAudit(sessions).verify(heads=heads)
    assert found.is_whole
    assert "was deleted since" in found.notes[0]


def test_the_head_right_in_front_of_a_deletion_is_proven_by_its_tombstone(open_file: OpenFile) -> None:
    sessions = open_file()
    sessions.create("a")
    say_turns(sessions, "a", 0, 2)
    heads = SessionAudit(sessions).export_heads()
    sessions.delete("a")
    assert SessionAudit(sessions).verify(heads=heads).heads_proven == 1


def test_erased_events_that_were_removed_are_no_finding(open_file: OpenFile) -> None:
    sessions = open_file()
    sessions.create("a")
    say_turns(sessions, "a", 0, 2)
    sessions.delete("a")
    sessions.sweep(timedelta(0))
    assert SessionAudit(sessions).verify().is_whole


def test_an_erased_event_that_somebody_removed_is_found(change: Callable[..., Verification]) -> None:
    found = change(
        "DELETE FROM stored_events WHERE topic LIKE '%EventErased' AND originator_version IN (1, 2, 3, 4)"
    )
    assert _found(found) == [(FindingKind.MISSING, version) for version in (1, 2, 3, 4)]


def test_an_erased_event_is_of_the_time_of_the_deletion(change: Callable[..., Verification]) -> None:
    found = change(
        """UPDATE stored_events SET state = CAST(replace(CAST(state AS TEXT), ':"20', ':"19') AS BLOB)
        WHERE topic LIKE '%EventErased' AND originator_version = 2"""
    )
    assert _found(found) == [(FindingKind.CHANGED, 2)]


def test_one_session_is_verified_alone(whole: Path, tmp_path: Path) -> None:
    file = tmp_path / "copy.db"
    shutil.copy(whole, file)
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(
            "DELETE FROM stored_events WHERE originator_id = ? AND originator_version = 2",
            (_id(whole, "small"),),
        )
    assert _verified(file, "rich").is_whole
    assert _found(_verified(file, "small")) == [(FindingKind.MISSING, 2)]


def test_an_unknown_session_cannot_be_verified(whole: Path) -> None:
    with SessionService(env=sqlite_env(whole)) as sessions, pytest.raises(SessionNotFoundError):
        SessionAudit(sessions).verify("nobody")


def test_a_scope_verifies_its_own_sessions_only(tmp_path: Path) -> None:
    file = tmp_path / "two.db"
    with SessionService(env=sqlite_env(file)) as sessions:
        for name in ("ada", "eve"):
            sessions.create(f"of-{name}", metadata={SessionAttributes.PRINCIPAL_NAME: name})
            say_turns(sessions, f"of-{name}", 0, 1)
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("DELETE FROM stored_events WHERE originator_version = 1")
    with SessionService(env=sqlite_env(file)) as sessions:
        found = SessionAudit(sessions.scoped_to("ada")).verify()
        with pytest.raises(SessionNotFoundError):
            SessionAudit(sessions.scoped_to("ada")).verify("of-eve")
    assert [(finding.session_id, finding.version) for finding in found.findings] == [("of-ada", 1)]


# --- heads


def test_heads_come_back_from_their_json(whole: Path) -> None:
    with SessionService(env=sqlite_env(whole)) as sessions:
        heads = SessionAudit(sessions).export_heads()
    assert Heads.of_json(heads.to_json()) == heads
    assert len(heads.heads) == 4


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format":"turnlog.heads/9"}', '{"format":"turnlog.heads/1"}']
)
def test_what_is_no_export_of_heads_is_refused(text: str, whole: Path) -> None:
    with pytest.raises(InvalidHeadsError):
        _verified(whole, heads=text)


def test_signed_heads_are_accepted_with_their_key(whole: Path, tmp_path: Path) -> None:
    public = new_key_file(tmp_path / "key")
    with SessionService(env=sqlite_env(whole)) as sessions:
        heads = SessionAudit(sessions).export_heads(signer=Ed25519Signer.of_file(tmp_path / "key"))
    found = _verified(whole, heads=heads.to_json(), signed_by=Ed25519Verifier(public))
    assert (found.findings, found.heads_proven) == ((), 4)


def test_heads_that_were_changed_after_signing_are_refused(whole: Path, tmp_path: Path) -> None:
    public = new_key_file(tmp_path / "key")
    with SessionService(env=sqlite_env(whole)) as sessions:
        heads = SessionAudit(sessions).export_heads(signer=Ed25519Signer.of_file(tmp_path / "key"))
    data = json.loads(heads.to_json())
    data["heads"][0]["version"] += 1
    with pytest.raises(InvalidSignatureError):
        _verified(whole, heads=json.dumps(data), signed_by=Ed25519Verifier(public))


def test_heads_without_a_signature_are_refused_where_one_is_asked_for(whole: Path, tmp_path: Path) -> None:
    public = new_key_file(tmp_path / "key")
    with SessionService(env=sqlite_env(whole)) as sessions:
        heads = SessionAudit(sessions).export_heads()
    with pytest.raises(InvalidSignatureError, match="not signed"):
        _verified(whole, heads=heads, signed_by=Ed25519Verifier(public))


def test_a_key_file_is_for_its_owner_only(tmp_path: Path) -> None:
    new_key_file(tmp_path / "key")
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600


def _session_file(file: Path, word: str) -> Path:
    with SessionService(env=sqlite_env(file), clock=lambda: BEGIN) as sessions:
        sessions.create("a")
        sessions.append_message("a", Message.user(word), event_id="u")
        sessions.append_message("a", Message.assistant("ok"), event_id="a")
    return _one_file(file)
