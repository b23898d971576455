from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from turnlog.application import SessionService
from turnlog.domain.attributes import SessionAttributes
from turnlog.domain.messages import Message
from turnlog.infrastructure.cli.app import run

TRANSCRIPTS = Path(__file__).parents[2] / "data" / "transcripts"
SMALL_TALK = TRANSCRIPTS / "openai_chat" / "multilingual_small_talk_a.jsonl"
"""49 conversations in many languages."""
AIRLINE = Path(str(files("turnlog.infrastructure.demo") / "airline.json"))
"""A conversation with an airline's agent: 62 messages in 11 turns, with 20 calls."""


@dataclass(frozen=True)
class Result:
    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        return json.loads(self.err)


Turnlog = Callable[..., Result]
OpenService = Callable[[], SessionService]


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "turnlog.db"
    monkeypatch.setenv("TURNLOG_DB", str(path))
    monkeypatch.setenv("SQLITE_LOCK_TIMEOUT", "1")
    return path


@pytest.fixture
def turnlog(database: Path, capsys: pytest.CaptureFixture[str]) -> Turnlog:
    """Runs a command line in this process, on a database of the test's own."""

    def command(*arguments: object) -> Result:
        capsys.readouterr()
        status = run([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return Result(status, printed.out, printed.err)

    return command


@pytest.fixture
def imported(turnlog: Turnlog) -> str:
    """The id of a session that holds the conversation with the airline's agent."""
    return str(turnlog("import", AIRLINE, "--json").json[0]["sessions"][0]["id"])


@pytest.fixture
def open_service(database: Path) -> OpenService:
    """Opens the database of the test as a program would."""
    return lambda: SessionService(
        env={"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": str(database)}
    )


@pytest.fixture
def of_two_principals(open_service: OpenService) -> None:
    """Two sessions of ada and one of bob; all speak of a parcel."""
    with open_service() as sessions:
        for session_id, principal in (("ada-1", "ada"), ("bob-1", "bob"), ("ada-2", "ada")):
            title = f"{principal.capitalize()} and the parcel"
            sessions.create(
                session_id,
                metadata={SessionAttributes.PRINCIPAL_NAME: principal, SessionAttributes.TITLE: title},
            )
            sessions.append_events(
                session_id,
                [Message.user(f"Where is my parcel? says {principal}."), Message.assistant("In Lund.")],
            )
