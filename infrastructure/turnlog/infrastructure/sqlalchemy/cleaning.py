"""What each database behind SQLAlchemy needs so that nothing is left of rows that were overwritten."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final

from eventsourcing_sqlalchemy.recorders import SQLAlchemyApplicationRecorder
from sqlalchemy import Connection, Engine, Table, func, select, text
from sqlalchemy.exc import OperationalError

from turnlog.infrastructure.sqlite.secure import may_be_in_first_page

_PATIENCE: Final = 5.0
"""Seconds for which readers of an older state are waited for."""

_READER: Final = (
    "Another connection still reads an older state of the database, so old copies may be left: "
    "close long readers and run a sweep."
)

_HELD: Final = """
    SELECT 1 FROM (
        SELECT backend_xmin FROM pg_stat_activity WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid()
        UNION ALL SELECT backend_xid FROM pg_stat_activity WHERE backend_xid IS NOT NULL
            AND pid <> pg_backend_pid() AND datname = current_database()
        UNION ALL SELECT transaction FROM pg_prepared_xacts
        UNION ALL SELECT xmin FROM pg_replication_slots WHERE xmin IS NOT NULL
    ) AS held (since)
    WHERE age(since) >= (SELECT min(age) FROM ({ages}) AS waiting)
    LIMIT 1
"""


class Cleaner(ABC):
    """Removes the old copies of overwritten rows from one kind of database."""

    @abstractmethod
    def begin(self, connection: Connection) -> None:
        """Prepare a transaction that overwrites."""

    @abstractmethod
    def leaves_more(self, connection: Connection, events: Table, originator_id: object) -> bool:
        """Whether copies of the stream may be left in places that only a rewriting reaches."""

    @abstractmethod
    def clean(self, engine: Engine, events: Table, erased: Sequence[Table], *, rewrite: bool) -> str | None:
        """Remove the old copies; why some may be left, None if none is."""


class SqliteCleaner(Cleaner):
    """Deletes securely, rewrites the file where its connections left copies before, and empties the log."""

    def begin(self, connection: Connection) -> None:
        """Let this connection clear what it frees."""
        connection.exec_driver_sql("PRAGMA secure_delete = ON").close()

    def leaves_more(self, connection: Connection, events: Table, originator_id: object) -> bool:
        """Whether a row of the stream may have been in the first page of the table.

        When the table outgrew that page, a copy of its rows stayed in the page, which is the root since.
        """
        page_size = int(connection.exec_driver_sql("PRAGMA page_size").scalar_one())
        columns = events.c
        rows = connection.execute(
            select(columns.originator_id, func.length(columns.topic) + func.length(columns.state) + 16)
            .order_by(columns.id)
            .limit(page_size // 32)
        )
        return may_be_in_first_page([(row[0], row[1]) for row in rows], page_size, originator_id)

    def clean(self, engine: Engine, events: Table, erased: Sequence[Table], *, rewrite: bool) -> str | None:  # noqa: ARG002 - the port's arguments
        """Rewrite the file where that is needed, and empty the write-ahead log into it."""
        deadline = time.monotonic() + _PATIENCE
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            try:
                if rewrite:
                    connection.exec_driver_sql("VACUUM").close()
            except OperationalError:
                return _READER
            while connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").one()[0] != 0:
                if time.monotonic() >= deadline:
                    return _READER
                time.sleep(0.02)
        return None


class PostgresCleaner(Cleaner):
    """Vacuums the table, once no transaction is open that may still look at what was overwritten."""

    def begin(self, connection: Connection) -> None:
        """Nothing: old rows are removed by VACUUM."""

    def leaves_more(self, connection: Connection, events: Table, originator_id: object) -> bool:  # noqa: ARG002 - the port's arguments
        """Never."""
        return False

    def clean(self, engine: Engine, events: Table, erased: Sequence[Table], *, rewrite: bool) -> str | None:  # noqa: ARG002 - the port's arguments
        """Wait for older transactions, then vacuum."""
        deadline = time.monotonic() + _PATIENCE
        quoted = engine.dialect.identifier_preparer.format_table
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            ages = " UNION ALL ".join(
                f"SELECT age(xmin) AS age FROM {quoted(table)} WHERE pending > 0"  # noqa: S608 - our tables
                for table in erased
            )
            while connection.execute(text(_HELD.format(ages=ages))).first() is not None:
                if time.monotonic() >= deadline:
                    return _READER
                time.sleep(0.02)
            connection.execute(text(f"VACUUM {quoted(events)}"))
        return None


def cleaner_for(recorder: SQLAlchemyApplicationRecorder) -> Cleaner | None:
    """The cleaner for this recorder's database, None when it is of another kind."""
    engine = recorder.datastore.engine
    if engine is None:
        return None
    cleaners: dict[str, type[Cleaner]] = {"sqlite": SqliteCleaner, "postgresql": PostgresCleaner}
    cleaner = cleaners.get(engine.dialect.name)
    return cleaner() if cleaner else None
