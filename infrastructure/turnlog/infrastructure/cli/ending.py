"""The commands about the end of sessions: extend, hold, release, delete, sweep."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from turnlog.application import SessionDetails, SessionService
from turnlog.application.erasing import Deletion, ErasureUnsupportedError, Sweep
from turnlog.domain.errors import InvalidSettingError, SessionNotFoundError
from turnlog.infrastructure.cli import database
from turnlog.infrastructure.cli.failures import CommandUsageError
from turnlog.infrastructure.cli.moments import minute, required_time
from turnlog.infrastructure.cli.output import console, one_line, visible, write_json
from turnlog.infrastructure.cli.settings import Settings, Status

_CANNOT_ERASE = (
    "this database is written by an application whose recorder cannot overwrite stored events. "
    "Erase it with the means of that application."
)


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
        session_id = database.session_id(service, given)
        version = service.version(session_id)
        if not confirmed:
            raise CommandUsageError(
                f"This would delete session {session_id!r} with {version:,} events. Add --yes to do it."
            )
        try:
            deletion = service.delete(session_id)
        except ErasureUnsupportedError:  # the session is deleted all the same
            deletion = Deletion(session_id, version + 1, "unsupported", _CANNOT_ERASE)
    if settings.json:
        write_json({"deleted": session_id, "erasure": deletion.erasure, "reason": deletion.reason})
    else:
        console().print(_deletion_text(settings, deletion), soft_wrap=True)
    return _status_of(deletion.erasure)


def sweep_sessions(settings: Settings, *, purge_days: int) -> int:
    """Delete what expired and clear away what was deleted; not status 0 while an erasure is pending."""
    with database.changing(settings.database) as service:
        expired = service.delete_expired(datetime.now(UTC))
        try:
            swept = service.sweep(timedelta(days=purge_days))
        except ErasureUnsupportedError:
            swept = None
    erasure = "unsupported" if swept is None else "pending" if swept.pending else "done"
    if settings.json:
        write_json(_sweep_data(expired, swept, erasure))
    else:
        _print_sweep(expired, swept, purge_days)
    return _status_of(erasure)


def _details(service: SessionService, session_id: str) -> SessionDetails:
    details = service.find(session_id)
    if details is None:
        raise SessionNotFoundError(session_id)
    return details


def _status_of(erasure: str) -> Status:
    return {"done": Status.DONE, "pending": Status.CONFLICT}.get(erasure, Status.BAD_INPUT)


def _deletion_text(settings: Settings, deletion: Deletion) -> str:
    deleted = f"Deleted session {one_line(deletion.session_id)}"
    reason = visible(deletion.reason or "")
    match deletion.erasure:
        case "done":
            return f"{deleted}. Nothing of it is left in {visible(str(settings.database))}."
        case "pending":
            return f"{deleted}, but its erasure is pending. {reason}\n`turnlog sweep` completes it."
        case _:
            return f"{deleted} for every reader, but its content is still stored: {reason}"


def _print_sweep(expired: int, swept: Sweep | None, purge_days: int) -> None:
    out = console()
    out.print(f"Expired sessions deleted:    {expired:>7,}")
    if swept is None:
        out.print(f"Nothing was erased: {_CANNOT_ERASE}", soft_wrap=True)
        return
    out.print(f"Pending erasures completed:  {swept.completed:>7,}")
    out.print(
        f"Erased events removed:       {swept.purged:>7,}  (of sessions deleted over {purge_days} days ago)"
    )
    if swept.pending:
        out.print(f"Erasures still pending:      {swept.pending:>7,}")
    if swept.reason is not None:
        out.print(visible(swept.reason), soft_wrap=True)


def _sweep_data(expired: int, swept: Sweep | None, erasure: str) -> dict[str, Any]:
    return {
        "expired": expired,
        "completed": swept.completed if swept else 0,
        "purged": swept.purged if swept else 0,
        "pending": swept.pending if swept else None,
        "erasure": erasure,
        "reason": swept.reason if swept else _CANNOT_ERASE,
    }
