"""By which rules the read models of a file were made. With another rule one is rebuilt, never read."""

from __future__ import annotations

from typing import Final

from eventsourcing.sqlite import SQLiteCursor

from turnlog.application.projections.errors import ReadModelOutdatedError

CREATE: Final = """
    CREATE TABLE IF NOT EXISTS turnlog_read_models (
        name TEXT PRIMARY KEY,
        rule INTEGER NOT NULL
    )
"""


def has_tables(cursor: SQLiteCursor, *names: str) -> bool:
    """Whether all these tables are there."""
    cursor.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    return set(names) <= {row[0] for row in cursor.fetchall()}


def rule_of(cursor: SQLiteCursor, name: str) -> int | None:
    """The rule by which a read model was made, None where that is not said."""
    if not has_tables(cursor, "turnlog_read_models"):
        return None
    cursor.execute("SELECT rule FROM turnlog_read_models WHERE name = ?", (name,))
    row = cursor.fetchone()
    return None if row is None else int(row[0])


def require(cursor: SQLiteCursor, name: str, rule: int) -> None:
    """`ReadModelOutdatedError` unless the read model was made by this rule, or is still to be made."""
    found = rule_of(cursor, name)
    if found is not None and found != rule:
        raise ReadModelOutdatedError(name, found, rule)


def write(cursor: SQLiteCursor, name: str, rule: int) -> None:
    """Say by which rule a read model was made."""
    cursor.execute(CREATE)
    cursor.execute("INSERT OR REPLACE INTO turnlog_read_models VALUES (?, ?)", (name, rule))


def write_if_missing(cursor: SQLiteCursor, name: str, rule: int) -> None:
    """Say so of a read model that was just made."""
    cursor.execute("INSERT OR IGNORE INTO turnlog_read_models VALUES (?, ?)", (name, rule))
