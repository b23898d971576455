"""turnlog on SQLite: rows about sessions, written in the transaction of the events."""

from turnlog.infrastructure.sqlite.backup import restore
from turnlog.infrastructure.sqlite.following import RowsProjection, SqliteFollowerStore, SqliteRowsStore
from turnlog.infrastructure.sqlite.plain import plain_aids
from turnlog.infrastructure.sqlite.read_models import SqliteReadModels
from turnlog.infrastructure.sqlite.recorder import SessionRows, SqliteSessionRecorder, has_session_rows
from turnlog.infrastructure.sqlite.secure import SecureConnectionPool
from turnlog.infrastructure.sqlite.subscribing import SqliteFollowableRecorder, SqliteSubscriptions
from turnlog.infrastructure.sqlite.view import SqliteViewStore

__all__ = [
    "RowsProjection",
    "SecureConnectionPool",
    "SessionRows",
    "SqliteFollowableRecorder",
    "SqliteFollowerStore",
    "SqliteReadModels",
    "SqliteRowsStore",
    "SqliteSessionRecorder",
    "SqliteSubscriptions",
    "SqliteViewStore",
    "has_session_rows",
    "plain_aids",
    "restore",
]
