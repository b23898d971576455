"""Reading JSON and JSONL files strictly, a record at a time, with the place of every fault."""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import file_digest
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from turnlog.domain.errors import NotJsonError, TurnlogError
from turnlog.domain.json_text import check_json
from turnlog.infrastructure.formats.imported import FileTooLargeError, ImportFileError, UnreadableFileError

_BOM = b"\xef\xbb\xbf"
_ROOM = 20
"""Levels of nesting that are left for what a message adds around the values of a file."""

_STRING_OR_CONSTANT = re.compile(r'"(?:\\.|[^"\\])*"|(-?Infinity|NaN)', re.DOTALL)


class Record(NamedTuple):
    """A line of a JSONL file, or the whole of a JSON document (then `line` is 1)."""

    line: int
    value: Any


@dataclass(frozen=True, slots=True)
class JsonSource:
    """A file of one JSON document or of JSON lines; which of them, its first line tells.

    A document or a line is read up to `max_size` bytes. A byte order mark, CRLF and blank lines are
    tolerated. Raises `UnreadableFileError` and `FileTooLargeError`.
    """

    path: Path
    sha256: str
    max_size: int
    _stamp: tuple[int, int]

    @classmethod
    def open(cls, path: Path, max_size: int) -> JsonSource:
        """The file at this path, hashed; it must be a regular file, because it is read twice."""
        with _reading(path):
            if not path.is_file():
                reason = "it is not a regular file" if path.exists() else "there is no such file"
                raise UnreadableFileError(path, None, reason)
            stamp = _stamp(path)
            with path.open("rb") as file:
                return cls(path, file_digest(file, "sha256").hexdigest(), max_size, stamp)

    def records(self) -> Iterator[Record]:
        """The records from the first to the last."""
        with _reading(self.path), self.path.open("rb") as file:
            if _stamp(self.path) != self._stamp:
                raise UnreadableFileError(self.path, None, "it was changed while it was imported")
            lines = self._lines(file)
            first = next(lines, None)
            if first is None:
                raise UnreadableFileError(self.path, None, "it is empty")
            try:
                record = self._parsed(*first)
            except json.JSONDecodeError as error:
                second = next(lines, None)
                if second is None:
                    raise self._unreadable(first[0], error) from error
                yield self._document(file, self._unreadable(first[0], error) if _is_json(second[1]) else None)
                return
            yield record
            for line, text in lines:
                try:
                    yield self._parsed(line, text)
                except json.JSONDecodeError as error:
                    raise self._unreadable(line, error) from error

    @contextmanager
    def at(self, line: int, place: str = "") -> Generator[None, None, None]:
        """Names the place of whatever typed error is raised inside."""
        try:
            yield
        except ImportFileError:
            raise
        except TurnlogError as error:
            raise UnreadableFileError(
                self.path, line, f"{place}: {error}" if place else str(error)
            ) from error

    def _lines(self, file: BinaryIO) -> Iterator[tuple[int, str]]:
        number = 0
        while data := file.readline(self.max_size + 1):
            number += 1
            if len(data) > self.max_size:
                if number == 1:
                    raise FileTooLargeError(self.path, self._stamp[0], self.max_size)
                raise FileTooLargeError(self.path, len(data), self.max_size, number)
            text = self._decoded(data.removeprefix(_BOM) if number == 1 else data, number)
            if text.strip():
                yield number, text

    def _document(self, file: BinaryIO, damaged_line: UnreadableFileError | None) -> Record:
        """The whole file as one value; `damaged_line` is what is wrong when these were lines after all."""
        if self._stamp[0] > self.max_size:
            raise damaged_line or FileTooLargeError(self.path, self._stamp[0], self.max_size)
        file.seek(0)
        text = self._decoded(file.read().removeprefix(_BOM), 1)
        try:
            return self._parsed(1, text)
        except json.JSONDecodeError as error:
            raise damaged_line or self._unreadable(error.lineno, error) from error

    def _parsed(self, line: int, text: str) -> Record:
        try:
            value = json.loads(text)
            check_json(value, "value", _ROOM)
        except json.JSONDecodeError:
            raise
        except RecursionError as error:
            raise UnreadableFileError(self.path, line, "it is nested too deeply") from error
        except NotJsonError as error:
            line += _line_of_constant(text)
            raise UnreadableFileError(self.path, line, f"{error.path} holds {error.found}") from error
        except ValueError as error:
            raise UnreadableFileError(self.path, line, str(error)) from error
        return Record(line, value)

    def _decoded(self, data: bytes, line: int) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            line += data.count(b"\n", 0, error.start)
            column = error.start - data.rfind(b"\n", 0, error.start)
            reason = f"byte {column} of the line (0x{data[error.start]:02x}) is not valid UTF-8"
            raise UnreadableFileError(self.path, line, reason) from error

    def _unreadable(self, line: int, error: json.JSONDecodeError) -> UnreadableFileError:
        ends = error.pos >= len(error.doc.rstrip()) or error.msg.startswith("Unterminated string")
        cause = "the JSON ends too early" if ends else "this is not valid JSON"
        return UnreadableFileError(self.path, line, f"{cause} (column {error.colno}: {error.msg})")


def fields(value: object) -> dict[str, Any]:
    """The value when it is a JSON object, else an empty one."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def items(value: object) -> list[Any]:
    """The value when it is a JSON array, else an empty one."""
    found: list[Any] = cast("Any", value) if isinstance(value, list) else []
    return found


def text(record: Mapping[str, Any], name: str) -> str | None:
    """The field when it is text and not empty, else None."""
    value = record.get(name)
    return value if isinstance(value, str) and value else None


@contextmanager
def _reading(path: Path) -> Generator[None, None, None]:
    try:
        yield
    except OSError as error:
        raise UnreadableFileError(path, None, error.strerror or str(error)) from error


def _stamp(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _line_of_constant(text: str) -> int:
    """How many lines into the text the first NaN or Infinity stands."""
    found = next((match for match in _STRING_OR_CONSTANT.finditer(text) if match[1]), None)
    return text.count("\n", 0, found.start()) if found else 0
