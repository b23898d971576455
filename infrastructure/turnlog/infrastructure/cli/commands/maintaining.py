"""The commands about read models: rebuild, check."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from turnlog.infrastructure.cli.options import Database, Json, settings_of


class Model(StrEnum):
    """What can be rebuilt."""

    VIEW = "view"
    RECALL = "recall"
    DIRECTORY = "directory"
    LEDGER = "ledger"


def rebuild(
    context: typer.Context,
    model: Annotated[
        Model | None,
        typer.Argument(help="Only this one (default: every one that the database has).", show_default=False),
    ] = None,
    db: Database = None,
    as_json: Json = False,
) -> int:
    """Make read models or the ledger of ids anew from the log."""
    from turnlog.infrastructure.cli.maintaining import rebuild_models

    return rebuild_models(settings_of(context, db, as_json), None if model is None else model.value)


def check(context: typer.Context, db: Database = None, as_json: Json = False) -> int:
    """Check that log, boundaries, read models and ledger of ids agree."""
    from turnlog.infrastructure.cli.maintaining import check_database

    return check_database(settings_of(context, db, as_json))
