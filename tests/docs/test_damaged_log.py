"""The blocks of the page about damaged databases run on such ones, and print what it shows."""

from __future__ import annotations

import json
import os
import re
import secrets
import sqlite3
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql
from tests.support.postgres import connect, connection_settings, path_with_tools, server

from turnlog.application import SessionService
from turnlog.domain import Message
from turnlog.domain.ids import aggregate_id

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "damaged-log.md"
EXPORTS = re.compile(r"^export TURNLOG_DB=.*$", re.MULTILINE)
"""Where the page names its database; that of the test is elsewhere."""
NAMES = ("parcel", "order", "invoice", "complaint", "lamp")
DAMAGE = (
    ("parcel", "DELETE FROM {events} WHERE originator_id = {id} AND originator_version = 2"),
    ("order", "DELETE FROM {events} WHERE originator_id = {id} AND originator_version >= 3"),
    ("invoice", "DELETE FROM {events} WHERE originator_id = {id}"),
    (
        "complaint",
        "UPDATE {events} SET state = {noise} WHERE originator_id = {id} AND originator_version = 2",
    ),
)


class Block(NamedTuple):
    """A block of the page: the headings above it, its language, what it holds."""

    step: str
    place: str
    language: str
    text: str


class Operated(ABC):
    """A database that an operator has on his hands, in a folder of his."""

    place: str
    events: str
    noise: str
    name: str = "conversations"

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    @abstractmethod
    def settings(self) -> Mapping[str, str]:
        """The framework's settings of the database."""

    @property
    @abstractmethod
    def uri(self) -> str:
        """What the command line is told."""

    @abstractmethod
    def id_of(self, session_id: str) -> str:
        """How a statement names the aggregate."""

    @abstractmethod
    def execute(self, statement: str) -> None:
        """Change the database past everything."""

    @abstractmethod
    def rows(self) -> list[tuple[object, ...]]:
        """The events as they are stored."""

    @abstractmethod
    def back_up(self) -> Path:
        """Make the backup that the page speaks of."""

    def variables(self) -> dict[str, str]:
        """The environment of the operator."""
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return {
            **os.environ,
            "PATH": path,
            "DAMAGED": json.dumps(dict(self.settings)),
            "TURNLOG_DB": self.uri,
        }

    def fill(self, messages: int = 4) -> None:
        """Five sessions of so many messages each."""
        with SessionService(env=dict(self.settings)) as sessions:
            for name in NAMES:
                sessions.find_or_create(name)
                for number in range(1, messages + 1):
                    said = Message.user if number % 2 else Message.assistant
                    sessions.append_message(name, said(f"{name} {number}"), event_id=f"{name}-{number}")

    def damage(self) -> None:
        """What happened to four of them."""
        for name, statement in DAMAGE:
            given = {"events": self.events, "noise": self.noise, "id": self.id_of(name)}
            self.execute(statement.format(**given))


class File(Operated):
    """An SQLite file."""

    place, events, noise = "On SQLite", "stored_events", "x'00'"

    @property
    def settings(self) -> Mapping[str, str]:
        path = str(self.folder / "conversations.db")
        return {"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": path}

    @property
    def uri(self) -> str:
        return "conversations.db"

    def id_of(self, session_id: str) -> str:
        return f"'{aggregate_id(session_id).hex}'"

    def execute(self, statement: str) -> None:
        with closing(sqlite3.connect(self.folder / "conversations.db")) as database, database:
            database.execute(statement)

    def rows(self) -> list[tuple[object, ...]]:
        with closing(sqlite3.connect(self.folder / "conversations.db")) as database:
            return database.execute("SELECT rowid, * FROM stored_events ORDER BY rowid").fetchall()

    def back_up(self) -> Path:
        path = self.folder / "backup.db"
        path.unlink(missing_ok=True)
        with SessionService(env=dict(self.settings)) as sessions:
            sessions.backup(path)
        return path


