"""Options and arguments that several commands have, as typer reads them."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperOption

from turnlog.infrastructure.cli.settings import Settings


class Form(StrEnum):
    """The forms of a view."""

    TEXT = "text"
    JSON = "json"
    OPENAI = "openai"
    ANTHROPIC = "anthropic"


class StrategyName(StrEnum):
    """The compaction strategies."""

    WINDOW = "window"
    SLIDING = "sliding"
    TURNS = "turns"
    TOKENS = "tokens"
    RECURSIVE = "recursive"


class SummarizerName(StrEnum):
    """What writes a summary of the messages that leave the view."""

    NONE = "none"
    EXTRACTIVE = "extractive"
    MODEL = "model"
    FALLBACK = "fallback"


class ProviderName(StrEnum):
    """The APIs through which a model is asked."""

    OPENAI = "openai"
    RESPONSES = "responses"
    ANTHROPIC = "anthropic"
    OLLAMA = "ollama"


class RoleName(StrEnum):
    """Who can have said a message."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


def with_types_for_people(parameters: Iterable[Any]) -> list[Any]:
    """The parameters of a command; the help then shows no type of options that take no value, and none of
    Python's: what an argument is, its description says."""
    found = list(parameters)
    for one in found:
        if isinstance(one, TyperOption) and one.is_flag:
            one.metavar = ""
        elif not isinstance(one, TyperOption) and not one.type_descriptor.is_choice:
            one.display_type_rich = _nothing
    return found


def _nothing(*, ctx: object) -> None:
    """What the help shows in the place of a type."""


def file_path(given: str) -> Path:
    """The file of this name. An empty name, which `Path` takes for the current folder, is refused."""
    if not given:
        raise typer.BadParameter("The name of a file is empty.")
    return Path(given)


Database = Annotated[
    str | None,
    typer.Option(
        "--db",
        metavar="DB",
        help="The database: a file, or postgresql://… (default: TURNLOG_DB, else ./turnlog.db).",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines; errors too, on stderr.")]
SessionId = Annotated[
    str,
    typer.Argument(
        metavar="ID", help="A session: its id, the beginning of it, or @last.", show_default=False
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Replace a file that exists; never the database.")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, metavar="N", help="How many at most.")]
Principal = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Only sessions of this principal.", show_default=False),
]
Provider = Annotated[
    ProviderName | None,
    typer.Option(
        metavar="NAME",
        help="The API: openai, responses, anthropic, ollama (default: TURNLOG_PROVIDER, else openai).",
        show_default=False,
    ),
]
ModelName = Annotated[
    str | None,
    typer.Option("--model", metavar="NAME", help="The model (default: TURNLOG_MODEL).", show_default=False),
]
BaseUrl = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="The server (default: OPENAI_BASE_URL, ANTHROPIC_BASE_URL or OLLAMA_HOST).",
        show_default=False,
    ),
]
ModelOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        metavar="NAME=VALUE",
        help="A parameter of the API, the value as JSON or text; can be repeated.",
        show_default=False,
    ),
]
Window = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="N", help="Tokens that the model's context window holds.", show_default=False
    ),
]
Actor = Annotated[str, typer.Option("--by", metavar="NAME", help="Who does it.", show_default=False)]


def settings_of(context: typer.Context, db: str | None, as_json: bool) -> Settings:
    """The options of the command, or those in front of it."""
    db_in_front, json_in_front = context.obj
    return Settings.of(db or db_in_front, json=as_json or json_in_front)
