"""What goes wrong: one message, the right exit status, nothing half-written, no traceback."""

from __future__ import annotations

import json
import os
import re
import sqlite3
from collections.abc import Generator, Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.infrastructure.cli.conftest import AIRLINE, SMALL_TALK, OpenService, Turnlog

from turnlog.application import SessionService
from turnlog.domain.messages import Message

READING = (
    ("sessions",),
    ("log", "@last"),
    ("view", "@last"),
    ("export", "@last"),
    ("compact", "@last"),
    ("delete", "@last", "--yes"),
    ("search", "Houston"),
    ("extend", "@last", "--never"),
    ("hold", "@last", "--reason", "Case 7", "--by", "ada"),
    ("release", "@last", "--by", "ada"),
    ("sweep",),
    ("backup", "backup.db"),
    ("erasures", "--since", "2026-01-01"),
)


@pytest.fixture
def foreign(database: Path) -> Path:
    """A database of somebody else's."""
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE invoices (id INTEGER)")
        connection.commit()
    return database


@pytest.fixture
def writer(database: Path, imported: str) -> Generator[sqlite3.Connection]:
    """Another program that holds the write lock."""
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield connection


@pytest.mark.parametrize("command", READING, ids=lambda command: command[0])
def test_a_missing_database_is_not_found_and_not_made(
    turnlog: Turnlog, database: Path, command: tuple[str, ...]
) -> None:
    result = turnlog(*command)

    assert (result.status, str(database) in result.err) == (3, True)
    assert not database.exists()


@pytest.mark.parametrize("command", [*READING, ("import", AIRLINE)], ids=lambda command: command[0])
def test_a_database_of_somebody_else_is_refused_and_left_alone(
    turnlog: Turnlog, foreign: Path, command: tuple[object, ...]
) -> None:
    before = foreign.read_bytes()

    result = turnlog(*command)

    assert (result.status, "not made by turnlog" in result.err) == (5, True)
    assert foreign.read_bytes() == before


@pytest.mark.parametrize("command", [*READING, ("import", AIRLINE)], ids=lambda command: command[0])
def test_a_file_that_is_no_database_is_refused_and_left_alone(
    turnlog: Turnlog, database: Path, command: tuple[object, ...]
) -> None:
    database.write_text("Dear diary, " * 100)

    result = turnlog(*command)

    assert (result.status, "not a database" in result.err) == (5, True)
    assert database.read_text() == "Dear diary, " * 100


@pytest.mark.parametrize("kept", [1 / 2, 1 / 10], ids=["log", "schema"])
def test_of_a_file_with_overwritten_pages_a_backup_is_to_be_restored(
    turnlog: Turnlog, database: Path, imported: str, kept: float
) -> None:
    content = database.read_bytes()
    whole = int(len(content) * kept)
    database.write_bytes(content[:whole] + b"x" * (len(content) - whole))

    result = turnlog("export", imported)

    assert (result.status, "malformed" in result.err) == (5, True)
    assert "restore a backup, as docs/howto/damaged-log.md says" in result.err


@pytest.mark.parametrize("path", [".", "/", "/dev/null", "fifo"])
@pytest.mark.parametrize("command", [*READING, ("import", AIRLINE)], ids=lambda command: command[0])
def test_what_is_no_regular_file_is_no_database(
    turnlog: Turnlog,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[object, ...],
    path: str,
) -> None:
    os.mkfifo(tmp_path / "fifo")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TURNLOG_DB", path)

    result = turnlog(*command, "--json")

    assert (result.status, result.error["error"]) == (5, "UnusableDatabaseError")
    assert "not a regular file" in result.error["message"]


def test_a_folder_that_does_not_exist_cannot_get_a_database(turnlog: Turnlog, tmp_path: Path) -> None:
    result = turnlog("import", AIRLINE, "--db", tmp_path / "missing" / "turnlog.db")

    assert (result.status, "turnlog.db" in result.err) == (5, True)


def test_an_empty_file_becomes_a_database_by_an_import_only(turnlog: Turnlog, database: Path) -> None:
    database.touch()

    assert "it is empty" in turnlog("sessions").err
    assert turnlog("sessions").status == 5
    assert turnlog("import", AIRLINE).status == 0


