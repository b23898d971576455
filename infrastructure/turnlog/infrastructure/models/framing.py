"""Streams of events in bytes: server-sent events, and JSON by lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, Protocol, TypeAlias

Event: TypeAlias = tuple[str | None, str]
"""The name of an event where it has one, and its data."""


class Parser(Protocol):
    """Finds events in bytes that come in chunks of any size."""

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """The events that the chunk completes."""
        ...

    def end(self) -> Iterator[Event]:
        """The event that is left when the bytes end without the line break behind it."""
        ...


def parser(framing: Literal["sse", "ndjson"]) -> Parser:
    """A parser for one stream."""
    return SseParser() if framing == "sse" else NdjsonParser()


class _Lines:
    """Lines that end with LF, CR or CRLF, wherever chunks are cut.

    No byte of a character of several bytes is a line break, so lines are cut first and then decoded.
    """

    def __init__(self) -> None:
        self._begun: list[bytes] = []
        self._ended_with_cr = False

    def feed(self, chunk: bytes) -> Iterator[str]:
        if self._ended_with_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
            self._ended_with_cr = False
        if not chunk:
            return
        self._ended_with_cr = chunk.endswith(b"\r")
        for line in chunk.splitlines(keepends=True):
            self._begun.append(line)
            if line.endswith((b"\n", b"\r")):
                yield self.rest()

    def rest(self) -> str:
        line = b"".join(self._begun)
        self._begun.clear()
        return line.rstrip(b"\r\n").decode("utf-8", "replace")


class SseParser:
    """Server-sent events as the HTML standard says; comments, ids and retry times are passed over."""

    def __init__(self) -> None:
        self._lines = _Lines()
        self._is_first = True
        self._event: str | None = None
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """The events that the chunk completes."""
        for line in self._lines.feed(chunk):
            if line:
                self._line(line)
            else:
                yield from self._dispatched()

    def end(self) -> Iterator[Event]:
        """The event that is left when the bytes end without the empty line behind it."""
        self._line(self._lines.rest())
        yield from self._dispatched()

    def _line(self, line: str) -> None:
        if self._is_first:
            line = line.removeprefix("\ufeff")
            self._is_first = False
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            self._data.append(value)
        elif field == "event":
            self._event = value or None
        elif field == "error":  # some versions of llama.cpp write an error like this
            self._event = field
            self._data.append(value)

    def _dispatched(self) -> Iterator[Event]:
        if self._data:
            yield self._event, "\n".join(self._data)
        self._event = None
        self._data.clear()


class NdjsonParser:
    """One JSON text in each line; empty lines are passed over."""

    def __init__(self) -> None:
        self._lines = _Lines()

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """The lines that the chunk completes."""
        yield from ((None, line) for line in self._lines.feed(chunk) if line.strip())

    def end(self) -> Iterator[Event]:
        """A last line without a line break."""
        line = self._lines.rest()
        if line.strip():
            yield None, line
