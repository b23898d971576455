"""The commands about the end of sessions."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from turnlog.infrastructure.cli.options import Actor, Database, Json, SessionId, settings_of

_MAX_DAYS: Final = 36_500


def extend(
    context: typer.Context,
    session: SessionId,
    until: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Until then, as 2027-01-31T12:00 (without offset it is UTC).",
            show_default=False,
        ),
    ] = None,
    days: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=_MAX_DAYS,
            metavar="N",
            help="N days later than planned, or from now if that has passed.",
            show_default=False,
        ),
    ] = None,
    never: Annotated[bool, typer.Option("--never", help="It never expires.")] = False,
    db: Database = None,
    as_json: Json = False,
) -> int:
    """Let a session expire at another time, or never."""
    from turnlog.infrastructure.cli.ending import extend_session

    settings = settings_of(context, db, as_json)
    return extend_session(settings, session, until=until, days=days, never=never)


def hold(
    context: typer.Context,
    session: SessionId,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why it must stay.", show_default=False)],
    by: Actor,
    db: Database = None,
    as_json: Json = False,
) -> int:
    """Place a legal hold: until it is released nothing deletes it."""
    from turnlog.infrastructure.cli.ending import hold_session

    return hold_session(settings_of(context, db, as_json), session, reason=reason, by=by)


def holds(context: typer.Context, session: SessionId, db: Database = None, as_json: Json = False) -> int:
    """List the legal holds that are on."""
    from turnlog.infrastructure.cli.ending import show_holds

    return show_holds(settings_of(context, db, as_json), session)


def release(
    context: typer.Context,
    session: SessionId,
    by: Actor,
    placed_at: Annotated[
        int | None,
        typer.Option(min=0, metavar="VERSION", help="Which hold, if several are on.", show_default=False),
    ] = None,
    db: Database = None,
    as_json: Json = False,
) -> int:
    """Release a legal hold."""
    from turnlog.infrastructure.cli.ending import release_session

    return release_session(settings_of(context, db, as_json), session, by=by, placed_at=placed_at)


def delete(
    context: typer.Context,
    session: SessionId,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Without it nothing is deleted.")] = False,
    db: Database = None,
    as_json: Json = False,
) -> int:
    """Delete a session and erase it; its id is not used again.

    Status 4: it is gone for every reader, but another connection keeps old
    copies of its content in the database until `turnlog sweep` (or, nothing
    was deleted, because a legal hold is on).

    Example: turnlog delete 0192f3c4 --yes
    """
    from turnlog.infrastructure.cli.ending import delete_session

    return delete_session(settings_of(context, db, as_json), session, confirmed=yes)


def redact(
    context: typer.Context,
    session: SessionId,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why; it stays.", show_default=False)],
    by: Actor,
    event: Annotated[
        str | None,
        typer.Option(metavar="EVENT", help="The id of the event.", show_default=False),
    ] = None,
    version: Annotated[
        int | None,
        typer.Option(
            min=0, metavar="N", help="The event at this version, as metadata have no id.", show_default=False
        ),
    ] = None,
    cascade: Annotated[
        bool, typer.Option("--cascade", help="Redact summaries and prompts that may carry it on, too.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Without it nothing is removed.")] = False,
    db: Database = None,
    as_json: Json = False,
) -> int:
    """Remove the content of one event for good; a marker stays.

    It is named by its version, as `turnlog log` shows it, or by its id. What
    may carry the content on (summaries, prompts, metadata) is printed.

    Example: turnlog redact @last --version 3 --reason privacy --by ada --yes
    """
    from turnlog.infrastructure.cli.redacting import redact_event

    settings = settings_of(context, db, as_json)
    return redact_event(
        settings,
        session,
        event=event,
        version=version,
        reason=reason,
        by=by,
        cascade=cascade,
        confirmed=yes,
    )


def sweep(
    context: typer.Context,
    purge: Annotated[
        int,
        typer.Option(
            min=0,
            max=_MAX_DAYS,
            metavar="DAYS",
            help="Remove what is left of the events of sessions that were deleted longer ago.",
        ),
    ] = 30,
    db: Database = None,
    as_json: Json = False,
) -> int:
    """Delete expired sessions, complete erasures, clear away old ones.

    Status 4: an erasure is still pending, because another connection reads an
    older state of the database; the next sweep completes it.
    """
    from turnlog.infrastructure.cli.ending import sweep_sessions

    return sweep_sessions(settings_of(context, db, as_json), purge_days=purge)
