"""Sessions that are encrypted with a key each (extra `shred`)."""

from turnlog.infrastructure.shredding.key_file import SqliteKeyFile
from turnlog.infrastructure.shredding.mapper import SessionKeyMapper, SessionKeys

__all__ = ["SessionKeyMapper", "SessionKeys", "SqliteKeyFile"]