def test_reading_needs_no_right_to_write(turnlog: Turnlog, database: Path, imported: str) -> None:
    database.chmod(0o444)
    database.parent.chmod(0o555)
    try:
        assert turnlog("log", imported).status == 0
    finally:
        database.parent.chmod(0o755)


def test_sessions_in_the_database_of_a_host_application_are_shown(turnlog: Turnlog, database: Path) -> None:
    host = {
        "PERSISTENCE_MODULE": "eventsourcing.sqlite",
        "SQLITE_DBNAME": str(database),
        "APPLICATION_RECORDER_TOPIC": "eventsourcing.sqlite:SQLiteApplicationRecorder",
    }
    with SessionService(env=host) as sessions:
        sessions.create("s")
        sessions.append_message("s", Message.user("Hi"))
    before = database.read_bytes()

    assert turnlog("sessions", "--json").json[0]["id"] == "s"
    assert "User: Hi" in turnlog("log", "@last").out
    assert database.read_bytes() == before


def test_reading_changes_nothing(turnlog: Turnlog, database: Path, imported: str) -> None:
    before = database.read_bytes()

    turnlog("sessions")
    turnlog("log", imported)
    turnlog("view", imported)
    turnlog("search", "Houston")

    assert database.read_bytes() == before


@pytest.mark.parametrize(
    "command",
    [
        ("import", SMALL_TALK),
        ("delete", "@last", "--yes"),
        ("hold", "@last", "--reason", "Case 7", "--by", "ada"),
    ],
    ids=lambda command: command[0],
)
def test_a_locked_database_is_a_conflict(
    turnlog: Turnlog, writer: sqlite3.Connection, command: tuple[object, ...]
) -> None:
    result = turnlog(*command)

    assert (result.status, "locked" in result.err) == (4, True)


def test_reading_goes_on_while_another_program_writes(
    turnlog: Turnlog, writer: sqlite3.Connection, imported: str
) -> None:
    assert turnlog("log", imported).status == 0


@pytest.mark.parametrize(
    "command",
    [
        ("log",),
        ("view",),
        ("compact",),
        ("export",),
        ("delete", "--yes"),
        ("extend", "--never"),
        ("hold", "--reason", "Case 7", "--by", "ada"),
        ("release", "--by", "ada"),
        ("search", "Houston", "--session"),
        ("sessions", "--before"),
    ],
    ids=lambda command: command[0],
)
def test_an_unknown_session_is_not_found(turnlog: Turnlog, imported: str, command: tuple[str, ...]) -> None:
    result = turnlog(*command, "nobody")

    assert (result.status, "'nobody' was not found" in result.err) == (3, True)


def test_last_of_no_sessions_is_not_found(turnlog: Turnlog, imported: str) -> None:
    turnlog("delete", imported, "--yes")

    assert turnlog("log", "@last").status == 3


def test_an_empty_id_is_bad_input_not_every_session(turnlog: Turnlog, imported: str) -> None:
    assert turnlog("delete", "", "--yes").status == 5


@pytest.mark.parametrize("at", ["63", "999999999999999999", "2001-01-01"])
def test_a_moment_that_the_session_does_not_have_is_not_found(
    turnlog: Turnlog, imported: str, at: str
) -> None:
    assert turnlog("view", imported, "--at", at).status == 3


def test_a_time_before_the_session_is_answered_with_the_first_that_it_has(
    turnlog: Turnlog, imported: str
) -> None:
    first = turnlog("sessions", "--json").json[0]["created_at"]

    result = turnlog("view", imported, "--at", "2001-01-01")

    assert (result.status, f"recorded at {first}" in result.err) == (3, True)
    assert turnlog("view", imported, "--at", first, "--json").json["version"] == 0


@pytest.mark.parametrize("at", ["", "yesterday", "-1", "1.5", "12:00", "2026-13-01", "١٢", "9" * 30])
def test_a_moment_that_is_none_is_wrong_usage(turnlog: Turnlog, imported: str, at: str) -> None:
    result = turnlog("view", imported, "--at", at)

    assert (result.status, "neither a version" in result.err) == (2, True)


