"""Settings that name a database without saying that it is to be used, and code that is not there."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from eventsourcing.application import Application
from eventsourcing.utils import TopicError

from turnlog.application import SessionAudit, Sessions, SessionService
from turnlog.application.projections import MemoryFollowerStore, SessionFollower, SupervisedRunner
from turnlog.application.settings import refused_setting
from turnlog.domain import InvalidSettingError, Message, MissingExtraError, TurnlogError
from turnlog.infrastructure.sqlite import SqliteFollowerStore


@pytest.mark.parametrize("name", ["SQLITE", "POSTGRES"])
def test_a_database_that_is_named_and_not_used_is_warned_of_in_one_line(
    caplog: pytest.LogCaptureFixture, name: str
) -> None:
    with caplog.at_level(logging.WARNING, "turnlog"):
        SessionService(env={f"{name}_DBNAME": "sessions"}).close()
    (record,) = caplog.records
    assert record.name == "turnlog"
    assert f"PERSISTENCE_MODULE=eventsourcing.{name.lower()}" in record.message


@pytest.mark.parametrize("module", ["eventsourcing.sqlite", "eventsourcing.popo"])
def test_who_says_what_is_to_be_used_is_not_warned(
    caplog: pytest.LogCaptureFixture, tmp_path: Path, module: str
) -> None:
    env = {"PERSISTENCE_MODULE": module, "SQLITE_DBNAME": str(tmp_path / "sessions.db")}
    with caplog.at_level(logging.WARNING, "turnlog"):
        SessionService(env=env).close()
        SessionService().close()
    assert caplog.records == []


SQLITE = "eventsourcing.sqlite"


def refusal(tmp_path: Path, **env: str) -> InvalidSettingError:
    """What is said of these settings beside those of a database on SQLite."""
    settings = {"PERSISTENCE_MODULE": SQLITE, "SQLITE_DBNAME": str(tmp_path / "sessions.db"), **env}
    with pytest.raises(InvalidSettingError) as refused:
        SessionService(env=settings)
    return refused.value


@pytest.mark.parametrize(
    ("variable", "topic", "why"),
    [
        (
            "APPLICATION_RECORDER_TOPIC",
            "turnlog.infrastructure.sqlite:SqliteSessionRecordr",
            "'SqliteSessionRecordr'",
        ),
        ("APPLICATION_RECORDER_TOPIC", "acme.recorders:Recorder", "No module named 'acme'"),
        ("SESSIONS_APPLICATION_RECORDER_TOPIC", "acme.recorders:Recorder", "No module named 'acme'"),
        ("TRANSCODER_TOPIC", "acme.coding:Transcoder", "No module named 'acme'"),
        ("MAPPER_TOPIC", "acme.coding:Mapper", "No module named 'acme'"),
        ("CIPHER_TOPIC", "acme.coding:Cipher", "No module named 'acme'"),
        ("COMPRESSOR_TOPIC", "acme.coding:Compressor", "No module named 'acme'"),
        ("PERSISTENCE_MODULE", "eventsourcing.sqllite", "No module named 'eventsourcing.sqllite'"),
        ("PERSISTENCE_MODULE", "eventsourcing", "0 infrastructure factory classes"),
    ],
)
def test_a_setting_that_names_nothing_is_told_with_its_variable(
    tmp_path: Path, variable: str, topic: str, why: str
) -> None:
    said = str(refusal(tmp_path, **{variable: topic}))
    assert said.startswith(f"{variable}={topic!r} names nothing")
    assert why in said


USES: dict[str, Callable[[SessionService], object]] = {
    "TOKEN_ESTIMATOR_TOPIC": lambda sessions: sessions.count_tokens(Message.user("hi")),
    "RENDERERS_TOPIC": lambda sessions: SessionAudit(sessions)._renderers,  # pyright: ignore[reportPrivateUsage] # what every replay of a prompt asks
}


@pytest.mark.parametrize("variable", USES)
def test_what_is_named_and_used_later_is_told_with_its_variable_too(variable: str) -> None:
    with (
        SessionService(env={variable: "acme.parts:Part"}) as sessions,
        pytest.raises(InvalidSettingError, match=f"{variable}='acme.parts:Part'"),
    ):
        USES[variable](sessions)


@pytest.mark.parametrize(
    ("variable", "topic", "wanted"),
    [
        (
            "APPLICATION_RECORDER_TOPIC",
            "turnlog.infrastructure.postgres:PostgresSessionRecorder",
            "SQLiteApplicationRecorder",
        ),
        ("APPLICATION_RECORDER_TOPIC", "json:dumps", "SQLiteApplicationRecorder"),
        ("MAPPER_TOPIC", "json:dumps", "Mapper"),
    ],
)
def test_a_class_for_something_else_is_told_with_what_fits(
    tmp_path: Path, variable: str, topic: str, wanted: str
) -> None:
    said = str(refusal(tmp_path, **{variable: topic}))
    assert said.startswith(f"{variable}={topic!r} does not go with PERSISTENCE_MODULE={SQLITE!r}")
    assert f"derives from {wanted} " in said


class Follower(SessionFollower[Any]):
    """Does nothing."""

    name = "follower"


def stopped(env: dict[str, str], view_class: Any, application_class: Any = Sessions) -> TurnlogError:
    """What a runner ends with."""
    with (
        pytest.raises(TurnlogError) as refused,
        SupervisedRunner(
            application_class=application_class, projection_class=Follower, view_class=view_class, env=env
        ) as runner,
    ):
        runner.run_forever(30)
    return refused.value


def test_a_store_of_another_module_is_told_with_those_that_fit(tmp_path: Path) -> None:
    sqlite = {"PERSISTENCE_MODULE": SQLITE, "SQLITE_DBNAME": str(tmp_path / "sessions.db")}
    refused = stopped(sqlite, MemoryFollowerStore)
    assert isinstance(refused, InvalidSettingError)
    assert str(refused).startswith(f"MemoryFollowerStore does not go with PERSISTENCE_MODULE={SQLITE!r}")
    assert "SqliteFollowerStore" in str(refused)
    assert "as MemoryFollowerStore" in str(stopped({}, SqliteFollowerStore))


class NamedStore(SqliteFollowerStore):
    """A store that goes with SQLite."""

    name = "follower"


class Orders(Application[Any]):
    """An application of a host."""


def test_a_setting_of_a_host_that_names_nothing_is_told_by_its_runner(tmp_path: Path) -> None:
    sqlite = {"PERSISTENCE_MODULE": SQLITE, "SQLITE_DBNAME": str(tmp_path / "sessions.db")}
    refused = stopped({**sqlite, "APPLICATION_RECORDER_TOPIC": "acme:Recorder"}, NamedStore, Orders)
    assert isinstance(refused, InvalidSettingError)
    assert "APPLICATION_RECORDER_TOPIC='acme:Recorder'" in str(refused)


WITHOUT = """
import sys
for name in {missing!r}:
    sys.modules[name] = None
