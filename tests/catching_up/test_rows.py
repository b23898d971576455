"""Rows about sessions beside a recorder that writes none: caught up by whoever asks, or made afterwards."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from uuid import UUID

import pytest
from eventsourcing.application import Application
from eventsourcing.domain import Aggregate
from tests.recall.conftest import on_sqlite, without_rows

from turnlog.application.directory import CatchUpDirectory
from turnlog.application.service import SessionService
from turnlog.domain.errors import StorageError, UnreadableEventError
from turnlog.domain.events import EventErased
from turnlog.domain.ids import aggregate_id
from turnlog.domain.log import NewEvent
from turnlog.domain.messages import Message
from turnlog.domain.query import EventQuery
from turnlog.domain.session import Session

HERON = EventQuery(keywords="heron")
ADA = {"principal": "ada"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sessions.db"


@pytest.fixture
def plain(path: Path) -> Iterator[SessionService]:
    """A service on the framework's own recorder, with three sessions."""
    with without_rows(path) as service:
        fill(service, ["a", "b", "c"])
        yield service


def fill(service: SessionService, names: Sequence[str]) -> None:
    for name in names:
        service.create(name, metadata=ADA)
        service.append_message(name, Message.user(f"a heron in {name}"), event_id=f"id-{name}")


def rows(path: Path, statement: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(statement).fetchall()


def listed(service: SessionService) -> dict[str, int]:
    return {row.session_id: row.messages for row in service.list_sessions(limit=10_000)}


def test_the_capabilities_say_that_who_asks_applies_what_is_missing(plain: SessionService) -> None:
    said = plain.capabilities
    assert (said.event_ids, said.directory, said.recall, said.erases) == (
        "streams",
        "catch-up",
        "catch-up",
        True,
    )


def test_a_tracking_row_says_how_far_the_rows_got(plain: SessionService, path: Path) -> None:
    assert len(plain.list_sessions()) == 3
    tracked = rows(path, "SELECT notification_id FROM tracking WHERE application_name = 'turnlog.rows'")
    assert tracked == [(plain.app.recorder.max_notification_id(),)]


def test_a_second_service_goes_on_where_the_first_got_to(plain: SessionService, path: Path) -> None:
    plain.list_sessions()
    with without_rows(path) as other:
        other.append_message("a", Message.user("more"))
        assert listed(other) == {"a": 2, "b": 1, "c": 1}
    assert listed(plain) == {"a": 2, "b": 1, "c": 1}


def test_an_index_that_was_far_behind_is_caught_up_by_a_search(plain: SessionService, path: Path) -> None:
    plain.append_events("a", [NewEvent(message=Message.user(f"a heron {n}")) for n in range(1500)])
    assert len(plain.search_events("a", HERON)) == 1501
    behind = "(SELECT max(rowid) FROM stored_events) - (SELECT notification FROM turnlog_recall_mark)"
    assert rows(path, f"SELECT {behind} <= 128") == [(1,)]


class Order(Aggregate):
    """An aggregate of a host."""


def test_events_of_a_host_are_passed_over(plain: SessionService) -> None:
    plain.app.save(*[Order() for _ in range(1200)])
    plain.append_message("c", Message.user("more"))
    assert listed(plain)["c"] == 2


READER = """
import sys
from turnlog.application import SessionService
from turnlog.domain import EventQuery, Message

env = {"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": sys.argv[1],
       "APPLICATION_RECORDER_TOPIC": "eventsourcing.sqlite:SQLiteApplicationRecorder",
       "SQLITE_LOCK_TIMEOUT": "30"}
with SessionService(env=env) as sessions:
    for number in range(40):
        sessions.append_message("a", Message.user("a heron by " + sys.argv[2]))
        sessions.list_sessions()
        sessions.search_events("a", EventQuery(keywords="heron"))
"""


def test_processes_that_catch_up_at_once_apply_nothing_twice(plain: SessionService, path: Path) -> None:
    readers = [
        subprocess.Popen([sys.executable, "-c", READER, str(path), str(number)]) for number in range(3)
    ]
    assert [reader.wait() for reader in readers] == [0, 0, 0]
    assert listed(plain) == {"a": 121, "b": 1, "c": 1}
    assert len(plain.search_events("a", HERON)) == 121


def test_threads_that_catch_up_at_once_apply_nothing_twice(plain: SessionService) -> None:
    plain.append_events("b", [NewEvent(message=Message.user(str(number))) for number in range(3000)])
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(listed, [plain] * 8))
    assert answers == [{"a": 1, "b": 3001, "c": 1}] * 8