@pytest.mark.parametrize(
    "command",
    [
        ("explode",),
        ("view",),
        ("view", "@last", "--as", "poem"),
        ("log", "@last", "--limit", "0"),
        ("log", "@last", "--limit", "many"),
        ("compact", "@last", "--last-turns", "0"),
        ("compact", "@last", "--last-turns", "2", "--token-budget", "9"),
        ("compact", "@last", "--strategy", "magic"),
        ("compact", "@last", "--max-turns", "3"),
        ("compact", "@last", "--strategy", "turns", "--last-turns", "3"),
        ("compact", "@last", "--strategy", "tokens", "--max-tokens", "0"),
        ("sessions", "--no-such-option"),
        ("sessions", "--principal", " "),
        ("search",),
        ("search", " "),
        ("search", "x" * 201),
        ("search", *map(str, range(21))),
        ("search", "Houston", "--since", "yesterday"),
        ("search", "Houston", "--role", "developer"),
        ("search", "Houston", "--page", "-1"),
        ("search", "Houston", "--page-size", "0"),
        ("search", "Houston", "--principal", ""),
        ("extend", "@last"),
        ("extend", "@last", "--never", "--days", "3"),
        ("extend", "@last", "--until", "soon"),
        ("extend", "@last", "--days", "0"),
        ("hold", "@last", "--by", "ada"),
        ("hold", "@last", "--reason", "Case 7"),
        ("hold", "@last", "--reason", " ", "--by", "ada"),
        ("release", "@last"),
        ("sweep", "--purge", "-1"),
        ("sweep", "--purge", "9" * 20),
        ("erasures",),
        ("erasures", "--since", "yesterday"),
        ("backup",),
        ("restore",),
    ],
    ids=" ".join,
)
def test_wrong_usage_has_status_2(turnlog: Turnlog, imported: str, command: tuple[str, ...]) -> None:
    result = turnlog(*command)

    assert (result.status, result.out) == (2, "")
    assert result.err.startswith("turnlog: ")


@pytest.mark.parametrize(
    ("command", "name", "status"),
    [
        (("explode",), "UsageError", 2),
        (("view", "nobody"), "SessionNotFoundError", 3),
        (("view", "@last", "--at", "x"), "CommandUsageError", 2),
        (("import", "missing.json"), "InputFileError", 5),
        (("compact", "@last", "--strategy", "magic"), "UsageError", 2),
    ],
    ids=str,
)
def test_with_json_an_error_is_one_object_on_stderr(
    turnlog: Turnlog, imported: str, command: tuple[str, ...], name: str, status: int
) -> None:
    result = turnlog(*command, "--json")

    assert (result.status, result.out) == (status, "")
    assert (result.error["error"], result.error["status"]) == (name, status)
    assert result.error["message"]


def test_a_damaged_file_is_refused_with_the_line(turnlog: Turnlog, imported: str, tmp_path: Path) -> None:
    lines = turnlog("export", imported).out.splitlines(keepends=True)
    damaged = tmp_path / "log.jsonl"
    damaged.write_text("".join(lines[:-1]) + lines[-1][:40], "utf-8")

    result = turnlog("import", damaged, "--db", tmp_path / "other.db")

    assert (result.status, f"line {len(lines)}" in result.err) == (5, True)


