"""Processes that are killed while they write."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Mapping

import pytest

from turnlog.application.service import SessionService
from turnlog.domain.events import EventErased
from turnlog.domain.log import NewEvent
from turnlog.domain.messages import Message
from turnlog.domain.query import EventQuery

APPEND = """
import json, sys
from turnlog.application.service import SessionService
from turnlog.domain.messages import Message
with SessionService(env=json.loads(sys.argv[1])) as sessions:
    for number in range(10_000):
        print(sessions.append_message("s", Message.user(f"word {number}")).version, flush=True)
"""

DELETE = """
import json, os, signal, sys
from turnlog.application.service import SessionService
from turnlog.infrastructure.postgres import eraser
place = sys.argv[2]
execute = eraser.Overwrite.execute

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def execute_and_die(*arguments):
    execute(*arguments)
    die()

if place == "inside":
    eraser.Overwrite.execute = execute_and_die
else:
    eraser.PostgresEraser.scrub = die
SessionService(env=json.loads(sys.argv[1])).delete("s")
"""


@pytest.mark.parametrize("acknowledged", [1, 15, 16, 17, 40])
def test_what_a_killed_writer_was_told_is_there_and_nothing_is_half_written(
    env: Mapping[str, str], sessions: SessionService, acknowledged: int
) -> None:
    sessions.create("s")
    command = [sys.executable, "-c", APPEND, json.dumps(dict(env))]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        told = [int(writer.stdout.readline()) for _ in range(acknowledged)]
        writer.kill()
    sessions.append_message("s", Message.user("word of another"))
    versions = [event.version for event in sessions.get_events("s")]
    assert versions == list(range(1, len(versions) + 1))
    assert set(told) <= set(versions)
    assert len(sessions.search_events("s", EventQuery(keywords="word"))) == len(versions)
    (row,) = sessions.list_sessions()
    assert (row.version, row.messages) == (len(versions), len(versions))


@pytest.mark.parametrize("place", ["inside", "behind"])
def test_a_deletion_that_is_killed_did_all_or_nothing(
    env: Mapping[str, str], sessions: SessionService, place: str
) -> None:
    sessions.create("s")
    sessions.append_events("s", [NewEvent(message=Message.user("word"))] * 40)
    killed = subprocess.run(
        [sys.executable, "-c", DELETE, json.dumps(dict(env)), place], check=False, timeout=60
    )
    assert killed.returncode == -signal.SIGKILL
    if place == "inside":
        assert len(sessions.get_events("s")) == 40
        assert sessions.delete("s").erasure == "done"
        return
    assert sessions.find("s") is None
    assert sessions.sweep().completed == 1
    stored = sessions.app.recorder.select_notifications(None, 100)
    assert {one.topic for one in stored[:-1]} == {EventErased.TOPIC}
