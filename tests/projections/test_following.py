"""Fan-out: other parts of a system follow sessions, in order and exactly once."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest
from eventsourcing.persistence import OperationalError
from eventsourcing.projection import ProjectionRunner
from tests.projections.activity import FOLLOWABLE, Life, compact, env_of, service_on, turn
from tests.projections.databases import Database, PostgresSchema, SqliteFile
from tests.projections.journals import Writes, following, journal, journal_of
from tests.projections.processes import worker

from turnlog.application import event_context
from turnlog.application.projections import (
    BoundaryFollowed,
    EventFollowed,
    Followed,
    MemoryFollowerStore,
    MessageFollowed,
    ProjectionStoppedError,
    SessionBegan,
    SessionEnded,
    SessionFeed,
    SessionFollower,
    SessionProjectionRunner,
    SupervisedRunner,
    UnboundFollowerError,
)
from turnlog.application.service import SessionService
from turnlog.application.sessions import Sessions
from turnlog.domain.errors import InvalidSettingError
from turnlog.domain.log import EventType
from turnlog.infrastructure.sqlite import RowsProjection, SqliteRowsStore


class Kept(MemoryFollowerStore):
    name = "kept"

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str | None] = []


class Keeps(SessionFollower[Kept]):
    name = "keeps"

    def message(self, into: Kept, message: MessageFollowed) -> None:
        into.texts.append(message.event.text)


def newest(sessions: SessionService) -> int | None:
    return sessions.app.recorder.max_notification_id()


@pytest.fixture
def lived(sessions: SessionService) -> SessionService:
    """A session with two turns, an event and a compaction."""
    sessions.create("a")
    turn(sessions, "a")
    sessions.append_event("a", EventType.of("ACME.AUDIT"), {"heron": 1})
    turn(sessions, "a")
    compact(sessions, "a")
    return sessions


LIVED = ["began", "message", "message", "event", "message", "message", "boundary", "message", "message"]


def test_a_follower_gets_every_kind_in_the_order_of_the_log(
    lived: SessionService, database: Database
) -> None:
    with following(database) as runner:
        runner.wait(newest(lived), timeout=60)
        lived.delete("a")
        runner.wait(newest(lived), timeout=60)
    positions, kinds, names, versions = zip(*journal(database), strict=True)
    assert list(kinds) == [*LIVED, "ended"]
    assert positions == tuple(range(1, 11))
    assert versions == tuple(range(10))
    assert set(names) == {"a"}


def test_what_is_erased_before_it_is_read_is_told_as_its_end(
    lived: SessionService, database: Database
) -> None:
    lived.delete("a")
    with following(database) as runner:
        runner.wait(newest(lived), timeout=60)
    assert journal(database) == [(10, "ended", None, 9)]


def test_several_followers_of_one_name_handle_each_position_once(
    sessions: SessionService, database: Database
) -> None:
    with following(database) as one, following(database) as other, worker("journal", database) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "following\n"
        life = Life(sessions, 8)
        for _ in range(60):
            life.step()
        for runner in (one, other):
            runner.wait(newest(sessions), timeout=60)
            assert runner.restarts == 0
    positions = [row[0] for row in journal(database)]
    assert len(positions) > 60
    assert positions == sorted(set(positions))


def test_a_follower_that_is_killed_goes_on_exactly_once(sessions: SessionService, database: Database) -> None:
    for number in range(30):
        sessions.create(f"s{number}")
        turn(sessions, f"s{number}")
    for _ in range(3):
        with worker("journal", database, "slow") as process:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith("handled"):
                    break
            process.kill()
            process.wait(60)
    with following(database) as runner:
        runner.wait(newest(sessions), timeout=60)
    assert [row[0] for row in journal(database)] == list(range(1, 91))


def test_a_handler_that_fails_leaves_rows_and_position_as_they_were(
    lived: SessionService, database: Database
) -> None:
    class Fails(Writes):
        name = "fails"

        def boundary(self, into: Any, boundary: BoundaryFollowed) -> None:
            super().boundary(into, boundary)
            raise KeyError("a mistake")

    runner = following(database, Fails)
    with pytest.raises(ProjectionStoppedError):
        runner.run_forever(timeout=60)
    runner.stop()
    assert journal(database) == []
    with following(database) as runner:
        runner.wait(newest(lived), timeout=60)
    assert [row[1] for row in journal(database)] == LIVED


def test_a_handler_whose_transaction_failed_is_called_again(
    lived: SessionService, database: Database
) -> None:
    failures = iter([True] * 3)
    called: list[int] = []

    class Hiccups(Writes):
        name = "hiccups"

        def boundary(self, into: Any, boundary: BoundaryFollowed) -> None:
            super().boundary(into, boundary)
            called.append(boundary.position)
            if next(failures, False):
                raise OperationalError("disk I/O error")

    with following(database, Hiccups) as runner:
        runner.wait(newest(lived), timeout=60)
        assert runner.restarts > 0
    assert called == [7] * 4
    assert [row[1] for row in journal(database)] == LIVED


def test_a_follower_may_have_a_database_of_its_own(
    lived: SessionService, database: Database, tmp_path: Path
) -> None:
    if isinstance(database, SqliteFile):
        own: Database = SqliteFile(tmp_path / "own.db")
        elsewhere = {"WRITES_SQLITE_DBNAME": own.env["SQLITE_DBNAME"]}
    else:
        own = PostgresSchema()
        elsewhere = {"WRITES_POSTGRES_SCHEMA": own.env["POSTGRES_SCHEMA"]}
    with following(database, env={**database.env, **elsewhere}) as runner:
        runner.wait(newest(lived), timeout=60)
    assert [row[1] for row in journal(own)] == LIVED
    assert "journal" not in database.tables()


def test_a_follower_in_memory() -> None:
    with SessionProjectionRunner(
        application_class=Sessions, projection_class=Keeps, view_class=Kept
    ) as runner:
        sessions = SessionService(runner.app)
        sessions.create("a")
        turn(sessions, "a")
        runner.wait(newest(sessions), timeout=60)
        assert isinstance(runner.view, Kept)
        assert runner.view.texts == ["a heron", "about a heron"]


def test_the_frameworks_runner_says_what_a_follower_needs(lived: SessionService, database: Database) -> None:
    with (
        pytest.raises(UnboundFollowerError, match="SupervisedRunner"),
        ProjectionRunner(
            application_class=Sessions,
            projection_class=Writes,
            view_class=cast("Any", journal_of(database)),
            env=database.env,
        ) as runner,
    ):
        runner.run_forever(timeout=60)
    assert lived.find("a")


def test_a_store_without_a_name_is_refused(database: Database) -> None:
    kind: Any = database.follower_class

    class Nameless(kind):  # type: ignore[misc] # whichever it is
        pass

    with pytest.raises(InvalidSettingError, match="name"):
        SupervisedRunner[Any](
            application_class=Sessions, projection_class=Writes, view_class=Nameless, env=database.env
        ).run_forever(timeout=60)


@pytest.fixture
def feed(lived: SessionService) -> Iterator[SessionFeed]:
    """A feed that ends in time where a test waits in vain."""
    with SessionFeed(lived) as feed:
        timer = threading.Timer(60, feed.stop)
        timer.start()
        yield feed
        timer.cancel()


def some(feed: SessionFeed, count: int) -> Sequence[Followed]:
    entries = iter(feed)
    return [next(entries) for _ in range(count)]


def test_a_feed_yields_typed_entries_and_waits_for_more(lived: SessionService, feed: SessionFeed) -> None:
    entries = iter(feed)
    kinds = [type(next(entries)) for _ in range(9)]
    assert kinds[0] is SessionBegan
    assert kinds[3] is EventFollowed
    assert kinds[6] is BoundaryFollowed
    assert {kinds[place] for place in (1, 2, 4, 5, 7, 8)} == {MessageFollowed}
    lived.delete("a")
    last = next(entries)
    assert isinstance(last, SessionEnded)
    assert (last.position, last.session_id, last.keeps_content) == (10, "a", False)


def test_a_feed_begins_behind_a_position(lived: SessionService) -> None:
    with SessionFeed(lived, after=6) as feed:
        first = next(iter(feed))
    assert isinstance(first, BoundaryFollowed)
    assert first.event.boundary
    assert first.event.session_id == "a"


def test_a_feed_waits_for_a_position_that_the_log_does_not_have_yet(lived: SessionService) -> None:
    with SessionFeed(lived, after=10) as feed:
        lived.create("passed over")
        lived.create("told")
        assert next(iter(feed)).session_id == "told"


def test_entries_have_the_context_that_was_given(lived: SessionService) -> None:
    at = newest(lived)
    with event_context(actor="ada"):
        lived.create("b")
        turn(lived, "b")
        lived.delete("b")
    with SessionFeed(lived, after=at) as feed:
        end = next(entry for entry in feed if isinstance(entry, SessionEnded))
    assert end.context["actor"] == "ada"


def test_a_feed_leaves_out_other_namespaces(lived: SessionService) -> None:
    other = SessionService(lived.app, namespace="tenant")
    other.create("theirs")
    lived.create("ours")
    with SessionFeed(lived, after=9) as feed:
        assert next(iter(feed)).session_id == "ours"


def test_a_feed_of_a_scope_is_refused(lived: SessionService) -> None:
    with pytest.raises(InvalidSettingError, match="scope"):
        SessionFeed(lived.scoped_to("ada"))


def test_a_feed_that_is_stopped_ends(feed: SessionFeed) -> None:
    feed.stop()
    assert list(feed) == []


def test_a_runner_keeps_the_caught_up_rows_up_to_date(path: Path) -> None:
    with service_on(path, FOLLOWABLE) as sessions:
        sessions.create("a")
        with SupervisedRunner(
            application_class=Sessions,
            projection_class=RowsProjection,
            view_class=SqliteRowsStore,
            env=env_of(path, FOLLOWABLE),
        ) as runner:
            for _ in range(3):
                turn(sessions, "a")
                runner.wait(newest(sessions), timeout=60)
        with closing(sqlite3.connect(path)) as connection:
            listed = connection.execute("SELECT session_id, messages FROM turnlog_sessions").fetchall()
        assert listed == [("a", 6)]