# --- deletions


def stored(service: SessionService, session_id: str) -> list[type]:
    return [type(event) for event in service.app.events.get(aggregate_id(session_id, ""))]


def test_a_deletion_leaves_no_metadata_in_the_rows(plain: SessionService, path: Path) -> None:
    plain.list_sessions()
    plain.delete("b")
    assert rows(path, "SELECT count(content) FROM turnlog_metadata") == [(2,)]
    assert listed(plain) == {"a": 1, "c": 1}


def delete_and_die(service: SessionService, session_id: str) -> None:
    """What is stored when a process dies behind the write of the tombstone."""
    session: object = service.app.repository.get(aggregate_id(session_id, ""))
    assert isinstance(session, Session)
    session.delete(now=session.modified_on)
    service.app.save(session)


def test_a_sweep_overwrites_what_a_process_left_that_died_behind_the_tombstone(
    plain: SessionService, path: Path
) -> None:
    delete_and_die(plain, "b")
    with without_rows(path) as other:
        swept = other.sweep()
        assert (swept.completed, swept.pending) == (1, 0)
        assert set(stored(other, "b")[:-1]) == {EventErased}


def test_the_next_deletion_overwrites_that_too(plain: SessionService) -> None:
    delete_and_die(plain, "b")
    plain.delete("c")
    assert set(stored(plain, "b")[:-1]) == {EventErased}


def test_a_longer_neighbour_that_is_deleted_first_leaves_the_index_sound(plain: SessionService) -> None:
    plain.append_events("b", [NewEvent(message=Message.user(f"a heron {n}")) for n in range(600)])
    plain.delete("c")
    plain.search_events("a", HERON)
    delete_and_die(plain, "a")
    assert plain.delete("b").erasure == "done"
    assert {*stored(plain, "a")[:-1], *stored(plain, "b")[:-1]} == {EventErased}
    assert plain.sweep().pending == 0


def test_a_host_that_saves_a_deletion_which_keeps_the_content_keeps_it(plain: SessionService) -> None:
    plain.delete("b", erase=False)
    assert plain.sweep().completed == 0
    assert EventErased not in stored(plain, "b")


def test_rows_that_were_lost_are_made_again_without_what_was_erased(
    plain: SessionService, path: Path
) -> None:
    plain.delete("b")
    with closing(sqlite3.connect(path)) as connection:
        for (name,) in rows(
            path, "SELECT name FROM sqlite_master WHERE name LIKE 'turnlog%' AND type = 'table'"
        ):
            if not str(name).startswith("turnlog_recall_"):
                connection.execute(f"DROP TABLE {name}")
        connection.execute("DELETE FROM tracking WHERE application_name = 'turnlog.rows'")
        connection.commit()
    with without_rows(path) as other:
        assert listed(other) == {"a": 1, "c": 1}
        assert other.sweep().pending == 0


def test_without_leave_to_make_tables_the_directory_is_in_memory(tmp_path: Path) -> None:
    env = {
        "PERSISTENCE_MODULE": "eventsourcing.sqlite",
        "SQLITE_DBNAME": str(tmp_path / "host.db"),
    }
    Application[UUID](env=env).close()
    host = Application[UUID](env={**env, "CREATE_TABLE": "n"})
    service = SessionService(host)
    service.create("a")
    assert isinstance(service._directory, CatchUpDirectory)  # pyright: ignore[reportPrivateUsage] # no public face
    assert (service.capabilities.directory, service.capabilities.erases) == ("memory", False)
    assert [row.session_id for row in service.list_sessions()] == ["a"]
    host.close()


# --- rows for what was stored without


