"""SQLite files that refuse: full, read-only, none at all. Each says that nothing was written."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

import pytest
from eventsourcing.sqlite import SQLiteApplicationRecorder
from tests.infrastructure.cli.conftest import Turnlog
from tests.storage_failures.calls import SID, WRITES, logged, prepare, service
from tests.support.log_checker import check
from tests.support.stored_rows import read_database

from turnlog.application.service import SessionService
from turnlog.application.storage import storage_error, writing_errors
from turnlog.domain.errors import (
    StorageError,
    StorageFullError,
    StorageReadOnlyError,
    WriteUncertainError,
)
from turnlog.domain.messages import Message
from turnlog.infrastructure.cli.failures import status_of, told, typed
from turnlog.infrastructure.cli.settings import Status

LIMITED = """
import json, resource, signal, sys
from tests.storage_failures.calls import SID, service
from turnlog.domain.errors import StorageFullError
from turnlog.domain.messages import Message
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))
with service(json.loads(sys.argv[1])) as sessions:
    sessions.create(SID)
    told = []
    while True:
        try:
            told.append(sessions.append_message(SID, Message.user("word " * 2000)).version)
        except StorageFullError as error:
            print(json.dumps([told, str(error)]))
            break
"""

COMMAND = """
import os, resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
size = os.path.getsize(sys.argv[2]) + int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
sys.argv[:3] = ["turnlog"]
from turnlog.infrastructure.cli.main import main
main()
"""


def run(*command: object) -> subprocess.CompletedProcess[str]:
    """A process of its own."""
    root = Path(__file__).parents[2]
    arguments = [str(one) for one in command]
    return subprocess.run(arguments, cwd=root, capture_output=True, text=True, timeout=120, check=False)


def writer_of(sessions: SessionService) -> SQLiteApplicationRecorder:
    """The recorder beneath."""
    recorder = sessions.app.recorder
    assert isinstance(recorder, SQLiteApplicationRecorder)
    return recorder


LARGE: Mapping[str, Callable[[SessionService], object]] = {
    "append": lambda sessions: sessions.append_message(SID, Message.user("word " * 20_000), event_id="large"),
    "create": lambda sessions: sessions.create("large", metadata={"title": "word " * 20_000}),
    "metadata": lambda sessions: sessions.update_metadata(SID, {"title": "word " * 20_000}),
}

# --- full


def test_what_was_acknowledged_before_a_file_was_full_is_there_and_nothing_else(
    sqlite: Mapping[str, str],
) -> None:
    ended = run(sys.executable, "-c", LIMITED, json.dumps(dict(sqlite)))
    told, message = json.loads(ended.stdout)
    assert "Nothing was written: make room" in message
    assert told
    assert [event.version for event in logged(sqlite)] == told
    assert check(read_database(sqlite)) == []
    with service(sqlite) as sessions:  # without the limit there is room
        assert sessions.append_message(SID, Message.user("more")).version == told[-1] + 1


@pytest.mark.parametrize("write", ["append", "create", "metadata"])
def test_a_write_that_finds_no_page_left_says_so_and_changes_nothing(
    sqlite: Mapping[str, str], write: str
) -> None:
    before = prepare(sqlite)
    with service(sqlite) as sessions:
        with writer_of(sessions).datastore.transaction(commit=False) as cursor:
            cursor.execute("PRAGMA max_page_count = 1")  # as many as there are
        with pytest.raises(StorageFullError, match="Nothing was written"):
            LARGE[write](sessions)
    assert logged(sqlite) == before
    assert check(read_database(sqlite)) == []


def test_the_command_line_says_that_a_disk_is_full_and_the_same_command_goes_on_later(
    turnlog: Turnlog, tmp_path: Path
) -> None:
    database, chats = tmp_path / "sessions.db", tmp_path / "chats.jsonl"
    env = {"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": str(database)}
    before = prepare(env)
    large = [{"role": "user", "content": "word " * 100_000}]
    chats.write_text(json.dumps({"id": "large", "messages": large}) + "\n")
    ended = run(sys.executable, "-c", COMMAND, 4096, database, "import", chats, "--db", database)
    assert ended.returncode == 5, ended.stderr
    assert "Nothing was written: make room" in ended.stderr
    assert logged(env) == before
    assert turnlog("import", chats, "--db", database).status == 0
    with service(env) as sessions:
        assert [len(message.text or "") for message in sessions.get_messages("large")] == [500_000]


def test_a_disk_that_did_not_sync_leaves_it_open() -> None:
    said = sqlite3.OperationalError("disk I/O error")
    said.sqlite_errorname = "SQLITE_IOERR_FSYNC"
    with pytest.raises(WriteUncertainError, match="disk I/O error"), writing_errors():
        raise said
    assert type(storage_error(said)) is StorageError


# --- read-only


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("mode", ["mode=ro", "immutable=1"])
def test_a_file_that_can_only_be_read_refuses_every_write(
    sqlite: Mapping[str, str], write: str, mode: str
) -> None:
    before = prepare(sqlite)
    file = Path(sqlite["SQLITE_DBNAME"])
    content = file.read_bytes()
    with service({**sqlite, "SQLITE_DBNAME": f"{file.as_uri()}?{mode}"}) as sessions:
        with pytest.raises(StorageReadOnlyError, match="Nothing was written"):
            WRITES[write](sessions)
        assert sessions.get_events(SID) == before
    assert file.read_bytes() == content


def test_the_command_line_knows_what_a_file_says_that_can_only_be_read(tmp_path: Path) -> None:
    file = tmp_path / "sessions.db"
    prepare({"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": str(file)})
    given = f"file:{file}?immutable=1"
    with (
        closing(sqlite3.connect(given, uri=True)) as connection,
        pytest.raises(sqlite3.OperationalError) as refused,
    ):
        connection.execute("DELETE FROM stored_events")
    error = typed(refused.value)
    assert (type(error), status_of(error)) == (StorageReadOnlyError, Status.BAD_INPUT)
    assert "Nothing was written" in told(error)


# --- none of ours


def test_a_text_is_no_database(sqlite: Mapping[str, str]) -> None:
    file = Path(sqlite["SQLITE_DBNAME"])
    file.write_text("Dear diary, " * 100)
    with pytest.raises(StorageError, match="not a database"):
        service(sqlite)
    assert file.read_text() == "Dear diary, " * 100


def test_half_a_database_is_none(sqlite: Mapping[str, str]) -> None:
    prepare(sqlite)
    file = Path(sqlite["SQLITE_DBNAME"])
    half = file.read_bytes()[: file.stat().st_size // 2]
    shutil.rmtree(file, ignore_errors=True)
    file.write_bytes(half)
    with pytest.raises(StorageError, match="malformed"):
        service(sqlite)


@pytest.mark.parametrize("name", ["folder", "missing/sessions.db"])
def test_a_folder_or_a_file_in_none_cannot_be_opened(
    sqlite: Mapping[str, str], tmp_path: Path, name: str
) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(StorageError, match=r"cannot be opened.*Nothing was written"):
        service({**sqlite, "SQLITE_DBNAME": str(tmp_path / name)})


def test_an_empty_file_becomes_a_database(sqlite: Mapping[str, str]) -> None:
    Path(sqlite["SQLITE_DBNAME"]).touch()
    assert len(prepare(sqlite)) == 3


def test_tables_of_another_version_are_told_from_those_of_another_program(sqlite: Mapping[str, str]) -> None:
    prepare(sqlite)
    with closing(sqlite3.connect(sqlite["SQLITE_DBNAME"])) as connection, connection:
        connection.execute("ALTER TABLE turnlog_sessions RENAME COLUMN messages TO said")
    with (
        service(sqlite) as sessions,
        pytest.raises(StorageError, match=r"another version of it .*Nothing was written"),
    ):
        sessions.list_sessions()
