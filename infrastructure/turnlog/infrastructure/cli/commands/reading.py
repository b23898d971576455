"""The commands that only read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from turnlog.infrastructure.cli.options import (
    Database,
    Force,
    Form,
    Json,
    Limit,
    Principal,
    RoleName,
    SessionId,
    file_path,
    settings_of,
)


def sessions(
    context: typer.Context,
    principal: Principal = None,
    limit: Limit = 50,
    before: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Go on behind this session of the list.", show_default=False),
    ] = None,
    db: Database = None,
    as_json: Json = False,
) -> int:
    """List the sessions, newest first."""
    from turnlog.infrastructure.cli.reading import show_sessions

    return show_sessions(settings_of(context, db, as_json), principal=principal, limit=limit, before=before)


def log(
    context: typer.Context, session: SessionId, limit: Limit = 50, db: Database = None, as_json: Json = False
) -> int:
    """Show the newest events of a session, covered ones included.

    Turn marks, metadata, expiry and holds have a version too, and are not
    listed; `turnlog check` names events that were lost.
    """
    from turnlog.infrastructure.cli.reading import show_log

    return show_log(settings_of(context, db, as_json), session, limit)


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

    settings = settings_of(context, db, as_json)
    chosen = form or (Form.JSON if settings.json else Form.TEXT)
    return show_view(settings, session, at=at, form=chosen, ask=ask, branch=branch, model=model)


def search(
    context: typer.Context,
    query: Annotated[
        list[str],
        typer.Argument(metavar="QUERY", help="Words or phrases; case does not matter.", show_default=False),
    ],
    session: Annotated[
        str | None, typer.Option(metavar="ID", help="Only in this session.", show_default=False)
    ] = None,
    principal: Principal = None,
    all_terms: Annotated[
        bool, typer.Option("--all-terms", help="Messages that hold every word or phrase, not just one.")
    ] = False,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Said then or later; without offset it is UTC.", show_default=False
        ),
    ] = None,
    role: Annotated[
        list[RoleName] | None,
        typer.Option(
            metavar="ROLE",
            help="Said by system, user, assistant or tool; can be repeated.",
            show_default=False,
        ),
    ] = None,
    branch: Annotated[
        str | None, typer.Option(metavar="NAME", help="What this sub-agent can see.", show_default=False)
    ] = None,
    page: Annotated[int, typer.Option(min=0, metavar="N", help="The page, counted from 0.")] = 0,
    page_size: Annotated[int, typer.Option(min=1, metavar="N", help="Messages of a page.")] = 20,
    db: Database = None,
    as_json: Json = False,
) -> int:
    """Find messages by what they say, covered ones too, oldest first."""
    from turnlog.infrastructure.cli.searching import search_messages

    return search_messages(
        settings_of(context, db, as_json),
        query,
        session=session,
        principal=principal,
        all_terms=all_terms,
        since=since,
        roles=role or (),
        branch=branch,
        page=page,
        page_size=page_size,
    )


def export(
    context: typer.Context,
    session: SessionId,
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
    db: Database = None,
    as_json: Json = False,
) -> int:
    """Print the whole log as JSON lines, which `import` reads back."""
    from turnlog.infrastructure.cli.reading import export_session

    return export_session(settings_of(context, db, as_json), session, output, force=force)


def report(
    context: typer.Context,
    session: SessionId,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            parser=file_path,
            metavar="FILE",
            help="Write to this file; - is stdout.",
            show_default=False,
        ),
    ],
    branch: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="What this sub-agent was told.", show_default=False),
    ] = None,
    force: Force = False,
    db: Database = None,
    as_json: Json = False,
) -> int:
    """Write a session as an HTML page that needs no network."""
    from turnlog.infrastructure.cli.reporting import report_session

    settings = settings_of(context, db, as_json)
    return report_session(settings, session, output, branch=branch, force=force)
