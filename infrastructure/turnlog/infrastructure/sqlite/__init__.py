"""turnlog on SQLite: rows about sessions, written in the transaction of the events."""

from turnlog.infrastructure.sqlite.recorder import SessionRows, SqliteSessionRecorder

__all__ = ["SessionRows", "SqliteSessionRecorder"]
