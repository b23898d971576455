"""The command line: its commands in their groups, and how one run ends."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from io import TextIOWrapper
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from turnlog.infrastructure.cli.commands import (
    about,
    audit,
    copying,
    ending,
    maintaining,
    reading,
    talking,
    writing,
)
from turnlog.infrastructure.cli.options import Database, Json, with_types_for_people
from turnlog.infrastructure.cli.settings import Status


class _Command(TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        return with_types_for_people(super().get_params(ctx))


class _Group(TyperGroup):
    def get_params(self, ctx: Any) -> list[Any]:
        return with_types_for_people(super().get_params(ctx))


app = typer.Typer(
    name="turnlog",
    cls=_Group,
    help="Conversations with language models: kept, compacted, replayed.",
    epilog="Exit status: 0 done, 1 nothing found, nothing to do, or something is wrong with "
    "what was checked, 2 usage, 3 not found, 4 conflict or locked, 5 bad input, "
    "6 model or network, 130 interrupted.",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_GROUPS: Final[Mapping[str, Sequence[Callable[..., int]]]] = {
    "Start": (about.demo, about.version, writing.import_),
    "Read": (
        reading.sessions,
        reading.log,
        reading.view,
        reading.search,
        reading.report,
        reading.export,
    ),
    "Talk": (talking.chat, talking.summarize),
    "Compact": (writing.compact, writing.strategies),
    "End of a session": (
        ending.extend,
        ending.hold,
        ending.holds,
        ending.release,
        ending.redact,
        ending.delete,
        ending.sweep,
    ),
    "Read models": (maintaining.rebuild, maintaining.check),
    "Backup": (copying.backup, copying.restore, copying.erasures),
}

_AUDIT: Final = (
    audit.told,
    audit.diff,
    audit.explain,
    audit.lineage,
    audit.timeline,
    audit.verify,
    audit.heads,
    audit.export,
    audit.check,
)

_OF_PYDANTIC: Final = "Value error, "
"""Stands in front of what is wrong with a value in the messages of typer."""

for _group, _commands in _GROUPS.items():
    for _command in _commands:
        app.command(_command.__name__.rstrip("_"), cls=_Command, rich_help_panel=_group)(_command)

_audit = typer.Typer(
    cls=_Group,
    help="What a model was told, when, why, and whether the log can be relied on.",
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
)
for _command in _AUDIT:
    _audit.command(_command.__name__, cls=_Command)(_command)
app.add_typer(_audit, name="audit", rich_help_panel="Audit")


@app.callback(invoke_without_command=True)
def common(
    context: typer.Context,
    db: Database = None,
    as_json: Json = False,
    version: Annotated[bool, typer.Option("--version", "-V", help="Print the version of turnlog.")] = False,
) -> None:
    """Conversations with language models: kept, compacted, replayed."""
    context.obj = (db, as_json)
    if version:
        raise typer.Exit(about.version(context))
    if context.invoked_subcommand is None:
        context.fail("Missing command.")


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit status. Errors that are expected are one message on stderr."""
    as_json = "--json" in arguments
    if sys.stdout is None:  # pyright: ignore[reportUnnecessaryComparison] # closed, as daemons have it
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123 - for the whole process
    if sys.stderr is None:  # pyright: ignore[reportUnnecessaryComparison] # closed, as daemons have it
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123 - for the whole process
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
        message = error.format_message().replace(_OF_PYDANTIC, "")
        return _failed(message, "UsageError", Status.USAGE, as_json, hint=_hint(error))
    except KeyboardInterrupt:
        return _failed("Interrupted.", "Interrupted", Status.INTERRUPTED, as_json)
    except BrokenPipeError:
        # What is left in the buffer has no reader; without this the interpreter complains at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Status.DONE
    except Exception as error:
        from turnlog.infrastructure.cli.failures import status_of, told, typed

        known = typed(error)
        found = status_of(known)
        if found is None:
            raise
        return _failed(told(known), type(known).__name__, found, as_json)
    return int(status)


def _failed(message: str, name: str, status: Status, as_json: bool, *, hint: str = "") -> int:
    from turnlog.infrastructure.cli.output import say, write_json_text

    if as_json:
        error = {"error": name, "message": message, "status": int(status)}
        write_json_text(json.dumps(error, ensure_ascii=False), stderr=True)
    else:
        say(f"{message}{hint}")
    return int(status)


def _hint(error: TyperException) -> str:
    context = getattr(error, "ctx", None)
    return f"\nTry `{context.command_path} --help`." if context else ""