from turnlog.application import SessionService
SessionService(env={env!r})
"""


@pytest.mark.parametrize(
    ("missing", "env", "said"),
    [
        (
            ("psycopg", "psycopg_pool"),
            {"PERSISTENCE_MODULE": "eventsourcing.postgres"},
            "PERSISTENCE_MODULE='eventsourcing.postgres' needs the extra `postgres`: "
            "pip install 'turnlog[postgres]'",
        ),
        (
            ("eventsourcing_sqlalchemy",),
            {"PERSISTENCE_MODULE": "eventsourcing_sqlalchemy"},
            "needs the extra `sqlalchemy`: pip install 'turnlog[sqlalchemy]'",
        ),
        (
            ("Crypto",),
            {"CIPHER_KEY": "a2V5"},
            "CIPHER_KEY names nothing that can be used",
        ),
    ],
)
def test_a_package_that_is_not_installed_is_told_with_what_brings_it(
    missing: tuple[str, ...], env: dict[str, str], said: str
) -> None:
    program = WITHOUT.format(missing=missing, env=env)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    last = ended.stderr.strip().splitlines()[-1]
    assert said in last
    assert last.startswith("turnlog.domain.errors.")
    assert "a2V5" not in last


def test_a_driver_without_its_library_is_told_with_what_brings_it() -> None:
    error = TopicError("Failed to resolve topic 'eventsourcing.postgres': no pq wrapper available.")
    error.__cause__ = ImportError("no pq wrapper available.")
    refused = refused_setting({"PERSISTENCE_MODULE": "eventsourcing.postgres"}, error)
    assert isinstance(refused, MissingExtraError)
    assert refused.extra == "postgres"


def test_a_topic_that_no_setting_names_is_left_as_it_is() -> None:
    assert refused_setting({"PERSISTENCE_MODULE": SQLITE}, TopicError("'acme:Event'")) is None
