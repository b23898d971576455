"""Writes that meet others: a transaction that reads first, ids of purged rows, a host's snapshots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from importlib.metadata import requires
from pathlib import Path
from threading import Event
from typing import Any, ClassVar
from uuid import UUID

from eventsourcing.application import Application
from eventsourcing.sqlite import SQLiteDatastore
from tests.contracts.stores import Order, sqlite_env

from turnlog.application.service import SessionService
from turnlog.domain.compaction import SummaryRequest
from turnlog.domain.messages import Message
from turnlog.domain.window import CompactionWindow, WindowCompactionStrategy
from turnlog.infrastructure.sqlite.secure import writing


def test_a_transaction_of_sqlite_that_reads_first_waits_for_the_writer_in_front_of_it(tmp_path: Path) -> None:
    def read_and_write(datastore: SQLiteDatastore, has_read: Event, may_write: Event) -> None:
        with writing(datastore) as cursor:
            cursor.execute("SELECT max(number) FROM counted")
            number = int(cursor.fetchone()[0])
            has_read.set()
            assert may_write.wait(60)
            cursor.execute("INSERT INTO counted VALUES (?)", (number + 1,))

    first, second = (SQLiteDatastore(str(tmp_path / "counted.db")) for _ in range(2))
    with closing(first), closing(second):
        with first.transaction(commit=True) as cursor:
            cursor.execute("CREATE TABLE counted (number INTEGER)")
            cursor.execute("INSERT INTO counted VALUES (0)")
        one, other, go, at_once = Event(), Event(), Event(), Event()
        at_once.set()
        with ThreadPoolExecutor(2) as pool:
            ahead = pool.submit(read_and_write, first, one, go)
            assert one.wait(60)
            behind = pool.submit(read_and_write, second, other, at_once)
            other.wait(0.2)  # where it does not wait, it has read what is old by now
            go.set()
            ahead.result(60)
            behind.result(60)
        with first.transaction(commit=False) as cursor:
            cursor.execute("SELECT max(number) FROM counted")
            assert cursor.fetchone()[0] == 2


def test_the_id_of_what_was_purged_is_not_used_again(sessions: SessionService) -> None:
    sessions.create("old")
    sessions.create("newest")
    for _ in range(3):
        sessions.append_message("newest", Message.user("hi"))
    sessions.delete("newest")
    before = sessions.app.recorder.max_notification_id() or 0
    sessions.sweep(purge_after=timedelta(0))
    sessions.append_message("old", Message.user("hi"))
    assert sessions.app.recorder.max_notification_id() == before + 1


def test_who_follows_the_log_gets_what_is_appended_behind_a_purge(sessions: SessionService) -> None:
    sessions.create("old")
    sessions.create("newest")
    sessions.append_message("newest", Message.user("hi"))
    sessions.delete("newest")
    tracked = sessions.app.recorder.max_notification_id()
    sessions.sweep(purge_after=timedelta(0))
    stored = sessions.append_message("old", Message.user("hi"))
    behind = sessions.app.recorder.select_notifications(tracked, 10, inclusive_of_start=False)
    assert [(one.topic, one.originator_version) for one in behind] == [
        ("turnlog.domain.events:MessageAppended", stored.version)
    ]


class Snapshots(Application[UUID]):
    """A host that snapshots its aggregates at every event."""

    name = "Sessions"
    is_snapshotting_enabled = True
    snapshotting_intervals: ClassVar[Any] = {Order: 1}


def test_a_snapshot_of_the_host_that_fails_does_not_make_of_one_message_two(env: Mapping[str, str]) -> None:
    module = env["PERSISTENCE_MODULE"]
    recorder = {
        "eventsourcing.sqlite": "turnlog.infrastructure.sqlite:SqliteSessionRecorder",
        "eventsourcing.postgres": "turnlog.infrastructure.postgres:PostgresSessionRecorder",
    }[module]
    with closing(Snapshots(env={**env, "APPLICATION_RECORDER_TOPIC": recorder})) as host:
        sessions = SessionService(host)
        sessions.create("s")
        order = Order("tea")
        host.save(order)
        order.rename("coffee")
        assert host.snapshots is not None
        host.snapshots.put([Order.Snapshot.take(order)])  # the one that the save will want to make
        stored = sessions.append_message("s", Message.user("coffee, please"), also=[order])
        assert (stored.version, stored.is_repeat) == (1, False)
        assert sessions.version("s") == 1
        assert host.repository.get(order.id).version == order.version


def test_on_sqlite_no_connection_is_in_use_while_a_summary_is_written(tmp_path: Path) -> None:
    in_use: list[int] = []

    class Summarizer:
        def summarize(self, request: SummaryRequest) -> Sequence[Message]:  # noqa: ARG002 - the port's argument
            recorder: Any = sessions.app.recorder
            in_use.append(recorder.datastore.pool.num_in_use)
            return (Message.assistant("recap"),)

    with SessionService(env=sqlite_env(tmp_path / "sessions.db")) as sessions:
        sessions.create("s")
        for number in range(4):
            sessions.append_message("s", Message.user(str(number)))
        window = CompactionWindow.last_turns(1)
        assert not sessions.compact("s", None, WindowCompactionStrategy(window, Summarizer())).is_unchanged
    assert in_use == [0]


def test_the_framework_is_pinned_below_its_rewrite() -> None:
    assert "eventsourcing<10,>=9.5.6" in (requires("turnlog") or ())