def test_one_bad_file_keeps_all_files_out(turnlog: Turnlog, database: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text("{}")

    assert turnlog("import", AIRLINE, bad).status == 5
    assert not database.exists()


def test_an_unknown_format_is_refused_with_those_that_are_known(turnlog: Turnlog) -> None:
    result = turnlog("import", AIRLINE, "--format", "fax")

    assert (result.status, "openai_chat" in result.err) == (5, True)


def test_a_file_above_the_largest_size_is_refused(turnlog: Turnlog) -> None:
    assert turnlog("import", AIRLINE, "--max-size", 1000).status == 5


@pytest.mark.parametrize("path", ["missing.json", "."])
def test_a_file_that_cannot_be_imported_because_it_is_none_is_not_to_be_mended(
    turnlog: Turnlog, database: Path, path: str
) -> None:
    result = turnlog("import", path)

    assert (result.status, "name another file" in result.err, "mend" in result.err) == (5, True, False)
    assert not database.exists()


@pytest.mark.parametrize(
    ("command", "allowed"),
    [
        (("compact", "@last", "--strategy", "magic"), "'window', 'sliding', 'turns', 'tokens', 'recursive'"),
        (("view", "@last", "--as", "poem"), "'text', 'json', 'openai', 'anthropic'"),
        (("search", "Houston", "--role", "developer"), "'system', 'user', 'assistant', 'tool'"),
    ],
    ids=" ".join,
)
def test_a_name_that_is_not_allowed_is_refused_with_those_that_are(
    turnlog: Turnlog, imported: str, command: tuple[str, ...], allowed: str
) -> None:
    message = turnlog(*command).err.splitlines()[0]

    assert message == f"turnlog: Invalid value for '{command[-2]}': '{command[-1]}' is not one of {allowed}."


@pytest.mark.parametrize(
    ("command", "option"),
    [
        (("extend", "@last", "--days", "3"), "--never"),
        (("extend", "@last", "--until", "9999-12-31T23:59-10:00"), "--until"),
        (("hold", "@last", "--reason", " ", "--by", "ada"), "--reason"),
        (("hold", "@last", "--reason", "Case 7", "--by", " "), "--by"),
        (("release", "@last", "--by", "ada", "--placed-at", "1"), "--placed-at"),
        (("search", " "), "Name a word"),
    ],
    ids=" ".join,
)
def test_a_message_speaks_of_options_not_of_arguments(
    turnlog: Turnlog, open_service: OpenService, command: tuple[str, ...], option: str
) -> None:
    with open_service() as sessions:
        sessions.create("s")
        sessions.extend("s", datetime(9999, 12, 31, tzinfo=UTC))
        sessions.hold("s", "Case 6", by="ada")

    message = turnlog(*command).err

    assert option in message
    assert not re.search("`[a-z_]+`|=None|keyword", message)


def test_a_file_that_differs_from_the_session_is_a_conflict(
    turnlog: Turnlog, imported: str, tmp_path: Path
) -> None:
    changed = tmp_path / "log.jsonl"
    changed.write_text(
        turnlog("export", imported).out.replace("Houston", "Boston").replace('"id":"', '"id":"x')
    )
    before = turnlog("export", imported).out

    assert turnlog("import", changed).status == 4
    assert turnlog("export", imported).out == before


@pytest.fixture
def chats(turnlog: Turnlog, tmp_path: Path) -> Path:
    """A file of four chats: here `c-2` was deleted, `c-3` differs, `c-4` is new."""
    file = tmp_path / "chats.jsonl"
    write_chats(file, {"c-1": "one", "c-2": "two", "c-3": "three"})
    turnlog("import", file)
    turnlog("delete", "c-2", "--yes")
    write_chats(file, {"c-1": "one", "c-2": "two", "c-3": "drei", "c-4": "four"})
    return file


def write_chats(file: Path, chats: Mapping[str, str]) -> None:
    records = [{"id": name, "messages": [{"role": "user", "content": said}]} for name, said in chats.items()]
    file.write_text("".join(json.dumps(record) + "\n" for record in records))


def test_an_import_leaves_out_what_it_must_and_says_why(turnlog: Turnlog, chats: Path) -> None:
    result = turnlog("import", chats)

    assert (result.status, "not imported: 2 sessions" in result.out) == (4, True)
    assert result.err.splitlines() == [
        f"turnlog: {chats}: session c-2: was deleted here, its id is not used again",
        f"turnlog: {chats}: session c-3: differs from the log here at version 1; "
        "import it into another database",
    ]


def test_an_import_that_leaves_sessions_out_writes_all_others(turnlog: Turnlog, chats: Path) -> None:
    turnlog("import", chats, AIRLINE)

    assert [row["messages"] for row in turnlog("sessions", "--json").json] == [62, 1, 1, 1]
    assert "User: three" in turnlog("log", "c-3").out


def test_an_import_as_json_lists_what_it_left_out(turnlog: Turnlog, chats: Path) -> None:
    result = turnlog("import", chats, "--json")

    (file,) = result.json
    assert (result.status, result.err) == (4, "")
    assert [session["id"] for session in file["sessions"]] == ["c-1", "c-4"]
    assert [session["id"] for session in file["refused"]] == ["c-2", "c-3"]


def test_a_file_that_cannot_be_written_leaves_nothing_behind(
    turnlog: Turnlog, imported: str, tmp_path: Path
) -> None:
    target = tmp_path / "missing" / "log.jsonl"

    assert turnlog("export", imported, "--output", target).status == 5
    assert not target.parent.exists()
