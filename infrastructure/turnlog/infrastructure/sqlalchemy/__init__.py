"""turnlog on `eventsourcing-sqlalchemy`: erasing deleted sessions, on SQLite and PostgreSQL."""

from turnlog.infrastructure.sqlalchemy.aids import aids
from turnlog.infrastructure.sqlalchemy.eraser import SqlalchemyEraser

__all__ = ["SqlalchemyEraser", "aids"]
