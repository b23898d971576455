"""The commands and their options. Each imports what it needs when it runs, so that `--help` is quick."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from enum import StrEnum
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated

import typer
from typer.exceptions import TyperException

from turnlog.infrastructure.cli.settings import Settings, Status

app = typer.Typer(
    name="turnlog",
    help="Conversations with language models: kept, compacted, replayed.",
    epilog="Exit status: 0 done, 1 nothing to do, 2 usage, 3 not found, 4 conflict or locked, 5 bad input, "
    "6 model or network, 130 interrupted.",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Form(StrEnum):
    """The forms of a view."""

    TEXT = "text"
    JSON = "json"
    OPENAI = "openai"
    ANTHROPIC = "anthropic"


class Strategy(StrEnum):
    """The compaction strategies that need no model."""

    WINDOW = "window"


Database = Annotated[
    Path | None,
    typer.Option("--db", metavar="FILE", help="The database (default: TURNLOG_DB, else ./turnlog.db)."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines; errors too, on stderr.")]
SessionId = Annotated[
    str,
    typer.Argument(
        metavar="ID", help="A session: its id, the beginning of it, or @last.", show_default=False
    ),
]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="How many at most.")]
Size = Annotated[int | None, typer.Option(min=1, show_default=False)]


@app.callback()
def common(context: typer.Context, db: Database = None, as_json: Json = False) -> None:
    """Conversations with language models: kept, compacted, replayed."""
    context.obj = (db, as_json)


def _settings(context: typer.Context, db: Path | None, as_json: bool) -> Settings:
    """The options of the command, or those in front of it."""
    db_in_front, json_in_front = context.obj
    return Settings.of(db or db_in_front, json=as_json or json_in_front)


@app.command()
def demo() -> int:
    """Play a real conversation: see it kept, compacted and replayed."""
    from turnlog.infrastructure.demo.play import play

    return play()


@app.command("import")
def import_(
    context: typer.Context,
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="JSON or JSONL files.", show_default=False)
    ],
    file_format: Annotated[
        str | None,
        typer.Option("--format", metavar="NAME", help="Do not guess the format.", show_default=False),
    ] = None,
    max_size: Annotated[
        int | None,
        typer.Option("--max-size", min=1, metavar="BYTES", help="The largest JSON document or line."),
    ] = None,
    db: Database = None,
    as_json: Json = False,
) -> int:
    """Import conversations. A second run of the same file adds nothing."""
    from turnlog.infrastructure.cli.writing import import_files

    return import_files(_settings(context, db, as_json), files, file_format, max_size)


@app.command()
def sessions(context: typer.Context, limit: Limit = 50, db: Database = None, as_json: Json = False) -> int:
    """List the sessions, newest first."""
    from turnlog.infrastructure.cli.reading import show_sessions

    return show_sessions(_settings(context, db, as_json), limit)


@app.command()
def log(
    context: typer.Context, session: SessionId, limit: Limit = 50, db: Database = None, as_json: Json = False
) -> int:
    """Show the newest events of a session, covered ones included."""
    from turnlog.infrastructure.cli.reading import show_log

    return show_log(_settings(context, db, as_json), session, limit)


@app.command()
def view(
    context: typer.Context,
    session: SessionId,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="VERSION|TIME", help="As it was then; a time without offset is UTC.", show_default=False
        ),
    ] = None,
    form: Annotated[
        Form | None, typer.Option("--as", help="The form (default: text).", show_default=False)
    ] = None,
    ask: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Add a next user message; nothing is stored.")
    ] = None,
    branch: Annotated[str | None, typer.Option(metavar="NAME", help="What this sub-agent is told.")] = None,
    model: Annotated[str, typer.Option(metavar="NAME", help="The model in a request body.")] = "MODEL",
    db: Database = None,
    as_json: Json = False,
) -> int:
    """Show what the model is told, now or at an earlier moment."""
    from turnlog.infrastructure.cli.reading import show_view

    settings = _settings(context, db, as_json)
    chosen = form or (Form.JSON if settings.json else Form.TEXT)
    return show_view(settings, session, at=at, form=chosen, ask=ask, branch=branch, model=model)


@app.command()
def compact(
    context: typer.Context,
    session: SessionId,
    strategy: Annotated[Strategy, typer.Option(help="What decides.")] = Strategy.WINDOW,  # noqa: ARG001 - there is one so far
    last_events: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Keep the newest N messages (default: 20).")
    ] = None,
    last_turns: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Keep the newest N turns.")
    ] = None,
    token_budget: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Keep what fits N tokens.")
    ] = None,
    when_turns: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Only if the view has more than N turns.")
    ] = None,
    when_tokens: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Only if the view has at least N tokens.")
    ] = None,
    db: Database = None,
    as_json: Json = False,
) -> int:
    """Reduce the view to its newest turns; the log keeps everything."""
    from turnlog.infrastructure.cli.writing import compact_session

    return compact_session(
        _settings(context, db, as_json),
        session,
        last_events=last_events,
        last_turns=last_turns,
        token_budget=token_budget,
        when_turns=when_turns,
        when_tokens=when_tokens,
    )


@app.command()
def export(
    context: typer.Context,
    session: SessionId,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write to this file.", show_default=False),
    ] = None,
    db: Database = None,
    as_json: Json = False,
) -> int:
    """Print the whole log as JSON lines, which `import` reads back."""
    from turnlog.infrastructure.cli.reading import export_session

    return export_session(_settings(context, db, as_json), session, output)


@app.command()
def delete(
    context: typer.Context,
    session: SessionId,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Really delete it.")] = False,
    db: Database = None,
    as_json: Json = False,
) -> int:
    """Delete a session: it is gone for every reader, its id is not used again."""
    from turnlog.infrastructure.cli.writing import delete_session

    return delete_session(_settings(context, db, as_json), session, confirmed=yes)


@app.command()
def version(context: typer.Context, as_json: Json = False) -> int:
    """Print the version of turnlog."""
    from importlib.metadata import version as version_of

    number = version_of("turnlog")
    print(json.dumps({"version": number}) if _settings(context, None, as_json).json else f"turnlog {number}")
    return Status.DONE


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit status. Errors that are expected are one message on stderr."""
    as_json = "--json" in arguments
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # what the terminal's encoding lacks is shown escaped
            stream.reconfigure(errors="backslashreplace")
    try:
        command = typer.main.get_command(app)
        with command.make_context("turnlog", list(arguments) or ["--help"]) as context:
            status = command.invoke(context)
        sys.stdout.flush()
    except typer.Exit as end:
        status = end.exit_code
    except TyperException as error:
        return _failed(error.format_message(), "UsageError", Status.USAGE, as_json, hint=_hint(error))
    except KeyboardInterrupt:
        return _failed("Interrupted.", "Interrupted", Status.INTERRUPTED, as_json)
    except BrokenPipeError:
        # What is left in the buffer has no reader; without this the interpreter complains at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Status.DONE
    except Exception as error:
        from turnlog.infrastructure.cli.failures import status_of, typed

        known = typed(error)
        found = status_of(known)
        if found is None:
            raise
        return _failed(str(known), type(known).__name__, found, as_json)
    return int(status)


def _failed(message: str, name: str, status: Status, as_json: bool, *, hint: str = "") -> int:
    from turnlog.infrastructure.cli.output import visible, write_json_text

    if as_json:
        error = {"error": name, "message": message, "status": int(status)}
        write_json_text(json.dumps(error, ensure_ascii=False), stderr=True)
    else:
        print(f"turnlog: {visible(message)}{hint}", file=sys.stderr)
    return int(status)


def _hint(error: TyperException) -> str:
    context = getattr(error, "ctx", None)
    return f"\nTry `{context.command_path} --help`." if context else ""