class Server(Operated):
    """A database of the server, and the one into which the page restores the backup."""

    place, events, noise = "On PostgreSQL", "sessions_events", "'\\x00'::bytea"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.name = f"conversations_{secrets.token_hex(4)}"
        self._names = (self.name, f"{self.name}_before")
        with connect() as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(self.name)))

    @property
    def settings(self) -> Mapping[str, str]:
        where = connection_settings()
        return {
            "PERSISTENCE_MODULE": "eventsourcing.postgres",
            "POSTGRES_DBNAME": self.name,
            "POSTGRES_HOST": where["host"],
            "POSTGRES_PORT": where.get("port", "5432"),
            "POSTGRES_USER": where["user"],
            "POSTGRES_PASSWORD": where.get("password", ""),
        }

    @property
    def uri(self) -> str:
        return urlsplit(server())._replace(path=f"/{self.name}").geturl()

    def variables(self) -> dict[str, str]:
        found, where = super().variables(), connection_settings()
        known = {name: where[name] for name in ("host", "port", "user", "password") if where.get(name)}
        variables = {f"PG{name.upper()}": value for name, value in known.items()}
        return {**found, **variables, "PATH": path_with_tools(found["PATH"])}

    def id_of(self, session_id: str) -> str:
        return f"'{aggregate_id(session_id)}'"

    def execute(self, statement: str) -> None:
        with psycopg.connect(self.uri) as connection:
            connection.execute(statement.encode())

    def rows(self) -> list[tuple[object, ...]]:
        with psycopg.connect(self.uri) as connection:
            return connection.execute("SELECT * FROM sessions_events ORDER BY notification_id").fetchall()

    def back_up(self) -> Path:
        command = ["pg_dump", "-Fc", "-f", "backup.dump", self.name]
        subprocess.run(command, cwd=self.folder, env=self.variables(), check=True)
        return self.folder / "backup.dump"

    def drop(self) -> None:
        with connect() as connection:
            for name in self._names:
                drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
                connection.execute(drop)


@pytest.fixture(params=["sqlite", "postgres"])
def operated(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Operated]:
    if request.param == "sqlite":
        yield File(tmp_path)
        return
    made = Server(tmp_path)
    yield made
    made.drop()


def blocks() -> Iterator[Block]:
    """The blocks of the page, in order."""
    step = place = ""
    for found in re.finditer(
        r"^## (?P<step>[^\n]*)$|^### (?P<place>[^\n]*)$|^```(?P<language>\w+)\n(?P<text>.*?)^```",
        PAGE.read_text("utf-8"),
        re.MULTILINE | re.DOTALL,
    ):
        if found["step"]:
            step, place = found["step"], ""
        elif found["place"]:
            place = found["place"]
        else:
            yield Block(step, place, found["language"], found["text"])


def shown(text: str) -> list[str]:
    """The lines in any order, without how far the index is behind: databases differ in both."""
    return sorted(re.sub(r"; the newest .* read from the log", "", text).splitlines())


def carried_out(block: Block, operated: Operated) -> subprocess.CompletedProcess[str]:
    """What became of a block of the page, with errors among the output."""
    text = EXPORTS.sub("", block.text).replace("conversations", operated.name)
    return subprocess.run(
        ["sh", "-c", text] if block.language == "sh" else [sys.executable, "-W", "error", "-c", text],
        cwd=operated.folder,
        env=operated.variables(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=120,
    )


def test_an_operator_repairs_a_database_as_the_page_says(operated: Operated) -> None:
    operated.fill()
    operated.back_up()
    operated.damage()
    printed, is_lost = "", False
    for block in blocks():
        if block.place not in ("", "On both", operated.place):
            continue
        if block.step.startswith("6.") and not is_lost:
            operated.damage()  # once more, and this time no backup has it
            is_lost = True
        if block.language == "text":
            assert shown(printed) == shown(block.text)
            continue
        run = carried_out(block, operated)
        printed = run.stdout
        assert "Traceback" not in printed
        assert run.returncode in (0, 1), printed


def putting_back(operated: Operated) -> Block:
    """The block that puts rows back."""
    (found,) = (one for one in blocks() if one.step.startswith("5.") and one.place == operated.place)
    return found


def test_a_backup_that_cannot_be_read_changes_nothing(operated: Operated) -> None:
    operated.fill()
    operated.back_up().write_bytes(b"no backup")
    operated.damage()
    before = operated.rows()

    run = carried_out(putting_back(operated), operated)

    assert run.returncode != 0
    assert operated.rows() == before


def test_a_row_that_the_backup_does_not_have_stays_as_it_is(operated: Operated) -> None:
    operated.fill(messages=1)
    operated.back_up()
    operated.fill()
    operated.damage()
    before = operated.rows()

    run = carried_out(putting_back(operated), operated)

    assert run.returncode == 0, run.stdout
    assert set(before) <= set(operated.rows())


def test_each_step_has_blocks_for_both_databases() -> None:
    assert {block.place for block in blocks()} == {"", "On both", File.place, Server.place}
    assert len({block.step for block in blocks()}) == 5
