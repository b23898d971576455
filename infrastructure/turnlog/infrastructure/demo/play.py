"""Plays the conversation into a new database and shows what becomes of it."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

from rich.console import Console
from rich.text import Text

from turnlog.application import SessionService, SessionUsage
from turnlog.domain.compaction import CompactionResult
from turnlog.domain.extractive import ExtractiveSummarizer
from turnlog.domain.messages import Message, Role
from turnlog.domain.triggers import TokenCountTrigger
from turnlog.domain.view import View
from turnlog.domain.window import CompactionWindow, WindowCompactionStrategy
from turnlog.infrastructure.cli.output import console, one_line_of
from turnlog.infrastructure.cli.rendering import STYLES, said
from turnlog.infrastructure.cli.settings import Status
from turnlog.infrastructure.demo.conversation import turns

SESSION: Final = "airline"
LIMIT: Final = 4_500
"""Tokens of a view at which it is compacted."""
BUDGET: Final = 2_600
"""Tokens of the turns that stay, system message included; a digest of what leaves comes on top."""

_WIDTH = 80
_BAR = 16
_BAR_TOKENS = 8_000
"""Tokens of a full bar."""


def play() -> int:
    """Play the demonstration, which leaves a database in a temporary folder to be looked at."""
    out = console()
    if out.width > _WIDTH or not out.is_terminal:
        out = console(width=_WIDTH)
    database = Path(mkdtemp(prefix="turnlog-demo-")) / "turnlog.db"
    env = {"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": str(database)}
    with SessionService(env=env) as sessions:
        _introduce(out)
        before_last = _play_turns(out, sessions)
        _compare(out, sessions.view(SESSION, at_version=before_last), sessions.view(SESSION))
    _suggest(out, database, before_last)
    return Status.DONE


def _introduce(out: Console) -> None:
    out.print(
        "A customer changes a flight with an airline's agent: a real conversation with\n"
        "GPT-4o and its tools. Each turn is appended to an event log in SQLite. Once what\n"
        f"the model is told reaches {LIMIT:,} tokens, a compaction reduces the view to a\n"
        f"digest and the newest turns that fit in {BUDGET:,}. The log keeps everything.\n"
    )
    out.print("turn     log   view    told   whole", style="bold")
    out.print(
        Text.assemble(
            ("      events   msgs  tokens  tokens  ", "bold"),
            ("█ told ", "green"),
            ("░ in the log only", "dim"),
        )
    )


def _play_turns(out: Console, sessions: SessionService) -> int:
    """Append turn by turn, compact when the trigger fires; the version in front of the last boundary."""
    trigger = TokenCountTrigger(LIMIT)
    strategy = WindowCompactionStrategy(CompactionWindow.token_budget(BUDGET), ExtractiveSummarizer())
    sessions.create(SESSION, metadata={"title": "A flight back to Houston"})
    before_last = 0
    for number, turn in enumerate(turns(), start=1):
        sessions.append_events(SESSION, turn)
        out.print(_figures(f"{number}", sessions.usage(SESSION), _question(turn)))
        result = sessions.compact(SESSION, trigger, strategy)
        if result.boundary:
            before_last = result.boundary.version - 1
            out.print(_boundary_line(result))
            out.print(_figures("", sessions.usage(SESSION)))
    return before_last


def _question(turn: tuple[Message, ...]) -> str:
    return next((message.text or "" for message in turn if message.role is Role.USER), "")


def _figures(turn: str, usage: SessionUsage, question: str = "") -> Text:
    told = round(_BAR * usage.tokens / _BAR_TOKENS)
    whole = max(told, round(_BAR * usage.log_tokens / _BAR_TOKENS))
    line = Text(f"{turn:>4}  {usage.log_events:>6}  {usage.events:>5}  {usage.tokens:>6,}  ")
    line.append(f"{usage.log_tokens:>6,}  ", "dim").append("█" * told, "green").append(
        "░" * (whole - told), "dim"
    )
    if question:
        line.append(" " * (_BAR - whole + 2))
        line.append(one_line_of(question, _WIDTH - len(line)), "cyan")
    return line


def _boundary_line(result: CompactionResult) -> Text:
    return Text(
        f"      ── compaction: {len(result.covered_events)} messages leave the view, "
        f"{result.tokens_before:,} → {result.tokens_after:,} tokens",
        "bold yellow",
    )


def _compare(out: Console, before: View, now: View) -> None:
    _print_view(out, "Told now", now, first=3, last=3)
    _print_view(out, "Told before the last compaction", before, first=5, last=2)


def _print_view(out: Console, title: str, view: View, *, first: int, last: int) -> None:
    """The first and the last messages of the view, one line each, with their versions."""
    out.print(
        Text.assemble(
            (f"\n{title}", "bold"), (f" (version {view.version}, {len(view.events)} messages)", "dim")
        )
    )
    shown = [*view.events[:first], None, *view.events[-last:]]
    for event in shown:
        if event is None:
            out.print(f"      … {len(view.events) - first - last} more", style="dim")
        else:
            style = STYLES[event.role or ""]
            out.print(
                Text.assemble((f"{event.version:>4}  ", "dim"), (one_line_of(said(event), _WIDTH - 6), style))
            )


def _suggest(out: Console, database: Path, before_last: int) -> None:
    command = _command()
    steps = (
        (f"{command} log @last", "the newest events, covered ones too"),
        (f"{command} view @last", "what the model is told now"),
        (f"{command} view @last --at {before_last}", "what it was told then"),
        (f"{command} view @last --as openai", "as the body of a request"),
        (f"{command} search 'gift card'", "what was said of it"),
        (f"{command} compact @last --last-turns 1", "one more compaction"),
        (f"{command} audit explain @last 5", "why a message is not told"),
        (f"{command} report @last -o report.html", "all of it as a page"),
    )
    width = max(len(line) for line, _ in steps)
    out.print("\nTry next", style="bold")
    out.print(f"  export TURNLOG_DB={shlex.quote(str(database))}", soft_wrap=True)
    for line, why in steps:
        out.print(Text(f"  {line:<{width}}").append(f"  # {why}", "dim"), soft_wrap=True)


def _command() -> str:
    """How this command can be called again: by its name if the shell finds it so, else by its path."""
    started = Path(sys.argv[0])
    found = shutil.which("turnlog")
    if found and started.exists() and Path(found).samefile(started):
        return "turnlog"
    return shlex.quote(str(started)) if started.name == "turnlog" else "turnlog"
