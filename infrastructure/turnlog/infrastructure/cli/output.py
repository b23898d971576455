"""What reaches the terminal: texts with their control characters shown, and JSON that holds none."""

from __future__ import annotations

import errno
import json
import os
import re
import sys
from typing import Any, Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from turnlog.infrastructure.visible import STEERING
from turnlog.infrastructure.visible import visible as visible

_UNBOUNDED = 1_000_000
_USUAL = 80

_HIDDEN_IN_JSON = re.compile(f"[{STEERING}]")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")
_LINE_BREAK = re.compile(r"\s*\n\s*")


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError(errno.EPIPE, "the reader has gone")


def console(*, stderr: bool = False, width: int | None = None) -> Console:
    """A console that takes every text as it is: no markup, no emoji names, no highlighting.

    With NO_COLOR it writes no escape sequences at all, neither for dim nor for bold text. What is no terminal
    gets every line whole.
    """
    system: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"
    made = _Console(
        stderr=stderr, width=width, markup=False, emoji=False, highlight=False, color_system=system
    )
    if width is None and not made.file.isatty():  # colors that are forced make no terminal
        made.width = _UNBOUNDED
    elif made.width < 1:  # a terminal that says nothing of its size
        made.width = _USUAL
    return made


def print_table(table: Table) -> None:
    """Print the table: within the width of a terminal, elsewhere as wide as it is."""
    out = console()
    if out.is_terminal:
        out.print(table)
        return
    with out.capture() as captured:
        out.print(table)
    for line in captured.get().splitlines():
        print(line.rstrip())


def several(count: int, what: str) -> str:
    """So many of them.

    >>> several(1, "message"), several(2000, "message")
    ('1 message', '2,000 messages')
    """
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def one_line(text: str) -> str:
    """The visible text on one line.

    >>> one_line("first\\n  second")
    'first ⏎ second'
    """
    return flat(text.strip())


def flat(text: str) -> str:
    """The visible text with a mark for each line break, blanks at its ends included."""
    return visible(_LINE_BREAK.sub(" ⏎ ", text))


def one_line_of(text: str, width: int) -> str:
    """The start of the visible text on one line of so many cells; `…` stands for the rest."""
    line = Text(one_line(text[: width * 8]))
    line.truncate(width, overflow="ellipsis")
    return line.plain


def note(text: str) -> None:
    """Print on stderr what is worth knowing and no error."""
    say(f"note: {text}")


def say(text: str) -> None:
    """Print on stderr what the command says of itself. On a terminal no word is cut at its edge."""
    err = console(stderr=True)
    err.print(f"turnlog: {visible(text)}", soft_wrap=not err.is_terminal)


def write_json(value: Any) -> None:
    """Print the value as indented JSON."""
    write_json_text(json.dumps(value, ensure_ascii=False, indent=2))


def write_json_text(text: str, *, stderr: bool = False) -> None:
    """Print JSON as it is, except that what must not reach a terminal is escaped. The value is the same."""
    stream = sys.stderr if stderr else sys.stdout
    is_utf8 = stream.encoding.replace("-", "").lower() == "utf8"
    stream.write((_HIDDEN_IN_JSON if is_utf8 else _NOT_ASCII).sub(_json_escape, text) + "\n")


def _json_escape(match: re.Match[str]) -> str:
    return json.dumps(match[0])[1:-1]
