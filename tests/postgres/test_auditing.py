"""What holds of audits on PostgreSQL: heads, findings, passes, and verifications beside writers."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg import sql
from tests.audit.logs import WordCount, fill, say_turns
from tests.audit.mutations import Row, change
from tests.postgres.beside_writers import SHARED, TURNS, VERIFIERS, WRITERS
from tests.postgres.conftest import service_on
from tests.support.postgres import connect, postgres_env

from turnlog.application.audit import FindingKind, SessionAudit, Verification
from turnlog.application.passes import passes_id
from turnlog.application.ports import RecordedHead
from turnlog.application.service import SessionService
from turnlog.domain.errors import StorageError
from turnlog.domain.ids import aggregate_id
from turnlog.domain.messages import Message
from turnlog.domain.summarizing import PromptSummarizer
from turnlog.domain.window import CompactionWindow, WindowCompactionStrategy
from turnlog.infrastructure.postgres import PostgresSessionRecorder

MUTATIONS = 1000 if os.environ.get("HYPOTHESIS_PROFILE") == "soak" else 150
_ROOT = Path(__file__).parents[2]
BLANK = WindowCompactionStrategy(CompactionWindow.last_turns(1), summarizer=PromptSummarizer(lambda _: " "))


class PostgresLog:
    """The stored events of a schema, which are put back as they were when a test is through with them."""

    def __init__(self, connection: psycopg.Connection[Any], schema: str) -> None:
        self._connection = connection
        self._schema = schema
        connection.execute("SET turnlog.rows = 'on'")  # who tampers does not keep out of the fence
        self.execute("CREATE TABLE {saved} AS SELECT * FROM {events}")

    def execute(self, statement: LiteralString, *values: object) -> psycopg.Cursor[Any]:
        """One statement; `{events}`, `{saved}`, `{sessions}` and `{ended}` are the tables."""
        tables = {
            "events": "sessions_events",
            "saved": "saved",
            "sessions": "sessions_turnlog_sessions",
            "ended": "sessions_turnlog_ended",
        }
        names = {name: sql.Identifier(self._schema, table) for name, table in tables.items()}
        return self._connection.execute(sql.SQL(statement).format(**names), values)

    def restore(self) -> None:
        """As it was."""
        self.execute("DELETE FROM {events}")
        self.execute("INSERT INTO {events} SELECT * FROM {saved}")

    def rows(self) -> list[Row]:
        """All of them, in the order in which they were stored."""
        cursor = self.execute(
            "SELECT originator_id, originator_version, topic, state FROM {events} ORDER BY notification_id"
        )
        return [(row[0].hex, row[1], row[2], bytes(row[3])) for row in cursor.fetchall()]

    def put(self, aggregate: str, version: int, topic: str, state: bytes) -> None:
        """Put these into the place of an event."""
        self.execute(
            "UPDATE {events} SET topic = %s, state = %s WHERE originator_id = %s AND originator_version = %s",
            topic,
            state,
            aggregate,
            version,
        )

    def renumber(self, aggregate: str, version: int, other: int) -> None:
        """Give an event another version."""
        self.execute(
            "UPDATE {events} SET originator_version = %s "
            "WHERE originator_id = %s AND originator_version = %s",
            other,
            aggregate,
            version,
        )

    def remove(self, aggregate: str, version: int) -> None:
        """Remove an event."""
        self.execute(
            "DELETE FROM {events} WHERE originator_id = %s AND originator_version = %s", aggregate, version
        )

    def add(self, aggregate: str, version: int, topic: str, state: bytes) -> None:
        """One more event."""
        self.execute(
            "INSERT INTO {events} (originator_id, originator_version, topic, state) VALUES (%s, %s, %s, %s)",
            aggregate,
            version,
            topic,
            state,
        )


@pytest.fixture(scope="module")
def whole() -> Iterator[tuple[SessionService, PostgresLog]]:
    """Sessions that hold every kind of event, in a schema of this module, and their log."""
    env = postgres_env()
    with SessionService(env=env, token_estimator=WordCount()) as sessions, connect() as connection:
        fill(sessions)
        yield sessions, PostgresLog(connection, env["POSTGRES_SCHEMA"])


@pytest.fixture
def log(whole: tuple[SessionService, PostgresLog]) -> Iterator[PostgresLog]:
    """Their log, for the test to change."""
    yield whole[1]
    whole[1].restore()


@pytest.fixture
def verify(whole: tuple[SessionService, PostgresLog]) -> Callable[..., Verification]:
    """Verifies them."""
    return SessionAudit(whole[0]).verify


def found(verification: Verification) -> list[tuple[FindingKind, int | None]]:
    """Kind and version of each finding."""
    return [(finding.kind, finding.version) for finding in verification.findings]


def recorder_of(sessions: SessionService) -> PostgresSessionRecorder:
    """The recorder of the service."""
    assert isinstance(sessions.app.recorder, PostgresSessionRecorder)
    return sessions.app.recorder


# --- heads


def test_the_recorded_head_is_the_newest_event(sessions: SessionService) -> None:
    sessions.create("s")
    for _ in range(2):
        say_turns(sessions, "s", sessions.version("s"), 1)
        (head,) = SessionAudit(sessions).export_heads().heads
        expected = RecordedHead(sessions.version("s"), head.chain)
        assert recorder_of(sessions).recorded_head(aggregate_id("s")) == expected


def test_a_session_that_never_was_has_no_head(sessions: SessionService) -> None:
    assert recorder_of(sessions).recorded_head(aggregate_id("s")) is None


@pytest.mark.parametrize("erase", [True, False])
def test_the_recorded_head_survives_the_deletion(sessions: SessionService, erase: bool) -> None:
    sessions.create("s")
    say_turns(sessions, "s", 0, 1)
    sessions.delete("s", erase=erase)
    (head,) = SessionAudit(sessions).export_heads().heads
    assert recorder_of(sessions).recorded_head(aggregate_id("s")) == RecordedHead(3, head.chain)


def test_the_recorded_head_says_that_erased_events_were_removed(sessions: SessionService) -> None:
    sessions.create("s")
    say_turns(sessions, "s", 0, 1)
    sessions.delete("s")
    sessions.sweep(timedelta(0))
    head = recorder_of(sessions).recorded_head(aggregate_id("s"))
    assert head is not None
    assert head.is_purged
    assert SessionAudit(sessions).verify().is_whole


def test_sessions_are_recorded_in_the_order_of_their_creation_and_deleted_ones_stay(
    sessions: SessionService,
) -> None:
    for name in "cab":
        sessions.create(name)
    sessions.delete("a")
    assert list(recorder_of(sessions).recorded_sessions()) == [aggregate_id(name) for name in "cab"]


def test_a_deleted_session_leaves_nothing_but_its_head(
    env: Mapping[str, str], sessions: SessionService
) -> None:
    sessions.create("secret-id", metadata={"title": "secret title"})
    sessions.delete("secret-id")
    table = sql.Identifier(env["POSTGRES_SCHEMA"], "sessions_turnlog_ended")
    with connect() as connection:
        rows = connection.execute(sql.SQL("SELECT * FROM {}").format(table)).fetchall()
    (head,) = SessionAudit(sessions).export_heads().heads
    assert rows == [(1, aggregate_id("secret-id"), 1, head.chain)]


def test_a_session_that_is_restored_from_what_was_stored_elsewhere_has_its_head(
    sessions: SessionService,
) -> None:
    sessions.create("s")
    say_turns(sessions, "s", 0, 2)
    heads = SessionAudit(sessions).export_heads()
    stored = SessionAudit(sessions).stored("s")
    with service_on(postgres_env()) as other:
        SessionAudit(other).restore(stored.events)
        verified = SessionAudit(other).verify(heads=heads)
        assert (verified.findings, verified.heads_proven) == ((), 1)
        assert other.view("s") == sessions.view("s")


# --- findings


def test_every_kind_of_event_verifies(verify: Callable[..., Verification]) -> None:
    verified = verify()
    assert (verified.findings, verified.sessions) == ((), 4)


def test_random_changes_are_all_found_where_they_are(
    log: PostgresLog, verify: Callable[..., Verification]
) -> None:
    missed: list[object] = []
    for seed in range(MUTATIONS):
        what, where = change(log, random.Random(seed))
        places = {(finding.aggregate_id, finding.version) for finding in verify().findings}
        if not where <= places:
            missed.append((seed, what, where, places))
        log.restore()
    assert missed == []


def test_the_newest_events_cannot_be_removed(log: PostgresLog, verify: Callable[..., Verification]) -> None:
    log.execute(
        "DELETE FROM {events} WHERE originator_id = %s AND originator_version >= 3", aggregate_id("small")
    )
    assert found(verify()) == [(FindingKind.MISSING, 3), (FindingKind.MISSING, 4)]
    assert found(verify("small")) == [(FindingKind.MISSING, 3), (FindingKind.MISSING, 4)]
    assert verify("rich").is_whole


@pytest.mark.parametrize("name", ["small", "gone", "kept"])
def test_a_whole_session_cannot_be_removed(
    log: PostgresLog, verify: Callable[..., Verification], name: str
) -> None:
    log.execute("DELETE FROM {events} WHERE originator_id = %s", aggregate_id(name))
    assert {kind for kind, _ in found(verify())} == {FindingKind.MISSING}


def test_the_recorded_head_cannot_be_changed(env: Mapping[str, str], sessions: SessionService) -> None:
    fill(sessions)
    with connect() as connection:
        log = PostgresLog(connection, env["POSTGRES_SCHEMA"])
        log.execute("UPDATE {sessions} SET head = 'x' WHERE session_id = 'small'")
        log.execute("UPDATE {ended} SET head = 'x' WHERE aggregate_id = %s", aggregate_id("gone"))
    assert sorted(found(SessionAudit(sessions).verify())) == [(FindingKind.HEAD, 4), (FindingKind.HEAD, 5)]


@pytest.mark.parametrize("name", ["small", "gone"])
def test_the_row_of_a_session_cannot_be_removed(
    env: Mapping[str, str], sessions: SessionService, name: str
) -> None:
    fill(sessions)
    with connect() as connection:
        log = PostgresLog(connection, env["POSTGRES_SCHEMA"])
        log.execute("DELETE FROM {sessions} WHERE aggregate_id = %s", aggregate_id(name))
        log.execute("DELETE FROM {ended} WHERE aggregate_id = %s", aggregate_id(name))
    assert FindingKind.UNKNOWN_SESSION in {kind for kind, _ in found(SessionAudit(sessions).verify())}


def test_a_store_that_is_gone_is_no_finding(env: Mapping[str, str], sessions: SessionService) -> None:
    sessions.create("s")
    say_turns(sessions, "s", 0, 1)
    with connect() as connection:
        schema = sql.Identifier(env["POSTGRES_SCHEMA"])
        connection.execute(sql.SQL("ALTER TABLE {}.sessions_events RENAME TO away").format(schema))
    with pytest.raises(StorageError):
        SessionAudit(sessions).verify()
    with pytest.raises(StorageError):
        SessionAudit(sessions).verify("s")


def test_a_role_that_may_only_read_can_verify(env: Mapping[str, str], sessions: SessionService) -> None:
    fill(sessions)
    guest = "reader_" + env["POSTGRES_SCHEMA"]
    names = {"role": sql.Identifier(guest), "schema": sql.Identifier(env["POSTGRES_SCHEMA"])}
    with connect() as connection:
        for statement in (
            "CREATE ROLE {role} LOGIN",
            "GRANT USAGE ON SCHEMA {schema} TO {role}",
            "GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}",
        ):
            connection.execute(sql.SQL(statement).format(**names))
        try:
            with service_on(env, POSTGRES_USER=guest, CREATE_TABLE="no") as reading:
                assert SessionAudit(reading).verify().is_whole
        finally:
            for statement in ("DROP OWNED BY {role}", "DROP ROLE {role}"):
                connection.execute(sql.SQL(statement).format(**names))


# --- passes


def test_a_pass_that_wrote_nothing_is_kept_and_verified(env: Mapping[str, str]) -> None:
    with SessionService(env=env, token_estimator=WordCount(), keep_passes=True) as sessions:
        sessions.create("s")
        say_turns(sessions, "s", 0, 2)
        before = (sessions.version("s"), sessions.list_sessions())
        for _ in range(3):
            sessions.compact("s", None, BLANK)
        audit = SessionAudit(sessions)
        assert [one.reason for one in audit.passes("s")] == ["summary was blank"] * 3
        assert (sessions.version("s"), sessions.list_sessions()) == before
        assert audit.verify().is_whole
        with connect() as connection:
            log = PostgresLog(connection, env["POSTGRES_SCHEMA"])
            log.remove(passes_id(aggregate_id("s")).hex, 1)
        assert found(audit.verify()) == found(audit.verify("s")) == [(FindingKind.MISSING, 1)]


def test_passes_stay_when_their_session_is_deleted(env: Mapping[str, str]) -> None:
    with SessionService(env=env, token_estimator=WordCount(), keep_passes=True) as sessions:
        sessions.create("s")
        say_turns(sessions, "s", 0, 2)
        sessions.compact("s", None, BLANK)
        sessions.delete("s")
        verified = SessionAudit(sessions).verify()
        assert (verified.findings, verified.sessions, verified.events) == ((), 1, 7)


# --- beside writers


def test_two_processes_that_verify_while_eight_write_find_nothing(
    env: Mapping[str, str], sessions: SessionService
) -> None:
    sessions.create(SHARED)
    command = [sys.executable, "-m", "tests.postgres.beside_writers", json.dumps(dict(env))]
    ran = subprocess.run(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True, check=True, timeout=120)
    reports = json.loads(ran.stdout)
    assert [found for _, found in reports] == [[]] * VERIFIERS
    assert all(runs > 0 for runs, _ in reports)
    assert sessions.version(SHARED) == WRITERS * TURNS


@pytest.mark.parametrize("meanwhile", ["append", "delete", "delete and purge"])
def test_what_others_write_while_a_session_is_read_is_no_finding(
    env: Mapping[str, str], sessions: SessionService, monkeypatch: pytest.MonkeyPatch, meanwhile: str
) -> None:
    """The other one writes right behind each reading of the head."""
    sessions.create("s")
    say_turns(sessions, "s", 0, 2)
    recorder = recorder_of(sessions)
    read = recorder.recorded_head
    with service_on(env) as other:

        def read_and_write(aggregate: Any) -> RecordedHead | None:
            head = read(aggregate)
            if meanwhile == "append":
                other.append_message("s", Message.user("more"))
            elif other.find("s") is not None:
                other.delete("s")
            elif meanwhile == "delete and purge":
                other.sweep(timedelta(0))
            return head

        monkeypatch.setattr(recorder, "recorded_head", read_and_write)
        assert SessionAudit(sessions).verify().findings == ()
