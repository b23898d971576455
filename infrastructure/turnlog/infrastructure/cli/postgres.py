"""Opening a database on a PostgreSQL server for the command line."""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Literal

from turnlog.application import SessionService
from turnlog.application.sessions import Sessions
from turnlog.domain.errors import MissingExtraError
from turnlog.infrastructure.cli.failures import (
    CommandUsageError,
    DatabaseNotFoundError,
    UnknownApplicationError,
    UnreachableDatabaseError,
)
from turnlog.infrastructure.cli.settings import PostgresUrl

APPLICATION: Final = "TURNLOG_APPLICATION"
"""Names the application whose sessions are meant, where a database has those of several."""

_PLAIN_RECORDER = "eventsourcing.postgres:PostgresApplicationRecorder"
_PATIENCE = 10
"""Seconds for which the server may take to answer."""

_OWN = {"dbname": "DBNAME", "host": "HOST", "port": "PORT", "user": "USER", "password": "PASSWORD"}

_TABLES = """
    SELECT relname, format_type(atttypid, NULL) FROM pg_catalog.pg_class AS class
    JOIN pg_catalog.pg_attribute ON attrelid = class.oid AND NOT attisdropped
    WHERE relnamespace = to_regnamespace(quote_ident(%s)) AND (
        attname = 'originator_id' AND relname LIKE '%%\\_events'
        OR attname = 'aggregate_id' AND relname ~ '_turnlog_(sessions|event_ids|ended)$'
    ) AND relkind IN ('r', 'p')
    UNION ALL
    SELECT regexp_replace(relname, '_events$', '_turnlog_sessions'), NULL FROM pg_catalog.pg_trigger
    JOIN pg_catalog.pg_class AS class ON tgrelid = class.oid
    WHERE relnamespace = to_regnamespace(quote_ident(%s)) AND tgname = 'turnlog_fence'
"""
"""Also those that the user may not read: what is refused then is said when they are. Where rows are
kept some tables may be lost, so that the ledger, or the fence, tells it too."""

_ROWS = re.compile("(.*)_turnlog_(sessions|event_ids|ended)")


@contextmanager
def on_postgres(url: PostgresUrl, to: Literal["read", "change", "create"]) -> Generator[SessionService]:
    """The sessions of a database on a server; what is opened to be read cannot be changed."""
    with application_on_postgres(url, to) as app, SessionService(app) as service:
        yield service


@contextmanager
def application_on_postgres(url: PostgresUrl, to: Literal["read", "change", "create"]) -> Generator[Sessions]:
    """The application on such a database, without a service, which refuses outdated read models."""
    parameters = _parameters(url)
    schema = os.environ.get("POSTGRES_SCHEMA") or "public"
    env = {
        "PERSISTENCE_MODULE": "eventsourcing.postgres",
        **{f"POSTGRES_{key}": parameters.get(name, "") for name, key in _OWN.items()},
        "POSTGRES_SCHEMA": schema,
        "POSTGRES_POOL_SIZE": "1",
        "POSTGRES_CONNECT_TIMEOUT": parameters.get("connect_timeout") or str(_PATIENCE),
        "CREATE_TABLE": "no" if to == "read" else "yes",
    }
    with _environment(parameters, read_only=to == "read"):
        name, settings = _application(url, _columns(url, schema), create=to == "create")
        app = type(name, (Sessions,), {"name": name})(env={**env, **settings})
        try:
            yield app
        finally:
            app.close()


def _parameters(url: PostgresUrl) -> Mapping[str, str]:
    try:
        import psycopg
        from psycopg.conninfo import conninfo_to_dict
    except ImportError:
        raise MissingExtraError("postgres", "PostgreSQL") from None
    try:
        found = conninfo_to_dict(url.uri)
    except psycopg.Error:
        raise CommandUsageError(
            "This is no connection URI: it has the form postgresql://USER@HOST:PORT/DATABASE, with what is "
            "no letter or digit written as %XX."
        ) from None
    return {name: str(value) for name, value in found.items() if value is not None}


@contextmanager
def _environment(parameters: Mapping[str, str], *, read_only: bool) -> Generator[None]:
    """What else the URI says, as `sslmode`, in the variables in which the driver looks for it."""
    from psycopg import pq

    variables = {
        option.keyword.decode(): option.envvar.decode()
        for option in pq.Conninfo.get_defaults()
        if option.envvar
    }
    changed = {
        variables[name]: value
        for name, value in parameters.items()
        if name in variables and name not in _OWN and name != "connect_timeout"
    }
    if read_only:
        options = changed.get("PGOPTIONS") or os.environ.get("PGOPTIONS") or ""
        changed["PGOPTIONS"] = f"{options} -c default_transaction_read_only=on".strip()
    before = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _columns(url: PostgresUrl, schema: str) -> Mapping[str, str]:
    """By name of a table of events, or of rows about sessions, the type of its ids."""
    import psycopg

    try:
        with psycopg.connect(url.uri, connect_timeout=_PATIENCE, autocommit=True) as connection:
            rows: list[Any] = connection.execute(_TABLES, (schema, schema)).fetchall()
    except psycopg.OperationalError as error:
        from turnlog.infrastructure.postgres.pool import one_line

        raise UnreachableDatabaseError(url, one_line(error)) from None
    return dict(rows)


def _application(
    url: PostgresUrl, tables: Mapping[str, str], *, create: bool
) -> tuple[str, Mapping[str, str]]:
    """The name of the application whose sessions are meant, and the settings that its tables need."""
    with_rows = {found[1] for table in tables if (found := _ROWS.fullmatch(table))}
    with_events = {table.removesuffix("_events") for table in tables if table.endswith("_events")}
    names = with_rows or with_events
    wanted = (os.environ.get(APPLICATION) or "").lower()
    if wanted:
        known, names = names, {wanted} & (with_rows | with_events) or ({wanted} if create else set())
        if not names:
            raise UnknownApplicationError(url, APPLICATION, wanted, known)
    elif Sessions.name.lower() in names:
        names = {Sessions.name.lower()}
    if not names:
        if not create:
            raise DatabaseNotFoundError(url)
        return Sessions.name, {}
    if len(names) > 1:
        raise CommandUsageError(
            f"{url} has the sessions of several applications: set {APPLICATION} to one of "
            f"{', '.join(sorted(names))}."
        )
    (name,) = names
    settings = {"ORIGINATOR_ID_TYPE": "text" if tables.get(f"{name}_events") == "text" else "uuid"}
    if name in with_events and name not in with_rows:
        settings["APPLICATION_RECORDER_TOPIC"] = _PLAIN_RECORDER
    return name, settings
