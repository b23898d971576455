"""Followers of the log: they miss nothing, in the order of the commits, and are woken."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tests.postgres.conftest import service_on
from tests.support.postgres import connect, listeners

from turnlog.application.projections.waiting import poll
from turnlog.application.service import SessionService
from turnlog.domain.compaction import SummaryRequest
from turnlog.domain.messages import Message
from turnlog.domain.triggers import TurnCountTrigger
from turnlog.domain.window import CompactionWindow, WindowCompactionStrategy


@dataclass(frozen=True)
class Summarizer:
    """A summarizer made of a function."""

    write: Callable[[SummaryRequest], Sequence[Message]]

    def summarize(self, request: SummaryRequest) -> Sequence[Message]:
        """What the function writes."""
        return self.write(request)


APPEND = """
import json, sys
from turnlog.application.service import SessionService
from turnlog.domain.messages import Message
env, name = json.loads(sys.argv[1])
with SessionService(env=env) as sessions:
    sessions.create(name)
    for number in range(150):
        sessions.append_message(name, Message.user(str(number)))
"""


def test_a_follower_of_writers_in_several_processes_misses_nothing(
    env: Mapping[str, str], sessions: SessionService
) -> None:
    recorder = sessions.app.recorder
    writers = [
        subprocess.Popen([sys.executable, "-c", APPEND, json.dumps([dict(env), str(number)])])
        for number in range(4)
    ]
    seen: list[int] = []
    position = 0
    while True:
        ended = all(writer.poll() is not None for writer in writers)
        page = recorder.select_notifications(position, 100, inclusive_of_start=False)
        seen += [notification.id for notification in page]
        position = page[-1].id if page else position
        if ended and not page:
            break
    assert [writer.returncode for writer in writers] == [0] * 4
    stored = [notification.id for notification in recorder.select_notifications(None, 10_000)]
    assert seen == stored
    assert len(stored) == 4 * 151


def test_a_subscription_gets_what_another_service_appends(
    env: Mapping[str, str], sessions: SessionService
) -> None:
    sessions.create("s")
    before = listeners()
    with sessions.app.recorder.subscribe(gt=1) as subscription, service_on(env) as other:
        assert poll(lambda: bool(listeners() - before), timeout=60)
        other.append_message("s", Message.user("hi"))
        assert next(iter(subscription)).originator_version == 1


def test_no_transaction_is_open_and_nothing_is_locked_while_a_model_is_asked(
    env: Mapping[str, str], sessions: SessionService
) -> None:
    seen: list[tuple[int, int]] = []

    def summarize(_: SummaryRequest) -> list[Message]:
        with connect() as connection:
            found = connection.execute(
                "SELECT count(*) FILTER (WHERE state LIKE 'idle in%%' OR backend_xmin IS NOT NULL), "
                "(SELECT count(*) FROM pg_locks JOIN pg_class ON pg_class.oid = relation "
                "WHERE relnamespace = to_regnamespace(%s)) "
                "FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()",
                (env["POSTGRES_SCHEMA"],),
            ).fetchone()
        assert found is not None
        seen.append(found)
        return [Message.user("What was said?"), Message.assistant("Hi.")]

    sessions.create("s")
    for number in range(4):
        sessions.append_message("s", Message.user(str(number)))
    strategy = WindowCompactionStrategy(CompactionWindow.last_turns(1), Summarizer(summarize))
    assert not sessions.compact("s", TurnCountTrigger(2), strategy).is_unchanged
    assert seen == [(0, 0)]
