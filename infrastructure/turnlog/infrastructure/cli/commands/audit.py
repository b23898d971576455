"""The commands of `turnlog audit`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from turnlog.infrastructure.cli.options import Database, Force, Json, SessionId, file_path, settings_of

_MOMENT = "VERSION|TIME|ID"


def told(
    context: typer.Context,
    session: SessionId,
    call: Annotated[
        str | None,
        typer.Argument(
            metavar=f"CALL|{_MOMENT}",
            help="A call, as `timeline` lists it, the event of its answer, or a version or time: the newest "
            "call up to it (default: the newest of all).",
        ),
    ] = None,
    attempt: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Which attempt (default: the newest).", show_default=False),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            parser=file_path,
            metavar="FILE",
            help="Write the exact bytes to this file; - is stdout.",
            show_default=False,
        ),
    ] = None,
    force: Force = False,
    db: Database = None,
    as_json: Json = False,
) -> int:
    """Show the exact request that a model was sent, from the log alone."""
    from turnlog.infrastructure.cli.auditing import show_told

    settings = settings_of(context, db, as_json)
    return show_told(settings, session, call, attempt=attempt, output=output, force=force)


def diff(
    context: typer.Context,
    session: SessionId,
    before: Annotated[str, typer.Argument(metavar=_MOMENT, help="The one.", show_default=False)],
    after: Annotated[str, typer.Argument(metavar=_MOMENT, help="The other.", show_default=False)],
    db: Database = None,
    as_json: Json = False,
) -> int:
    """Show what came into the view between two moments or calls, and what left it."""
    from turnlog.infrastructure.cli.auditing import show_diff

    return show_diff(settings_of(context, db, as_json), session, before, after)


def explain(
    context: typer.Context,
    session: SessionId,
    event: Annotated[
        str, typer.Argument(metavar="EVENT", help="A message: its id, or its version.", show_default=False)
    ],
    at: Annotated[
        str | None, typer.Option(metavar=_MOMENT, help="As it was then.", show_default=False)
    ] = None,
    db: Database = None,
    as_json: Json = False,
) -> int:
    """Say why a message is in the view, or why it is not, and what carries it on."""
    from turnlog.infrastructure.cli.auditing import show_explanation

    return show_explanation(settings_of(context, db, as_json), session, event, at)


def lineage(
    context: typer.Context,
    session: SessionId,
    summary: Annotated[
        str | None,
        typer.Argument(
            metavar="SUMMARY", help="A summary: its id, or its version (default: the newest in the view)."
        ),
    ] = None,
    db: Database = None,
    as_json: Json = False,
) -> int:
    """Show the messages that a summary stands for, through earlier summaries too."""
    from turnlog.infrastructure.cli.auditing import show_lineage

    return show_lineage(settings_of(context, db, as_json), session, summary)


def timeline(context: typer.Context, session: SessionId, db: Database = None, as_json: Json = False) -> int:
    """List turns, calls and compactions, with the tokens of the view at each."""
    from turnlog.infrastructure.cli.auditing import show_timeline

    return show_timeline(settings_of(context, db, as_json), session)


def verify(
    context: typer.Context,
    session: Annotated[
        str | None,
        typer.Argument(metavar="ID", help="Only this session (default: the whole database)."),
    ] = None,
    heads: Annotated[
        Path | None,
        typer.Option(
            parser=file_path,
            metavar="FILE",
            help="Former heads, as `audit heads` wrote them.",
            show_default=False,
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(metavar="HEX", help="The public key that signed the heads.", show_default=False),
    ] = None,
    db: Database = None,
    as_json: Json = False,
) -> int:
    """Check that no event was changed, removed, inserted or reordered; status 1 if one was."""
    from turnlog.infrastructure.cli.auditing import verify_sessions

    return verify_sessions(settings_of(context, db, as_json), session, heads=heads, key=key)


def heads(
    context: typer.Context,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            parser=file_path,
            metavar="FILE",
            help="Write to this file; - is stdout.",
            show_default=False,
        ),
    ] = None,
    force: Force = False,
    sign: Annotated[
        Path | None,
        typer.Option(
            parser=file_path,
            metavar="KEYFILE",
            help="Sign with the private key in this file, which is made if it does not exist.",
            show_default=False,
        ),
    ] = None,
    db: Database = None,
    as_json: Json = False,
) -> int:
    """Export the newest chain values: kept elsewhere they prove later what was here."""
    from turnlog.infrastructure.cli.auditing import export_heads

    return export_heads(settings_of(context, db, as_json), output=output, sign=sign, force=force)


def export(
    context: typer.Context,
    session: SessionId,
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", parser=file_path, metavar="FILE", help="The bundle.", show_default=False
        ),
    ],
    sign: Annotated[
        Path | None,
        typer.Option(
            parser=file_path,
            metavar="KEYFILE",
            help="Sign the newest chain value with the private key in this file, made if need be.",
            show_default=False,
        ),
    ] = None,
    heads: Annotated[
        Path | None,
        typer.Option(
            parser=file_path,
            metavar="FILE",
            help="Put these heads in, as `audit heads` wrote them.",
            show_default=False,
        ),
    ] = None,
    bodies: Annotated[bool, typer.Option(help="With the body of each recorded request.")] = True,
    force: Force = False,
    db: Database = None,
    as_json: Json = False,
) -> int:
    """Write a session as an evidence bundle, which can be checked without turnlog."""
    from turnlog.infrastructure.cli.bundling import export_session

    settings = settings_of(context, db, as_json)
    return export_session(
        settings, session, output=output, sign=sign, heads=heads, bodies=bodies, force=force
    )


def check(
    context: typer.Context,
    bundle: Annotated[
        Path, typer.Argument(parser=file_path, metavar="FILE", help="A bundle.", show_default=False)
    ],
    key: Annotated[
        str | None,
        typer.Option(
            metavar="HEX", help="The public key that must have signed its heads.", show_default=False
        ),
    ] = None,
    db: Database = None,
    as_json: Json = False,
) -> int:
    """Check an evidence bundle; status 5 when it is cut off or not as it was exported."""
    from turnlog.infrastructure.cli.bundling import check_file

    return check_file(settings_of(context, db, as_json), bundle, key)
