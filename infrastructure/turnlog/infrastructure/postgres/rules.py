"""By which rules the read models of a database were made. With another rule one is rebuilt, never read."""

from __future__ import annotations

from typing import Final, LiteralString

from psycopg import Cursor
from psycopg.rows import DictRow

from turnlog.application.projections.errors import ReadModelOutdatedError
from turnlog.infrastructure.postgres.tables import Names, is_missing

CREATE: Final[LiteralString] = """
    CREATE TABLE IF NOT EXISTS {read_models} (
        name text PRIMARY KEY,
        rule int NOT NULL,
        log text
    )
"""
"""With the log that a model follows, where that is not in the name of the table."""


def rule_of(cursor: Cursor[DictRow], names: Names, name: str) -> int | None:
    """The rule by which a read model was made, None where that is not said."""
    if is_missing(cursor, "to_regclass", names.regclass("read_models")):
        return None
    row = cursor.execute(names.sql("SELECT rule FROM {read_models} WHERE name = %s"), (name,)).fetchone()
    return None if row is None else int(row["rule"])


def require(cursor: Cursor[DictRow], names: Names, name: str, rule: int) -> None:
    """`ReadModelOutdatedError` unless the read model was made by this rule, or is still to be made."""
    check(name, rule_of(cursor, names, name), rule)


def check(name: str, found: int | None, rule: int) -> None:
    """`ReadModelOutdatedError` where another rule was found."""
    if found is not None and found != rule:
        raise ReadModelOutdatedError(name, found, rule)


def write(cursor: Cursor[DictRow], names: Names, name: str, rule: int) -> None:
    """Say by which rule a read model was made."""
    cursor.execute(names.sql(CREATE), prepare=False)
    statement = names.sql(
        "INSERT INTO {read_models} (name, rule) VALUES (%s, %s) "
        "ON CONFLICT (name) DO UPDATE SET rule = excluded.rule"
    )
    cursor.execute(statement, (name, rule))


def write_if_missing(cursor: Cursor[DictRow], names: Names, name: str, rule: int) -> None:
    """Say so of a read model that was just made."""
    cursor.execute(names.sql(CREATE), prepare=False)
    statement = names.sql("INSERT INTO {read_models} (name, rule) VALUES (%s, %s) ON CONFLICT DO NOTHING")
    cursor.execute(statement, (name, rule))
