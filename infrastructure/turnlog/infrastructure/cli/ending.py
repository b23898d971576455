"""The commands about the end of sessions: extend, hold, release, delete, sweep."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from rich.table import Table

from turnlog.application import SessionDetails, SessionService
from turnlog.application.erasing import Deletion, Sweep
from turnlog.domain.errors import InvalidSettingError, SessionNotFoundError, UnreadableEventError
from turnlog.infrastructure.cli import database
from turnlog.infrastructure.cli.failures import CommandUsageError
from turnlog.infrastructure.cli.moments import minute, required_time
from turnlog.infrastructure.cli.output import (
    console,
    note,
    one_line,
    print_table,
    several,
    visible,
    write_json,
)
from turnlog.infrastructure.cli.settings import Settings, Status


def extend_session(
    settings: Settings, given: str, *, until: str | None, days: int | None, never: bool
) -> int:
    """Move the expiry of a session; status 1 when it is what it was."""
    if sum((until is not None, days is not None, never)) != 1:
        raise CommandUsageError("Give one of --until, --days and --never.")
    time = None if until is None else required_time("--until", until)
    with database.changing(settings.database) as service:
        session_id = database.session_id(service, given)
        before = _details(service, session_id)
        if days is None:
            if time is not None and time <= datetime.now(UTC):
                raise CommandUsageError(
                    f"--until {until!r} has passed: nothing was changed. Give a later time, or end the "
                    "session with `turnlog delete`."
                )
            service.extend(session_id, time)
        else:
            _extend_by(service, session_id, days)
        now = _details(service, session_id)
    if settings.json:
        at = now.expires_at.isoformat() if now.expires_at else None
        write_json({"session": session_id, "expires_at": at, "version": now.version})
    else:
        at = f"expires at {minute(now.expires_at)} UTC" if now.expires_at else "never expires"
        console().print(f"Session {one_line(session_id)} {at}.", soft_wrap=True)
    moved = now.expires_at != before.expires_at
    return Status.DONE if moved else Status.FOUND_OR_NOTHING_TO_DO


def _extend_by(service: SessionService, session_id: str, days: int) -> None:
    try:
        service.extend(session_id, by=timedelta(days=days))
    except InvalidSettingError as error:
        raise CommandUsageError(f"--days {days} leads behind the year 9999: use --never.") from error


def hold_session(settings: Settings, given: str, *, reason: str, by: str) -> int:
    """Place a legal hold on a session."""
    with database.changing(settings.database) as service:
        session_id = database.session_id(service, given)
        version = service.hold(session_id, reason, by=by)
    if settings.json:
        write_json({"session": session_id, "placed_at": version})
    else:
        console().print(
            f"Session {one_line(session_id)} is under a legal hold, placed at version {version}.",
            soft_wrap=True,
        )
    return Status.DONE


def show_holds(settings: Settings, given: str) -> int:
    """List the legal holds that are on."""
    with database.reading(settings.database) as service:
        session_id = database.session_id(service, given)
        holds = service.holds(session_id)
    if settings.json:
        write_json(
            [
                {"placed_at": one.placed_at, "time": one.time.isoformat(), "by": one.by, "reason": one.reason}
                for one in holds
            ]
        )
        return Status.DONE
    if not holds:
        console().print(f"No legal hold is on session {one_line(session_id)}.", soft_wrap=True)
        return Status.DONE
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("Version", "Placed (UTC)", "By", "Reason"):
        table.add_column(name)
    for one in holds:
        table.add_row(f"{one.placed_at}", minute(one.time), one_line(one.by), one_line(one.reason))
    print_table(table)
    return Status.DONE


def release_session(settings: Settings, given: str, *, by: str, placed_at: int | None) -> int:
    """Release a legal hold of a session."""
    with database.changing(settings.database) as service:
        session_id = database.session_id(service, given)
        version = service.release(session_id, placed_at, by=by)
    if settings.json:
        write_json({"session": session_id, "version": version})
    else:
        console().print(f"Released a legal hold of session {one_line(session_id)}.", soft_wrap=True)
    return Status.DONE


def delete_session(settings: Settings, given: str, *, confirmed: bool) -> int:
    """Delete a session, if that was confirmed; not status 0 while its content may still be stored."""
    with database.changing(settings.database) as service:
        try:
            session_id = database.session_id(service, given)
        except UnreadableEventError:  # there is a session of this id, and it can be deleted all the same
            session_id = given
        if not confirmed:
            raise CommandUsageError(
                f"This would delete session {session_id!r}{_size(service, session_id)}. Add --yes to do it."
            )
        deletion = service.delete(session_id)
    if settings.json:
        write_json({"deleted": session_id, "erasure": deletion.erasure, "reason": deletion.reason})
    else:
        console().print(_deletion_text(settings, deletion), soft_wrap=True)
    return _status_of(deletion.erasure)


def sweep_sessions(settings: Settings, *, purge_days: int) -> int:
    """Delete what expired and clear away what was deleted; not status 0 while an erasure is pending, or a
    session could not be deleted."""
    failed: dict[str, str] = {}
    with database.changing(settings.database) as service:
        expired = service.delete_expired(
            datetime.now(UTC), on_failure=lambda name, error: failed.update({name: str(error)})
        )
        swept = service.sweep(timedelta(days=purge_days))
    erasure = "pending" if swept.pending else "done"
    if settings.json:
        write_json(_sweep_data(expired, swept, erasure) | {"failed": failed})
    else:
        _print_sweep(expired, swept, purge_days)
        for name, reason in failed.items():
            note(f"session {one_line(name)} expired and was not deleted: {reason}")
    if failed and erasure != "pending":
        return Status.FOUND_OR_NOTHING_TO_DO
    return _status_of(erasure)


def _details(service: SessionService, session_id: str) -> SessionDetails:
    details = service.find(session_id)
    if details is None:
        raise SessionNotFoundError(session_id)
    return details


def _size(service: SessionService, session_id: str) -> str:
    """How many events a session has, if that can be read."""
    try:
        return f" with {several(service.version(session_id), 'event')}"
    except UnreadableEventError:
        return ", of which not every event can be read"


def _status_of(erasure: str) -> Status:
    return Status.CONFLICT if erasure == "pending" else Status.DONE


def _deletion_text(settings: Settings, deletion: Deletion) -> str:
    deleted = f"Deleted session {one_line(deletion.session_id)}"
    reason = visible(deletion.reason or "")
    if deletion.erasure == "pending":
        return f"{deleted}, but its erasure is pending. {reason}\n`turnlog sweep` completes it."
    return f"{deleted}. Nothing of it is left in {visible(str(settings.database))}."


def _print_sweep(expired: int, swept: Sweep, purge_days: int) -> None:
    out = console()
    out.print(f"Expired sessions deleted:    {expired:>7,}")
    out.print(f"Pending erasures completed:  {swept.completed:>7,}")
    out.print(
        f"Erased events removed:       {swept.purged:>7,}  (of sessions deleted over {purge_days} days ago)"
    )
    if swept.pending:
        out.print(f"Erasures still pending:      {swept.pending:>7,}")
    for reason in dict.fromkeys((swept.reason, *map(str, swept.failures))):
        if reason is not None:
            out.print(visible(reason), soft_wrap=True)


def _sweep_data(expired: int, swept: Sweep, erasure: str) -> dict[str, Any]:
    return {
        "expired": expired,
        "completed": swept.completed,
        "purged": swept.purged,
        "pending": swept.pending,
        "erasure": erasure,
        "reason": swept.reason,
        "failures": list(map(str, swept.failures)),
    }
