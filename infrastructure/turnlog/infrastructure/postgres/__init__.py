"""turnlog on PostgreSQL: rows about sessions, written in the transaction of the events."""

from turnlog.infrastructure.postgres.pool import BoundedConnectionPool
from turnlog.infrastructure.postgres.recorder import PostgresSessionRecorder, SessionRows, has_session_rows

__all__ = ["BoundedConnectionPool", "PostgresSessionRecorder", "SessionRows", "has_session_rows"]
