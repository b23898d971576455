"""turnlog on PostgreSQL: rows about sessions, written in the transaction of the events."""

from turnlog.infrastructure.postgres.following import PostgresFollowerStore
from turnlog.infrastructure.postgres.plain import PlainPostgresEraser, plain_aids
from turnlog.infrastructure.postgres.pool import BoundedConnectionPool
from turnlog.infrastructure.postgres.read_models import PostgresReadModels
from turnlog.infrastructure.postgres.recorder import PostgresSessionRecorder, SessionRows, has_session_rows
from turnlog.infrastructure.postgres.view import PostgresViewStore

__all__ = [
    "BoundedConnectionPool",
    "PlainPostgresEraser",
    "PostgresFollowerStore",
    "PostgresReadModels",
    "PostgresSessionRecorder",
    "PostgresViewStore",
    "SessionRows",
    "has_session_rows",
    "plain_aids",
]
