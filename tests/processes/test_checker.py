"""The checker itself: a good database passes, and every kind of damage to it is found."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid5

import pytest
from tests.processes.life import WordCount
from tests.processes.reading import compare
from tests.support.log_checker import (
    Promise,
    chained,
    check,
    check_growth,
    check_journal,
    left_of_deleted,
    project,
    read_journal,
)
from tests.support.stored_rows import Database, StoredRow, read_database

from turnlog.application.context import event_context
from turnlog.application.service import SessionService
from turnlog.domain.compaction import SummaryRequest
from turnlog.domain.log import NewEvent
from turnlog.domain.messages import Message, ToolCallPart, ToolCallResponsePart
from turnlog.domain.window import CompactionWindow, WindowCompactionStrategy
from turnlog.infrastructure.sqlite import fence

SID, OTHER, GONE = "s", "of ben", "gone"
BOUNDARY = 9
"""The version of the boundary in the session."""

_LONG = timedelta(days=1)
_STORE = "UPDATE stored_events SET state = ? WHERE originator_id = ? AND originator_version = ?"


class _Recap:
    def summarize(self, request: SummaryRequest) -> list[Message]:  # noqa: ARG002 - the port's argument
        return [Message.user("So far?"), Message.assistant("Things happened.")]


def _write(sessions: SessionService) -> None:
    """Turns, calls with results, a branch, a pass with a summary, a redaction, a deletion."""
    with event_context(correlation_id="open"):
        sessions.create(SID, metadata={"user.name": "ada"}, time_to_live=timedelta(days=9), idle=_LONG)
    with event_context(correlation_id="batch"):
        messages = [
            Message.user("Where is my parcel?"),
            Message.assistant("In Lund."),
            Message.user("And the other one?"),
            Message.assistant([ToolCallPart(id="c1", name="find")]),
            Message.tool([ToolCallResponsePart(id="c1", response="In Malmo.")]),
            Message.assistant("In Malmo."),
        ]
        sessions.append_events(SID, [NewEvent(message=one, id=f"m{n}") for n, one in enumerate(messages, 1)])
    with event_context(correlation_id="branch"):
        sessions.append_message(SID, Message.user("Look closer."), branch="a")
    with event_context(correlation_id="newest"):
        sessions.append_message(SID, Message.user("Thank you."), event_id="m8")
    with event_context(correlation_id="pass"):
        window = CompactionWindow.last_turns(1)
        sessions.compact(SID, None, WindowCompactionStrategy(window, _Recap()))
    with event_context(correlation_id="more"):
        sessions.append_message(SID, Message.assistant("You are welcome."), event_id="m12")
    with event_context(correlation_id="redaction"):
        sessions.redact(SID, "m2", reason="asked for", by="ada")
    with event_context(correlation_id="ben"):
        sessions.create(OTHER, metadata={"user.name": "ben"})
    with event_context(correlation_id="short"):
        sessions.create(GONE)
        sessions.append_message(GONE, Message.user("Forget me."), event_id="g1")
        sessions.delete(GONE)
    sessions.sweep()
    sessions.list_sessions()


@dataclass
class Place:
    """A database that was written without a fault, and may be damaged."""

    env: Mapping[str, str]

    def read(self) -> Database:
        """All that it holds."""
        return read_database(self.env)

    def execute(self, statement: str, *values: object) -> int:
        """One statement behind everybody's back; how many rows it changed."""
        return self.execute_all([(statement, values)])[0]

    def execute_all(self, statements: Sequence[tuple[str, Sequence[object]]]) -> list[int]:
        """Several of them."""
        with closing(sqlite3.connect(self.env["SQLITE_DBNAME"])) as connection, connection:
            connection.execute("PRAGMA synchronous = OFF")
            fence.may_pass(connection)
            return [connection.execute(statement, values).rowcount for statement, values in statements]

    def rows(self, session_id: str = SID) -> list[StoredRow]:
        """The stream of a session."""
        streams = self.read().streams.values()
        return list(next(rows for rows in streams if rows[0].get("session_id") == session_id))

    def edit(self, version: int, change: Callable[[dict[str, Any]], object], *, rechain: bool = True) -> None:
        """Change the fields of one event, with all chain values behind it if these are to be right."""
        rows = self.rows()
        fields = dict(rows[version].fields)
        change(fields)
        rows[version] = replace(rows[version], fields=fields)
        self.store(rows, rechain=rechain)

    def store(self, rows: list[StoredRow], *, rechain: bool = True) -> None:
        """Write these rows over those of their versions, and the head into the directory."""
        previous, statements = "0" * 64, list[tuple[str, Sequence[object]]]()
        for row in rows:
            fields = dict(row.fields)
            if rechain:
                fields["chain"] = chained(row, previous)
            previous = fields["chain"]
            time = {"_type_": "datetime_iso", "_data_": row.time.isoformat()}
            state = json.dumps({"timestamp": time, **fields}, ensure_ascii=False).encode()
            statements.append((_STORE, (state, row.stream.hex, row.version)))
        head = "UPDATE turnlog_sessions SET head = ? WHERE aggregate_id = ?"
        statements.append((head, (previous, rows[0].stream.bytes)))
        assert set(self.execute_all(statements)) == {1}


