"""A fence around events of sessions in a file with rows: who writes no rows writes no such events.

It is a trigger that asks a function for leave, which connections of `SecureConnectionPool` grant. A function
that others lack would refuse them the whole table, a host's own aggregates too: so it is one that every
SQLite has, and that says no where it is not replaced.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from eventsourcing.sqlite import SQLiteCursor

from turnlog.application.projections.batches import OUR_TOPICS
from turnlog.application.storage import FENCE

_GRANTING: Final = "sqlite_compileoption_used"
"""Says whether SQLite was built with an option; nobody asks it in a connection of ours but the trigger."""


def trigger(events_table: str) -> str:
    """The statement that makes the trigger on a table of events."""
    return f"""
        CREATE TRIGGER IF NOT EXISTS turnlog_fence_of_{events_table} BEFORE INSERT ON {events_table}
        WHEN NOT {_GRANTING}('TURNLOG_ROWS') AND substr(NEW.topic, 1, {len(OUR_TOPICS)}) = '{OUR_TOPICS}'
        BEGIN SELECT RAISE(ABORT, '{FENCE}'); END
    """


def keeps_rows(cursor: SQLiteCursor) -> bool:
    """Whether a recorder writes rows about sessions into this file.

    The fence says so when tables were dropped; a file of a host's own pool in memory has the ledger alone.
    """
    cursor.execute(
        "SELECT 1 FROM main.sqlite_master WHERE (type = 'trigger' AND name GLOB 'turnlog_fence_of_*') "
        "OR (type = 'table' AND name = 'turnlog_event_ids') LIMIT 1"
    )
    return cursor.fetchone() is not None


def may_pass(connection: sqlite3.Connection) -> None:
    """Let this connection write events of sessions: what uses it writes their rows."""
    connection.execute("PRAGMA trusted_schema = ON")  # where it is off a trigger may ask no function of ours
    connection.create_function(_GRANTING, 1, _yes)


def _yes(_: object) -> int:
    return 1
