"""Formats of providers and tools, in both directions."""

from turnlog.infrastructure.formats import anthropic_messages, openai_chat, openai_responses
from turnlog.infrastructure.formats._plain import MalformedMessageError, PrefillWarning
from turnlog.infrastructure.formats.imported import (
    Fate,
    FileTooLargeError,
    ImportedFile,
    ImportedSession,
    ImportFileError,
    ImportReport,
    UnknownFormatError,
    UnreadableFileError,
    UnsupportedEventError,
)
from turnlog.infrastructure.formats.importing import read_file
from turnlog.infrastructure.formats.writing import LogsDivergedError, WrittenSession, write_session

__all__ = [
    "Fate",
    "FileTooLargeError",
    "ImportFileError",
    "ImportReport",
    "ImportedFile",
    "ImportedSession",
    "LogsDivergedError",
    "MalformedMessageError",
    "PrefillWarning",
    "UnknownFormatError",
    "UnreadableFileError",
    "UnsupportedEventError",
    "WrittenSession",
    "anthropic_messages",
    "openai_chat",
    "openai_responses",
    "read_file",
    "write_session",
]
