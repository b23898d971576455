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
        typer.Argument(
            metavar="MODEL",
            help="Only this one (default: every one that the database has).",
            show_default=False,
        ),
    ] = None,
    db: Database = None,
    as_json: Json = False,
) -> int:
    """Make read models or the ledger of ids anew from the log.

    Read models are the rows that sessions are listed, found and shown from;
    by the ledger appends know an id that came before. The log is only read.

    Others go on meanwhile: readers get the former rows until the new ones are
    complete, and writers wait for the exchange alone. A rebuild that is
    interrupted changes nothing.

    Status 1: done, but events are gone from the log, cannot be read, were
    changed, or have an id twice; they are named.

    Example: turnlog rebuild directory --db shop.db
    """
    from turnlog.infrastructure.cli.maintaining import rebuild_models

    return rebuild_models(settings_of(context, db, as_json), None if model is None else model.value)


def check(context: typer.Context, db: Database = None, as_json: Json = False) -> int:
    """Check that log, boundaries, read models and ledger of ids agree.

    The log is verified as by `turnlog audit verify`, and replayed; then the rows
    that the database keeps are compared with what follows from the log.
    Nothing is changed, and others go on reading and writing.

    Status 0: nothing differs. Status 1: something does, and is named. What is
    wrong in a read model or in the ledger, `turnlog rebuild` makes right.

    Example: turnlog check --db shop.db
    """
    from turnlog.infrastructure.cli.maintaining import check_database

    return check_database(settings_of(context, db, as_json))