@pytest.mark.parametrize("asked", [True, False], ids=["caught up", "never asked"])
def test_a_recorder_with_rows_makes_those_of_what_is_stored(path: Path, asked: bool) -> None:
    with without_rows(path) as plain:
        fill(plain, ["a", "b", "c"])
        if asked:
            assert len(plain.list_sessions()) == 3
            plain.search_events("a", HERON)
        plain.append_message("a", Message.user("more"))
        plain.delete("b")
        before = (
            {row.session_id: (row.version, row.metadata) for row in plain.list_sessions()} if asked else None
        )
    with on_sqlite(path) as sessions:
        assert sessions.capabilities.directory == "rows"
        assert listed(sessions) == {"a": 2, "c": 1}
        after = {row.session_id: (row.version, row.metadata) for row in sessions.list_sessions()}
        assert before in (None, after)
        assert len(sessions.search_all(HERON)) == 2


def test_a_repeat_of_what_was_stored_without_rows_is_known(plain: SessionService, path: Path) -> None:
    plain.close()
    with on_sqlite(path) as sessions:
        again = sessions.append_message("a", Message.user("a heron in a"), event_id="id-a")
        assert again.is_repeat


def test_a_deletion_that_was_not_completed_without_rows_is_completed(
    plain: SessionService, path: Path
) -> None:
    delete_and_die(plain, "b")
    plain.close()
    with on_sqlite(path) as sessions:
        assert set(stored(sessions, "b")[:-1]) == {EventErased}
        assert (sessions.sweep().completed, listed(sessions)) == (1, {"a": 1, "c": 1})


def test_the_rows_keep_their_notification_ids(plain: SessionService, path: Path) -> None:
    before = plain.app.recorder.select_notifications(1, 1000)
    plain.close()
    with on_sqlite(path) as sessions:
        assert sessions.app.recorder.select_notifications(1, 1000) == before


STARTER = """
import sys
from turnlog.application import SessionService
from turnlog.domain import Message

env = {"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": sys.argv[1],
       "SQLITE_LOCK_TIMEOUT": "30"}
with SessionService(env=env) as sessions:
    sessions.append_message("a", Message.user("a heron by " + sys.argv[2]), event_id="start-" + sys.argv[2])
"""


def test_processes_that_start_at_once_make_the_rows_once(plain: SessionService, path: Path) -> None:
    plain.append_events("b", [NewEvent(message=Message.user(str(number))) for number in range(2000)])
    plain.close()
    starters = [
        subprocess.Popen([sys.executable, "-c", STARTER, str(path), str(number)]) for number in range(3)
    ]
    assert [starter.wait() for starter in starters] == [0, 0, 0]
    with on_sqlite(path) as sessions:
        assert listed(sessions) == {"a": 4, "b": 2001, "c": 1}
        assert rows(path, "SELECT count(*) FROM turnlog_event_ids") == [(6,)]


def test_an_old_reader_says_that_it_must_start_anew(plain: SessionService, path: Path) -> None:
    plain.list_sessions()
    with on_sqlite(path) as sessions:
        sessions.append_message("a", Message.user("more"))
        with pytest.raises(StorageError, match="SessionRows"):
            plain.list_sessions()
        assert listed(sessions)["a"] == 2


def test_what_an_old_writer_began_in_front_of_the_fence_can_be_deleted_where_rows_are_written(
    plain: SessionService, path: Path
) -> None:
    plain.list_sessions()
    with on_sqlite(path) as with_rows:
        with closing(sqlite3.connect(path)) as connection:  # as a file was that an earlier release made
            connection.execute("DROP TRIGGER turnlog_fence_of_stored_events")
        plain.create("late")
        plain.append_message("late", Message.user("a word"))

        assert with_rows.delete("late").erasure == "done"
        assert with_rows.find("late") is None


def test_rows_that_cannot_be_made_are_not_made_in_part(
    plain: SessionService, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE stored_events SET state = x'00'")
        connection.commit()
    app = on_app(path)
    with pytest.raises(UnreadableEventError, match="version 0 "):
        SessionService(app)
    app.close()
    assert rows(path, "SELECT name FROM sqlite_master WHERE name = 'turnlog_event_ids'") == []


def on_app(path: Path) -> Application[UUID]:
    return Application[UUID](
        env={
            "PERSISTENCE_MODULE": "eventsourcing.sqlite",
            "SQLITE_DBNAME": str(path),
            "APPLICATION_RECORDER_TOPIC": "turnlog.infrastructure.sqlite:SqliteSessionRecorder",
        }
    )
