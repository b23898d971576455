"""The databases that read models are kept in, in one form for tests."""

from __future__ import annotations

import re
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from eventsourcing.application import Application
from eventsourcing.persistence import InfrastructureFactory
from eventsourcing.utils import Environment
from psycopg import sql
from tests.projections.activity import FOLLOWABLE, PLAIN, Words, env_of
from tests.support.postgres import connect, postgres_env

from turnlog.application.projections import FollowerStore, ReadModels, ViewProjection, ViewStore
from turnlog.application.service import SessionService
from turnlog.infrastructure.postgres import PostgresFollowerStore, PostgresReadModels, PostgresViewStore
from turnlog.infrastructure.sqlite import SqliteFollowerStore, SqliteReadModels, SqliteViewStore

_NAMES = {
    r"\bturnlog_session_metadata\b": "turnlog_by_metadata",
    r"\bturnlog_(?!view)": "sessions_turnlog_",
    r"\bstored_events\b": "sessions_events",
    r"\browid\b": "notification_id",
}
"""What is called otherwise on PostgreSQL."""

PLAIN_POSTGRES = "eventsourcing.postgres:PostgresApplicationRecorder"


class Database(ABC):
    """One database of a test."""

    view_class: type[ViewStore]
    follower_class: type[FollowerStore[Any]]
    plain_recorder: str
    hooked_recorder: str
    env: Mapping[str, str]

    def env_with(self, recorder: str | None) -> dict[str, str]:
        """The settings, with a recorder other than ours."""
        return {**self.env, **({"APPLICATION_RECORDER_TOPIC": recorder} if recorder else {})}

    def service(self, recorder: str | None = None) -> SessionService:
        """A service with an application of its own."""
        return SessionService(env=self.env_with(recorder), token_estimator=Words())

    @contextmanager
    def view_store(self, kind: type[ViewStore] | None = None) -> Generator[Any]:
        """A view store as a runner makes it."""
        factory = InfrastructureFactory[ViewStore].construct(Environment(ViewProjection.name, {**self.env}))
        try:
            yield factory.tracking_recorder(kind or self.view_class)
        finally:
            factory.close()

    @abstractmethod
    def models(self, app: Application[Any]) -> ReadModels:
        """The read models."""

    @abstractmethod
    def rows(self, select: str) -> list[tuple[Any, ...]]:
        """What the database answers."""

    @abstractmethod
    def change(self, *statements: str) -> None:
        """Change what is stored, past everything. The tables are called as on SQLite."""

    @abstractmethod
    def put_state(self, position: int, state: bytes) -> None:
        """Put these bytes over an event."""

    @abstractmethod
    def set_rule(self, model: str, rule: int) -> None:
        """Say that a read model was made by this rule."""

    @abstractmethod
    def tables(self) -> set[str]:
        """The names of all tables, indexes and functions."""

    @abstractmethod
    def named(self, statement: str) -> str:
        """The statement with the names that tables have here."""

    def one(self, select: str) -> Any:
        """The one value that the database answers."""
        ((value,),) = self.rows(select)
        return value


class SqliteFile(Database):
    """A file."""

    view_class = SqliteViewStore
    follower_class = SqliteFollowerStore
    plain_recorder = FOLLOWABLE
    hooked_recorder = "tests.traps.recorders:SqliteHooked"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.env = env_of(path)

    def put_state(self, position: int, state: bytes) -> None:
        with closing(sqlite3.connect(self.path)) as connection, connection:
            connection.execute("UPDATE stored_events SET state = ? WHERE rowid = ?", (state, position))

    def set_rule(self, model: str, rule: int) -> None:
        self.change(f"UPDATE turnlog_read_models SET rule = {rule} WHERE name = '{model}'")

    def models(self, app: Application[Any]) -> ReadModels:
        return SqliteReadModels(app)

    def rows(self, select: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.path)) as connection:
            return connection.execute(select).fetchall()

    def change(self, *statements: str) -> None:
        with closing(sqlite3.connect(self.path)) as connection, connection:
            for statement in statements:
                connection.execute(statement)

    def tables(self) -> set[str]:
        return {name for (name,) in self.rows("SELECT name FROM sqlite_master")}

    def named(self, statement: str) -> str:
        return statement


class PostgresSchema(Database):
    """A schema of its own on the server. Its names are those of SQLite with the application's in front."""

    view_class = PostgresViewStore
    follower_class = PostgresFollowerStore
    plain_recorder = PLAIN_POSTGRES
    hooked_recorder = "tests.traps.recorders:PostgresHooked"

    def __init__(self, env: Mapping[str, str] | None = None) -> None:
        self.env = env or postgres_env()

    def put_state(self, position: int, state: bytes) -> None:
        with self._connection() as connection:
            statement = "UPDATE sessions_events SET state = %s WHERE notification_id = %s"
            connection.execute(statement, (state, position))

    def set_rule(self, model: str, rule: int) -> None:
        table = "turnlog_view_rule" if model == "view" else "turnlog_read_models"
        self.change(f"UPDATE {table} SET rule = {rule} WHERE name = '{model}'")

    def models(self, app: Application[Any]) -> ReadModels:
        return PostgresReadModels(app)

    def rows(self, select: str) -> list[tuple[Any, ...]]:
        with self._connection() as connection:
            found: list[tuple[Any, ...]] = connection.execute(self.named(select).encode()).fetchall()
            return found

    def change(self, *statements: str) -> None:
        with self._connection() as connection:
            for statement in statements:
                connection.execute(self.named(statement).encode())

    def tables(self) -> set[str]:
        found = self.rows(
            "SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace(current_schema()) "
            "UNION ALL SELECT proname FROM pg_proc WHERE pronamespace = to_regnamespace(current_schema())"
        )
        return {name for (name,) in found}

    @contextmanager
    def _connection(self) -> Generator[Any]:
        with connect() as connection:
            schema = sql.Identifier(self.env["POSTGRES_SCHEMA"])
            connection.execute(sql.SQL("SET search_path TO {}").format(schema))
            yield connection

    def named(self, statement: str) -> str:
        for here, there in _NAMES.items():
            statement = re.sub(here, there, statement)
        return statement


def database_of(env: Mapping[str, str]) -> Database:
    """The database that these settings name."""
    return SqliteFile(Path(env["SQLITE_DBNAME"])) if "SQLITE_DBNAME" in env else PostgresSchema(env)


DATABASES: Mapping[str, Callable[[Path], Database]] = {
    "sqlite": lambda folder: SqliteFile(folder / "sessions.db"),
    "postgres": lambda _: PostgresSchema(),
}

RECORDERS: Mapping[str, Sequence[str | None]] = {
    "sqlite": (None, PLAIN, FOLLOWABLE),
    "postgres": (None, PLAIN_POSTGRES),
}
