"""A follower that writes down what it is told, in each database."""

from __future__ import annotations

from typing import Any, LiteralString

from tests.projections.databases import Database, PostgresSchema

from turnlog.application.projections import (
    BoundaryFollowed,
    EventFollowed,
    Followed,
    MessageFollowed,
    SessionBegan,
    SessionEnded,
    SessionFollower,
    SupervisedRunner,
)
from turnlog.application.sessions import Sessions
from turnlog.infrastructure.postgres import PostgresFollowerStore
from turnlog.infrastructure.sqlite import SqliteFollowerStore

_COLUMNS: LiteralString = "position INTEGER, kind TEXT, session TEXT, version INTEGER"


class SqliteJournal(SqliteFollowerStore):
    name = "journal"
    CREATE = (f"CREATE TABLE IF NOT EXISTS journal (number INTEGER PRIMARY KEY, {_COLUMNS})",)


class PostgresJournal(PostgresFollowerStore):
    name = "journal"
    CREATE = ("CREATE TABLE IF NOT EXISTS journal (number SERIAL PRIMARY KEY, " + _COLUMNS + ")",)


class Writes(SessionFollower[Any]):
    """Writes down everything."""

    name = "writes"

    def write(self, into: Any, kind: str, followed: Followed) -> None:
        values = (followed.position, kind, followed.session_id, followed.version)
        mark = "?" if isinstance(self.view, SqliteJournal) else "%s"
        into.execute(
            "INSERT INTO journal (position, kind, session, version) VALUES "
            f"({', '.join([mark] * len(values))})",
            values,
        )

    def began(self, into: Any, session: SessionBegan) -> None:
        self.write(into, "began", session)

    def message(self, into: Any, message: MessageFollowed) -> None:
        self.write(into, "message", message)

    def boundary(self, into: Any, boundary: BoundaryFollowed) -> None:
        self.write(into, "boundary", boundary)

    def event(self, into: Any, event: EventFollowed) -> None:
        self.write(into, "event", event)

    def ended(self, into: Any, session: SessionEnded) -> None:
        self.write(into, "ended", session)


def journal_of(database: Database) -> type[Any]:
    """The store for this database."""
    return PostgresJournal if isinstance(database, PostgresSchema) else SqliteJournal


def following(
    database: Database, projection: type[Writes] = Writes, env: dict[str, str] | None = None
) -> SupervisedRunner[Any]:
    """A runner of this follower."""
    return SupervisedRunner(
        application_class=Sessions,
        projection_class=projection,
        view_class=journal_of(database),
        env=env or database.env,
    )


def journal(database: Database) -> list[tuple[Any, ...]]:
    """What it wrote down, in order."""
    return database.rows("SELECT position, kind, session, version FROM journal ORDER BY number")
