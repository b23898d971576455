"""The commands about copies of the database."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from turnlog.infrastructure.cli.options import Database, Json, file_path, settings_of


def backup(
    context: typer.Context,
    file: Annotated[
        Path,
        typer.Argument(
            parser=file_path, metavar="FILE", help="A file that does not exist yet.", show_default=False
        ),
    ],
    db: Database = None,
    as_json: Json = False,
) -> int:
    """Copy the database into a new file while it is used."""
    from turnlog.infrastructure.cli.copying import back_up

    return back_up(settings_of(context, db, as_json), file)


def restore(
    context: typer.Context,
    file: Annotated[
        Path, typer.Argument(parser=file_path, metavar="FILE", help="A backup.", show_default=False)
    ],
    db: Database = None,
    as_json: Json = False,
) -> int:
    """Bring a backup back as a database that does not exist yet."""
    from turnlog.infrastructure.cli.copying import bring_back

    return bring_back(settings_of(context, db, as_json), file)


def erasures(
    context: typer.Context,
    since: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            help="Deleted then or later, as 2027-01-31 (without offset it is UTC).",
            show_default=False,
        ),
    ],
    db: Database = None,
    as_json: Json = False,
) -> int:
    """List what a restore brought back and must be deleted again.

    It reads the file that the environment variable TURNLOG_ERASURES_FILE names,
    in which deletions and redactions were remembered while it was set.
    """
    from turnlog.infrastructure.cli.copying import show_erasures

    return show_erasures(settings_of(context, db, as_json), since)