@pytest.fixture(scope="module", params=["rows", "plain"])
def good(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The settings of a database without a fault."""
    file = tmp_path_factory.mktemp("good") / "sessions.db"
    env = {"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": str(file)}
    if request.param == "plain":
        env["APPLICATION_RECORDER_TOPIC"] = "eventsourcing.sqlite:SQLiteApplicationRecorder"
    with SessionService(env=env, token_estimator=WordCount()) as sessions:
        _write(sessions)
    return env


@pytest.fixture
def place(good: Mapping[str, str], tmp_path: Path) -> Place:
    """A copy of it."""
    copy = tmp_path / "sessions.db"
    shutil.copy(good["SQLITE_DBNAME"], copy)
    return Place({**good, "SQLITE_DBNAME": str(copy)})


def test_a_good_database_passes(place: Place) -> None:
    assert check(place.read(), is_swept=True) == []
    assert list(check_growth(place.read(), place.read())) == []
    assert left_of_deleted(place.read()) == []


def test_what_the_service_answers_of_a_good_database_passes(place: Place) -> None:
    with SessionService(env=dict(place.env)) as sessions:
        assert list(compare(sessions, place.read())) == []


def test_the_good_database_has_what_can_be_damaged(place: Place) -> None:
    rows = place.rows()
    assert rows[BOUNDARY].kind == "Compacted"
    assert project(rows) == [rows[10].get("event_id"), rows[11].get("event_id"), "m8", "m12"]
    assert {row.kind for row in rows} >= {"SessionOpened", "MessageAppended", "ContentRedacted"}


def _set(**fields: Any) -> Callable[[dict[str, Any]], None]:
    return lambda row: row.update(fields)


def _drop(name: str) -> Callable[[dict[str, Any]], None]:
    return lambda row: row.pop(name)


def _keep(*ids: str, count: int) -> Callable[[dict[str, Any]], None]:
    """Another choice of what the boundary preserves, which is said to cover so many."""
    return lambda row: row.update(preserved=list(ids), covered_count=count)


DAMAGES: Mapping[str, tuple[int, Callable[[dict[str, Any]], object], bool, str]] = {
    "a content was changed": (1, _set(content='{"parts":[]}'), False, "chain is broken at version 1"),
    "a salt was changed": (1, _set(salt="0" * 32), False, "chain is broken at version 1"),
    "a chain value was changed": (3, _set(chain="0" * 64), False, "chain is broken at version 3"),
    "a field was changed": (3, _set(role="assistant"), False, "chain is broken at version 3"),
    "a context was taken away": (3, _drop("context"), False, "chain is broken at version 3"),
    "an id is there twice": (3, _set(event_id="m1"), True, "law 8: there twice: ['m1']"),
    "an id is missing": (3, _drop("event_id"), True, "law 8: an entry has no id"),
    "a content is gone": (1, _set(commitment="0" * 64), True, "law 1: version 1 lost its content"),
    "a content came back": (2, _drop("commitment"), False, "version 2"),
    "a boundary names what is not there": (BOUNDARY, _keep("m8", "m99", count=6), True, "law 3"),
    "a boundary names a message twice": (BOUNDARY, _keep("m8", "m8", count=7), True, "names a message twice"),
    "a boundary covers the newest turn": (BOUNDARY, _keep(count=8), True, "something of the newest turn"),
    "a boundary keeps half a turn": (
        BOUNDARY,
        _keep("m6", "m8", count=6),
        True,
        "begins with m6, which starts no turn",
    ),
    "a boundary parts a call from its result": (
        BOUNDARY,
        _keep("m5", "m6", "m8", count=5),
        True,
        "parts calls from their results: [('m4', 'm5')]",
    ),
    "a boundary counts wrong": (BOUNDARY, _set(covered_count=99), True, "not the 99 that it says"),
    "a boundary has other summaries": (BOUNDARY, _set(summary=["x", "y"]), True, "law 3"),
    "a boundary of a branch covers others": (BOUNDARY, _set(branch="a"), True, "not of its branch"),
    "a summary is not synthetic": (BOUNDARY + 1, _drop("synthetic"), True, "law 3"),
    "an awaited call is covered": (4, _set(opens=["c1"]), True, "covers a call that awaits its result"),
    "a carried view is another": (8, _set(state="1-7"), True, "cannot be folded"),
    "an anchor carries nothing": (8, lambda row: (row.pop("state"), row.update(anchor=99)), True, "anchor"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_event_is_found(place: Place, damage: str) -> None:
    version, change, rechain, expected = DAMAGES[damage]
    place.edit(version, change, rechain=rechain)
    assert [one for one in check(place.read()) if expected in one]


STATES: Mapping[str, tuple[Callable[[str], str], str]] = {
    "view": (lambda state: state.replace("1-8;", "1-7;"), "law 2: version 8 carries another view"),
    "order": (lambda state: state.replace("1-8;", "5-8,1-4;"), "law 2: version 8 carries another view"),
    "creation": (lambda state: state.replace("1-8;1", "1-8;2"), "another time of creation"),
    "expiry": (lambda state: ";".join([*state.split(";")[:2], "7", *state.split(";")[3:]]), "another expiry"),
    "boundary": (lambda state: state + ";b3", "another boundary"),
}


@pytest.mark.parametrize("part", STATES)
def test_a_carried_state_that_is_not_the_fold_is_found(place: Place, part: str) -> None:
    change, expected = STATES[part]
    before = place.rows()[8].get("state")
    assert change(before) != before
    place.edit(8, lambda row: row.update(state=change(before)))
    assert [one for one in check(place.read()) if expected in one]


def test_a_missing_event_is_found(place: Place) -> None:
    place.execute("DELETE FROM stored_events WHERE originator_version = 3")
    assert [one for one in check(place.read()) if "law 6: its versions" in one]


def test_a_boundary_without_the_end_of_its_summary_is_found(place: Place) -> None:
    place.execute("DELETE FROM stored_events WHERE originator_version > ?", BOUNDARY + 1)
    assert [one for one in check(place.read()) if "law 3: the summary" in one]


def test_a_time_that_goes_backwards_is_found(place: Place) -> None:
    rows = place.rows()
    rows[4] = replace(rows[4], time=rows[4].time - _LONG)
    place.store(rows)
    assert [one for one in check(place.read()) if "time goes backwards" in one]


def test_a_summary_that_was_written_later_is_found(place: Place) -> None:
    rows = place.rows()
    for version in range(BOUNDARY + 1, len(rows)):
        rows[version] = replace(rows[version], time=rows[version].time + timedelta(microseconds=1))
    place.store(rows)
    assert [one for one in check(place.read()) if "law 3" in one]


def test_an_event_in_front_of_the_one_before_it_is_found(place: Place) -> None:
    stream = place.rows()[0].stream.hex
    where = "WHERE originator_id = ? AND originator_version = 1"
    place.execute(f"UPDATE stored_events SET rowid = 10000 {where}", stream)
    assert [one for one in check(place.read()) if "order of notifications" in one]


@pytest.mark.parametrize(
    ("column", "value", "expected"),
    [
        ("version", 3, "it is at version 3"),
        ("head", "0" * 64, "another head"),
        ("messages", 1, "it counts 1 messages"),
        ("expires_at", None, "another expiry"),
        ("metadata", None, "other metadata"),
        ("deleted", 1, "deleted or not"),
        ("session_id", "t", "another session id"),
    ],
)
def test_a_row_of_the_directory_that_says_something_else_is_found(
    place: Place, column: str, value: object, expected: str
) -> None:
    place.execute(f"UPDATE turnlog_sessions SET {column} = ? WHERE session_id = ?", value, SID)
    assert [one for one in check(place.read()) if expected in one]


def test_a_missing_row_of_the_directory_is_found(place: Place) -> None:
    place.execute("DELETE FROM turnlog_sessions WHERE session_id = ?", SID)
    assert [one for one in check(place.read()) if "the directory has no row" in one]


def test_a_row_of_the_directory_that_names_a_deleted_session_is_found(place: Place) -> None:
    place.execute("UPDATE turnlog_sessions SET session_id = 'gone' WHERE deleted = 1")
    assert [one for one in check(place.read()) if "says something of a deleted session" in one]


@pytest.mark.parametrize("good", ["rows"], indirect=True)
@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM turnlog_event_ids WHERE event_id = 'm3'",
        "UPDATE turnlog_event_ids SET version = 4 WHERE event_id = 'm3'",
        "INSERT INTO turnlog_event_ids SELECT aggregate_id, 'm99', 99 FROM turnlog_event_ids LIMIT 1",
    ],
)
def test_a_ledger_that_differs_from_the_log_is_found(place: Place, statement: str) -> None:
    assert place.execute(statement) == 1
    assert [one for one in check(place.read()) if "the ledger differs" in one]


@pytest.mark.parametrize("good", ["plain"], indirect=True)
def test_a_missing_entry_of_a_ledger_of_streams_is_found(place: Place) -> None:
    entry = uuid5(place.rows()[0].stream, "m3")
    assert place.execute("DELETE FROM stored_events WHERE originator_id = ?", entry.hex) == 1
    assert [one for one in check(place.read()) if "have no entry in the ledger" in one]


def test_an_erased_event_that_says_something_is_found(place: Place) -> None:
    rows = place.rows()
    said = place.execute(
        "UPDATE stored_events SET state = (SELECT state FROM stored_events WHERE originator_id = ? "
        "AND originator_version = 1) WHERE originator_version = 1 AND topic LIKE '%EventErased'",
        rows[0].stream.hex,
    )
    assert said == 1
    assert [one for one in check(place.read()) if "an erased event says something" in one]


def test_a_deletion_that_erased_a_part_is_found(place: Place) -> None:
    topic = "turnlog.domain.events:MessageAppended"
    where = "WHERE originator_version = 1 AND topic LIKE '%EventErased'"
    assert place.execute(f"UPDATE stored_events SET topic = ? {where}", topic) == 1
    assert [one for one in check(place.read()) if "erased only a part" in one]


def test_an_event_behind_a_tombstone_is_found(place: Place) -> None:
    place.execute(
        "INSERT INTO stored_events SELECT originator_id, originator_version + 1, "
        "'turnlog.domain.events:MessageAppended', state FROM stored_events WHERE topic LIKE '%SessionDeleted'"
    )
    assert [one for one in check(place.read()) if "follows on an erased event" in one]


def test_a_tombstone_with_another_chain_value_is_found(place: Place) -> None:
    place.execute(
        'UPDATE stored_events SET state = CAST(replace(state, \'"previous":"\', \'"previous":"0\') AS BLOB) '
        "WHERE topic LIKE '%SessionDeleted'"
    )
    assert [one for one in check(place.read()) if "chain value of the tombstone" in one]


# --- the index


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A database with an index, which holds the session."""
    file = tmp_path_factory.mktemp("indexed") / "sessions.db"
    env = {"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": str(file)}
    with SessionService(env=env, token_estimator=WordCount()) as sessions:
        _write(sessions)
        sessions.create("filler")
        for number in range(150):  # more than may be stored and not indexed
            sessions.append_message("filler", Message.user(f"filler {number}"))
    return Place(env)


def _with_index(place: Place, **indexes: Any) -> Database:
    return replace(place.read(), **indexes)


def test_an_index_that_is_right_passes(indexed: Place) -> None:
    database = indexed.read()
    assert check(database) == []
    assert any(len(versions) > 7 for versions in database.indexed.values())


def test_a_message_that_is_not_in_the_index_is_found(indexed: Place) -> None:
    held = {
        position: {version: terms for version, terms in versions.items() if version != 1}
        for position, versions in indexed.read().indexed.items()
    }
    assert [one for one in check(_with_index(indexed, indexed=held)) if "version 1 has other trigrams" in one]


def test_an_index_that_lags_behind_is_found(indexed: Place) -> None:
    database = _with_index(indexed, index_mark=1, indexed={})
    assert [one for one in check(database) if "events are not indexed" in one]


def test_what_an_index_holds_of_a_deleted_session_is_found(indexed: Place) -> None:
    gone = next(row.position for row in indexed.read().directory.values() if row.is_deleted)
    assert left_of_deleted(_with_index(indexed, indexed={gone: {1: frozenset({"for"})}})) == [gone]


@pytest.mark.parametrize(
    ("blocks", "marks", "expected"),
    [
        ({1: [(0, 5)]}, {1: 12}, "is in no block of the index"),
        ({1: [(0, 8), (5, 12)]}, {1: 12}, "blocks of the index overlap"),
        ({1: [(0, 12)]}, {1: 3}, "behind the mark of the index"),
        ({99: [(0, 12)]}, {}, "of a session that is not there"),
    ],
)
def test_blocks_of_an_index_that_are_wrong_are_found(
    indexed: Place, blocks: Any, marks: Any, expected: str
) -> None:
    database = _with_index(indexed, blocks=blocks, block_marks=marks)
    assert [one for one in check(database) if expected in one]


# --- two moments


def _grown(place: Place, change: Callable[[Place], object]) -> list[str]:
    before = place.read()
    change(place)
    return list(check_growth(before, place.read()))


def test_an_event_that_changed_since_is_found(place: Place) -> None:
    found = _grown(place, lambda one: one.edit(3, _set(content='{"parts":[]}')))
    assert any("law 1: version 3 is not what it was" in one for one in found)


def test_a_stream_that_is_gone_is_found(place: Place) -> None:
    stream = place.rows()[0].stream.hex
    found = _grown(
        place, lambda one: one.execute("DELETE FROM stored_events WHERE originator_id = ?", stream)
    )
    assert found == ["s: law 1: the stream is gone"]


def test_events_that_are_gone_are_found(place: Place) -> None:
    found = _grown(place, lambda one: one.execute("DELETE FROM stored_events WHERE originator_version > 11"))
    assert found
    assert all("is not what it was" in one for one in found)


def test_a_redaction_since_is_no_change(place: Place) -> None:
    def redact(damaged: Place) -> None:
        with SessionService(env=dict(damaged.env)) as sessions:
            sessions.redact(SID, "m6", reason="asked for", by="ada")

    assert _grown(place, redact) == []


def test_a_deletion_since_is_no_change(place: Place) -> None:
    def delete(damaged: Place) -> None:
        with SessionService(env=dict(damaged.env)) as sessions:
            sessions.delete(SID)

    assert _grown(place, delete) == []


# --- what writers were told


def _promises(**changed: Promise | None) -> dict[str, Promise]:
    """What the writer of the good database was told; None leaves a call out."""
    told: dict[str, Promise | None] = {
        "open": Promise("open", "create", SID, 1, [("", 0)]),
        "batch": Promise("batch", "append", SID, 6, [(f"m{n}", n) for n in range(1, 7)]),
        "branch": Promise("branch", "append", SID, 1),
        "newest": Promise("newest", "append", SID, 1, [("m8", 8)]),
        "pass": Promise("pass", "compact", SID),
        "more": Promise("more", "append", SID, 1, [("m12", 12)]),
        "redaction": Promise("redaction", "redact", SID),
        "ben": Promise("ben", "create", OTHER, 1, [("", 0)]),
        "short": Promise("short", "delete", GONE, 1, []),
        **changed,
    }
    return {name: promise for name, promise in told.items() if promise is not None}


def test_a_journal_that_agrees_passes(place: Place) -> None:
    assert list(check_journal(place.read(), _promises())) == []


JOURNALS: Mapping[str, tuple[Mapping[str, Promise | None], str]] = {
    "lost": ({"lost": Promise("lost", "append", SID, 1, [("m77", 77)])}, "was told [('m77', 77)], and []"),
    "elsewhere": ({"newest": Promise("newest", "append", SID, 1, [("m8", 7)])}, "and [('m8', 8)] are stored"),
    "a part": ({"batch": Promise("batch", "append", SID, 7)}, "wrote 6 of 7 events"),
    "refused": (
        {"newest": Promise("newest", "append", SID, 1, why="VersionConflictError")},
        "was refused with VersionConflictError and wrote [('m8', 8)]",
    ),
    "nobody": ({"newest": None}, "nobody made the call 'newest'"),
    "no such session": ({"new": Promise("new", "create", "new", 1, [("", 0)])}, "and it is not there"),
    "not deleted": ({"end": Promise("end", "delete", SID, 1, [])}, "the session was deleted and is there"),
    "another version": ({"extended": Promise("extended", "extend", SID, 1, [("", 3)])}, "did not write"),
}


@pytest.mark.parametrize("wrong", JOURNALS)
def test_what_a_writer_was_told_wrongly_is_found(place: Place, wrong: str) -> None:
    changed, expected = JOURNALS[wrong]
    assert [one for one in check_journal(place.read(), _promises(**changed)) if expected in one]


def test_a_refusal_that_left_it_open_may_have_written(place: Place) -> None:
    uncertain = Promise("newest", "append", SID, 1, why="WriteUncertainError", uncertain=True)
    assert list(check_journal(place.read(), _promises(newest=uncertain))) == []


def test_a_line_that_was_cut_off_is_not_what_a_writer_was_told() -> None:
    lines = ['{"call": "1", "kind": "append", "session": "s", "count": 1}\n', '{"call": "1", "wro']
    assert read_journal(lines)["1"].wrote is None


# --- what the service answers


@dataclass(frozen=True)
class _Answers:
    sessions: SessionService
    database: Database


@pytest.fixture
def answers(place: Place) -> Generator[_Answers]:
    """A service on the damaged database, and the rows that it had before."""
    database = place.read()
    ada = place.rows()[0].stream
    ben = place.rows(OTHER)[0].stream
    _give_to(place, ada, ben)
    with SessionService(env=dict(place.env)) as sessions:
        yield _Answers(sessions, database)


def _give_to(place: Place, ada: UUID, ben: UUID) -> None:
    """List the session of the one among those of the other."""
    position = "(SELECT position FROM turnlog_sessions WHERE aggregate_id = ?)"
    hash_of = f"(SELECT hash FROM turnlog_session_metadata WHERE position = {position})"
    changed = place.execute(
        f"UPDATE turnlog_session_metadata SET hash = {hash_of} WHERE position = {position}",
        ada.bytes,
        ben.bytes,
    )
    assert changed == 1


def test_a_session_that_is_listed_to_another_is_found(answers: _Answers) -> None:
    found = list(compare(answers.sessions, answers.database))
    assert "law 12: ada is listed other sessions than her own" in found
    assert "law 12: ben is listed other sessions than her own" in found


def test_a_view_that_is_not_the_projection_is_found(place: Place) -> None:
    database = place.read()
    newest = place.rows()[-1]
    place.edit(newest.version, lambda row: row.update(state=row["state"].replace("10-11,", "11,")))
    with SessionService(env=dict(place.env)) as sessions:
        found = list(compare(sessions, database))
    assert "law 2: s: the view is not the projection" in found
